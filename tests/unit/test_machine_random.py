"""Any graph of blocks comes to the same, in whatever order and in however many runs, and ends when it is aborted."""

import random
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.graph.compiler import compile_graph
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import RunActivity
from loom_dsl.simulation.in_memory import Simulation
from loom_dsl.text.canonical import canonical_json
from tests.support.simulated import chance, check_state, check_states, graph, of_type
from tests.support.tokens import begin, control, ended, running

# -- graphs of blocks --------------------------------------------------------------------------------------------

Block = tuple[Any, ...]
LEAVES = st.sampled_from([("work",), ("set",), ("undone",), ("wait",), ("locked",), ("broken",)])


def _inner(blocks: st.SearchStrategy[Block]) -> st.SearchStrategy[Block]:
    several = st.lists(blocks, min_size=2, max_size=3)
    return st.one_of(
        st.tuples(st.just("row"), several),
        st.tuples(st.just("all"), several),
        st.tuples(st.just("one"), several),
        st.tuples(st.just("some"), several, st.integers(0, 7)),
        st.tuples(st.just("map"), blocks, st.integers(0, 3), st.integers(1, 3)),
        st.tuples(st.just("loop"), blocks, st.integers(1, 3)),
        st.tuples(st.just("graph"), blocks),
        st.tuples(st.just("race"), blocks),
        st.tuples(st.just("apart"), blocks, st.integers(1, 3)),
        st.tuples(st.just("threads"), blocks, st.integers(1, 3)),
    )


BLOCKS = st.recursive(LEAVES, _inner, max_leaves=7)


