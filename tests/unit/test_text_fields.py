"""Every text of the schema is computed or refuses `${…}`: none of them is taken as it stands without a word."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from loom_dsl.errors import ExpressionError
from loom_dsl.fields import Part
from loom_dsl.graph.checks.literals import FOR_PEOPLE, check_literals
from loom_dsl.graph.checks.slots import slots_of
from loom_dsl.graph.checks.unit import CheckContext
from loom_dsl.graph.compiler import check_text, compile_graph
from loom_dsl.graph.edges import Node
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.nodes import NODE_KINDS, Branch
from loom_dsl.simulation.run import play_case
from loom_dsl.simulation.scenario import ScenarioCase
from tests.support.simulated import plan_of, run

HOLE = "x${input.n}"
Place = tuple[str | int, ...]
TARGETS = frozenset({"next", "catch", "deadline", "exhausted", "race", "cancel"})
"""Fields that name nodes: a name that there is not is told by another check."""


def members(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from members(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from members(member)
    else:
        yield annotation


def with_text(model: type[BaseModel]) -> Iterator[tuple[Place, Any]]:
    """Every place of a model where text can stand, and an instance's raw value that has a hole there."""
    for name, info in model.model_fields.items():
        key = info.alias or name
        for annotation in members(info.annotation):
            yield from ((((key, *place)), (key, value)) for place, value in _texts(annotation))


def _texts(annotation: Any) -> Iterator[tuple[Place, Any]]:
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation is str or str(annotation) == "JsonValue" or annotation is Any:
        yield (), HOLE
    elif origin is Literal:
        return
    elif isinstance(annotation, type) and issubclass(annotation, Part):
        for place, (key, value) in with_text(annotation):
            yield place, {key: value}
    elif origin is tuple:
        for part in members(inner[0]):
            yield from (((0, *place), [value]) for place, value in _texts(part))
    elif origin is dict:
        for part in members(inner[1]):
            yield from ((("k", *place), {"k": value}) for place, value in _texts(part))


FIELDS = [
    (kind, place, raw)
    for kind, model in {**NODE_KINDS, Branch.kind: Branch}.items()
    for place, raw in with_text(model)
    if place[:1] != ("graph",) or len(place) == 1  # what a written graph may do is a list of names
]


def made(model: type[BaseModel], raw: tuple[str, Any]) -> Any:
    """A node that has a value, unchecked: only the models inside it are models, as the checks expect."""
    key, value = raw
    for name, info in model.model_fields.items():
        if (info.alias or name) == key:
            return _model(info.annotation, value)
    raise KeyError(key)


def _model(annotation: Any, value: Any) -> Any:
    for member in members(annotation):
        if isinstance(member, type) and issubclass(member, Part) and isinstance(value, dict):
            fields = {name: info for name, info in member.model_fields.items() if (info.alias or name) in value}
            inner = {name: _model(info.annotation, value[info.alias or name]) for name, info in fields.items()}
            return _filled(member, inner)
        if get_origin(member) is tuple and isinstance(value, list):
            return tuple(_model(get_args(member)[0], item) for item in value)
    return value


def _filled(model: type[BaseModel], given: dict[str, Any]) -> Any:
    """An instance with a stand-in for each field that is required and not given."""
    needed = {name: info for name, info in model.model_fields.items() if info.is_required() and name not in given}
    return model.model_construct(**{name: _stand_in(info.annotation) for name, info in needed.items()}, **given)


def _stand_in(annotation: Any) -> Any:
    first = next(members(annotation))
    if isinstance(first, type) and issubclass(first, Part):
        return _filled(first, {})
    return () if get_origin(first) is tuple else {} if get_origin(first) is dict else 1 if first is int else "y"


@pytest.mark.parametrize(("kind", "place", "raw"), FIELDS, ids=[f"{k}-{'.'.join(map(str, p))}" for k, p, _ in FIELDS])
def test_every_text_of_a_node_is_computed_or_refused_or_for_people(kind: str, place: Place, raw: Any) -> None:
    model: type[Node] = NODE_KINDS.get(kind, Branch)
    name = next(n for n, info in model.model_fields.items() if (info.alias or n) == raw[0])
    node = _filled(model, {name: made(model, raw)})
    computed = any(place[: len(slot.place)] == slot.place for slot in slots_of(node))
    graph = Graph.model_construct(name="g", start="a", nodes={"a": node})
    checked = CheckContext(graph, {})
    refused = [found for found in check_literals(checked.units[""], checked) if found.code == "L134"]
    free = place[0] in FOR_PEOPLE or (place[0] in TARGETS and place[-1] not in ("if", "after", "times"))
    assert computed or refused or free, f"a `${{…}}` in `{place}` of `{kind}` is neither a slot nor refused"


def test_no_kind_of_node_does_away_with_a_validator_that_all_have() -> None:
    shared = set(Node.__pydantic_decorators__.field_validators) | set(Node.__pydantic_decorators__.model_validators)
    for model in NODE_KINDS.values():
        assert not shared & set(vars(model)), f"{model.__name__} has a validator of the name of one of all nodes"


# -- what is computed ---------------------------------------------------------------------------------------


def played(text: str, **case: Any) -> Any:
    plan = compile_graph("loom: 1\nkind: graph\nname: g\n" + text, "g")
    return play_case(plan, ScenarioCase.model_validate({"name": "x", **case}))


