"""What a graph gives to functions and tools, and reads of their results, is checked where their modules are known."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_cli.project.validate import check_file, load_tools

MODULE = "contract_steps"
SOURCE = '''
import typing
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel
from typing_extensions import TypedDict

from loom_dsl.tools.context import ToolContext


class Cleaned(BaseModel):
    lines: int


@dataclass
class Counted:
    words: int


class Told(TypedDict):
    by: str


class Open(BaseModel, extra="allow"):
    known: int


class Payment(typing.TypedDict):
    amount: float


class Paid(typing.TypedDict, total=False):
    payments: list[Payment | None]
    last: typing.Required[Payment]


def pay() -> Paid: ...
def clean(text: str, context: ToolContext, *, deep: bool = False, mode: Literal["a", "b"] = "a") -> Cleaned: ...
async def count(n: int | None = None) -> Counted: ...
def tell() -> Told: ...
def loose(**more) -> dict: ...
def half(size: float) -> Open: ...
def look(path: str) -> str:
    """Look at it."""
    return path
def _own(): ...
'''
HEAD = "loom: 1\nkind: graph\nname: g\ninput: {t: str, n: int}\nnodes:\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop(MODULE, None)


def told(place: Path, nodes: str, *modules: str) -> list[str]:
    file = place / "g.yaml"
    file.write_text(HEAD + nodes)
    tools, problems = load_tools(modules)
    assert problems == []
    return [f"{found.line}:{found.column} {found.code} {found.message}" for found in check_file(file, tools, {})[1]]


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("{activity: 'contract_steps:cleen', with: {text: x}", "6:17 L150 the module 'contract_steps' has no function"),
        ("{activity: 'contract_steps:_own'", "6:17 L150"),
        ("{activity: 'other_steps:clean'", "6:17 L150 'other_steps:clean' is in a module that was not looked at"),
        ("{activity: 'contract_steps:clean'", "6:6 L152 `a` calls `contract_steps:clean` without `text` (string)"),
        (
            "{activity: 'contract_steps:clean', with: {text: x, dep: true}",
            "6:57 L152 `contract_steps:clean` takes no `d",
        ),
        ("{activity: 'contract_steps:clean', with: {text: 5}", "6:54 L152 `contract_steps:clean`: 'text': expected"),
        ("{activity: 'contract_steps:clean', with: {text: x, mode: c}", "6:63 L152"),
        (
            "{activity: 'contract_steps:clean', with: {text: '${len(input.t)}'}",
            "'text' expects string, and this is alw",
        ),
        ("{activity: 'contract_steps:clean', with: {text: x, context: 1}", "takes no `context`"),
        (
            "{activity: 'contract_steps:count', with: {n: 'no ${input.n}'}",
            "'n' expects integer or null, and this is alw",
        ),
        ("{tool: read_file, with: {pth: x}", "L152 `read_file` takes no `pth`"),
        ("{tool: red_file, with: {path: x}", "L150 there is no built-in tool 'red_file'"),
        ("{tool: 'contract_steps:lok', with: {path: x}", "L150 the module 'contract_steps' has no tool 'lok'"),
        (
            "{activity: 'contract_steps:loose', compensate: {activity: 'contract_steps:clean', with: {txt: x}}",
            "takes no `txt`",
        ),
    ],
)
def test_what_does_not_fit_a_function_or_a_tool_is_told_at_its_place(place: Path, node: str, said: str) -> None:
    found = told(place, f"  a: {node}, next: b}}\n  b: {{end: null}}\n", MODULE)
    assert any(said in line for line in found), found


@pytest.mark.parametrize(
    "node",
    [
        "{activity: 'contract_steps:clean', with: {text: '${input.t}', deep: true, mode: b}",
        "{activity: 'contract_steps:clean', with: {text: '${nodes}', mode: '${input.t}'}",
        "{activity: 'contract_steps:count', with: {n: null}",
        "{activity: 'contract_steps:count'",
        "{activity: 'contract_steps:loose', with: {any: 1, thing: [1]}",
        "{activity: 'contract_steps:half', with: {size: 1}",
        "{activity: 'contract_steps:half', with: {size: '${len(input.t)}'}",
        "{tool: read_file, with: {path: '${input.t}'}",
        "{tool: 'contract_steps:look', with: {path: a}",
        "{activity: deploy, with: {registered: elsewhere}",
    ],
)
def test_what_fits_is_not_complained_of(place: Path, node: str) -> None:
    assert told(place, f"  a: {node}, next: b}}\n  b: {{end: null}}\n", MODULE) == []


@pytest.mark.parametrize(
    ("function", "field", "fields"),
    [("clean", "line", "lines"), ("count", "n", "words"), ("tell", "whom", "by"), ("pay", "lst", "last")],
)
def test_a_field_that_a_functions_result_does_not_have_is_told(
    place: Path, function: str, field: str, fields: str
) -> None:
    node = f"  a: {{activity: '{MODULE}:{function}', with: {{{'text: x' if function == 'clean' else ''}}}, next: b}}\n"
    assert [line[:10] for line in told(place, f"{node}  b: {{end: '${{nodes.a.{field}}}'}}\n", MODULE)] == [
        "7:12 L126 "[:10]
    ]
    assert told(place, f"{node}  b: {{end: '${{nodes.a.{fields}}}'}}\n", MODULE) == []


def test_a_result_that_may_have_any_field_is_not_judged(place: Path) -> None:
    nodes = f"  a: {{activity: '{MODULE}:half', with: {{size: 1}}, next: b}}\n  b: {{end: '${{nodes.a.more}}'}}\n"
    assert told(place, nodes, MODULE) == []


def test_without_modules_only_what_loom_itself_has_is_known(place: Path) -> None:
    nodes = "  a: {activity: 'contract_steps:cleen', next: b}\n  b: {tool: red_file, next: c}\n  c: {end: null}\n"
    assert [line[:10] for line in told(place, nodes)] == ["7:13 L150 "]


def test_the_tools_of_a_graphs_own_agents_are_looked_at(place: Path) -> None:
    (place / "g.yaml").write_text(
        f"{HEAD}  a: {{agent: one, with: {{task: x}}, next: b}}\n  b: {{end: null}}\n"
        "agents:\n  one: {model: m, instructions: x, tools: [grepp, 'contract_steps:look', 'contract_steps:no']}\n"
    )
    tools, _ = load_tools([MODULE])
    found = check_file(place / "g.yaml", tools, {})[1]
    assert [(one.code, one.line) for one in found] == [("L150", 9), ("L150", 9)]
    assert "did you mean 'grep'?" in found[0].message


def test_types_inside_a_typed_dict_count_too(place: Path) -> None:
    nodes = "  a: {activity: 'contract_steps:pay', next: b}\n  b: {end: \"${nodes.a.last.amount + ' EUR'}\"}\n"
    (line,) = told(place, nodes, MODULE)
    assert "L123 `nodes.a.last.amount + ' EUR'` computes with a number and text" in line
    assert told(place, nodes.replace("' EUR'", "1"), MODULE) == []
