"""A job goes on where another one failed: what was finished is not done again, and it comes to the same."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.errors import LoomError
from loom_dsl.graph.library import NAMES, shipped
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import RunActivity, Started
from loom_dsl.machine.fork import NOTHING_LEFT, Resumed, failed_nodes, resumed
from loom_dsl.machine.records import ApprovalRecord
from loom_dsl.machine.state import MachineState
from loom_dsl.machine.tokens.checkpoint import MAX_KEPT, TAKEN_BACK
from loom_dsl.simulation.in_memory import Outcome, Simulation
from tests.support.patterns import SCENARIOS, InMemory, call
from tests.support.simulated import JOB, SYSTEM, Broken, check_state, check_states, echo, graph, of_type
from tests.support.tokens import DONE, name, plan, work
from tests.unit.test_machine_random import BLOCKS, Block, Builder

HOUR = 3600.0


class Stubborn(Simulation):
    """Activities that cannot be cancelled: they report what they did."""

    def _cancel(self, at: str) -> None:
        if not any(isinstance(given, RunActivity) and given.at == at for given in self.work):
            super()._cancel(at)


@dataclass
class Line:
    """Jobs that go on, each where the one before it failed.

    Attributes:
        plan: What they run; may be changed between two.
        fails: Says of an activity whether it fails this time.
        jobs: The simulations of the jobs.
        kept: What the store has of the one that failed last.
    """

    plan: Plan
    fails: Callable[[RunActivity], bool]
    kind: type[Simulation] = Simulation
    steps: int | None = None
    jobs: list[Simulation] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)

    def begin(self, given: Any = None) -> Simulation:
        """Begin the first job."""
        return self._job(MachineState(input=given))

    def resume(self, new: Plan | None = None, names: dict[str, str] | None = None) -> Resumed:
        """Look how another job would go on."""
        last = self.jobs[-1]
        found = resumed(
            self.kept, self.plan, new or self.plan, names or {}, job=f"j{len(self.jobs)}", now=last.now + HOUR
        )
        if not found.problems:
            check_state(found.state)
        return found

    def go_on(self, new: Plan | None = None, names: dict[str, str] | None = None) -> Simulation:
        """Begin another job where the last one failed."""
        found = self.resume(new, names)
        assert found.problems == []
        self.plan, self.kept = new or self.plan, {}
        return self._job(MachineState.from_json(json.loads(json.dumps(found.state.to_json()))))

    def _job(self, state: MachineState) -> Simulation:
        start = self.jobs[-1].now + HOUR if self.jobs else 1_700_000_000.0
        known = {
            "name": self._work(name),
            "echo": self._work(echo),
            "one": self._work(lambda command: 1),
            "fail": lambda command: self._broken(),
            "undo": lambda command: None,
            "loom.events.flush": self._flush,
            "loom.approval.announce": lambda command: None,
        }
        sim = self.kind(self.plan, state, known, job=f"j{len(self.jobs)}", steps_per_run=self.steps, start=start)
        self.jobs.append(sim)
        return sim

    def _work(self, gives: Callable[[RunActivity], Any]) -> Callable[[RunActivity], Any]:
        def do(command: RunActivity) -> Any:
            return self._broken() if self.fails(command) else gives(command)

        return do

    def _broken(self) -> Any:
        raise Broken("it broke")

    def _flush(self, command: RunActivity) -> None:
        self.kept = command.arguments.get("failed_at", self.kept)

    def done(self) -> list[str]:
        """What has run to its end in all of the jobs together."""
        return sorted(
            at.partition("/")[2] for sim in self.jobs for at, verdict in sim.outcome.trace if verdict == "done"
        )


def once(*names: str) -> Callable[[RunActivity], bool]:
    """Fail each of these executions the first time."""
    left = set(names)

    def fails(command: RunActivity) -> bool:
        found = command.at in left
        left.discard(command.at)
        return found

    return fails


def drive(sim: Simulation, pick: Callable[[], int]) -> Outcome:
    for _ in range(5_000):
        check_state(sim.machine.state)
        if not sim.step(pick()):
            assert sim.outcome.over, f"it stands still: {sorted(sim.machine.state.tokens)}"
            return sim.outcome
    raise AssertionError("it does not end")


# -- laws --------------------------------------------------------------------------------------------------------------


@given(BLOCKS, st.integers(0, 10_000), st.sampled_from([None, None, 1, 2]), st.booleans(), st.integers(1, 3))
def test_a_graph_that_fails_and_goes_on_comes_to_the_same_and_does_nothing_twice(
    block: Block, seed: int, steps: int | None, stubborn: bool, failures: int
) -> None:
    made = Builder().build(("row", [("work",), block, ("work",)]))
    expected = Line(made, lambda command: False)
    drive(expected.begin({"way": 1}), lambda: 0)
    source, left = random.Random(seed), [failures]

    def fails(command: RunActivity) -> bool:
        failed = left[0] > 0 and source.random() < 0.3
        left[0] -= failed
        return failed

    line = Line(made, fails, Stubborn if stubborn else Simulation, steps)
    outcome = drive(line.begin({"way": 1}), lambda: source.randrange(100))
    while outcome.failure is not None:
        if outcome.failure.details:
            assert line.resume().problems == [TAKEN_BACK]
            return
        outcome = drive(line.go_on(), lambda: source.randrange(100))
        assert of_type(outcome, "warning") == []
    assert line.done() == expected.done()
    total, wanted = (one.jobs[-1].machine.state.frames[""].state["total"] for one in (line, expected))
    assert total == wanted


class Interrupted(InMemory):
    """A pattern one of whose activities fails once; another job goes on then, and is sent the rest."""

    def __init__(self, name: str, failing: int) -> None:
        self.failing, self.went_on, self.kept = failing, 0, dict[str, Any]()
        super().__init__(name, SCENARIOS[name], None)
        self.handlers = {**SYSTEM, "loom.function.call": self._call, "loom.events.flush": self._flush}

    def step(self, pick: int = 0) -> bool:
        """Go on in another job when this one has failed."""
        moved = super().step(pick)
        if self.outcome.failure is not None:
            found = resumed(self.kept, self.plan, self.plan, {}, job=JOB, now=self.now)
            assert found.problems == []
            self.went_on, self.work, self.timers = self.went_on + 1, [], {}
            self.outcome = Outcome(trace=[(at, v) for at, v in self.outcome.trace if v == "done"])
            self._sequences.clear()
            self.machine = self._machine(MachineState.from_json(json.loads(json.dumps(found.state.to_json()))))
            self._feed(Started(now=self.now))
        return moved

    def _call(self, command: RunActivity) -> Any:
        self.failing -= 1
        if self.failing == 0:
            raise Broken("it broke")
        return call(command)

    def _flush(self, command: RunActivity) -> None:
        self.kept = command.arguments.get("failed_at", self.kept)


@pytest.mark.parametrize(
    ("name", "failing"),
    [
        (name, 1 + i)
        for name, scenario in SCENARIOS.items()
        if name != "20-cancel-case"  # its activity settles an abort
        for i in range(len(scenario.trace.split()))
    ],
)
def test_a_pattern_one_of_whose_activities_failed_goes_on_to_the_same(name: str, failing: int) -> None:
    scenario = SCENARIOS[name]
    sim = Interrupted(name, failing)
    sim.play()
    assert sim.went_on == 1
    assert sim.outcome.over, f"it stands still: {sorted(sim.machine.state.tokens)}"
    assert sim.outcome.result == scenario.result
    assert sim.trace() == sorted(scenario.trace.split())
    check_states(sim.outcome)


# -- what goes on, kind by kind ----------------------------------------------------------------------------------------


def fork(nodes: dict[str, Any], failing: tuple[str, ...], finish: tuple[str, ...] = (), **head: Any) -> Line:
    """A job that failed once at each of these executions, the last of them for good; its activities in this order."""
    line = Line(plan(nodes, **head), once(*failing))
    sim = line.begin(head.get("given"))
    for at in finish:
        places = [i for i, given in enumerate(sim.work) if given.at == at]
        assert places, f"{at} does not run; what runs: {[given.at for given in sim.work]}"
        sim.step(places[0])
    assert sim.run().failure is not None
    return line


ITEM = {"nodes": {"a": work("b"), "b": work("z"), "z": {"end": "${[item, result]}"}}}


def test_only_the_items_of_a_map_that_were_not_finished_run_again() -> None:
    nodes = {"m": {"map": {"over": "[1, 2, 3, 4]", "do": "item"}, "next": "z"}, "z": DONE}
    order = ("m#1[0]/a#1", "m#1[1]/a#1", "m#1[0]/b#1", "m#1[2]/a#1", "m#1[1]/b#1")
    line = fork(nodes, ("m#1[1]/b#1",), order, graphs={"item": ITEM})
    found = line.resume()
    assert found.again == ["m#1[1]/b#1", "m#1[2]/b#1", "m#1[3]/a#1"]
    assert failed_nodes(line.kept) == ["m#1[1]/b#1"]
    before = len(line.done())
    outcome = line.go_on().run()
    assert outcome.result == [[1, "b"], [2, "b"], [3, "b"], [4, "b"]]
    assert (before, len(line.done())) == (4, 8)
    assert of_type(outcome, "node_start")[0]["node"] == "m#1", "watchers are told of the map again"


def test_branches_that_went_on_while_a_graph_inside_was_taken_away_are_not_done_again() -> None:
    """The failure takes its time: what is in flight beside it reports first, and other branches go on meanwhile."""
    inner = {"nodes": {"i": {"next": ["bad", "slow"]}, "bad": work("z"), "slow": work("z"), "z": {"end": 1}}}
    nodes = {
        "s": {"next": ["g", "x"]},
        "g": {"graph": "inner", "next": "j"},
        "x": work("y"),
        "y": work("j"),
        "j": {"join": "all", "next": "z"},
        "z": DONE,
    }
    line = Line(plan(nodes, graphs={"inner": inner}), once("g#1[0]/bad#1"), Stubborn)
    sim = line.begin()
    for at in ("g#1[0]/bad#1", "x#1", "y#1"):
        sim.step([given.at for given in sim.work].index(at))
    assert sim.run().failure is not None
    assert line.resume().again == ["g#1[0]/bad#1", "g#1[0]/z#1"], (
        "what could not be cancelled was finished all the same"
    )
    assert line.go_on().run().result == {"g": 1, "y": "y"}
    assert line.done() == sorted(["g#1[0]/bad#1", "g#1[0]/slow#1", "x#1", "y#1"])


def test_a_round_of_a_loop_and_a_graph_inside_a_graph_go_on_in_their_middle() -> None:
    deep = {"nodes": {"a": work("b"), "b": work("z"), "z": DONE}}
    body = {"nodes": {"g": {"graph": "deep", "next": "z"}, "z": {"end": "${index}"}}}
    nodes = {"l": {"loop": {"do": "body", "until": "result >= 2", "max": 5}, "next": "z"}, "z": DONE}
    line = fork(nodes, ("l#1[1]/g#1[0]/b#1",), graphs={"body": body, "deep": deep})
    assert line.resume().again == ["l#1[1]/g#1[0]/b#1"]
    assert line.go_on().run().result == 2
    assert len(line.done()) == 6


def test_a_job_that_went_on_fails_elsewhere_and_goes_on_again() -> None:
    nodes = {"a": work("b"), "b": work("c"), "c": work("z"), "z": {"end": "${[nodes.a, nodes.b, nodes.c]}"}}
    line = fork(nodes, ("b#1", "c#1"))
    assert line.go_on().run().failure is not None
    assert line.resume().again == ["c#1"]
    assert line.go_on().run().result == ["a", "b", "c"]
    assert line.done() == ["a#1", "b#1", "c#1"]


def test_deadlines_and_timers_begin_anew_and_events_that_came_are_kept() -> None:
    graphs = {"item": {"nodes": {"w": {"event": "never", "next": "z"}, "z": DONE}}}
    nodes = {
        "s": {"next": ["bad", "m", "t"]},
        "bad": work("got"),
        "got": {"event": "go", "next": "z"},
        "m": {"map": {"over": "[1]", "do": "item"}, "deadline": {"after": "30m", "to": "z"}, "next": "z"},
        "t": {"timer": "10m", "next": "z"},
        "z": DONE,
    }
    line = Line(plan(nodes, graphs=graphs), once("bad#1"))
    sim = line.begin()
    sim.signal("loom.event", {"name": "go", "data": "early", "id": "e1"})
    assert sim.run().failure is not None
    began = sim.now + HOUR
    again = line.go_on()
    assert again.timers == {"t#1": began + 600, "m#1": began + 1800}
    outcome = again.run()
    assert outcome.failure is None
    assert (again.now, again.machine.state.events) == (began + 1800, [])


def test_a_lock_is_held_by_who_held_it() -> None:
    nodes = {
        "s": {"next": ["a", "b", "bad"]},
        "a": work("z", mutex="one"),
        "b": work("z", mutex="one"),
        "bad": work("z"),
        "z": {"end": 1},
    }
    line = fork(nodes, ("bad#1",), ("bad#1",))
    sim = line.go_on()
    assert [given.at for given in sim.work if not given.at.startswith("~")] == ["a#1", "bad#1"]
    assert sim.run().failure is None
    assert line.done() == ["a#1", "b#1", "bad#1"]


def test_an_approval_that_was_decided_stays_decided_and_an_open_one_is_asked_again() -> None:
    nodes = {
        "s": {"next": ["first", "second"]},
        "first": {"approval": {"ask": "One?"}, "deadline": "never", "next": "bad"},
        "second": {"approval": {"ask": "Two?"}, "deadline": "never", "next": "j"},
        "bad": work("j"),
        "j": {"join": "all", "next": "z"},
        "z": {"end": "${[nodes.first.choice, nodes.second.choice]}"},
    }
    line = Line(plan(nodes), once("bad#1"))
    sim = line.begin()
    while sim.work:
        sim.step()
    asked = {token.node: token.kept(ApprovalRecord).id for token in sim.machine.state.tokens.values()}
    sim.signal("loom.decision", {"approval_id": asked["first"], "choice": "approve", "by": "ann"})
    assert sim.run().failure is not None
    again = line.go_on()
    while again.work:
        again.step()
    (token,) = (token for token in again.machine.state.tokens.values() if token.status == "waiting")
    assert (token.node, token.kept(ApprovalRecord).id != asked["second"]) == ("second", True)
    again.signal("loom.decision", {"approval_id": token.kept(ApprovalRecord).id, "choice": "approve", "by": "ann"})
    assert again.run().result == ["approve", "approve"]


def test_a_child_job_is_started_anew_under_an_id_of_the_new_job() -> None:
    class Lost(LoomError):
        code = "lost"

    inner = {"nodes": {"w": work("z"), "z": DONE}}
    nodes = {"a": work("c"), "c": {"graph": "inner", "child": True, "next": "z"}, "z": DONE}
    line = fork(nodes, ("w#1",), graphs={"inner": inner})
    sim = line.go_on()
    (started,) = (given for given in sim.work if not isinstance(given, RunActivity))
    assert started.child == "j1.c.1"
    assert sim.run().result == "w"


def test_a_tool_call_goes_through_its_stages_again_unless_the_tool_has_run() -> None:
    """Approvals, ledger and arguments of a call belong to the job that made it."""
    nodes = {"s": {"next": ["t", "bad"]}, "t": {"tool": "send", "next": "j"}, "bad": work("j"),
             "j": {"join": "all", "next": "z"}, "z": {"end": "${nodes.t}"}}  # fmt: skip
    made = Plan("main", {"main": graph(nodes), **{name: shipped(name) for name in NAMES}}, {})
    for finished, again in (("discover", ["t#1", "bad#1"]), ("execute", ["t#1[0]/format#1", "bad#1"])):
        line = Line(made, once("bad#1"))
        sim = _tools(line)
        while not any(at.endswith(f"{finished}#1") for at, _ in sim.outcome.trace):
            sim.step(next(i for i, given in enumerate(sim.work) if given.at != "bad#1"))
        sim.step(next(i for i, given in enumerate(sim.work) if given.at == "bad#1"))
        assert sim.run().failure is not None
        assert line.resume().again == again


def _tools(line: Line) -> Simulation:
    sim = line.begin()
    stages: dict[str, Any] = {
        "prepare": {"quick": False, "timeout": 10},
        "discover": {"ok": True},
        "validate": {"ok": True, "arguments": "a" * 64},
        "authorize": {"decision": "allow"},
        "check_cancel": {"ok": True},
        "execute": {"ok": True},
        "format": {"ok": True, "output": "o"},
        "output": "sent",
    }
    known = {f"loom.tool.{stage}": (lambda command, gives=gives: gives) for stage, gives in stages.items()}
    sim.handlers = {**sim.handlers, **known}
    return sim


# -- with a changed graph, and what cannot go on -----------------------------------------------------------------------


def test_a_condition_that_failed_is_mended_without_doing_again_what_gave_it_its_value() -> None:
    nodes = {"a": work([{"if": "result.missing", "to": "z"}, {"to": "z"}]), "z": DONE}
    line = fork(nodes, ())
    assert line.done() == ["a#1"]
    (problem,) = line.resume().problems
    assert problem.startswith("it would fail again at once: node `a`: ")
    assert line.go_on(plan({**nodes, "a": work("z")})).run().result == "a"
    assert line.done() == ["a#1"]


def test_a_loop_goes_on_with_the_rounds_that_it_lacked() -> None:
    body = {"nodes": {"w": work("z"), "z": {"end": "${index}"}}}

    def rounds(most: int) -> Plan:
        nodes = {"l": {"loop": {"do": "body", "until": "result >= 3", "max": most}, "next": "z"}, "z": DONE}
        return plan(nodes, graphs={"body": body})

    line = Line(rounds(2), once())
    assert line.begin().run().failure is not None
    (problem,) = line.resume().problems
    assert "would need more than 2 rounds" in problem
    assert line.go_on(rounds(5)).run().result == 3
    assert line.done() == [f"l#1[{index}]/w#1" for index in range(4)]


def test_items_are_kept_when_a_maps_own_condition_fails() -> None:
    item = {"nodes": {"a": work("z"), "z": {"end": "${item}"}}}

    def over(when: str | None) -> Plan:
        spec = {"over": "[1, 2, 3]", "do": "item", **({"done_when": when} if when else {})}
        return plan({"m": {"map": spec, "next": "z"}, "z": DONE}, graphs={"item": item})

    line = Line(over("result[1] > 0"), once())
    assert line.begin().run().failure is not None
    assert line.go_on(over(None)).run().result == [1, 2, 3]
    assert line.done() == [f"m#1[{index}]/a#1" for index in range(3)]


def test_a_graph_that_ended_itself_goes_on_only_with_another_way_there() -> None:
    nodes = {"a": work("thrown_away"), "thrown_away": {"fail": "no use"}, "b": work("z"), "z": DONE}
    line = fork(nodes, ())
    (problem,) = line.resume().problems
    assert problem.startswith("the graph ended itself at `thrown_away`; ")
    mended = plan({"a": work("b"), "b": work("z"), "z": DONE})
    (problem,) = line.resume(mended).problems
    assert problem.startswith("a token is at `thrown_away#1`, and the new plan has no node `thrown_away`")
    sim = line.go_on(mended, {"thrown_away": "b"})
    assert sim.run().failure is None
    assert list(sim.machine.state.frames[""].outputs) == ["a", "b"]


def test_a_node_that_was_entered_too_often_goes_on_when_it_may_be_entered_more_often() -> None:
    def tries(most: int) -> Plan:
        again = [{"if": "run.now < 0", "to": "z"}, {"to": "a"}] if most < 5 else "z"
        return plan({"a": work(again, max_visits=most), "z": DONE})

    line = Line(tries(2), once())
    assert line.begin().run().failure is not None
    (problem,) = line.resume().problems
    assert problem.startswith("`a` was entered over 2 times; raise its `max_visits`")
    assert line.go_on(tries(5)).run().result == "a"
    assert line.done() == ["a#1", "a#2", "a#3"]


def test_what_took_something_back_was_aborted_is_too_large_or_had_nothing_left_does_not_go_on() -> None:
    undone = {"a": {"activity": "one", "compensate": {"activity": "undo"}, "next": "b"}, "b": work("z"), "z": DONE}
    assert fork(undone, ("b#1",)).resume().problems == [TAKEN_BACK]
    large = {"a": {"activity": "echo", "with": {"text": "x" * MAX_KEPT}, "next": "b"}, "b": work("z"), "z": DONE}
    (problem,) = fork(large, ("b#1",)).resume().problems
    assert f"{MAX_KEPT} are kept; start a new job" in problem
    line = Line(plan({"z": DONE}, input={"n": "int"}), once())
    assert line.begin({"n": "no number"}).run().failure is not None
    assert line.resume().problems == [NOTHING_LEFT]


def test_nothing_is_kept_of_a_failure_that_is_caught_or_of_a_job_that_completes() -> None:
    item = {"nodes": {"a": work("z"), "z": {"end": "${item}"}}}
    nodes = {"m": {"map": {"over": "[1, 2]", "do": "item"}, "catch": {"any": "z"}, "next": "z"}, "z": {"end": 1}}
    line = Line(plan(nodes, graphs={"item": item}), once("m#1[0]/a#1"))
    sim = line.begin()
    while sim.step():
        assert sim.machine.state.failed_at == {}
    assert (sim.outcome.result, line.kept) == (1, {})


def test_all_tokens_of_a_stuck_join_go_on_when_it_needs_fewer() -> None:
    def joined(join: Any) -> Plan:
        nodes = {
            "s": {"next": ["a", "b", "c"]},
            "a": work("j"),
            "b": work("j"),
            "c": work([{"if": "result == 'never'", "to": "j"}, {"to": "e"}]),
            "j": {"join": join, "next": "z"},
            "e": {"end": None},
            "z": {"end": "${nodes.j}"},
        }
        return plan({"g": {"graph": "inner", "next": "z"}, "z": DONE}, graphs={"inner": {"nodes": nodes}})

    line = Line(joined("all"), once())
    outcome = line.begin().run()
    assert (outcome.failure is not None and outcome.failure.code) == "join_deadlock"
    assert len([token for token in line.kept["tok"].values() if token["n"] == "j"]) == 2
    assert line.go_on(joined("taken")).run().result == {"a": "a", "b": "b"}
    assert len(line.done()) == 3


def test_a_child_job_that_came_to_its_end_all_the_same_is_not_started_again() -> None:
    inner = {"nodes": {"w": work("z"), "z": {"end": "child"}}}
    nodes = {
        "s": {"next": ["bad", "c"]},
        "bad": work("j"),
        "c": {"graph": "inner", "child": True, "next": "j"},
        "j": {"join": "all", "next": "z"},
        "z": {"end": "${nodes.j}"},
    }
    line = Line(plan(nodes, graphs={"inner": inner}), once("bad#1"))
    sim = line.begin()
    sim._cancel = lambda at: None  # type: ignore[method-assign]  # the order to abort came too late
    sim.step(next(i for i, given in enumerate(sim.work) if given.at == "bad#1"))
    assert sim.run().failure is not None
    assert line.resume().again == ["bad#1", "j#1"]
    assert line.go_on().run().result == {"bad": "bad", "c": "child"}
