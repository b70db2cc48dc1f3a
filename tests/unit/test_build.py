"""A graph written in Python is the graph that the same YAML gives, and says at once what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from loom_dsl.agent.definition import Agent
from loom_dsl.documents.document import load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.errors import DocumentError
from loom_dsl.graph.builder import GraphBuilder
from loom_dsl.graph.builder.expressions import R
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.graph.dump import to_yaml
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.plan import Plan
from loom_dsl.permissions.policy import Permissions


def read(text: str) -> Graph:
    return validate_model(load_document(text, "test.yaml", kinds=("graph",)), Graph)


def hash_of(graph: Graph) -> str:
    return Plan(graph.name, {graph.name: graph}, {}).hash


CODE_REVIEW = """
loom: 1
kind: graph
name: code-review
version: 1.4.0
input: {repo: str, pr: int}
state: {findings: {type: list, reduce: extend, default: []}}
defaults: {retry: {attempts: 4, backoff: 3.0}, timeout: 10m}
agents:
  reviewer: {name: reviewer, model: gpt-4.1-mini, tools: [read_file]}
  coder: {name: coder, model: gpt-4.1}
nodes:
  checkout:
    activity: git_work:add_worktree
    with: {repo: "${input.repo}", pr: "${input.pr}"}
    compensate: {activity: "git_work:remove_worktree", with: {path: "${result.path}"}}
    next: [security, performance, style]
  security:
    agent: reviewer
    with: {focus: security, path: "${nodes.checkout.path}"}
    write: {findings: "${result.answer}"}
    next: gather
  performance:
    agent: reviewer
    with: {focus: performance, path: "${nodes.checkout.path}"}
    write: {findings: "${result.answer}"}
    next: gather
  style:
    agent: reviewer
    with: {focus: style, path: "${nodes.checkout.path}"}
    write: {findings: "${result.answer}"}
    next: gather
  gather:      {join: all, next: tests}
  tests:
    tool: git_work:run_tests
    with: {path: "${nodes.checkout.path}"}
    max_visits: 5
    exhausted: gave_up
    next: [{if: result.passed, to: approve}, {to: fix}]
  fix:         {agent: coder, with: {failures: "${nodes.tests.failures}"}, next: tests}
  approve:
    approval: {choices: [approve, reject], ask: "Merge PR ${input.pr}?"}
    deadline: {after: 4h, to: escalate}
    next: [{if: "result.choice == 'approve'", to: merge}, {to: rejected}]
  escalate:    {tool: "notify:pager", with: {who: director, pr: "${input.pr}"}, next: director}
  director:
    approval: {choices: [approve, reject], ask: "Escalated: merge PR ${input.pr}?"}
    deadline: {after: 24h, to: rejected}
    next: [{if: "result.choice == 'approve'", to: merge}, {to: rejected}]
  merge:       {activity: "git_work:merge", with: {path: "${nodes.checkout.path}"}, retry: {attempts: 5}, next: done}
  done:        {end: {sha: "${nodes.merge.sha}", findings: "${state.findings}"}}
  rejected:    {fail: review rejected}
  gave_up:     {fail: tests still red after 5 tries}
