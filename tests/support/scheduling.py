"""Which tests go together to one process of a run, and which come first."""

import pytest
from xdist.scheduler import LoadFileScheduling

FIRST = ("docs", "durability", "failures", "cli", "server")
"""Folders whose tests wait for servers and processes; those of a moment fill the end of a run."""
ALONE = (
    "tests/docs/test_pages.py::",
    "tests/durability/",
    *(f"tests/cli/test_{name}.py::" for name in ("demo", "project", "serving", "stores", "simulate")),
    "tests/failures/test_steps_that_kill.py::",
    "tests/server/",
)
"""Where tests share nothing, and each takes long."""


def put_first(items: list[pytest.Item]) -> None:
    """Bring tests into the order in which they begin."""
    places = {folder: place for place, folder in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path.parent.name, len(places)))


class Modules(LoadFileScheduling):
    """Hands out whole modules, whose tests share what they start; tests that share nothing one by one."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(ALONE) else super()._split_scope(nodeid)
