"""Every kind of node, and everything that it may say, can be written in Python."""

import os.path
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from loom_dsl.agent.states import RunState
from loom_dsl.documents.document import load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.fields import Part, Retry
from loom_dsl.graph.builder import GraphBuilder
from loom_dsl.graph.builder.expressions import R, index, input, item, nodes
from loom_dsl.graph.dump import to_yaml
from loom_dsl.graph.edges import Compensation, Next, Node
from loom_dsl.graph.generated import Allow, GeneratedGraph
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.nodes import (
    NODE_KINDS,
    ApprovalSpec,
    Barrier,
    EventSpec,
    FailSpec,
    JoinSpec,
    LlmSpec,
    LoopSpec,
    MapSpec,
    Open,
    RecurseSpec,
    TimerSpec,
    kind_of,
)

Case = tuple[Callable[[GraphBuilder], Any], dict[str, Any]]
KINDS: list[Case] = [
    (lambda g: g.branch("n").to("b"), {"next": "b"}),
    (lambda g: g.branch("n").to("a", g.end("b")), {"next": ["a", "b"]}),
    (
        lambda g: g.branch("n").when(R.a > 1, "a").when("result.b", "b").otherwise("c"),
        {"next": [{"if": "result.a > 1", "to": "a"}, {"if": "result.b", "to": "b"}, {"to": "c"}]},
    ),
    (
        lambda g: g.branch("n").each(R.a, "a").each(R.b, "b").otherwise("c"),
        {"next": {"each": [{"if": "result.a", "to": "a"}, {"if": "result.b", "to": "b"}, {"to": "c"}]}},
    ),
    (lambda g: g.branch("n").times(3, "a"), {"next": {"times": 3, "to": "a"}}),
    (lambda g: g.branch("n").times(input.n, "a"), {"next": {"times": "${input.n}", "to": "a"}}),
    (
        lambda g: (
            g.branch("n")
            .doc("Why.")
            .phase("p")
            .run_state(RunState.PREPARING)
            .mutex("m")
            .only_while(R.ok)
            .emit("progress", {"a b": R.x}, done=1)
            .emit("more")
            .bound(2, "a")
            .after(timedelta(minutes=5), "b")
            .catch("any", "c")
            .catch("timeout", "a")
            .write(x=R.x)
            .write(y=[R.y, None])
            .compensate("undo", {"a-b": R.x}, c=1)
            .to("a")
        ),
        {
            "doc": "Why.",
            "phase": "p",
            "state": "preparing",
            "mutex": "m",
            "only_while": "result.ok",
            "max_visits": 2,
            "emit": {"progress": {"a b": "${result.x}", "done": 1}, "more": {}},
            "exhausted": "a",
            "next": "a",
            "deadline": {"after": "5m", "to": "b"},
            "catch": {"any": "c", "timeout": "a"},
            "write": {"x": "${result.x}", "y": ["${result.y}", None]},
            "compensate": {"activity": "undo", "with": {"a-b": "${result.x}", "c": 1}},
        },
    ),
    (
        lambda g: (
            g.branch("n")
            .compensate("m:undo")
            .compensation(timeout="5m", attempts=9, initial="2s", backoff=3, longest=9)
        ),
        {
            "compensate": {
                "activity": "m:undo",
                "timeout": "5m",
                "retry": {"attempts": 9, "initial": 2, "backoff": 3, "longest": "9s"},
            }
        },
    ),
    (lambda g: g.branch("n").without_deadline(), {"deadline": "never"}),
    (
        lambda g: (
            g.activity("n", "my.work", a=input.x, b={"c": [1.5, True]}).timeout(R.t).heartbeat("5s").retry(attempts=2)
        ),
        {
            "activity": "my.work",
            "with": {"a": "${input.x}", "b": {"c": [1.5, True]}},
            "timeout": "${result.t}",
            "heartbeat": 5,
            "retry": {"attempts": 2},
        },
    ),
    (
        lambda g: g.activity("n", os.path.join).options(
            carrier="local", events="leave", inbox="take", max_outage="never"
        ),
        {
            "activity": "posixpath:join",
            "carrier": "local",
            "events": "leave",
            "inbox": "take",
            "max_outage": "never",
        },
    ),
    (
        lambda g: g.tool("n", "glob", {"a-b": 1}, path=f"{input.dir}/*"),
        {"tool": "glob", "with": {"a-b": 1, "path": "${input.dir}/*"}},
    ),
    (lambda g: g.tool("n", os.path.join), {"tool": "posixpath:join"}),
    (lambda g: g.agent("n", "writer", task="write"), {"agent": "writer", "with": {"task": "write"}}),
    (
        lambda g: g.llm(
            "n", f"Sum up {R.text}", model="m", system="Be brief.", parameters={"temperature": 0}
        ).max_outage("2h"),
        {
            "max_outage": "2h",
            "llm": {
                "model": "m",
                "prompt": "Sum up ${result.text}",
                "system": "Be brief.",
                "parameters": {"temperature": 0},
            },
        },
    ),
    (
        lambda g: g.approval("n", "Go on?", choices=["yes", "no"], late="accept", policy={"quorum": 2}),
        {"approval": {"ask": "Go on?", "choices": ["yes", "no"], "late": "accept", "policy": {"quorum": 2}}},
    ),
    (
        lambda g: g.approval("n", request={"summary": "Go on?", "diff": R.diff}),
        {"approval": {"request": {"summary": "Go on?", "diff": "${result.diff}"}}},
    ),
    (lambda g: g.event("n", "paid"), {"event": "paid"}),
    (
        lambda g: g.event("n", "paid", key=input.order, buffer=False),
        {"event": {"name": "paid", "key": "${input.order}", "buffer": False}},
    ),
    (lambda g: g.timer("n", "2h"), {"timer": "2h"}),
    (lambda g: g.timer("n", until=input.at), {"timer": {"until": "${input.at}"}}),
    (lambda g: g.join("n"), {"join": "all"}),
    (lambda g: g.join("n", "taken"), {"join": "taken"}),
    (lambda g: g.join("n", need=2, rest="cancel"), {"join": {"need": 2, "rest": "cancel"}}),
    (lambda g: g.join("n", threads=input.n), {"join": {"threads": "${input.n}"}}),
    (lambda g: g.map("n", g.graph("part"), over=input.files), {"map": {"over": "input.files", "do": "part"}}),
    (
        lambda g: g.map(
            "n",
            "part",
            over="input.files",
            with_={"f": item, "i": index},
            first=10,
            window=5,
            need=2,
            done_when=R[0] == 1,
            rest="ignore",
            detach=True,
            open={"add": "more", "close": "enough"},
            complete="stop",
            barrier={"at": "a", "limit": input.n, "exclusive": item.big, "key": "item.key"},
        ),
        {
            "map": {
                "over": "input.files",
                "do": "part",
                "with": {"f": "${item}", "i": "${index}"},
                "first": 10,
                "window": 5,
                "need": 2,
                "done_when": "result[0] == 1",
                "rest": "ignore",
                "detach": True,
                "open": {"add": "more", "close": "enough"},
                "complete": "stop",
                "barrier": {"at": "a", "limit": "${input.n}", "exclusive": "item.big", "key": "item.key"},
            }
        },
    ),
    (lambda g: g.loop("n", "part", until=R.done, max=9), {"loop": {"do": "part", "until": "result.done", "max": 9}}),
    (
        lambda g: g.loop("n", g.graph("part"), while_=index < 3, max=9, with_={"a": 1}),
        {"loop": {"do": "part", "while": "index < 3", "max": 9, "with": {"a": 1}}},
    ),
    (lambda g: g.subgraph("n", g), {"graph": "g"}),
    (lambda g: g.subgraph("n", "part", a=input.x), {"graph": "part", "with": {"a": "${input.x}"}}),
    (lambda g: g.subgraph("n", "part", {}).max_depth(3), {"graph": "part", "with": {}, "max_depth": 3}),
    (lambda g: g.subgraph("n", "part").child(), {"graph": "part", "child": True}),
    (
        lambda g: g.written("n", g.activity("w", "m:f"), a=1, allow={"tools": ["t"]}),
        {"graph": {"from": "w", "allow": {"tools": ["t"]}}, "with": {"a": 1}},
    ),
    (
        lambda g: g.written(
            "n",
            nodes.w.text,
            allow={
                "kinds": ["tool", "map"],
                "tools": ["t"],
                "functions": ["m"],
                "agents": ["a"],
                "models": ["small"],
                "secrets": ["S"],
                "max_nodes": 5,
                "max_depth": 1,
                "max_bytes": 1000,
                "max_cost_usd": 0.5,
            },
        ),
        {
            "graph": {
                "from": "${nodes.w.text}",
                "allow": {
                    "kinds": ["tool", "map"],
                    "tools": ["t"],
                    "functions": ["m"],
                    "agents": ["a"],
                    "models": ["small"],
                    "secrets": ["S"],
                    "max_nodes": 5,
                    "max_depth": 1,
                    "max_bytes": 1000,
                    "max_cost_usd": 0.5,
                },
            }
        },
    ),
    (lambda g: g.race("n", "a", g.timer("b", "1s")).to("c"), {"race": ["a", "b"], "next": "c"}),
    (lambda g: g.set("n", a=1, b=nodes.x.y), {"set": {"a": 1, "b": "${nodes.x.y}"}}),
    (lambda g: g.cancel("n", "a"), {"cancel": "a"}),
    (lambda g: g.cancel("n", "a", g.end("b")), {"cancel": ["a", "b"]}),
    (
        lambda g: g.recurse("n", policy="history", idle=True, compacted="${has(nodes, 'n')}"),
        {"recurse": {"policy": "history", "idle": True, "compacted": "${has(nodes, 'n')}"}},
    ),
    (lambda g: g.end("n"), {"end": None}),
    (lambda g: g.end("n", R.answer), {"end": "${result.answer}"}),
    (lambda g: g.end("n", a=1, b=R.x).terminate(), {"end": {"a": 1, "b": "${result.x}"}, "terminate": True}),
    (lambda g: g.fail("n", "the graph failed"), {"fail": {}}),
    (lambda g: g.recurse("n"), {"recurse": {}}),
    (lambda g: g.fail("n", "no"), {"fail": "no"}),
    (
        lambda g: g.fail("n", f"no {R.x}", code="late", details=R),
        {"fail": {"message": "no ${result.x}", "code": "late", "details": "${result}"}},
    ),
]