"""


def code_review() -> GraphBuilder:
    reviewer = Agent(name="reviewer", model="gpt-4.1-mini", tools=["read_file"])
    g = GraphBuilder(
        "code-review",
        version="1.4.0",
        input={"repo": "str", "pr": "int"},
        state={"findings": {"type": "list", "reduce": "extend", "default": []}},
        defaults={"retry": {"attempts": 4, "backoff": 3.0}, "timeout": "10m"},
    )
    checkout = g.activity("checkout", "git_work:add_worktree", repo=g.input.repo, pr=g.input.pr)
    checkout.compensate("git_work:remove_worktree", path=R.path)
    path = checkout.out.path
    for focus in ("security", "performance", "style"):
        g.agent(focus, reviewer, focus=focus, path=path).write(findings=R.answer).to("gather")
    checkout.to("security", "performance", "style")
    g.join("gather").to("tests")
    tests = g.tool("tests", "git_work:run_tests", path=path).bound(5, "gave_up")
    tests.when(R.passed, "approve").otherwise("fix")
    g.agent("fix", Agent(name="coder", model="gpt-4.1"), failures=tests.out.failures).to(tests)
    for node, words, time, late in (
        ("approve", "M", "4h", "escalate"),
        ("director", "Escalated: m", "24h", "rejected"),
    ):
        if node == "director":
            g.tool("escalate", "notify:pager", who=node, pr=g.input.pr).to(node)
        asked = g.approval(node, f"{words}erge PR {g.input.pr}?", choices=("approve", "reject")).after(time, late)
        asked.when(R.choice == "approve", "merge").otherwise("rejected")
    merge = g.activity("merge", "git_work:merge", path=path).retry(attempts=5).to("done")
    g.end("done", sha=merge.out.sha, findings=g.state.findings)
    g.fail("rejected", "review rejected")
    g.fail("gave_up", "tests still red after 5 tries")
    return g


def test_the_same_graph_in_yaml_and_in_python_has_one_normal_form_and_one_hash() -> None:
    written, built = read(CODE_REVIEW), code_review().build()
    assert built.dump() == written.dump()
    assert hash_of(built) == hash_of(written)
    assert hash_of(read(to_yaml(built))) == hash_of(written)
    assert code_review().compile().hash == compile_graph(CODE_REVIEW, "review.yaml").hash


def test_the_checks_of_a_graph_name_its_nodes() -> None:
    g = GraphBuilder("g")
    g.branch("a").to("b")
    with pytest.raises(DocumentError, match=r"^g: L102 `a` goes to `b`, which is not a node"):
        g.compile()


def test_agents_in_files_are_read_when_the_graph_is_compiled() -> None:
    g = GraphBuilder("g", agents={"writer": {"file": "writer.yaml"}})
    g.agent("a", "writer", task="write").to("b")
    g.end("b")
    with pytest.raises(DocumentError, match=r"writer\.yaml"):
        g.compile()
    plan = g.compile(read_file=lambda name: f"loom: 1\nkind: agent\nname: {name.partition('.')[0]}\nmodel: m\n")
    assert plan.agents["writer"]["model"] == "m"


def test_building_again_gives_the_same_and_later_additions_too() -> None:
    g = code_review()
    first = g.build()
    assert g.build() == first
    g.end("spare")
    assert set(g.build().nodes) - set(first.nodes) == {"spare"}


def test_a_graph_says_of_itself_what_a_document_does() -> None:
    g = GraphBuilder(
        "g",
        doc="What for.",
        version="2",
        input={"a": "str", "b": {"type": "int", "default": 3}, "c": {"optional": True}},
        state={"n": {"type": "int", "reduce": "add"}},
        permissions=Permissions(allow=["glob"], default="ask"),
        agents={"one": Agent(name="x", model="m"), "two": {"file": "two.yaml"}},
    )
    part = g.graph("part", doc="A part.", input={"f": "str"}, state={"s": "list"})
    part.set("keep", s=part.input.f).to("out")
    part.end("out", part.state.s)
    part.start("keep")
    g.end("late")
    g.start(g.agent("go", Agent(name="the-third", model="m", instructions="Act.")).to("late"))
    g.on_abort("late")
    text = """
loom: 1
kind: graph
name: g
doc: What for.
version: "2"
input: {a: str, b: {type: int, default: 3}, c: {optional: true}}
state: {n: {type: int, reduce: add}}
permissions: {allow: [glob], default: ask}
agents:
  one: {name: x, model: m}
  two: {file: two.yaml}
  the_third: {name: the-third, model: m, instructions: Act.}
start: go
on_abort: late
nodes:
  late: {end: null}
  go: {agent: the_third, next: late}
graphs:
  part:
    doc: A part.
    input: {f: str}
    state: {s: list}
    nodes:
      keep: {set: {s: "${input.f}"}, next: out}
      out: {end: "${state.s}"}
