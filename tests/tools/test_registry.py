"""Finding tools: Loom's own, and those of the modules that a worker lists."""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from loom_dsl.errors import ConfigurationError, ConflictError, ToolDeclarationError, UnknownToolError
from loom_tools.builtin import BUILTIN_TOOLS
from loom_tools.registry import ToolRegistry

MODULE = '''
from os import getcwd, system
from json import dumps
from loom_dsl.tools.tool import tool

def lookup(word: str) -> str:
    """Look a word up."""
    return word.upper()

@tool(read_only=True, name="weigh-it")
async def weigh(grams: int) -> int:
    return grams

def read_file(path: str) -> str:
    return path

def no_types(x):
    return x

def _private(x: int) -> int:
    return x

CONSTANT = 3
'''


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    before = set(sys.modules)
    sys.path.insert(0, str(tmp_path))
    yield tmp_path
    sys.path.remove(str(tmp_path))
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def registry(place: Path) -> ToolRegistry:
    (place / "own_tools_a.py").write_text(MODULE)
    return ToolRegistry.load(modules=["own_tools_a"])


def test_the_builtin_tools_are_those_of_this_release() -> None:
    names = [made.name for made in BUILTIN_TOOLS]
    files = {"read_file", "write_file", "edit_file", "delete_file", "glob", "grep", "file_search"}
    assert {*files, "calculator", "todo", "network_request", "read_output"} <= set(names)
    quick = {made.name for made in BUILTIN_TOOLS if made.quick}
    assert quick == {"read_file", "glob", "file_search", "calculator", "todo", "read_output"}
    safe = {made.name for made in BUILTIN_TOOLS if made.concurrency_safe}
    assert safe == {"read_file", "glob", "grep", "file_search", "calculator", "read_output"}
    asks = {made.name for made in BUILTIN_TOOLS if not made.read_only}
    assert {"write_file", "edit_file", "delete_file", "network_request", "execute_bash", "python_repl"} <= asks
    assert all(made.description and made.summarise for made in BUILTIN_TOOLS)
    for made in BUILTIN_TOOLS:
        assert all("description" in member for member in made.parameters["properties"].values()), made.name


def test_references_are_resolved(registry: ToolRegistry) -> None:
    assert registry.resolve("read_file").read_only
    lookup = registry.resolve("own_tools_a:lookup")
    assert lookup(word="a") == "A"
    assert lookup is registry.resolve("own_tools_a:lookup")
    assert registry.spec(lookup) == {
        "type": "function",
        "function": {"name": "lookup", "description": "Look a word up.", "parameters": lookup.parameters},
    }
    assert registry.is_builtin("read_file")
    assert not registry.is_builtin("own_tools_a:read_file")


def test_a_tool_is_called_by_the_last_part_of_its_reference(registry: ToolRegistry) -> None:
    assert registry.resolve("own_tools_a:weigh").name == "weigh"
    assert registry.resolve("own_tools_a:weigh-it").name == "weigh-it"


def test_the_list_holds_what_can_be_used(registry: ToolRegistry) -> None:
    own = [reference for reference in registry.references() if ":" in reference]
    assert own == ["own_tools_a:lookup", "own_tools_a:read_file", "own_tools_a:weigh"]


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("read_fil", r"no built-in tool 'read_fil'; did you mean 'own_tools_a:read_file' or 'read_file'"),
        ("lookup", r"did you mean 'own_tools_a:lookup'"),
        ("own_tools_a:lokup", r"'own_tools_a' has no tool 'lokup'; did you mean 'own_tools_a:lookup'"),
        ("zzz", r"there are: calculator, delete_file, edit_file"),
        ("os:system", r"does not list the module 'os' .it lists: own_tools_a.*'os' is one of Python's own modules"),
        ("own_tools_a:system", "has no tool 'system'"),
        ("own_tools_a:getcwd", "has no tool 'getcwd'"),
        ("own_tools_a:dumps", "has no tool 'dumps'"),
        ("own_tools_a:_private", "has no tool '_private'"),
        ("own_tools_a:CONSTANT", "has no tool 'CONSTANT'"),
        ("own_tools_a:__builtins__", "has no tool"),
        (":lookup", "does not list the module ''"),
        ("", "no built-in tool ''"),
    ],
)
def test_what_cannot_be_found_is_told_with_what_is_near(registry: ToolRegistry, reference: str, words: str) -> None:
    with pytest.raises(UnknownToolError, match=words):
        registry.resolve(reference)


def test_a_function_without_types_fails_only_when_it_is_asked_for(registry: ToolRegistry) -> None:
    with pytest.raises(ToolDeclarationError, match=r"no_types.*own_tools_a\.py:\d+.*'x' has no annotation"):
        registry.resolve("own_tools_a:no_types")


def test_two_tools_of_one_name_are_both_named(registry: ToolRegistry) -> None:
    assert list(registry.resolve_all(["glob", "own_tools_a:lookup"])) == ["glob", "lookup"]
    with pytest.raises(ConflictError, match="'read_file' and 'own_tools_a:read_file' are both called 'read_file'"):
        registry.resolve_all(["read_file", "own_tools_a:read_file"])


def test_without_builtins_there_are_none() -> None:
    registry = ToolRegistry.load(builtins=False)
    with pytest.raises(UnknownToolError, match="there are: none"):
        registry.resolve("read_file")


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("absent_tools_b", None, "--tools absent_tools_b: there is no module 'absent_tools_b'"),
        ("absent_tools_b.sub", None, "there is no module 'absent_tools_b'"),
        ("my_tools.py", None, "there is no module 'my_tools'.*write it as in an import: --tools my_tools$"),
        ("my-tools", None, "not a module's name"),
        ("../tools", None, "not a module's name"),
        ("tools_c", "import numpy_is_not_here", r"it imports 'numpy_is_not_here', which is not installed .*line 1"),
        ("tools_d", "x = 1\ndef broken(:\n", r"SyntaxError: .*line 2.*tools_d\.py"),
        ("tools_e", "x = 1\n\n1 / 0\n", r"ZeroDivisionError: division by zero .*tools_e\.py, line 3"),
        ("tools_f", "raise SystemExit(3)", "SystemExit: 3"),
        ("tools_g", "from loom_dsl.tools.tool import tool\n@tool\ndef f(x): ...\n", "'x' has no annotation"),
    ],
)
def test_a_module_that_cannot_be_loaded_is_named_with_the_reason(
    place: Path, name: str, source: str | None, words: str
) -> None:
    if source is not None:
        (place / f"{name}.py").write_text(dedent(source))
    with pytest.raises(ConfigurationError, match=words):
        ToolRegistry.load(modules=[name])
