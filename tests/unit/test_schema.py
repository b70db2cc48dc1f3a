"""The JSON Schema of documents says what the loader says: of every document here, and of wrong and changed ones."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft7Validator
from pydantic import BaseModel

from loom_dsl.agent.definition import Agent, load_agent
from loom_dsl.authoring.schema import FORMS, KINDS, schema_of
from loom_dsl.documents.document import KINDS as READ
from loom_dsl.documents.document import load_document, load_yaml
from loom_dsl.documents.validation import validate_model
from loom_dsl.errors import Diagnostic, DocumentError
from loom_dsl.graph.compiler import check_text
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.library import NAMES, shipped
from loom_dsl.observe.webhooks import read_webhooks
from loom_dsl.permissions.deployment import read_policy
from loom_dsl.simulation.scenario import Scenario
from loom_dsl.simulation.script import Script
from tests.docs.markdown import PAGES, blocks
from tests.support.drawn_graphs import graphs

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("examples", "loom_dsl/plans", "loom_cli/project", "tests/fixtures/checks")
FILES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.yaml") if not file.stem.endswith("-bad"))
ANY = Draft7Validator(schema_of())
ONE = {kind: Draft7Validator(schema_of(kind)) for kind in KINDS}
ENV = {"OPENAI_MODEL": "example", "NAME": "example"}


def refusals(data: Any, validator: Draft7Validator = ANY) -> list[str]:
    return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in validator.iter_errors(data)]


def told(data: Any) -> list[Diagnostic]:
    """What the loader has against a document, warnings left out."""
    text, kind = json.dumps(data), data["kind"] if isinstance(data, dict) and "kind" in data else None
    try:
        if kind == "graph":
            found = check_text(text, "x", env=ENV, read_file=lambda _: "loom: 1\nkind: agent\nname: a\nmodel: b\n")
            return [finding for finding in found if finding.severity == "error"]
        if kind in ("policy", "webhooks"):
            (read_policy if kind == "policy" else read_webhooks)(text, "x")
            return []
        document = load_document(text, "x")
        if kind == "agent":
            load_agent(text, "x", ENV)
        else:
            validate_model(document, Script if kind == "fake-model" else Scenario)
    except DocumentError as error:
        return error.diagnostics
    return []


# -- documents that are right --------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_document_of_the_repository_is_valid(file: Path) -> None:
    data = load_yaml(file.read_bytes(), file.name).data
    assert refusals(data) == []
    assert refusals(data, ONE[data["kind"]]) == []


def test_every_document_of_the_docs_is_valid() -> None:
    documents = [block for page in PAGES for block in blocks(page) if block.options.get("file", "").endswith("yaml")]
    assert documents
    for block in documents:
        data = load_yaml(block.text, block.place).data
        if data["kind"] not in ("policy", "policy-test"):  # these have no schema; tests/docs checks them
            assert refusals(data) == [], block.place


@pytest.mark.parametrize("name", NAMES)
def test_the_normal_form_of_a_graph_is_valid(name: str) -> None:
    assert refusals(json.loads(json.dumps(shipped(name).dump()))) == []


@given(graphs())
def test_the_normal_form_of_any_graph_is_valid(graph: Graph) -> None:
    assert refusals(json.loads(json.dumps(graph.dump()))) == []


def test_the_normal_form_of_an_agent_is_valid() -> None:
    data = Agent(name="a", model="m", permissions={"allow": ["glob"]}, approvals={"expires": "24h"}).to_plan_data()
    assert refusals(json.loads(json.dumps(data))) == []


SHORT = [
    "next: done",
    "next: [done, other]",
    "next: [{if: input.x, to: done}, {to: other}]",
    "next: {each: [{if: input.x, to: done}, {to: other}]}",
    "next: {times: 3, to: done}",
    "next: {all: [done], times: '${input.x}'}",
    "next: {first: [{to: done}]}",
    "next: []",
    "{activity: x, timeout: 5m, retry: {initial: 500ms, longest: 7}, heartbeat: 5s}",
    "{activity: x, timeout: '${input.x}', heartbeat: 2.5, compensate: {activity: y, timeout: 5m}}",
    "{activity: x, deadline: never}",
    "{activity: x, deadline: {after: never}}",
    "{activity: x, deadline: {after: 5m, to: done}}",
    "{activity: x, deadline: {after: '${input.x}', to: done}}",
    "{activity: x, deadline: {after: 90, to: done}}",
    "{event: released}",
    "{event: {name: released, key: 7}}",
    "{timer: 5m}",
    "{timer: 5}",
    "{timer: '${input.x}'}",
    "{timer: {after: 1h30m}}",
    "{timer: {until: 2026-01-31T12:00:00Z}}",
    "{join: all}",
    "{join: taken}",
    "{join: {need: 2, rest: cancel}}",
    "{join: {threads: '${input.x}'}}",
    "{cancel: done}",
    "{cancel: [done, other]}",
    "{fail: it broke}",
    "{fail: {code: broke}}",
    "{approval: May it go?}",
    "{approval: {ask: May it go?, choices: [approve]}}",
    "{approval: {request: {summary: May it go?}}}",
    "{loop: {do: g, max: 3, until: result}}",
    "{end: null}",
    "{}",
]


@pytest.mark.parametrize("node", SHORT)
def test_a_short_form_is_valid_and_read(node: str) -> None:
    data = load_yaml(f"loom: 1\nkind: graph\nname: g\nnodes: {{a: {node if node[0] == '{' else f'{{{node}}}'}}}\n", "x")
    assert refusals(data.data) == []
    assert [finding for finding in told(data.data) if finding.code in ("L002", "L003", "L004")] == []


def test_one_person_is_short_for_a_list_of_one_in_an_agent() -> None:
    approvals = {"approvers": "ann", "expires": "1h", "escalate": [{"after": "5m", "to": "bob"}]}
    data = {"loom": 1, "kind": "agent", "name": "a", "model": "m", "approvals": approvals}
    assert (refusals(data), told(data)) == ([], [])


GRAPH = "loom: 1\nkind: graph\nname: g\n"
TYPES = f"{GRAPH}input: {{x: str, y: {{type: int, default: 3}}}}\nstate: {{z: list}}\nnodes: {{a: {{end: 1}}}}\n"
AGENTS = f"{GRAPH}defaults: {{timeout: 5m}}\nagents: {{a: {{file: a}}, b: {{model: m}}}}\nnodes: {{a: {{end: 1}}}}\n"
EXTENDED = """
loom: 1
kind: graph
name: g
extends: loom.tt
insert: {a: {before: calls, activity: x}, b: {after: guard, next: assemble}}
replace: {done: {end: 1}}
remove: {at_cost: finish}
"""


PLAYED = """
loom: 1
kind: scenario
name: s
graph: graph.yaml
now: 2026-01-31T12:00:00Z
results:
  a: {result: {path: shop}, takes: 20s}
  b: [1, text, null, {error: busy}, {error: {code: busy}, takes: 2.5}]