"""
    assert g.build().dump() == read(text).dump()
    assert read(to_yaml(g.build())) == g.build()


def outside(value: str) -> str:
    return value


def other() -> Any:
    return GraphBuilder("other").end("z")


WRONG: list[tuple[Callable[[GraphBuilder], Any], str]] = [
    (lambda g: g.end("n") and g.end("n"), "node `n`: there is another node with this id"),
    (lambda g: g.branch("n").to("a").to("b"), "node `n`: `next` is said twice"),
    (lambda g: g.branch("n").to("a").when(R, "b"), "node `n`: to(), when(), each() and times() do not go together"),
    (lambda g: g.branch("n").each(R, "a").when(R, "b"), "node `n`: to(), when(), each() and times() do not go"),
    (lambda g: g.branch("n").otherwise("a"), "node `n`: otherwise() comes after when() or each()"),
    (lambda g: g.branch("n").times(2, "a").otherwise("a"), "node `n`: otherwise() comes after when() or each()"),
    (lambda g: g.branch("n").when(R, "a").otherwise("b").when(R, "c"), "node `n`: otherwise() comes last, once"),
    (lambda g: g.branch("n").when(R.a is True, "a"), "node `n`: False is not an expression"),
    (lambda g: g.branch("n").to(), "node `n`: to() names no node"),
    (lambda g: g.branch("n").to(other()), "node `n`: `z` is a node of another graph, `other`"),
    (lambda g: g.branch("n").to(7), "node `n`: 7 is not a node"),
    (lambda g: g.race("n", "a", other()), "node `n`: `z` is not a node of this graph"),
    (lambda g: g.start(other()), "`z` is not a node of this graph"),
    (lambda g: g.branch("n").catch("any", "a").catch("any", "b"), "node `n`: `catch.any` is said twice"),
    (lambda g: g.branch("n").compensation(attempts=3), "node `n`: compensation() says more about compensate()"),
    (lambda g: g.tool("n", "glob", x={1, 2}), "node `n`: {1, 2} is not a JSON value"),
    (lambda g: g.tool("n", "glob", x=float("nan")), "node `n`: the number nan is out of range"),
    (lambda g: g.set("n", a={1: 2}), "node `n`: the key 1 is not text"),
    (lambda g: g.activity("n", lambda: 1), "node `n`: tests.unit.test_build:<lambda>.<locals>.<lambda> is a lambda"),
    (lambda g: g.map("n", "part", over=3), "node `n`: 3 is not an expression"),
    (lambda g: g.subgraph("n", GraphBuilder("x")), "node `n`: `x` is a graph of another document"),
    (lambda g: g.approval("n"), "node `n`: an approval asks a sentence, or has a `request`"),
    (lambda g: g.end("n", 1, a=2), "node `n`: an end gives one value, or fields by name"),
    (lambda g: [g.agent(n, Agent(name="a", model=n)) for n in "no"], "node `o`: there are two different agents `a`"),
    (lambda g: g.graph("p") and g.graph("p"), "there is another graph `p`"),
    (lambda g: g.graph("p") and g.end("n"), "the graph 'p' has no node"),
    (lambda g: None, "the graph 'g' has no node"),
    (lambda g: g.activity("n", "x").timeout("soon"), "`nodes.n.timeout`: 'soon' is not a duration"),
    (lambda g: g.branch("n").when("result.", "a"), "`nodes.n.next.first[0].if`: `result.` is not an expression"),
    (lambda g: g.tool("n", "glob", x="${nope.x}"), "unknown name `nope`"),
    (lambda g: g.branch("n").bound(0), "`nodes.n.max_visits`: should be greater than or equal to 1"),
    (lambda g: g.end("not a name"), "the name 'not a name' is not as it must be"),
    (lambda g: g.race("n", "a"), "`nodes.n.race`"),
]  # fmt: skip


@pytest.mark.parametrize(("add", "message"), WRONG)
def test_what_is_wrong_is_told_with_the_name_of_the_node(add: Callable[[GraphBuilder], Any], message: str) -> None:
    g = GraphBuilder("g")
    with pytest.raises(DocumentError) as caught:
        (add(g), g.build())
    assert message in str(caught.value)
    assert str(caught.value).startswith(("g: L", "p: L"))


def test_a_function_of_the_script_that_runs_is_refused() -> None:
    def here() -> None: ...

    here.__module__, here.__qualname__ = "__main__", "here"
    with pytest.raises(DocumentError, match="`__main__:here` is in the script that runs now"):
        GraphBuilder("g").activity("n", here)
    assert GraphBuilder("g").activity("n", outside).to("n")._fields["activity"] == f"{__name__}:outside"


def test_all_mistakes_of_the_schema_are_told_at_once() -> None:
    g = GraphBuilder("g", input={"a": {"typ": "str"}})  # type: ignore[typeddict-unknown-key]
    g.activity("n", "x").timeout("soon").to("end")
    g.activity("end", "x").retry(attempts=0)
    with pytest.raises(DocumentError) as caught:
        g.build()
    assert len(caught.value.diagnostics) == 3
    assert {finding.code for finding in caught.value.diagnostics} == {"L002", "L004"}