class Builder:
    """Writes a block as nodes of a graph."""

    def __init__(self) -> None:
        self.graphs: dict[str, Any] = {}
        self.numbers = count(1)

    def build(self, block: Block) -> Plan:
        """The plan of a block; it ends with the sum of what was done."""
        nodes: dict[str, Any] = {}
        start = self._add(block, "z", nodes)
        nodes = {"begin": {"next": start}, **nodes, "z": {"end": "${state.total}"}}
        state = {"total": {"type": "int", "reduce": "add"}}
        return Plan("main", {"main": graph(nodes, graphs=self.graphs, state=state, input={"way": "int"})}, {})

    def _body(self, block: Block) -> str:
        name, nodes = f"g{next(self.numbers)}", dict[str, Any]()
        start = self._add(block, "z", nodes)
        self.graphs[name] = {"start": "begin", "nodes": {"begin": {"next": start}, **nodes, "z": {"end": 1}}}
        return name

    def _add(self, block: Block, then: str, nodes: dict[str, Any]) -> str:
        number = next(self.numbers)
        key = f"{block[0]}{number}"
        getattr(self, f"_{block[0]}")(block, key, then, nodes)
        return key

    def _work(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        nodes[key] = {"activity": "one", "write": {"total": "${result}"}, "next": then}

    def _locked(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        nodes[key] = {"activity": "one", "write": {"total": "${result}"}, "mutex": "lock", "next": then}

    def _undone(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        nodes[key] = {"activity": "one", "compensate": {"activity": "undo"}, "next": then}

    def _broken(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        nodes[key] = {"activity": "fail", "catch": {"any": then}, "next": then}

    def _set(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        nodes[key] = {"set": {"total": 10}, "next": then}

    def _wait(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        nodes[key] = {"timer": "1m", "next": then}

    def _row(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        for inner in reversed(block[1]):
            then = self._add(inner, then, nodes)
        nodes[key] = {"next": then}

    def _all(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        branches = []
        for inner in block[1]:  # each over an edge of its own
            nodes[f"{key}e{len(branches)}"] = {"next": f"{key}j"}
            branches.append(self._add(inner, f"{key}e{len(branches)}", nodes))
        nodes[key] = {"next": branches}
        nodes[f"{key}j"] = {"join": "all", "next": then}

    def _one(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        targets = [self._add(inner, then, nodes) for inner in block[1]]
        ways = [{"if": f"input.way == {index}", "to": target} for index, target in enumerate(targets[:-1])]
        nodes[key] = {"next": [*ways, {"to": targets[-1]}]}

    def _some(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        targets = [self._add(inner, f"{key}j", nodes) for inner in block[1]]
        chosen = block[2]
        ways = [{"if": str(bool(chosen >> i & 1)).lower(), "to": target} for i, target in enumerate(targets[1:])]
        nodes[key] = {"next": {"each": [*ways, {"to": targets[0]}]}}
        nodes[f"{key}j"] = {"join": "taken", "next": then}

    def _map(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        spec = {"over": str(list(range(block[2]))), "do": self._body(block[1]), "window": block[3]}
        nodes[key] = {"map": spec, "write": {"total": "${sum(result)}"}, "next": then}

    def _loop(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        nodes[key] = {"loop": {"do": self._body(block[1]), "while": f"index < {block[2]}", "max": 3}, "next": then}

    def _graph(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        nodes[key] = {"graph": self._body(block[1]), "next": then}

    def _race(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        nodes[f"{key}g"] = {"graph": self._body(block[1]), "next": then}
        nodes[f"{key}e"] = {"event": "never", "deadline": {"after": "30d", "to": then}, "next": then}
        nodes[key] = {"race": [f"{key}e", f"{key}g"]}

    def _apart(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        spec = {"over": str(list(range(block[2]))), "do": self._body(block[1]), "detach": True}
        nodes[key] = {"map": spec, "next": then}

    def _threads(self, block: Block, key: str, then: str, nodes: dict[str, Any]) -> None:
        nodes[f"{key}g"] = {"graph": self._body(block[1]), "next": f"{key}j"}
        nodes[key] = {"next": {"times": block[2], "to": f"{key}g"}}
        nodes[f"{key}j"] = {"join": {"threads": block[2]}, "next": then}


HANDLERS: dict[str, Callable[[RunActivity], Any]] = {"one": lambda command: 1, "undo": lambda command: None}


def started(plan: Plan, steps: int | None = None) -> Simulation:
    return begin(plan, input={"way": 1}, handlers=HANDLERS, steps_per_run=steps)


def drive(sim: Simulation, pick: Callable[[], int], most: int = 5_000) -> Simulation:
    """Go on to the end, and check the state at every step."""
    for _ in range(most):
        check_state(sim.machine.state)
        if not sim.step(pick()):
            return sim
    raise AssertionError("it does not end")


def check_end(sim: Simulation) -> None:
    """Nothing is left over."""
    assert sim.outcome.over, f"it stands still: {sorted(sim.machine.state.tokens)}"
    assert sim.work == []
    assert list(sim.machine.state.frames) == [""]
    assert of_type(sim.outcome, "warning") == []
    check_states(sim.outcome)


def total(sim: Simulation) -> Any:
    """The sum of what was done; the result may be given before what is detached has ended."""
    return sim.machine.state.frames[""].state["total"]


def verdicts(sim: Simulation) -> list[tuple[str, str]]:
    return sorted(sim.outcome.trace)


@given(BLOCKS, st.integers(0, 1_000), st.sampled_from([1, 2, 3]))
def test_order_and_runs_do_not_change_what_comes_of_a_graph(block: Block, seed: int, steps: int) -> None:
    plan = Builder().build(block)
    expected = drive(started(plan), lambda: 0)
    check_end(expected)
    assert expected.outcome.failure is None
    for pick, steps_per_run in ((lambda: -1, None), (chance(seed), None), (lambda: 0, steps), (chance(seed), steps)):
        found = drive(started(plan, steps_per_run), pick)
        check_end(found)
        assert (found.outcome.failure, total(found)) == (None, total(expected))
        assert verdicts(found) == verdicts(expected)


@given(BLOCKS)
def test_a_graph_of_blocks_passes_the_checks(block: Block) -> None:
    plan = Builder().build(("row", [("work",), block]))
    compile_graph(canonical_json(plan.graphs["main"].dump()), "main")


@given(BLOCKS, st.integers(0, 60), st.integers(0, 1_000), st.sampled_from([None, 1, 2]))
def test_an_abort_at_any_moment_ends_a_graph_and_takes_everything_back(
    block: Block, moment: int, seed: int, steps: int | None
) -> None:
    sim, pick = started(Builder().build(block), steps), chance(seed)
    for _ in range(moment):
        sim.step(pick())
    if sim.machine.state.ending is not None:
        return
    begun = {*ended(sim), *running(sim)}
    control(sim, "abort", reason="enough")
    drive(sim, pick)
    check_end(sim)
    assert sim.outcome.failure is None
    assert (sim.outcome.result["status"], sim.outcome.result["reason"]) == ("aborted", "enough")
    taken_back = [entry["node"] for entry in sim.outcome.result.get("compensations", ())]
    assert sorted(at for at in begun if at.rpartition("/")[2].startswith("undone")) == sorted(taken_back)
    assert sim.machine.state.undo == []


@given(BLOCKS, st.integers(0, 60), st.integers(0, 1_000), st.sampled_from([None, 1]))
def test_a_pause_at_any_moment_only_takes_time(block: Block, moment: int, seed: int, steps: int | None) -> None:
    plan = Builder().build(block)
    expected = drive(started(plan), lambda: 0)
    sim, pick = started(plan, steps), chance(seed)
    for _ in range(moment):
        sim.step(pick())
    if sim.machine.state.ending is None:
        control(sim, "pause")
        before = {*running(sim), *ended(sim)}
        while sim.work:  # and no time passes, for deadlines run on
            sim.step(pick())
        assert {*running(sim), *ended(sim)} == before
        control(sim, "resume")
    drive(sim, pick)
    check_end(sim)
    assert (sim.outcome.failure, total(sim)) == (None, total(expected))
    assert verdicts(sim) == verdicts(expected)


@pytest.mark.parametrize("seed", range(20))
def test_a_graph_that_fails_somewhere_ends_with_that_failure(seed: int) -> None:
    source = random.Random(seed)
    block: Block = ("row", [("work",), ("all", [("undone",), ("map", ("undone",), 3, 2), ("work",)]), ("bad",)])
    builder = Builder()
    builder._bad = lambda block, key, then, nodes: nodes.update({key: {"fail": "bad"}})  # type: ignore[attr-defined]
    sim = drive(started(builder.build(block), source.choice([None, 1, 2])), lambda: source.randrange(100))
    check_end(sim)
    assert sim.outcome.failure is not None
    assert sim.outcome.failure.message == "bad"
    assert len(sim.outcome.failure.details["compensations"]) == 4
