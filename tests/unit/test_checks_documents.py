"""What is wrong with one part of a document hides nothing in the others; agents are checked where they are written."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from loom_dsl.agent.definition import Agent
from loom_dsl.documents.document import load_yaml
from loom_dsl.errors import DocumentError, NotFoundError
from loom_dsl.graph.compiler import check_text, compile_graph
from loom_dsl.graph.plan import Plan
from tests.unit.test_checks import FIXTURES
from tests.unit.test_compile import mutations

HEAD = "loom: 1\nkind: graph\nname: g\n"


def told(text: str, **more: Any) -> list[tuple[str, int | None, int | None]]:
    return [(found.code, found.line, found.column) for found in check_text(HEAD + text, "g.yaml", **more)]


# -- several mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # a wrong node does not hide that another one leads nowhere
        (
            "nodes:\n  a: {activity: x, timout: 5s, next: b}\n  b: {next: c}\n  d: {end: null}\n",
            [("L002", 5, 20), ("L102", 6, 13), ("L104", 7, 3)],
        ),
        # nobody knows where a wrong node leads, so nothing is told of what it names
        ("nodes:\n  a: {activity: x, nxt: b}\n  b: {end: null}\n", [("L002", 5, 20)]),
        ("nodes:\n  a: {activity: x, next: {to: b}}\n  b: {end: null}\n", [("L002", 5, 27)]),
        # nor of a cycle through it
        ("nodes:\n  a: {activity: x, max_visits: no, next: b}\n  b: {activity: x, next: a}\n", [("L004", 5, 32)]),
        # what is wrong above the nodes does not hide them
        (
            "version: [1]\nnodes:\n  a: {next: b}\n  c: {end: null}\n",
            [("L004", 4, 10), ("L102", 6, 13), ("L104", 7, 3)],
        ),
        # a graph inside that cannot be read is there all the same
        (
            "nodes:\n  a: {graph: one, next: b}\n  b: {graph: two, next: c}\n  d: {end: null}\n"
            "graphs:\n  one: {start: x, nodes: 5}\n",
            [("L102", 6, 14), ("L102", 6, 25), ("L104", 7, 3), ("L004", 9, 26)],
        ),
        (
            "nodes:\n  a: {graph: one, next: b}\n  b: {end: null}\n"
            "graphs:\n  one: {nodes: {x: {nxt: y}, z: {next: q}}}\n",
            [("L002", 8, 21), ("L104", 8, 30), ("L102", 8, 40)],
        ),
        ("start: [a]\nnodes:\n  a: {next: b}\n  b: {end: 1, foo: 2}\n", [("L004", 4, 8), ("L002", 7, 15)]),
    ],
)
def test_a_mistake_in_one_part_hides_none_in_another(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert told(text) == expected


def test_what_is_told_of_a_broken_document_is_true_of_the_mended_one() -> None:
    """Every mistake of structure that is told beside a mistake of the schema is there without it, too."""
    source = random.Random(3)
    names = ["a", "b", "c", "d", "e"]
    compared = 0
    for _ in range(150):
        nodes: dict[str, Any] = {
            name: source.choice(
                [{"end": None}, {"next": source.choice([*names, "z"])}, {"next": source.sample(names, 2)}, {}]
            )
            for name in names
        }
        broken = source.choice(names)
        texts = [
            json.dumps({"loom": 1, "kind": "graph", "name": "g", "nodes": given})
            for given in (nodes, {**nodes, broken: {**nodes[broken], "wrong": 1}})
        ]
        whole, partly = ([(f.code, f.message) for f in check_text(text, "g.yaml")] for text in texts)
        extra = [item for item in partly if item not in whole and item[0] not in ("L002", "L106", "L107", "L108")]
        assert extra == [], nodes
        compared += len(partly) > 1
    assert compared > 50


@pytest.mark.parametrize("fixture", sorted(FIXTURES.glob("*.yaml")), ids=lambda path: path.stem)
def test_nothing_is_told_beside_a_mistake_that_is_not_told_without_it(fixture: Path) -> None:
    whole = load_yaml(fixture.read_text(), "g.yaml").data
    known = {(found.code, found.message) for found in check_text(json.dumps(whole), "g.yaml")}
    broken = [{**whole, "wrong": 1}]
    for wrong in ({"wrong": 1}, {"only_while": "not an expression"}, {"max_visits": "many"}):
        for key, node in whole["nodes"].items():
            broken.append({**whole, "nodes": {**whole["nodes"], key: {**node, **wrong}}})
    for group in ("input", "state"):
        broken.append({**whole, group: 5})
        broken += [{**whole, group: {**whole[group], name: {"type": "string"}}} for name in whole.get(group, {})]
    for document in broken:
        told = {(found.code, found.message) for found in check_text(json.dumps(document), "g.yaml")}
        new = {item for item in told - known if item[0] not in ("L002", "L004", "L130", "L106", "L107", "L108")}
        assert new == set(), document


def test_a_wrong_value_hides_nothing_that_does_not_hang_on_it() -> None:
    text = (
        "input: {x: string}\nstate: {s: list}\nagents: {r: {model: m, instructions: x}}\nnodes:\n"
        "  one: {activity: a, timeout: soon, next: [{if: approved please, to: ask}, {to: ask}]}\n"
        "  ask: {approval: Go?, next: [{if: result.chioce == 'x', to: two}, {to: done}]}\n"
        "  two: {agent: rr, with: {task: '${inputt.x}'}, next: three}\n"
        "  three: {event: e, max_visits: no, next: done}\n"
        "  four: {set: {t: 1}, next: done}\n"
        "  done: {end: '${input.x} ${input.w}'}\n"
    )
    assert told(text) == [
        ("L004", 4, 12),
        ("L004", 8, 31),
        ("L130", 8, 49),
        ("L140", 9, 3),
        ("L126", 9, 36),
        ("L150", 10, 16),
        ("L130", 10, 36),
        ("L004", 11, 33),
        ("L104", 12, 3),
        ("L121", 12, 16),
        ("L121", 13, 15),
    ]


# -- secrets and expressions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${secret:KEY}", []),
        ("Bearer ${secret:KEY}", [("L125", 7, 38)]),
        ("${secret:KEY + 1}", [("L125", 7, 30)]),
        ("${nope}", [("L130", 7, 33)]),
        ("plain", []),
    ],
)
def test_a_secret_is_a_whole_value(value: str, expected: list[tuple[str, int, int]]) -> None:
    text = f"    activity: x\n    with: {{b: [1, 2], c: {{d: '{value}'}}}}\n    next: e\n  e: {{end: null}}\n"
    assert told(f"nodes:\n  a:\n{text}") == expected


def test_a_secret_is_not_shown_to_people_models_or_observers() -> None:
    secret = "${secret:KEY}"
    nodes = {
        "a": {"approval": {"request": {"summary": secret}}, "deadline": "never", "next": "b"},
        "b": {"llm": {"model": "m", "prompt": secret}, "write": {"x": secret}, "next": "c"},
        "c": {"activity": "x", "with": {"key": secret}, "emit": {"progress": {"key": secret}}, "next": "d"},
        "d": {"fail": {"message": secret}},
    }
    head = {"loom": 1, "kind": "graph", "name": "g", "state": {"x": "any"}}
    found = check_text(json.dumps({**head, "nodes": nodes}), "g.yaml")
    assert [f.code for f in found if f.code != "L124"] == ["L125"] * 5


# -- recursion -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inner", "ends"),
    [
        ("a: {graph: one, next: b}, b: {end: 1}", False),
        ("a: {graph: two, next: b}, b: {end: 1}", False),
        ("a: {next: [{if: run.aborted, to: b}, {to: c}]}, c: {graph: two, next: b}, b: {end: 1}", True),
        ("a: {graph: two, catch: {any: b}, next: b}, b: {end: 1}", True),
        ("a: {map: {over: input.l, do: two}, next: b}, b: {end: 1}", True),
        ("a: {loop: {do: two, until: run.aborted, max: 3}, next: b}, b: {end: 1}", False),
        ("a: {loop: {do: two, while: run.aborted, max: 3}, next: b}, b: {end: 1}", True),
    ],
)
def test_a_recursion_has_a_way_to_its_end(inner: str, ends: bool) -> None:
    text = (
        "input: {l: list}\nnodes: {s: {graph: one, next: e}, e: {end: 1}}\n"
        f"graphs:\n  one: {{nodes: {{{inner}}}}}\n  two: {{nodes: {{x: {{graph: one, next: y}}, y: {{end: 1}}}}}}\n"
    )
    codes = {code for code, _, _ in told(text)} - {"L124"}
    assert codes == (set() if ends else {"L116"})


# -- agents ----------------------------------------------------------------------------------------------------

NODES = "nodes:\n  a: {agent: reviewer, with: {task: x}, next: b}\n  b: {end: null}\n"
FILE = "loom: 1\nkind: agent\nname: reviewer\nmodel: m\ninstructions: Review.\n"


def reading(files: Mapping[str, str]) -> Any:
    def read_file(name: str) -> str:
        if name not in files:
            raise FileNotFoundError(2, "No such file or directory")
        return files[name]

    return read_file


def plan_of(text: str, **more: Any) -> Plan:
    return compile_graph(HEAD + text, "dir/g.yaml", **more)


def test_an_agents_file_and_the_same_fields_in_the_graph_give_the_same_plan() -> None:
    inline = plan_of(NODES + "agents:\n  reviewer: {model: m, instructions: Review.}\n")
    filed = plan_of(NODES + "agents:\n  reviewer: {file: r.yaml}\n", read_file=reading({"r.yaml": FILE}))
    agent = Agent(name="reviewer", model="m", instructions="Review.").to_plan_data()
    assert inline.agents == filed.agents == {"reviewer": agent}
    assert inline.hash == filed.hash
    assert plan_of(NODES + "agents:\n  reviewer: {model: n, instructions: Review.}\n").hash != inline.hash
    assert Plan.load(inline.text).agents == inline.agents


def test_a_graph_with_agents_carries_the_graphs_of_their_turns() -> None:
    plan = plan_of(NODES + "agents:\n  reviewer: {model: m}\n")
    assert {"loom.tt", "loom.tool_call"} <= set(plan.graphs)
    assert plan.child("reviewer").root == "loom.tt"


def test_an_agents_variables_come_from_the_environment() -> None:
    text = NODES + "agents:\n  reviewer: {model: '${env:MODEL}'}\n"
    assert plan_of(text, env={"MODEL": "m"}).agents["reviewer"]["model"] == "m"
    assert told(text) == [("L008", 8, 21)]


@pytest.mark.parametrize(
    ("entry", "files", "place"),
    [
        ("{model: m, tols: [glob]}", {}, "dir/g.yaml:8:24: L002"),
        ("{instructions: x}", {}, "dir/g.yaml:8:13: L003"),
        ("{file: r.yaml}", {}, "dir/g.yaml:8:20: L010 the file r.yaml of the agent `reviewer` cannot be read: No such"),
        ("{file: r.yaml, model: m}", {}, "dir/g.yaml:8:35: L002 the agent `reviewer` is in a file, so `model`"),
        ("{file: 5}", {}, "dir/g.yaml:8:20: L004"),
        ("{file: r.yaml}", {"r.yaml": FILE + "tols: []\n"}, "dir/r.yaml:6:1: L002"),
        ("{file: r.yaml}", {"r.yaml": "x"}, "dir/r.yaml:1:1: L001"),
        ("5", {}, "dir/g.yaml:8:13: L004"),
    ],
)
def test_a_mistake_in_an_agent_is_told_with_its_file_and_line(entry: str, files: dict[str, str], place: str) -> None:
    with pytest.raises(DocumentError) as caught:
        plan_of(NODES + f"agents:\n  reviewer: {entry}\n", read_file=reading(files))
    assert [str(found) for found in caught.value.diagnostics if str(found).startswith(place)], caught.value.message


def test_files_are_read_only_by_a_caller_who_says_how() -> None:
    assert told(NODES + "agents:\n  reviewer: {file: r.yaml}\n") == [("L010", 8, 20)]

    def refuse(name: str) -> str:
        raise NotFoundError("it lies outside the project")

    found = check_text(HEAD + NODES + "agents:\n  reviewer: {file: /etc/passwd}\n", "g.yaml", read_file=refuse)
    assert "it lies outside the project" in str(found[0])


# -- names that the caller knows ---------------------------------------------------------------------------------


def test_tools_models_and_activities_are_asked_of_the_caller() -> None:
    text = (
        "nodes:\n  a: {tool: glob, next: b}\n  b: {llm: {model: m, prompt: x}, next: c}\n"
        "  c: {activity: 'my:fun', compensate: {activity: 'my:undo'}, next: d}\n  d: {end: '${nodes.b.text}'}\n"
    )
    asked = []

    def resolve(what: str, name: str) -> str | None:
        asked.append((what, name))
        return f"there is no {what} {name}" if name == "my:undo" else None

    assert told(text, resolve=resolve) == [("L150", 7, 50)]
    assert asked == [("tool", "glob"), ("model", "m"), ("activity", "my:fun"), ("activity", "my:undo")]


# -- what a plan holds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "used"),
    [
        ("a: {graph: loom.tool_call, next: b}", ["loom.tool_call"]),
        ("a: {loop: {do: loom.tool_call, until: result, max: 2}, next: b}", ["loom.tool_call"]),
        ("a: {graph: g, next: [{if: run.aborted, to: b}, {to: b}]}, c: {end: null}", []),
        ("a: {timer: 1s, next: b}", []),
    ],
)
def test_a_plan_has_the_shipped_graphs_that_it_runs_and_no_others(nodes: str, used: list[str]) -> None:
    text = f"nodes: {{s: {{next: [{{if: run.aborted, to: b}}, {{to: a}}]}}, {nodes}, b: {{end: null}}}}\n"
    text = text.replace(", c: {end: null}", "")
    assert sorted(plan_of(text).graphs) == ["g", *used]


def test_a_graph_inside_comes_before_a_shipped_one_of_the_same_name_as_the_document() -> None:
    text = "nodes: {a: {graph: g, next: b}, b: {end: null}}\ngraphs:\n  g: {nodes: {x: {end: 1}}}\n"
    assert told(text) == []
    assert plan_of(text).find("g", "g") == "g/g"


@pytest.mark.parametrize("file", sorted(FIXTURES.glob("*-ok.yaml")), ids=lambda file: file.stem)
def test_a_graph_with_random_mistakes_is_refused_with_places_or_runs(file: Path) -> None:
    for changed in mutations(file.read_text(encoding="utf-8"), 12):
        assert all(found.line is not None for found in check_text(changed, "g.yaml")), changed


# -- what is written in another way than it is meant --------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "column", "said"),
    [
        ("x: string", 12, "`input.x`: should be 'any', 'str', 'int', 'float', 'bool', 'list' or 'dict', not 'string'"),
        ("x: string", 12, "(write `str`)"),
        ("x: Object", 12, "(write `dict`)"),
        ("x: {type: integer}", 19, "(write `int`)"),
        ("x: strr", 12, "(did you mean `str`?)"),
        ("x: [str]", 12, "`input.x`: should be a mapping, not a list"),
    ],
)
def test_a_type_by_another_name_is_told_at_its_field_with_the_name_here(field: str, column: int, said: str) -> None:
    found = check_text(f'{HEAD}input: {{{field}}}\nnodes:\n  a: {{end: "${{input}}"}}\n', "g.yaml")
    assert [(one.code, one.line, one.column) for one in found] == [("L004", 4, column)]
    assert said in str(found[0])


@pytest.mark.parametrize(
    ("node", "code", "column", "said"),
    [
        ("{graph: {do: part, child: true}, next: z}", "L004", 14, "write `graph: part, child: true`"),
        ("{graph: {nodes: {}}, next: z}", "L004", 14, "write `graph: NAME`"),
        ("{tool: glob, retry: {attempts: 5}, next: z}", "L002", 19, "`retry` does not go with `tool` (it goes with"),
        ("{timeout: 5m, next: z}", "L002", 7, "`timeout` does not go with a node that only chooses the way"),
        ("{approval: {ask: x, deadline: 4h}, next: z}", "L002", 26, "write it beside `approval`, not in it"),
        ("{approval: x, deadline: 4h, next: z}", "L004", 30, "write `{after: 4h, to: NODE}`, or `never`"),
        ("{type: Task, next: z}", "L002", 7, "a node's kind is the key that it has: `activity: MODULE:FUNCTION`"),
        ("{activity: a.b, args: {x: 1}, next: z}", "L002", 22, "(write `with`)"),
        ("{activity: a.b, nxt: z}", "L002", 22, "did you mean `next`?"),
        ("{activity: a.b, depends_on: [z], next: z}", "L002", 22, "give the node before this one `next: …`"),
        ("{map: {over: '[1]', do: p, concurrency: 5}, next: z}", "L002", 33, "(write `window`)"),
        ("{timer: {until: tomorrow}, next: z}", "L004", 14, "'tomorrow' is no time"),
        ("{activity: a.b, timeout: 0s, next: z}", "L004", 31, "give a duration, such as 30s"),
        ("{next: {times: 0, to: z}}", "L004", 21, "should be a whole number from 1"),
        ("{join: {need: 0}, next: z}", "L004", 20, "should be a whole number from 1"),
        ("{race: [z], next: z}", "L004", 13, "should have at least 2 members"),
        ("{end: 1, typ: Task}", "L002", 15, "unknown field `typ`"),
        ("{wait: 5m, next: z}", "L002", 7, "write `timer: 5m`"),
        ("{foreach: x, next: z}", "L002", 7, "write `map: {over: EXPRESSION, do: GRAPH}`"),
        ("{parallel: [z], next: z}", "L002", 7, "write `next: [a, b]`, and let them meet in a node with `join: all`"),
        ("{interrupt: x, next: z}", "L002", 7, "write `approval: TEXT`"),
        ("{switch: x, next: z}", "L002", 7, "write `next: [{if: CONDITION, to: a}, {to: b}]`"),
        ("{next: {first: [{to: z}], else: z}}", "L002", 32, "write a list of edges"),
        ("{next: [{if: run.aborted, to: z, else: z}, {to: z}]}", "L002", 39, "write `{to: NODE}` as the last edge"),
        ("{event: paid, timeout: 3d, next: z}", "L002", 20, "write `deadline: {after: 4h, to: NODE}`"),
        ("{approval: {ask: x, timeout: 3d}, next: z}", "L002", 26, "to: NODE}` beside `approval`"),
        ("{approval: {ask: x, options: [y]}, next: z}", "L002", 26, "write `choices`"),
        ("{fail: {message: x, error: y}}", "L002", 26, "write `code`"),
        ("{map: {over: '[1]', do: p, items: x}, next: z}", "L002", 33, "write `over`"),
        ("{agent: {model: m}, with: {task: x}, next: z}", "L004", 14, "write `agent: NAME`"),
        ("{graph: parts/p.yaml, next: z}", "L102", 14, "`graphs: {p: {file: parts/p.yaml}}`, and run `p`"),
        ("{next: [{if: true, to: z}, {to: z}]}", "L004", 19, "an edge that is always taken has no `if`"),
        ("{activity: a.b, compensate: a.c, next: z}", "L004", 34, "write `{activity: a.c, with: {…}}`"),
    ],
)
def test_what_stands_in_the_wrong_place_is_told_with_its_right_one(
    node: str, code: str, column: int, said: str
) -> None:
    found = check_text(f"{HEAD}nodes:\n  a: {node}\n  z: {{end: 1}}\n", "g.yaml")
    assert [(one.code, one.line, one.column) for one in found if "`z`" not in one.message] == [(code, 5, column)]
    assert said in str(found[0])


@pytest.mark.parametrize(
    ("end", "said"), [("END", "did you mean `z`?"), ("__end__", "did you mean `z`?"), ("enf", "the nodes are a, z")]
)
def test_an_end_of_another_language_means_an_end_of_the_graph(end: str, said: str) -> None:
    found = check_text(f"{HEAD}nodes:\n  a: {{next: [z, {end}]}}\n  z: {{end: 1}}\n", "g.yaml")
    assert [(one.code, one.fix) for one in found] == [("L102", said)]
    (alone,) = check_text(f"{HEAD}nodes:\n  a: {{next: END}}\n", "g.yaml")
    assert alone.fix == "an end is a node, too: add `done: {end: null}`, and go to `done`"


@pytest.mark.parametrize("names", ["index, item", "item, event", "turn, limits"])
def test_names_that_a_list_binds_hide_those_of_the_language(names: str) -> None:
    first, second = names.split(", ")
    text = f'input: {{x: dict}}\nnodes:\n  a: {{end: "${{[[{first}, {second}] for {names} in items(input.x)]}}"}}\n'
    assert told(text) == []
    assert {code for code, _, _ in told(text.replace(f"for {names}", "for k, v"))} == {"L121"}


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("nodes:\n  a b: {end: 1}\n", (5, 3), "the name 'a b' is not as it must be (write letters, digits and _,"),
        ("nodes:\n  \u0430: {end: 1}\n", (5, 3), "which is CYRILLIC SMALL LETTER A"),
        ("input: {a b: str}\nnodes:\n  a: {end: 1}\n", (4, 9), "the name 'a b' is not as it must be"),
        (
            "nodes:\n  a: {activity: x, next: \u0430b}\n  ab: {end: 1}\n",
            (5, 26),
            "the name has '\u0430', which is CYRILLIC",
        ),
        (
            "nodes:\n  a: {set: {x: '${1 / 0}'}, next: b}\n  b: {end: 1}\n",
            (5, 19),
            "fails whenever it is looked at: div",
        ),
        (
            "nodes:\n  a: {end: '${len([x for x in range(1000000000)])}'}\n",
            (5, 15),
            "fails whenever it is looked at: the expression does too much work",
        ),
        (f"nodes:\n  a: {{end: '${{{'(' * 300}1{')' * 300}}}'}}\n", (5, 215), "too many nested parentheses"),
        ("nodes:\n  a: {end: '${input.__class__}'}\n", (5, 15), "`__class__` is not a key that an expression may read"),
    ],
)
def test_a_strange_name_or_expression_is_told_in_a_line_at_its_place(
    text: str, place: tuple[int, int], said: str
) -> None:
    found = [one for one in check_text(HEAD + text, "g.yaml") if said in str(one)]
    assert [(one.line, one.column) for one in found] == [place]
    assert len(str(found[0])) < 400
