"""What is said of a module that a worker was not told to load."""

import pytest

from loom_dsl.errors import MissingTools
from loom_dsl.tools.tool import is_of_python
from loom_tools.registry import ToolRegistry


@pytest.mark.parametrize("reference", ["os:system", "subprocess:run", "os.path:join", "builtins:eval"])
def test_nobody_is_told_to_offer_pythons_own_functions(reference: str) -> None:
    registry = ToolRegistry.load()
    for find in (registry.resolve, registry.function):
        with pytest.raises(MissingTools, match="is one of Python's own modules, which offer no tools") as raised:
            find(reference)
        assert "--tools" not in str(raised.value)


def test_a_module_of_the_users_is_to_be_listed() -> None:
    with pytest.raises(MissingTools, match="start it with --tools my_tools"):
        ToolRegistry.load().resolve("my_tools:order")
    assert not is_of_python("my_tools")