def test_an_events_name_is_computed_and_only_that_event_counts() -> None:
    text = (
        'input: {order: str}\nnodes:\n  wait: {event: "paid-${input.order}", deadline: never, next: done}\n'
        '  done: {end: "${nodes.wait}"}\n'
    )
    events = [{"name": "paid-8", "data": "other", "after": "1s"}, {"name": "paid-7", "data": "mine", "after": "2s"}]
    went = played(text, input={"order": "7"}, events=events)
    assert (went.status, went.result) == ("completed", "mine")
    waiting = played(text, input={"order": "7"}, events=events[:1])
    assert waiting.status == "waiting"


def test_an_event_that_came_before_is_kept_where_its_name_can_become_it() -> None:
    text = (
        "input: {order: str}\nnodes:\n  first: {timer: 1m, next: wait}\n"
        '  wait: {event: "paid-${input.order}", deadline: never, next: done}\n  done: {end: "${nodes.wait}"}\n'
    )
    went = played(text, input={"order": "7"}, events=[{"name": "paid-7", "data": 1, "after": "1s"}])
    assert (went.status, went.result, went.problems) == ("completed", 1, ())
    lost = played(text, input={"order": "7"}, events=[{"name": "sold-7", "data": 1, "after": "1s"}])
    assert lost.status == "waiting"
    assert lost.problems


@pytest.mark.parametrize(("mutex", "seconds"), [("room", 30), ("room-${item}", 10), ("room-${item % 2}", 20)])
def test_a_mutex_is_computed_for_each_token(mutex: str, seconds: int) -> None:
    text = (
        "nodes:\n  all: {map: {over: '[1, 2, 3]', do: one}, next: done}\n  done: {end: null}\n"
        f"graphs:\n  one: {{nodes: {{hold: {{timer: 10s, mutex: '{mutex}', next: end}}, end: {{end: null}}}}}}\n"
    )
    went = played(text)
    assert (went.status, went.duration) == ("completed", seconds)


@pytest.mark.parametrize(("field", "value"), [("mutex", "${5}"), ("mutex", "${null}"), ("event", "${[1]}")])
def test_a_name_that_is_no_text_fails_the_node(field: str, value: str) -> None:
    node = {"event": value, "deadline": "never"} if field == "event" else {"set": {}, "mutex": value}
    outcome = run(plan_of({"a": {**node, "next": "b"}, "b": {"end": None}}))
    assert outcome.failure is not None
    assert (outcome.failure.code, "text" in outcome.failure.message) == (ExpressionError.code, True)


def test_a_default_and_a_fields_name_are_taken_as_they_stand_with_dollars_doubled() -> None:
    text = (
        'state: {s: {type: str, default: "$${x}"}}\nnodes:\n  a: {set: {s: "${state.s}!"}, next: e}\n'
        '  e: {end: {"$${k}": "${state.s}"}}\n'
    )
    assert played(text).result == {"${k}": "${x}!"}


def test_text_adds_up_in_a_state_field_from_nothing() -> None:
    text = (
        "state: {s: {type: str, reduce: add}}\nnodes:\n  a: {set: {s: x}, next: b}\n  b: {set: {s: y}, next: e}\n"
        "  e: {end: '${state.s}'}\n"
    )
    assert played(text).result == "xy"


def test_threads_meet_behind_a_join_of_pairs() -> None:
    text = (
        "nodes:\n  s: {next: {times: 3, to: p}}\n  p: {next: [a, b]}\n  a: {next: j}\n  b: {next: j}\n"
        "  j: {join: all, next: step}\n  step: {timer: 1s, next: m}\n"
        "  m: {join: {threads: 3}, next: e}\n  e: {end: met}\n"
    )
    went = played(text)
    assert (went.status, went.result) == ("completed", "met")


@pytest.mark.parametrize("join", ["taken", "{threads: 3}"])
def test_threads_that_are_one_again_do_not_meet_once_more(join: str) -> None:
    text = (
        "loom: 1\nkind: graph\nname: g\nnodes:\n  s: {next: {times: 3, to: j}}\n"
        f"  j: {{join: {join}, next: step}}\n  step: {{timer: 1s, next: m}}\n"
        "  m: {join: {threads: 3}, next: e}\n  e: {end: 1}\n"
    )
    assert [found.code for found in check_text(text, "g")] == ["L112"]


@pytest.mark.parametrize(
    ("read", "fields"),
    [
        ("nodes.a.usage.costs", "cost_usd"),
        ("nodes.a.usage.wasted.tokens", "prompt_tokens"),
        ("nodes.b.usage.cost_usd", "completion_tokens"),
        ("nodes.b.message", "usage"),
        ("result.usage.total", "completion_tokens"),
        ("nodes.a.error.text", "message"),
    ],
)
def test_the_result_of_an_agent_or_a_model_is_known_to_the_leaf(read: str, fields: str) -> None:
    text = (
        "loom: 1\nkind: graph\nname: g\nagents: {r: {model: m}}\nnodes:\n  a: {agent: r, with: {task: x}, next: b}\n"
        f'  b: {{llm: {{model: m, prompt: hi}}, next: e}}\n  e: {{end: "${{{read}}}"}}\n'
    )
    (found,) = [one for one in check_text(text, "g") if one.severity == "error"]
    assert (found.code, fields in found.fix) == ("L126", True), str(found)


def test_what_a_set_gives_as_its_result_is_read() -> None:
    text = (
        "loom: 1\nkind: graph\nname: g\nstate: {n: int}\nnodes:\n  b: {set: {n: 1}, next: e}\n  e: {end: '${result}'}\n"
    )
    assert check_text(text, "g") == []
