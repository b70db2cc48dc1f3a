"""Graphs that are written while a job runs: what of them is refused, and what the machine makes of them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from loom_dsl.agent.definition import Agent
from loom_dsl.approvals.policy import ApprovalPolicy
from loom_dsl.errors import GraphRefused
from loom_dsl.graph.admission import admit
from loom_dsl.graph.compiler import check_text, compile_graph
from loom_dsl.graph.generated import MAX_REFUSAL, Allow, text_of, unwrapped
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.state import MachineState
from loom_dsl.permissions.policy import Permissions
from loom_dsl.simulation.in_memory import Simulation
from loom_dsl.tools.hook_points import HookPoint
from tests.support.simulated import SYSTEM
from tests.unit.test_scenario import play

HEAD = "loom: 1\nkind: graph\nname: inner\n"
REVIEWER = {"model": "small", "instructions": "Review.", "limits": {"max_cost_usd": 0.5}}
EVERYTHING: dict[str, Any] = {
    "kinds": ("activity", "tool", "agent", "llm", "map", "loop", "graph", "timer"),
    "tools": ("glob", "mine:search"),
    "functions": ("steps", "other:one"),
    "agents": ("reviewer",),
    "models": ("small",),
    "secrets": ("TOKEN",),
}
JOB = Permissions(allow=["glob", "edit_file(docs/**)"], ask=["search"], deny=["bash"])


def job_agents() -> dict[str, Any]:
    graph = {"reviewer": REVIEWER, "boss": {"model": "large"}}
    nodes = {"a": {"agent": "reviewer", "next": "b"}, "b": {"agent": "boss", "next": "done"}, "done": {"end": None}}
    document = {"loom": 1, "kind": "graph", "name": "job", "agents": graph, "nodes": nodes}
    return compile_graph(json.dumps(document), "job.yaml").agents


AGENTS = job_agents()


def document(nodes: Mapping[str, Any], **head: Any) -> str:
    """A graph of these nodes and an end."""
    return json.dumps({"loom": 1, "kind": "graph", "name": "inner", **head, "nodes": {**nodes, "done": {"end": None}}})


def admitted(text: str, *, permissions: Permissions = JOB, approvals: ApprovalPolicy | None = None,
             given: Any = None, **allow: Any) -> Plan:  # fmt: skip
    allowed = Allow.model_validate({**EVERYTHING, **allow})
    return admit(
        text, allowed, source="run.yaml", permissions=permissions, agents=AGENTS, approvals=approvals, given=given
    )


def refused(text: str, **how: Any) -> list[str]:
    """The findings, without the places."""
    with pytest.raises(GraphRefused) as caught:
        admitted(text, **how)
    assert caught.value.code == "graph_refused"
    head, *lines = caught.value.message.splitlines()
    assert head == "the written graph is refused:"
    assert all(line.startswith("run.yaml") or line.startswith(("the text", "…")) for line in lines)
    return lines


ALLOWED: list[dict[str, Any]] = [
    {"a": {"tool": "glob", "with": {"pattern": "*"}, "next": "done"}},
    {"a": {"tool": "mine:search", "with": {"key": "${secret:TOKEN}"}, "next": "done"}},
    {"a": {"activity": "steps:anything", "next": "done"}},
    {"a": {"activity": "other:one", "compensate": {"activity": "steps:undo"}, "next": "done"}},
    {"a": {"agent": "reviewer", "with": {"task": "x"}, "next": "done"}},
    {"a": {"llm": {"model": "small", "prompt": "x"}, "next": "b"}, "b": {"set": {}, "next": "done"}},
    {"a": {"timer": "1s", "emit": {"note": {}}, "next": "done"}},
]


@pytest.mark.parametrize("nodes", ALLOWED)
def test_what_is_allowed_runs(nodes: dict[str, Any]) -> None:
    assert admitted(document(nodes)).root == "inner"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"a": {"approval": "Go?", "deadline": "never", "next": "done"}}, "of the kind `approval`; allowed kinds: "),
    ({"a": {"event": "go", "deadline": "never", "next": "done"}}, "of the kind `event`"),
    ({"s": {"next": [{"if": "input == 1", "to": "done"}, {"to": "a"}]}, "a": {"recurse": {}}}, "kind `recurse`"),
    ({"a": {"tool": "bash", "next": "done"}}, "the tool `bash` is not allowed; allowed tools: glob, mine:search"),
    ({"a": {"tool": "other:search", "next": "done"}}, "the tool `other:search` is not allowed"),
    ({"a": {"activity": "other:two", "next": "done"}}, "the activity `other:two` is not allowed"),
    ({"a": {"activity": "loom.tool.execute", "next": "done"}}, "the activity `loom.tool.execute` is not allowed"),
    ({"a": {"activity": "steps", "next": "done"}}, "the activity `steps` is not allowed"),
    (
        {"a": {"activity": "steps:a", "compensate": {"activity": "os:remove"}, "next": "done"}},
        "the activity `os:remove` is not allowed",
    ),
    ({"a": {"activity": "steps:a", "carrier": "local", "next": "done"}}, "`a` says `carrier`"),
    ({"a": {"activity": "steps:a", "events": "leave", "next": "done"}}, "`a` says `events`"),
    ({"a": {"activity": "steps:a", "inbox": "take", "next": "done"}}, "`a` says `inbox`"),
    ({"a": {"agent": "boss", "next": "done"}}, "which is not in `agents`"),
    ({"a": {"llm": {"model": "large", "prompt": "x"}, "write": {}, "next": "b"}, "b": {"set": {}, "next": "done"}}, ""),
    ({"a": {"llm": {"model": "${input.m}", "prompt": "x"}, "next": "done"}}, ""),
    ({"a": {"tool": "glob", "state": "completed", "next": "done"}}, "`a` sets the run's state"),
    ({"a": {"tool": "glob", "emit": {"approval_decided": {}}, "next": "done"}}, "which only Loom tells"),
    ({"a": {"graph": {"from": "b", "allow": {}}, "next": "done"}, "b": {"set": {}, "next": "a"}}, ""),
    ({"a": {"graph": "loom.tt", "next": "done"}}, "the graph `loom.tt` is not its own"),
    ({"a": {"tool": "mine:search", "with": {"key": "${secret:OTHER}"}, "next": "done"}}, "the secret `OTHER`"),
    ({"a": {"tool": "mine:search", "with": {"key": "${env:HOME}"}, "next": "done"}}, "`${env:…}` is not allowed"),
]


@pytest.mark.parametrize(("nodes", "why"), REFUSED)
def test_what_is_not_on_the_list_is_refused_by_name(nodes: dict[str, Any], why: str) -> None:
    assert any(why in line for line in refused(document(nodes)))


PLAIN = {"a": {"tool": "glob", "next": "done"}}
HEADS: list[tuple[dict[str, Any], str]] = [
    ({"extends": "loom.tt"}, "`extends` is not allowed"),
    ({"insert": {}}, "`insert` is not allowed"),
    ({"name": "loom.tool_node"}, "names that begin with `loom.`"),
    ({"permissions": {"allow": ["*"]}}, "the rule `*` allows what the job's own policy does not surely allow"),
    ({"permissions": {"allow": ["edit_file"]}}, "the rule `edit_file` allows"),
    ({"permissions": {"enabled": False}}, "`enabled: false` would let every call through"),
    ({"permissions": {"default": "allow"}}, "`default: allow` is wider"),
    ({"agents": {"w": {"file": "w.yaml"}}}, "`file` is not allowed"),
    ({"agents": {"w": {"model": "small", "turn": "own.yaml"}}}, "`turn` is not allowed"),
    ({"agents": {"w": {"model": "${env:MODEL}"}}}, "`${env:…}` is not allowed"),
    ({"agents": {"w": {"model": "large"}}}, "the model `large` is not allowed; allowed models: small"),
    ({"agents": {"w": {"model": "small", "tools": ["glob", "bash"]}}}, "the tool `bash` is not allowed"),
    ({"agents": {"w": {"model": "small", "approvals": {"on_expiry": "allow"}}}}, "what nobody answers"),
    ({"approvals": {"on_expiry": "allow"}}, "what nobody answers"),
    ({"agents": {"w": {"model": "small", "permissions": {"bash": "allow"}}}}, "the rule `bash` allows"),
    ({"agents": {"w": {"model": "small", "permissions": {"default": "ask"}}}}, "`default: ask` is wider"),
    ({"input": {"n": "int"}}, "`inner` needs `input.n` (int)"),
]


STRICT = ApprovalPolicy.model_validate(
    {"approvers": ["ann", "bob"], "quorum": 2, "four_eyes": True, "expires": "1h", "on_expiry": "halt"}
)
WEAKER: list[tuple[dict[str, Any], str]] = [
    ({"approvers": ["ann", "eve"]}, "eve may not decide in the job itself; those may: ann, bob"),
    ({"escalate": [{"after": "1m", "to": ["eve"]}]}, "eve may not decide"),
    ({"approvers": ["ann"]}, "needs so many `approvers`"),
]


@pytest.mark.parametrize(("own", "why"), WEAKER)
def test_a_written_graph_cannot_have_fewer_or_other_people_decide_than_the_job(own: dict[str, Any], why: str) -> None:
    for head in ({"approvals": own}, {"agents": {"w": {"model": "small", "approvals": own}}}):
        (line,) = refused(document(PLAIN, **head), approvals=STRICT)
        assert why in line


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, STRICT),
        ({"quorum": 1, "four_eyes": False, "approvers": []}, STRICT),
        ({"quorum": 2, "approvers": ["Bob", "ann"]}, STRICT.model_copy(update={"approvers": ("Bob", "ann")})),
        ({"expires": "5m"}, STRICT.model_copy(update={"expires": 300.0, "on_expiry": "deny"})),
    ],
)
def test_what_a_written_graph_leaves_out_of_its_approvals_is_the_jobs(
    own: dict[str, Any], expected: ApprovalPolicy
) -> None:
    plan = admitted(
        document(PLAIN, approvals=own, agents={"w": {"model": "small", "approvals": own}}), approvals=STRICT
    )
    assert plan.graphs[plan.root].approvals == expected
    assert Agent.from_plan_data(plan.agents["w"]).approvals == expected


def test_what_nobody_answers_is_not_allowed_in_a_written_graph_even_where_the_job_allows_it() -> None:
    lax = ApprovalPolicy.model_validate({"expires": "1h", "on_expiry": "allow"})
    plan = admitted(document(PLAIN, agents={"w": {"model": "small"}}), approvals=lax)
    assert Agent.from_plan_data(plan.agents["w"]).approvals == ApprovalPolicy.model_validate({"expires": "1h"})


@pytest.mark.parametrize(("head", "why"), HEADS)
def test_what_a_graph_says_of_itself_can_be_too_much(head: dict[str, Any], why: str) -> None:
    assert any(why in line for line in refused(document(PLAIN, **head)))


def test_an_agent_that_it_brings_along_needs_the_kind() -> None:
    text = document({"a": {"agent": "w", "next": "done"}}, agents={"w": {"model": "small"}})
    assert admitted(text).agents.keys() == {"w"}
    told = refused(text, kinds=("tool",))
    assert ["the kind `agent`" in line or "may not run agents" in line for line in told] == [True, True]


def test_findings_name_line_and_column_and_come_in_order() -> None:
    text = HEAD + "nodes:\n  a: {tool: bash, next: b}\n  b: {tool: rm, next: done}\n  done: {end: null}\n"
    first, second = refused(text)
    assert first == "run.yaml:5:7: L160 the tool `bash` is not allowed; allowed tools: glob, mine:search"
    assert second.startswith("run.yaml:6:7: L160 the tool `rm` ")


def test_a_graph_is_checked_as_a_file_is() -> None:
    text = HEAD + "nodes:\n  a: {tool: glob, next: dne}\n  done: {end: null}\n"
    with pytest.raises(GraphRefused) as caught:
        admitted(text)
    told = [str(found) for found in check_text(text, "run.yaml") if found.severity == "error"]
    assert caught.value.message.splitlines()[1:] == told


GRAPHS = {"part": {"nodes": {"x": {"tool": "glob", "next": "y"}, "y": {"end": None}}}}


def nested(depth: int) -> str:
    """A graph with so many graphs inside one another."""
    graphs = {
        f"g{n}": {"nodes": {"x": {"graph": f"g{n + 1}", "next": "y"}, "y": {"end": None}}} for n in range(depth - 1)
    }
    graphs[f"g{depth - 1}"] = GRAPHS["part"]
    return document({"a": {"graph": "g0", "next": "done"}}, graphs=graphs)


def test_graphs_stand_only_so_deep_inside_it() -> None:
    assert admitted(nested(2)).root == "inner"
    assert "its graphs stand 3 deep inside one another; 2 may" in refused(nested(3))[0]
    assert admitted(nested(3), max_depth=3).root == "inner"
    assert "the graph has 42 nodes; it may have 30" in refused(nested(20))[1]


@pytest.mark.parametrize(
    ("nodes", "graphs"),
    [
        ({"a": {"graph": "inner", "next": "done"}}, {}),
        ({"a": {"map": {"over": "[1]", "do": "inner"}, "next": "done"}}, {}),
        ({"a": {"graph": "part", "next": "done"}}, {"part": {"nodes": {"x": {"graph": "part", "next": "y"}}}}),
        ({"a": {"graph": "part", "next": "done"}}, {"part": {"nodes": {"x": {"graph": "inner", "next": "y"}}}}),
    ],
)
def test_a_graph_that_runs_itself_is_refused(nodes: dict[str, Any], graphs: dict[str, Any]) -> None:
    way_out = {"next": [{"if": "input.stop", "to": "done"}, {"to": "a"}]}
    for body in graphs.values():
        inner = {"next": [{"if": "input.stop", "to": "y"}, {"to": "x"}]}
        body["nodes"] = {"s": inner, **body["nodes"], "y": {"end": None}}
    head = {"input": {"stop": {"type": "bool", "default": True}}, "graphs": graphs}
    assert any("does not run itself" in line for line in refused(document({"s": way_out, **nodes}, **head)))


def test_a_job_of_its_own_is_refused() -> None:
    text = document({"a": {"graph": "part", "child": True, "next": "done"}}, graphs=GRAPHS)
    assert any("`a` starts a job of its own" in line for line in refused(text))


COSTLY = {"a": {"agent": "reviewer", "max_visits": 2, "exhausted": "done", "next": "done"}}
COSTS: list[tuple[dict[str, Any], str]] = [
    ({"a": {"agent": "reviewer", "next": "done"}}, "give the node `max_visits`"),
    ({"a": {**COSTLY["a"], "max_visits": 3}}, "may cost 1.5 dollars together; they may cost 1"),
    ({"a": {"agent": "w", "max_visits": 1, "next": "done"}}, "give that one `limits: {max_cost_usd: …}`"),
    ({"a": {"llm": {"model": "small", "prompt": "x"}, "next": "done"}}, "calls a model without a limit of cost"),
]


@pytest.mark.parametrize(("nodes", "why"), COSTS)
def test_a_budget_refuses_what_has_no_bound_and_what_is_too_much(nodes: dict[str, Any], why: str) -> None:
    agents = {"agents": {"w": {"model": "small"}}} if nodes["a"].get("agent") == "w" else {}
    assert any(why in line for line in refused(document(nodes, **agents), max_cost_usd=1.0))


def test_a_budget_counts_visits_and_limits() -> None:
    assert admitted(document(COSTLY), max_cost_usd=1.0).root == "inner"


PART = {"nodes": {"x": {**COSTLY["a"], "exhausted": "y", "next": "y"}, "y": {"end": None}}}
"""Runs an agent that may cost half a dollar, twice at most."""


@pytest.mark.parametrize(
    ("node", "cost"),
    [
        ({"graph": "part", "max_visits": 1}, 1),
        ({"graph": "part", "max_visits": 3}, 3),
        ({"loop": {"do": "part", "until": "result == 1", "max": 4}, "max_visits": 2}, 8),
        ({"map": {"over": "[1, 2, 3]", "do": "part"}, "max_visits": 1}, 3),
        ({"map": {"over": "range(5)", "do": "part"}, "max_visits": 2}, 10),
        ({"graph": "middle", "max_visits": 2}, 4),
        ({"graph": "part"}, None),
        ({"map": {"over": "[1, 2]", "do": "part"}}, None),
        ({"map": {"over": "input.rows", "do": "part"}, "max_visits": 1}, None),
        ({"map": {"over": "[1]", "do": "part", "open": {"add": "a", "close": "c"}}, "max_visits": 1}, None),
    ],
)
def test_a_budget_counts_how_often_graphs_inside_it_run(node: dict[str, Any], cost: int | None) -> None:
    middle = {"nodes": {"m": {"loop": {"do": "part", "until": "true", "max": 2}, "max_visits": 1, "next": "n"}}}
    middle["nodes"]["n"] = {"end": None}
    graphs = {"part": PART, **({"middle": middle} if node.get("graph") == "middle" else {})}
    text = document({"a": {**node, "next": "done"}}, graphs=graphs, input={"rows": "list"})
    if cost is None:
        assert any("inside `part`, however often that runs" in line for line in refused(text, max_cost_usd=100.0))
        return
    assert admitted(text, given={"rows": []}, max_cost_usd=float(cost)).root == "inner"
    (line,) = refused(text, max_cost_usd=cost - 0.5)
    assert f"may cost {cost} dollars together" in line


# -- policies ---------------------------------------------------------------------------------------


def policy(text: str, permissions: Permissions = JOB) -> Permissions:
    plan = admitted(text, permissions=permissions)
    return plan.graphs["inner"].permissions


def test_a_graph_that_says_nothing_has_the_policy_of_the_job() -> None:
    assert policy(document(PLAIN)) == JOB
    off = Permissions(enabled=False)
    assert policy(document(PLAIN), off) == off


def test_a_graph_can_be_stricter_and_keeps_what_the_job_asks_and_denies() -> None:
    own = {"allow": ["glob"], "ask": ["read_file"], "deny": ["glob(secret/**)"], "default": "deny"}
    assert policy(document(PLAIN, permissions=own)) == Permissions(
        allow=["glob"], ask=["search", "read_file"], deny=["bash", "glob(secret/**)"], default="deny"
    )
    assert policy(document(PLAIN, permissions={"allow": ["edit_file(docs/**)"]})).allow == ["edit_file(docs/**)"]
    wide = Permissions(allow=["*"], default="ask")
    assert policy(document(PLAIN, permissions={"allow": ["bash"]}), wide) == Permissions(allow=["bash"])


def test_agents_that_it_brings_along_are_under_the_policy_of_the_job() -> None:
    own = {"model": "small", "tools": ["glob"], "permissions": {"deny": ["glob(x/**)"]}}
    plan = admitted(document({"a": {"agent": "w", "next": "done"}}, agents={"w": own}))
    assert plan.agents["w"]["permissions"] == Permissions(ask=["search"], deny=["bash", "glob(x/**)"]).model_dump(
        mode="json"
    )
    assert admitted(document({"a": {"agent": "reviewer", "next": "done"}})).agents == {"reviewer": AGENTS["reviewer"]}


# -- texts ------------------------------------------------------------------------------------------

YAML = HEAD + "nodes:\n  done: {end: 1}\n"


@pytest.mark.parametrize(
    "text",
    [
        YAML,
        f"Here it is:\n\n```yaml\n{YAML}```\nGood luck.",
        f"~~~~\n{YAML}~~~~",
        f"```json\n{document({})}\n```",
        f"First\n```python\nprint(1)\n```\nthen\n```yml\n{YAML}\n```",
        f"```yaml\r\n{YAML}```",
        f"```yaml\n{YAML}",
    ],
)
def test_a_fenced_block_is_unwrapped(text: str) -> None:
    assert admitted(text).root == "inner"


def test_two_blocks_are_refused() -> None:
    assert "2 fenced blocks" in refused(f"```yaml\n{YAML}```\nor\n```yaml\n{YAML}```")[0]
    assert unwrapped("") == [""]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        ({"answer": "x", "status": "completed"}, "x"),
        ({"text": "x", "usage": {}}, "x"),
        ({"loom": 1, "text": "x"}, '{"loom":1,"text":"x"}'),
        (None, None),
        (["x"], None),
        (3, None),
    ],
)
def test_a_node_gives_its_text_in_one_of_several_forms(value: Any, text: str | None) -> None:
    assert text_of(value) == text


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12)
)
HOSTILE = {
    "large": "x" * 1_000_000,
    "deep": "[" * 30_000,
    "deep flow": '{"a":' * 10_000 + "1" + "}" * 10_000,
    "bomb": HEAD + BOMB,
    "nothing": "",
    "prose": "I cannot do that.",
    "list": "[1, 2]",
    "agent": "loom: 1\nkind: agent\nname: x\nmodel: small\n",
    "surrogate": HEAD + "doc: '\ud800'\nnodes: {a: {tool: bash, next: b}, b: {end: null}}",
    "many fences": "```yaml\n" * 7_000,
    "keys": HEAD + "nodes: {" + ", ".join(f"n{n}: {{}}" for n in range(5_000)) + "}",
    "tag": "!!python/object/apply:os.system ['true']",
    "wrong types": HEAD + "permissions: [1]\nagents: [2]\ngraphs: 3\nnodes: {a: 1, b: [2]}\n",
    "expression": HEAD + 'nodes: {a: {end: "${[x for x in [y for y in range(9**9)]]}"}}\n',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_is_refused_in_few_words(text: str) -> None:
    with pytest.raises(GraphRefused) as caught:
        admitted(text)
    assert len(caught.value.message) <= MAX_REFUSAL


def test_a_refusal_with_very_many_findings_says_how_many_it_leaves_out() -> None:
    nodes = {f"n{n}": {"tool": f"wrong_tool_{n}", "next": f"n{n + 1}" if n < 299 else "done"} for n in range(300)}
    told = refused(document(nodes), max_nodes=1_000)
    assert told[-1] == f"… and {300 - len(told) + 1} more"
    assert len(told) > 20


# -- the machine ------------------------------------------------------------------------------------

OUTER: dict[str, Any] = {
    "planner": {"activity": "plan", "max_visits": 3, "exhausted": "gave_up", "next": "run"},
    "run": {
        "graph": {"from": "planner", "allow": {"functions": ["steps"]}},
        "with": {"n": 2},
        "deadline": {"after": "1h", "to": "late"},
        "catch": {"graph_refused": "planner", "wrong": "wrong"},
        "next": "done",
    },
    "done": {"end": "${nodes.run}"},
    "gave_up": {"fail": {"code": "no_plan", "message": "no plan"}},
    "wrong": {"end": "${result.message}"},
    "late": {"end": "late"},
}
GOOD = """
loom: 1
kind: graph
name: double
input: {n: int}
nodes:
  double: {activity: "steps:double", with: {n: "${input.n}"}, next: done}
  done: {end: "${nodes.double * 10}"}