@pytest.mark.parametrize(("add", "node"), KINDS, ids=[f"{kind_of(node)}-{n}" for n, (_, node) in enumerate(KINDS)])
def test_every_kind_of_node_can_be_added(add: Callable[[GraphBuilder], Any], node: dict[str, Any]) -> None:
    g = GraphBuilder("g")
    add(g)
    for body in g._graphs.values():
        body.end("x")
    built = g.build()
    written = Graph.model_validate({"name": "g", "start": "n", "nodes": {"n": node}})
    assert built.nodes["n"] == written.nodes["n"]
    assert validate_model(load_document(to_yaml(built), "g", kinds=("graph",)), Graph) == built


def test_everything_that_a_node_may_say_is_said_above() -> None:
    said: set[tuple[type[Part], str]] = set()
    for _, node in KINDS:
        note(Graph.model_validate({"name": "g", "nodes": {"n": node}}).nodes["n"], said)
    parts: list[type[Part]] = [*NODE_KINDS.values(), Retry, Compensation, Barrier, Open, MapSpec, LoopSpec, LlmSpec]
    parts += [ApprovalSpec, EventSpec, TimerSpec, JoinSpec, RecurseSpec, FailSpec, Next, GeneratedGraph, Allow]
    every = {(part, field) for part in parts for field in part.model_fields if field not in Node.model_fields}
    every |= {(Node, field) for field in Node.model_fields}
    assert not every - said


def note(part: BaseModel, said: set[tuple[type[Part], str]]) -> None:
    for field in part.model_fields_set:
        said.add((Node if isinstance(part, Node) and field in Node.model_fields else type(part), field))  # type: ignore[arg-type]
        if isinstance(value := getattr(part, field), BaseModel):
            note(value, said)
