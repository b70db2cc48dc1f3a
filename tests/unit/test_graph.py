"""A graph has one normal form, whatever the way in which it was written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from loom_dsl.graph.edges import Next
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.library import NAMES, shipped
from loom_dsl.graph.nodes import Activity

IDS = st.sampled_from(["a", "b", "c", "d"])
CONDITIONS = st.sampled_from(["result.ok", "input.n > 3", "has(nodes, 'a')"])
EDGES = st.fixed_dictionaries({"to": IDS}, optional={"if": CONDITIONS})
WAYS = st.one_of(
    IDS,
    st.lists(IDS, min_size=1, max_size=3),
    st.lists(EDGES, min_size=1, max_size=3),
    st.fixed_dictionaries({"first": st.lists(EDGES, max_size=2)}),
    st.fixed_dictionaries({"all": st.lists(IDS, min_size=1, max_size=2)}),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "text", "${input.n}", "n=${input.n}"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["k", "l"]), inner, max_size=2),
    max_leaves=4,
)
DURATIONS = st.sampled_from(["5s", "1h30m", 7, 2.5])
SHARED = {
    "next": WAYS,
    "phase": st.sampled_from(["model", "tools"]),
    "state": st.sampled_from(["preparing", "failed"]),
    "max_visits": st.integers(1, 9),
    "exhausted": IDS,
    "deadline": st.fixed_dictionaries({"after": st.sampled_from(["never", "5m", 3.5, "${input.n}"]), "to": IDS}),
    "catch": st.dictionaries(st.sampled_from(["any", "timeout"]), IDS, max_size=2),
    "emit": st.dictionaries(st.sampled_from(["progress"]), st.dictionaries(st.just("k"), VALUES, max_size=1)),
    "write": st.dictionaries(st.sampled_from(["entries", "usage"]), VALUES, max_size=2),
    "doc": st.text(max_size=5),
}
ACTIVITIES = st.fixed_dictionaries(
    {"activity": st.sampled_from(["a.b", "c"])},
    optional={
        **SHARED,
        "with": st.dictionaries(st.just("k"), VALUES, max_size=1),
        "carrier": st.sampled_from(["local", "remote", "${input.where}"]),
        "timeout": DURATIONS | st.just("${item.timeout}"),
        "heartbeat": DURATIONS,
        "retry": st.fixed_dictionaries({}, optional={"attempts": st.integers(1, 9), "initial": DURATIONS}),
        "inbox": st.just("take"),
    },
)
MAPS = st.fixed_dictionaries(
    {"map": st.fixed_dictionaries({"over": st.just("input.list"), "do": st.just("sub")}, optional={
        "window": st.integers(1, 1000),
        "barrier": st.fixed_dictionaries({"at": IDS}, optional={"limit": st.just(3) | st.just("${limits.n}"),
                                                               "exclusive": CONDITIONS, "key": st.just("item.key")}),
    })},
    optional=SHARED,
)  # fmt: skip
OTHERS = st.one_of(
    st.fixed_dictionaries({}, optional=SHARED),
    st.fixed_dictionaries(
        {"approval": st.fixed_dictionaries({"request": VALUES}, optional={"choices": st.just(["yes", "no"])})},
        optional=SHARED,
    ),
    st.fixed_dictionaries({"end": VALUES}),
    st.fixed_dictionaries(
        {
            "fail": st.just("no")
            | st.fixed_dictionaries({}, optional={"code": st.sampled_from(["no", "x.y", "${input.c}"])})
        }
    ),
    st.fixed_dictionaries({"recurse": st.fixed_dictionaries({}, optional={"policy": st.just("history")})}),
)
DOCUMENTS = st.fixed_dictionaries(
    {
        "loom": st.just(1),
        "kind": st.just("graph"),
        "name": st.sampled_from(["g", "my.graph-2"]),
        "start": IDS,
        "nodes": st.dictionaries(IDS, ACTIVITIES | MAPS | OTHERS, min_size=1, max_size=4),
    },
    optional={"doc": st.text(max_size=5), "on_abort": IDS},
)


@given(DOCUMENTS)
def test_what_is_dumped_is_read_as_the_same_and_dumped_the_same(document: dict[str, Any]) -> None:
    first = Graph.model_validate(document)
    again = Graph.model_validate(first.dump())
    assert again == first
    assert again.dump() == first.dump()


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("done", {"first": [{"to": "done"}]}),
        (["a", "b"], {"all": ["a", "b"]}),
        ([{"if": "true", "to": "a"}, {"to": "b"}], {"first": [{"if": "true", "to": "a"}, {"to": "b"}]}),
        ([], {}),
    ],
)
def test_a_short_form_is_the_same_as_its_long_form(short: Any, long: Any) -> None:
    assert Next.model_validate(short) == Next.model_validate(long)


def test_a_node_is_of_the_kind_of_its_key() -> None:
    nodes = {"a": {"activity": "x", "next": "b"}, "b": {"next": "c"}, "c": {"end": None}}
    graph = Graph.model_validate({"name": "g", "start": "a", "nodes": nodes})
    assert [type(node).__name__ for node in graph.nodes.values()] == ["Activity", "Branch", "End"]
    assert Graph.model_validate(graph.dump()).nodes["c"].kind == "end"


def test_the_targets_of_a_node_are_those_of_every_edge() -> None:
    node = Activity.model_validate(
        {
            "activity": "x",
            "next": [{"if": "true", "to": "a"}, {"to": "b"}],
            "catch": {"any": "c"},
            "max_visits": 1,
            "exhausted": "d",
            "deadline": {"after": "5m", "to": "e"},
        }
    )
    assert sorted(node.targets()) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"activity": "x", "end": 1}, "this one is `activity` and `end`"),
        ({"activity": "x", "map": {"over": "input", "do": "g"}, "fail": "x"}, "`activity` and `map` and `fail`"),
        ({"next": {"first": [{"to": "a"}], "all": ["b"]}}, "give one of the three"),
        ({"next": [{"if": "1 +", "to": "a"}]}, "is not an expression"),
        ({"next": [{"if": "resul.ok", "to": "a"}]}, "unknown name `resul`"),
        ({"activity": "x", "with": {"a": "${nope}"}}, "unknown name `nope`"),
        ({"activity": "x", "timeout": "soon"}, "is not a duration"),
        ({"activity": "x", "timeout": "11y"}, "is not a duration"),
        ({"activity": "x", "retry": {"attempts": 0}}, "greater than or equal to 1"),
        ({"map": {"over": "input", "do": "g", "window": 1001}}, "a window has at most 1,000 items"),
        ({"map": {"over": "input +", "do": "g"}}, "is not an expression"),
        ({"map": {"over": "input", "do": "g", "barrier": {"at": "x", "key": "item."}}}, "is not an expression"),
        ({"approval": {"request": "${"}}, "is not closed"),
        ({"max_visits": 0}, "greater than or equal to 1"),
        ({"state": "resting"}, "Input should be"),
        ({"activty": "x"}, "Extra inputs are not permitted"),
    ],
)
def test_a_wrong_node_is_refused(node: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Graph.model_validate({"name": "g", "start": "a", "nodes": {"a": node}})
    assert message in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_graph_is_its_own_dump(name: str) -> None:
    assert Graph.model_validate(shipped(name).dump()) == shipped(name)


def test_a_detached_map_has_no_deadline_because_it_is_done_at_once() -> None:
    item = {"nodes": {"z": {"end": None}}}
    node = {"map": {"over": "[1]", "do": "item", "detach": True}, "next": "z"}
    late = {"deadline": {"after": "1m", "to": "z"}}
    head = {"name": "g", "graphs": {"item": item}}
    with pytest.raises(ValidationError, match="done at once, so it has no `deadline`"):
        Graph.model_validate({**head, "nodes": {"m": {**node, **late}, "z": {"end": None}}})
    assert Graph.model_validate({**head, "nodes": {"m": {**node, "deadline": "never"}, "z": {"end": None}}})