"""


def outer() -> Plan:
    """The job that runs a graph which its planner wrote."""
    nodes = dict(OUTER)
    nodes["planner"] = {**nodes["planner"], "activity": "steps:plan", "with": {"why": "${get(result, 'message')}"}}
    return compile_graph(json.dumps({"loom": 1, "kind": "graph", "name": "outer", "nodes": nodes}), "outer.yaml")


def simulated(texts: list[Any], mocks: Mapping[str, Any] | None = None) -> tuple[Any, list[Any]]:
    """Play the job with what the planner writes, one after the other; what it was told each time."""
    told: list[Any] = []

    def call(command: Any) -> Any:
        given = command.arguments["with"]
        if command.arguments["function"] == "steps:double":
            return given["n"] * 2
        told.append(given["why"])
        return texts[len(told) - 1]

    known = {"loom.function.call": call, **SYSTEM, **(mocks or {})}
    return Simulation(outer(), MachineState(), known).run(), told


def test_the_result_of_the_written_graph_is_that_of_the_node() -> None:
    outcome, _ = simulated([GOOD])
    assert (outcome.result, outcome.failure) == (40, None)
    assert ("0/run#1", "done") in outcome.trace


def test_a_refused_graph_goes_back_to_who_wrote_it_with_the_findings() -> None:
    outcome, told = simulated([GOOD.replace("steps:double", "os:system"), "No.", GOOD])
    assert outcome.result == 40
    assert told[0] is None
    assert "the activity `os:system` is not allowed; allowed functions: steps" in told[1]
    assert "L001" in told[2]


def test_a_planner_that_never_gets_it_right_comes_to_its_bound() -> None:
    outcome, told = simulated(["No."] * 3)
    assert outcome.failure.code == "no_plan"
    assert len(told) == 3


@pytest.mark.parametrize(("text", "why"), [(None, "there is no text"), ("x" * 70_000, "the text has 70,000 bytes")])
def test_what_is_no_text_or_too_long_never_leaves_the_machine(text: Any, why: str) -> None:
    outcome, told = simulated([text, GOOD])
    assert outcome.result == 40
    assert why in told[1]
    assert outcome.trace[0] == ("0/planner#1", "done")
    assert [at for at, _ in outcome.trace].count("0/run#1") == 0


def test_a_failure_of_the_written_graph_is_that_of_the_node() -> None:
    failing = "loom: 1\nkind: graph\nname: x\nnodes: {a: {fail: {code: wrong, message: it went wrong}}}\n"
    outcome, _ = simulated([failing])
    assert outcome.result == "it went wrong"


def test_a_test_can_say_what_the_written_graph_comes_to() -> None:
    outcome, _ = simulated(["anything"], mocks={"graph:run": lambda command: command.written["text"]})
    assert outcome.result == "anything"


def test_a_scenario_plays_the_written_graph_with_what_it_says_of_its_functions() -> None:
    texts = json.dumps([{"result": "No."}, {"result": GOOD.replace("${", "$${")}])
    doubled = '{"result": "${input.n * 2}", "takes": 30s}'
    played = play(outer(), f'results: {{"steps:plan": {texts}, "run/double": {doubled}}}\n')
    assert (played.status, played.result, played.duration) == ("completed", 40, 30.0)
    assert [one.what for one in played.log if one.at == "run#1"] == ["graph_refused"]
    by_function = play(outer(), f'results: {{"steps:plan": {texts}, "steps:double": {doubled}}}\n')
    assert by_function.result == 40
    with pytest.raises(AssertionError):
        play(outer(), 'results: {"runs/double": 1}\n')


def test_a_scenario_can_say_what_the_written_graph_comes_to() -> None:
    assert play(outer(), 'results: {"steps:plan": {result: x}, run: {result: 7}}\n').result == 7


def test_without_a_mapping_the_written_graph_is_given_nothing() -> None:
    nodes = {key: {name: part for name, part in node.items() if name != "with"} for key, node in OUTER.items()}
    plan = compile_graph(
        json.dumps({"loom": 1, "kind": "graph", "name": "outer", "input": {"n": "int"}, "nodes": nodes}), "outer.yaml"
    )
    handlers = {"plan": lambda command: GOOD, **SYSTEM}
    outcome = Simulation(plan, MachineState(input={"n": 1}), handlers).run()
    assert outcome.failure is not None
    assert outcome.failure.code == "no_plan"


def test_a_written_graph_cannot_be_run_as_part_of_this_job() -> None:
    text = json.dumps(
        {
            "loom": 1,
            "kind": "graph",
            "name": "x",
            "nodes": {
                "a": {"graph": {"from": "${input.t}", "allow": {}}, "child": False, "next": "b"},
                "b": {"end": 1},
            },
        }
    )
    assert any("always a job of its own" in found.message for found in check_text(text, "x.yaml"))


@pytest.mark.parametrize(("source", "code"), [("planer", "L121"), ("not a node", "L004"), ("${nope}", "L130")])
def test_where_the_text_comes_from_is_checked(source: str, code: str) -> None:
    nodes = {**OUTER, "run": {**OUTER["run"], "graph": {"from": source, "allow": {}}}}
    text = json.dumps({"loom": 1, "kind": "graph", "name": "x", "nodes": nodes})
    assert code in [found.code for found in check_text(text, "x.yaml")]


def found(run: dict[str, Any], **head: Any) -> list[str]:
    """The codes and messages of the findings about a node that runs a written graph."""
    nodes = {"w": {"activity": "a.write", "max_visits": 2, "next": "run"}, "run": run, "done": {"end": None}}
    text = json.dumps({"loom": 1, "kind": "graph", "name": "x", **head, "nodes": nodes})
    known = {"tool": ("glob",), "model": ("small",), "activity": ("a.write", "steps:one")}
    wrong = check_text(text, "x", resolve=lambda what, name: None if name in known[what] else f"no {what} {name}")
    return [f"{finding.code} {finding.message}" for finding in wrong]


RUN: dict[str, Any] = {"deadline": "never", "catch": {"graph_refused": "w"}, "next": "done"}


def test_the_names_of_the_list_are_checked() -> None:
    allow = {"tools": ["glob", "t"], "functions": ["steps", "steps:one", "steps:two"], "models": ["small", "m"]}
    told = found({"graph": {"from": "w", "allow": {**allow, "agents": ["b", "c"]}}, **RUN}, agents={"b": REVIEWER})
    assert told == [
        "L150 no tool t",
        "L150 no activity steps:two",
        "L150 no model m",
        "L150 `run` allows the agent `c`, which is not in `agents`",
    ]


def test_a_written_graph_needs_a_deadline_and_a_way_for_its_refusal() -> None:
    graph = {"from": "w", "allow": {}}
    assert found({"graph": graph, **RUN}) == []
    assert [line[:4] for line in found({"graph": graph, "next": "done"})] == ["L140", "L118"]
    assert found({"graph": graph, **RUN, "catch": {"any": "w"}}) == []


HOOK: dict[HookPoint, str] = {"before_execute": "rules:look"}


@pytest.mark.parametrize(
    "head",
    [
        {"hooks": HOOK},
        {"agents": {"mine": {"model": "small", "hooks": HOOK}}},
    ],
)
def test_a_written_graph_names_no_functions_that_look_at_calls(head: dict[str, Any]) -> None:
    nodes = {"a": {"tool": "glob", "with": {"pattern": "*"}, "next": "done"}}
    if "agents" in head:
        nodes = {"a": {"agent": "mine", "with": {"task": "x"}, "next": "done"}}
    assert any("names no functions that look at calls" in text for text in refused(document(nodes, **head)))


def test_the_hooks_of_the_job_look_at_the_calls_of_a_written_graph_and_its_agents() -> None:
    nodes = {
        "a": {"tool": "glob", "with": {"pattern": "*"}, "next": "b"},
        "b": {"agent": "mine", "with": {"task": "x"}, "next": "done"},
    }
    text = document(nodes, agents={"mine": {"model": "small"}})
    allowed = Allow.model_validate(EVERYTHING)
    plan = admit(text, allowed, source="run.yaml", permissions=JOB, agents=AGENTS, hooks=HOOK)
    assert plan.graphs["inner"].hooks == HOOK
    assert plan.agents["mine"]["hooks"] == HOOK
