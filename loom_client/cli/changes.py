"""A worker keeps the tools that it has loaded: saying so when their files change."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from loom_client.cli.failures import say

LOOK_SECONDS = 1.0


async def tell_of_changes(modules: Sequence[str]) -> None:
    """Say once for each change that a file of these modules is newer than what runs; until cancelled."""
    seen: dict[Path, int] = {}
    while modules:
        for file in _files(modules):
            try:
                now = file.stat().st_mtime_ns
            except OSError:  # an editor puts a new file in its place
                continue
            if seen.setdefault(file, now) != now:
                seen[file] = now
                say(
                    f"{file} has changed; this worker goes on with what it has loaded: start it again to use the change"
                )
        await asyncio.sleep(LOOK_SECONDS)


def _files(modules: Sequence[str]) -> Iterator[Path]:
    for name, module in list(sys.modules.items()):
        own = any(name == listed or name.startswith(f"{listed}.") for listed in modules)
        if own and (file := getattr(module, "__file__", None)):
            yield Path(file)