decisions: {c: approve, d: null, e: [{choice: edit, edited_arguments: {x: 1}, after: 30m}, reject]}
events: [{name: released, key: 7, when: wait#2}]
steering: [{op: abort, after: 5m}]
cases:
  - {name: one, expect: {failure: rejected, trace: [a, b], events: [llm_delta, {type: x, y: 1}], duration: 28h20s}}
  - {name: two, expect: {failure: {code: x}, trace: {main: [a]}, arguments: {a: {x: 1}, b: [1, 2]}, visits: {a: 2}}}
"""


@pytest.mark.parametrize("text", [TYPES, EXTENDED, AGENTS, PLAYED])
def test_what_a_document_may_have_beside_nodes_is_valid_and_read(text: str) -> None:
    data = load_yaml(text, "x").data
    assert refusals(data) == []
    assert [finding for finding in told(data) if finding.code in ("L002", "L003", "L004")] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "permissions: {deny: [glob]}\ntrust: ['mcp__git__*']\n",
        "permissions: {glob: deny, default: ask}\n",
        "roles:\n  lead: {who: ann, start: '*', directories: [a, b-*], approve: high, abort: true, links: false}\n",
        "roles: {lead: {who: [ann, bob], start: [scribe]}}\n",
    ],
)
def test_what_a_policy_may_say_is_no_mistake_in_the_schema(text: str) -> None:
    data = load_yaml(POLICY + text, "x").data
    assert refusals(data) == refusals(data, ONE["policy"]) == []
    assert told(data) == []


# -- documents that are wrong --------------------------------------------------------------------------

AGENT = "loom: 1\nkind: agent\nname: a\n"
SCRIPT = "loom: 1\nkind: fake-model\nname: s\n"
SCENARIO = "loom: 1\nkind: scenario\nname: s\n"
POLICY = "loom: 1\nkind: policy\n"
WEBHOOKS = "loom: 1\nkind: webhooks\n"
WRONG = [
    ("kind: graph\nname: g\nnodes: {a: {end: 1}}\n", "'loom' is a required property"),
    ("loom: 2\nkind: graph\nname: g\nnodes: {a: {end: 1}}\n", "1 was expected"),
    ("loom: 1\nname: g\n", "'kind' is a required property"),
    ("loom: 1\nkind: grap\n", "'grap' is not one of"),
    ("loom: 1\nkind: graph\nnodes: {a: {end: 1}}\n", "'name' is a required property"),
    (GRAPH, "'nodes' is a required property"),
    (f"{GRAPH}nodes: {{}}\n", "nodes"),
    (f"{GRAPH}nodes: {{a: {{end: 1}}}}\nstrat: a\n", "'strat' was unexpected"),
    (f"{GRAPH}nodes: {{1a: {{end: 1}}}}\n", "'1a' does not match"),
    (f"{GRAPH}nodes: {{a: [end]}}\n", "is not of type 'object'"),
    (f"{GRAPH}nodes: {{a: {{activity: x, timeot: 5s}}}}\n", "'timeot' was unexpected"),
    (f"{GRAPH}nodes: {{a: {{activity: x, timeout: 5 minutes}}}}\n", "nodes.a.timeout"),
    (f"{GRAPH}nodes: {{a: {{activity: x, tool: y}}}}\n", "'tool' was unexpected"),
    (f"{GRAPH}nodes: {{a: {{activity: x, retry: {{attempts: 0}}}}}}\n", "nodes.a.retry.attempts"),
    (f"{GRAPH}nodes: {{a: {{next: [{{too: b}}]}}}}\n", "'to' is a required property"),
    (f"{GRAPH}nodes: {{a: {{next: [b, {{to: b}}]}}}}\n", "nodes.a.next.0"),
    (f"{GRAPH}nodes: {{a: {{next: {{first: [{{to: b}}], all: [b]}}}}}}\n", "nodes.a.next"),
    (f"{GRAPH}nodes: {{a: {{next: {{times: 3}}}}}}\n", "nodes.a.next"),
    (f"{GRAPH}nodes: {{a: {{next: {{times: 3, all: [b, c]}}}}}}\n", "nodes.a.next"),
    (f"{GRAPH}nodes: {{a: {{deadline: {{after: 5m}}}}}}\n", "nodes.a.deadline"),
    (f"{GRAPH}nodes: {{a: {{deadline: 5m}}}}\n", "nodes.a.deadline"),
    (f"{GRAPH}nodes: {{a: {{state: thinking}}}}\n", "nodes.a.state"),
    (f"{GRAPH}nodes: {{a: {{timer: {{after: 5m, until: x}}}}}}\n", "nodes.a.timer"),
    (f"{GRAPH}nodes: {{a: {{timer: soon}}}}\n", "nodes.a.timer"),
    (f"{GRAPH}nodes: {{a: {{join: some}}}}\n", "nodes.a.join"),
    (f"{GRAPH}nodes: {{a: {{join: {{need: 1, threads: 2}}}}}}\n", "nodes.a.join"),
    (f"{GRAPH}nodes: {{a: {{join: {{mode: taken, need: 2}}}}}}\n", "nodes.a.join"),
    (f"{GRAPH}nodes: {{a: {{race: [b]}}}}\n", "nodes.a.race"),
    (f"{GRAPH}nodes: {{a: {{cancel: []}}}}\n", "nodes.a.cancel"),
    (f"{GRAPH}nodes: {{a: {{approval: {{choices: [yes]}}}}}}\n", "nodes.a.approval"),
    (f"{GRAPH}nodes: {{a: {{approval: {{ask: x, request: y}}}}}}\n", "nodes.a.approval"),
    (f"{GRAPH}nodes: {{a: {{approval: {{ask: x, late: maybe}}}}}}\n", "nodes.a.approval.late"),
    (f"{GRAPH}nodes: {{a: {{event: {{key: 1}}}}}}\n", "nodes.a.event"),
    (f"{GRAPH}nodes: {{a: {{map: {{over: input.x}}}}}}\n", "'do' is a required property"),
    (f"{GRAPH}nodes: {{a: {{map: {{over: input.x, do: g, window: 5000}}}}}}\n", "nodes.a.map.window"),
    (f"{GRAPH}nodes: {{a: {{loop: {{do: g, max: 3}}}}}}\n", "nodes.a.loop"),
    (f"{GRAPH}nodes: {{a: {{loop: {{do: g, max: 3, while: x, until: y}}}}}}\n", "nodes.a.loop"),
    (f"{GRAPH}nodes: {{a: {{graph: {{from: b}}}}}}\n", "nodes.a.graph"),
    (f"{GRAPH}nodes: {{a: {{graph: {{from: b, allow: {{kinds: [bash]}}}}}}}}\n", "nodes.a.graph"),
    (f"{GRAPH}nodes: {{a: {{graph: {{from: b, allow: {{max_nodes: 0}}}}}}}}\n", "nodes.a.graph"),
    (f"{GRAPH}nodes: {{a: {{fail: {{reason: x}}}}}}\n", "nodes.a.fail"),
    (f"{GRAPH}nodes: {{a: {{end: 1, terminate: perhaps}}}}\n", "nodes.a.terminate"),
    (f"{GRAPH}nodes: {{a: {{end: 1}}}}\ninput: {{x: text}}\n", "input.x"),
    (f"{GRAPH}nodes: {{a: {{end: 1}}}}\nstate: {{x: {{type: list, reduce: join}}}}\n", "state.x"),
    (f"{GRAPH}nodes: {{a: {{end: 1}}}}\ninsert: {{b: {{before: a}}}}\n", "'extends' is a dep"),
    (f"{GRAPH}extends: loom.tt\ninsert: {{b: {{activity: x}}}}\n", "insert.b"),
    (f"{GRAPH}extends: loom.tt\ninsert: {{b: {{activity: x, before: a, after: c}}}}\n", "insert.b"),
    (f"{GRAPH}extends: loom.tt\ninsert: {{b: {{activty: x, before: model}}}}\n", "'activty' was unexpected"),
    (f"{GRAPH}extends: loom.tt\nremove: [model]\n", "remove"),
    (f"{GRAPH}nodes: {{a: {{end: 1}}}}\nagents: {{x: {{file: a.yaml, model: m}}}}\n", "'model' was unexpected"),
    (f"{GRAPH}nodes: {{a: {{end: 1}}}}\nagents: {{x: {{instructions: hi}}}}\n", "'model' is a required property"),
    (f"{GRAPH}nodes: {{a: {{end: 1}}}}\ndefaults: {{timeout: long}}\n", "defaults.timeout"),
    (f"{GRAPH}nodes: {{a: {{end: 1}}}}\ngraphs: {{x: {{doc: none}}}}\n", "graphs.x"),
    (AGENT, "'model' is a required property"),
    (f"{AGENT}model: m\nmodle: x\n", "'modle' was unexpected"),
    (f"{AGENT}model: m\nname2: x\n", "'name2' was unexpected"),
    (f"{AGENT}model: m\ntools: glob\n", "tools"),
    (f"{AGENT}model: m\nrecurse: often\n", "recurse"),
    (f"{AGENT}model: m\nlimits: {{max_iterations: 0}}\n", "limits.max_iterations"),
    (f"{AGENT}model: m\nlimits: {{max_run_duration: 90}}\n", "limits.max_run_duration"),
    (f"{AGENT}model: m\napprovals: {{expires: soon}}\n", "approvals.expires"),
    (f"{AGENT}model: m\npermissions: {{glob: sometimes}}\n", "permissions.glob"),
    (f"{AGENT}model: m\npermissions: {{allow: [glob], grep: ask}}\n", "permissions"),
    (SCRIPT, "is not valid under any"),
    (f"{SCRIPT}steps: [{{says: hi}}]\n", "'says' was unexpected"),
    (f"{SCRIPT}steps: [{{repeat: 3}}]\n", "steps.0"),
    (f"{SCRIPT}steps: [{{say: hi, delay: slow}}]\n", "steps.0.delay"),
    (f"{SCRIPT}steps: [{{fail: {{status: 200}}}}]\n", "steps.0.fail"),
    (f"{SCRIPT}cases: [{{when: {{}}}}]\n", "cases.0.when"),
    (f"{SCENARIO}results: {{a: {{reslt: 1}}}}\n", "results.a"),
    (f"{SCENARIO}results: {{a: []}}\n", "results.a"),
    (f"{SCENARIO}decisions: {{a: {{choice: 7}}}}\n", "decisions.a"),
    (f"{SCENARIO}expect: {{status: done}}\n", "expect.status"),
    (f"{SCENARIO}expect: {{visits: {{a: -1}}}}\n", "expect.visits.a"),
    (f"{SCENARIO}steering: [{{op: stop}}]\n", "steering.0.op"),
    (f"{SCENARIO}cases: [{{input: {{}}}}]\n", "'name' is a required property"),
    (f"{POLICY}role: {{}}\n", "'role' was unexpected"),
    (f"{POLICY}roles: {{r: {{approve: low}}}}\n", "'who' is a required property"),
    (f"{POLICY}roles: {{r: {{who: []}}}}\n", "roles.r.who"),
    (f"{POLICY}roles: {{r: {{who: ann, approve: huge}}}}\n", "roles.r.approve"),
    (f"{POLICY}roles: {{r: {{who: ann, start: [7]}}}}\n", "roles.r.start"),
    (f"{POLICY}roles: {{r: {{who: ann, abort: 'yes'}}}}\n", "roles.r.abort"),
    (f"{POLICY}permissions: {{allow: glob}}\n", "permissions.allow"),
    (f"{POLICY}trust: mcp\n", "trust"),
    (WEBHOOKS, "'endpoints' is a required property"),
    (f"{WEBHOOKS}endpoints: []\n", "endpoints"),
    (
        f"{WEBHOOKS}endpoints: [{{name: a, url: 'https://x.example', secret: A, timeout: soon}}]\n",
        "endpoints.0.timeout",
    ),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_the_schema_refuses_the_loader_refuses_too(text: str, said: str) -> None:
    data = load_yaml(text, "x").data
    assert any(said in refusal for refusal in refusals(data)), refusals(data)
    assert told(data)


def test_only_the_fields_of_the_kind_that_a_node_has_are_told() -> None:
    data = load_yaml(f"{GRAPH}nodes: {{a: {{map: {{over: x, do: g, windw: 3}}}}}}\n", "x").data
    assert refusals(data) == ["nodes.a.map: Additional properties are not allowed ('windw' was unexpected)"]


# -- documents that somebody changed ---------------------------------------------------------------------

VALUES: tuple[Any, ...] = (None, "text", "5m", "${input.x}", 7, 2.5, -3, [], ["a", "b"], {}, {"to": "a"}, {"x": 7})
VALUES += ("never", [{"to": "a"}], {"after": "5m"}, "all", "${env:NAME}")
FIELDS = ("with", "retry", "timeout", "fial", "name", "file", "extends", "insert", "before", "end", "map", "ask", "to")
FIELDS += ("need", "mode", "until", "after", "default", "deadline", "times", "first", "all", "steps", "limits")


def changed(choice: random.Random, data: Any) -> Any:
    """A copy of a document in which one value is another one, or not there, or which has one field more."""
    data = json.loads(json.dumps(data))
    places = list(within(data))
    holder, key = choice.choice(places)
    match choice.randrange(4):
        case 0 | 1:
            holder[key] = choice.choice(VALUES)
        case 2:
            del holder[key]
        case _:
            mapping = choice.choice([holder for holder, _ in places if isinstance(holder, dict)])
            mapping[choice.choice(FIELDS)] = choice.choice(VALUES)
    return data


def within(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a document: what holds it, and its key there."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from within(item)


@pytest.mark.parametrize("seed", range(6))
def test_no_document_that_the_loader_takes_is_refused_by_the_schema(seed: int) -> None:
    choice = random.Random(seed)
    originals = [load_yaml(file.read_bytes(), file.name).data for file in choice.sample(FILES, 6)]
    for _ in range(30):
        data = changed(choice, choice.choice(originals))
        if refusals(data):
            assert told(data), (data, refusals(data))


# -- the schema itself -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_the_schema_is_a_schema_and_needs_nothing_from_elsewhere(kind: str | None) -> None:
    schema = schema_of(kind)
    Draft7Validator.check_schema(schema)
    references = {value for value in strings(schema, "$ref")}
    assert references
    assert references <= {f"#/definitions/{name}" for name in schema["definitions"]}


def strings(value: Any, key: str) -> Iterator[str]:
    for holder, name in within(value):
        if name == key and isinstance(holder[name], str):
            yield holder[name]


def test_every_kind_of_document_that_is_read_has_a_schema() -> None:
    assert set(KINDS) == {*READ, "policy", "webhooks"}


def test_a_kind_that_is_not_there_has_no_schema() -> None:
    with pytest.raises(KeyError):
        schema_of("grap")


def test_every_field_says_what_it_means() -> None:
    definitions = schema_of()["definitions"]
    silent = [
        f"{name}.{field}"
        for name, schema in definitions.items()
        for field, value in schema.get("properties", {}).items()
        if not value.get("description")
    ]
    assert silent == []


def test_every_class_that_reads_a_short_form_has_it_in_the_schema() -> None:
    """Who adds a validator that takes more than the fields' types say has to tell the schema."""
    known = {"Graph", "Body", "Agent"}  # what they read beside their fields is in `authoring.schema`
    shown = {*schema_of()["definitions"], *known}
    models = [model for model in models_below(BaseModel) if model.__module__.startswith("loom_dsl.")]
    assert {model.__name__ for model in models} >= {"Graph", "Agent", "Script", "Scenario", *FORMS}
    for model in (model for model in models if model.__name__ in shown):
        decorators = model.__pydantic_decorators__
        reads = [item for item in decorators.model_validators.values() if item.info.mode == "before"]
        assert not reads or model.__name__ in {*FORMS, *known}, f"{model.__name__} reads a form that the schema lacks"


def models_below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for one in model.__subclasses__():
        yield one
        yield from models_below(one)
