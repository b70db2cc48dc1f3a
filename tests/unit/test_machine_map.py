"""Which items of a map run at the same time, and what happens when one of them fails (mission C3)."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import ActivityDone, ActivityFailed, Input, RunActivity, Started
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.state import MachineState
from tests.support.simulated import (
    Agent,
    approvals,
    call,
    check_state,
    decision,
    drive,
    of_type,
    plan_of,
    run,
    simulate,
)


def running(agent: Agent, activity: str = "loom.tool.execute") -> list[str]:
    """Ids of the calls whose activity is in flight, after everything else has been done."""
    while True:
        others = [index for index, work in enumerate(agent.sim.work) if work.activity != activity]
        if not others:
            return [work.arguments["call"]["id"] for work in agent.sim.work]
        agent.sim.step(others[0])


def finish(agent: Agent, name: str) -> None:
    agent.sim.step([work.arguments["call"]["id"] for work in agent.sim.work].index(name))


def calls(text: str) -> list[dict[str, Any]]:
    """`r` reads, `w` writes, a digit after it is its key, `?` asks: `r w1 w2?`."""
    made = []
    for number, word in enumerate(text.split()):
        name = ("read" if word[0] == "r" else "write") + ("_ask" if word.endswith("?") else "")
        key = word[1:].rstrip("?") or None
        made.append(call(number, name, safe=word[0] == "r", key=key))
    return made


@pytest.mark.parametrize(
    ("text", "together"),
    [
        ("r r r", ["c0 c1 c2"]),
        ("w w w", ["c0", "c1", "c2"]),
        ("r r w r r", ["c0 c1", "c2", "c3 c4"]),
        ("w r r w", ["c0", "c1 c2", "c3"]),
        ("w1 w2 w3", ["c0 c1 c2"]),
        ("w1 w1 w2", ["c0 c2", "c1"]),
        ("w1 r1 r2", ["c0 c2", "c1"]),
        ("r1 w1 r1", ["c0", "c1", "c2"]),
        ("r1 w2 r1", ["c0 c1 c2"]),
        ("r w1 w2", ["c0", "c1 c2"]),
        ("w1 w w2", ["c0", "c1", "c2"]),
        ("w1 r w2", ["c0", "c1", "c2"]),
        ("w1 w2 w1 w2", ["c0 c1", "c2 c3"]),
        ("r", ["c0"]),
        ("r r r r r r r r r r r r", ["c0 c1 c2 c3 c4 c5 c6 c7 c8 c9", "c10 c11"]),
    ],
)
def test_calls_run_together_unless_their_effects_need_an_order(text: str, together: list[str]) -> None:
    agent = Agent([calls(text)])
    waves = []
    for _ in together:
        wave = running(agent)
        waves.append(" ".join(wave))
        for name in wave:
            finish(agent, name)
    assert waves == together
    agent.run()
    assert agent.sim.outcome.result == {"status": "completed"}


def test_what_was_free_in_one_turn_says_nothing_about_the_next_turn_of_the_same_run() -> None:
    agent = Agent([calls("r r r"), calls("w w w"), calls("r r r"), []])
    for together in ("c0 c1 c2", "c0", "c1", "c2", "c0 c1 c2"):
        wave = running(agent)
        assert " ".join(wave) == together
        for name in wave:
            finish(agent, name)
    agent.run()
    assert (agent.sim.outcome.result, agent.sim.outcome.runs) == ({"status": "completed"}, 1)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_no_more_calls_run_at_once_than_the_limit(limit: int) -> None:
    agent = Agent([calls("r r r r r")], max_concurrency=limit)
    most = 0
    while not agent.sim.outcome.over:
        most = max(most, len([work for work in agent.sim.work if work.activity == "loom.tool.execute"]))
        if not agent.sim.step():
            break
    assert most == limit
    assert agent.executed == ["c0", "c1", "c2", "c3", "c4"]


@pytest.mark.parametrize(
    ("text", "meanwhile"),
    [
        ("r? r r", "c1 c2"),
        ("w? r r", ""),
        ("w1? r2 w2", "c1 c2"),
        ("r w? r", "c0"),
        ("w1? w1 w2", "c2"),
        ("r w1? w2", "c0 c2"),
        ("r? w r", ""),
        ("r1? w2 w1", "c1"),
    ],
)
def test_an_approval_holds_up_only_what_must_come_after_it(text: str, meanwhile: str) -> None:
    agent = Agent([calls(text)])
    done = []
    while wave := running(agent):
        done += wave
        for name in wave:
            finish(agent, name)
    assert " ".join(done) == meanwhile
    ((_, name),) = approvals(agent.sim)
    agent.sim.signal("loom.decision", decision(name, "approve"))
    assert agent.run().result == {"status": "completed"}
    assert sorted(agent.executed) == [f"c{number}" for number in range(len(text.split()))]


def test_an_approval_takes_no_slot() -> None:
    agent = Agent([calls("r? r? r r")], max_concurrency=1)
    assert running(agent) == ["c2"]
    finish(agent, "c2")
    assert running(agent) == ["c3"]
    assert len(approvals(agent.sim)) == 2


def test_a_refused_call_lets_the_next_one_pass() -> None:
    agent = Agent([calls("w? w")])
    assert running(agent) == []
    agent.sim.signal("loom.decision", decision(approvals(agent.sim)[0][1], "reject"))
    assert running(agent) == ["c1"]


@given(
    st.lists(st.tuples(st.booleans(), st.none() | st.integers(0, 2), st.booleans()), min_size=1, max_size=7),
    st.integers(1, 4),
    st.integers(0, 10_000),
    st.sampled_from([None, 1, 3]),
)
def test_two_calls_that_conflict_never_run_at_once_and_keep_their_order(
    traits: list[tuple[bool, int | None, bool]], limit: int, seed: int, steps: int | None
) -> None:
    made = [
        call(number, "read_ask" if asks else "read", safe=safe, key=None if key is None else str(key))
        for number, (safe, key, asks) in enumerate(traits)
    ]

    def conflict(a: dict[str, Any], b: dict[str, Any]) -> bool:
        one_key = a["key"] is None or b["key"] is None or a["key"] == b["key"]
        return one_key and not (a["safe"] and b["safe"])

    agent = Agent([made], max_concurrency=limit, steps_per_run=steps)
    pick = random.Random(seed).randrange
    sim = agent.sim
    for _ in range(10_000):
        at_once = [work.arguments["call"] for work in sim.work if work.activity == "loom.tool.execute"]
        assert len(at_once) <= limit
        assert not any(conflict(a, b) for i, a in enumerate(at_once) for b in at_once[:i])
        check_state(sim.machine.state)
        waiting = approvals(sim)
        if waiting and (not sim.work or pick(3) == 0):
            sim.signal("loom.decision", decision(waiting[pick(len(waiting))][1], "approve"))
        elif not sim.step(pick(1000)):
            break
    assert sim.outcome.result == {"status": "completed"}
    order = [int(name[1:]) for name in agent.executed]
    assert sorted(order) == list(range(len(made)))
    for position, later in enumerate(order):
        assert not any(conflict(made[later], made[other]) for other in order[position + 1 :] if other < later)


# -- failures ----------------------------------------------------------------------------------------------------------

ITEM = {
    "a": {"next": [{"if": "item == 'ask'", "to": "ask"}, {"if": "item == 'bad'", "to": "bad"}, {"to": "good"}]},
    "good": {"activity": "echo", "with": {"item": "${item}"}, "next": "z"},
    "bad": {"activity": "fail", "next": "z"},
    "ask": {"approval": {"request": "${item}"}, "next": "z"},
    "z": {"end": "${item}"},
}
EACH = {
    "each": {"map": {"over": "input", "do": "inner"}, "catch": {"broken": "caught"}, "next": "done"},
    "caught": {"activity": "echo", "with": {"code": "${result.code}"}, "next": "after"},
    "after": {"end": "${nodes.caught.code}"},
    "done": {"end": "${nodes.each}"},
}
NESTED = {**EACH, "each": {**EACH["each"], "map": {"over": "input", "do": "middle"}}}
MIDDLE = {"m": {"map": {"over": "item", "do": "inner"}, "next": "z"}, "z": {"end": "${nodes.m}"}}


def test_a_failing_item_fails_the_map_with_its_code_and_cancels_the_others() -> None:
    sim = simulate(plan_of(EACH, inner=ITEM), input=["good", "bad", "ask", "good"])
    position = [work.at for work in sim.work].index("each#1[1]/bad#1")
    ((_, name),) = approvals(sim)
    sim.step(position)
    assert [work.at for work in sim.work if "each" in work.at and not work.at.startswith("~")] == []
    sim.signal("loom.decision", decision(name, "approve"), answer_to="late")
    drive(sim)
    assert sim.outcome.result == "broken"
    assert sim.outcome.answers == {"late": "already_decided"}
    assert [event["choice"] for event in of_type(sim.outcome, "approval_decided")] == ["cancelled"]
    assert sim.outcome.trace == [("0/each#1[1]/bad#1", "broken"), ("0/caught#1", "done")]


class Slow:
    """Activities that report only when they are told to, also after they were cancelled."""

    def __init__(self, plan: Plan, items: Any) -> None:
        self.machine = Machine(plan, MachineState(input=items), "job")
        self.issued: list[str] = []
        self.feed(Started(now=1.0))

    def feed(self, happened: Input) -> None:
        self.issued += [c.at for c in self.machine.feed(happened) if isinstance(c, RunActivity)]
        check_state(self.machine.state)

    def done(self, at: str) -> None:
        self.feed(ActivityDone(now=1.0, at=at, result=None))

    def failed(self, at: str) -> None:
        self.feed(ActivityFailed(now=1.0, at=at, code="broken", message=""))


@pytest.mark.parametrize("order", [[0, 2], [2, 0]])
@pytest.mark.parametrize("late", ["done", "failed"])
def test_the_map_fails_only_when_every_cancelled_item_has_reported(order: list[int], late: str) -> None:
    slow = Slow(plan_of(EACH, inner=ITEM), ["good", "bad", "good"])
    slow.failed("each#1[1]/bad#1")
    for index in order:
        assert "caught#1" not in slow.issued
        getattr(slow, late)(f"each#1[{index}]/good#1")
    assert "caught#1" in slow.issued
    assert set(slow.machine.state.frames) == {""}


@pytest.mark.parametrize("late", ["done", "failed"])
def test_a_map_in_a_map_fails_when_everything_below_it_has_reported(late: str) -> None:
    plan = plan_of(NESTED, middle=MIDDLE, inner=ITEM)
    slow = Slow(plan, [["good", "bad"], ["good", "good"], ["bad", "good"]])
    slow.failed("each#1[0]/m#1[1]/bad#1")
    slow.failed("each#1[2]/m#1[0]/bad#1")
    reports = [
        "each#1[2]/m#1[1]/good#1",
        "each#1[1]/m#1[0]/good#1",
        "each#1[0]/m#1[0]/good#1",
        "each#1[1]/m#1[1]/good#1",
    ]
    for at in reports:
        assert "caught#1" not in slow.issued
        getattr(slow, late)(at)
    assert "caught#1" in slow.issued
    assert set(slow.machine.state.frames) == {""}


def test_a_failure_that_an_inner_map_catches_does_not_reach_the_outer_one() -> None:
    middle = {**MIDDLE, "m": {**MIDDLE["m"], "catch": {"any": "saved"}}, "saved": {"end": "saved"}}
    assert run(plan_of(NESTED, middle=middle, inner=ITEM), input=[["bad", "good"], ["good"]]).result == [
        "saved",
        ["good"],
    ]


def test_an_item_that_ends_early_leaves_nothing_behind() -> None:
    """One branch of the item reaches the end while another one's activity is in flight."""
    item = {
        "a": {"next": ["quick", "slow"]},
        "quick": {"activity": "x", "next": "z"},
        "slow": {"activity": "x", "next": "z"},
        "z": {"end": "${item}", "terminate": True},
    }
    slow = Slow(plan_of(EACH, inner=item), [1, 2])
    slow.done("each#1[0]/quick#1")
    slow.done("each#1[1]/slow#1")
    assert slow.machine.state.ending is None  # what was cancelled reports first
    slow.failed("each#1[0]/slow#1")
    slow.done("each#1[1]/quick#1")
    assert slow.machine.state.ending == ["finish", [1, 2]]
    assert set(slow.machine.state.frames) == {""}


@pytest.mark.parametrize("window", [1, 2, 5])
def test_no_more_items_are_under_way_than_the_window(window: int) -> None:
    each = {"each": {"map": {"over": "input", "do": "inner", "window": window}, "next": "done"}, "done": EACH["done"]}
    sim = simulate(plan_of(each, inner=ITEM), input=["good"] * 5)
    most = 0
    while not sim.outcome.over:
        most = max(most, len(sim.work))
        sim.step(most)
    assert most == window
    assert sim.outcome.result == ["good"] * 5


@pytest.mark.parametrize(("window", "at_once"), [(1, 1), (2, 2), (5, 5), (50, 5)])
def test_no_more_parts_of_a_long_list_are_under_way_than_the_window(window: int, at_once: int) -> None:
    each = {"each": {"map": {"over": "input", "do": "inner", "window": window}, "next": "done"}, "done": EACH["done"]}
    sim = simulate(plan_of(each, inner=ITEM), input=["good"] * 1_001)
    most = 0
    while not sim.outcome.over:
        most = max(most, sum(work.at.endswith("/part#1") for work in sim.work))
        sim.step(0)
    assert most == at_once
    assert sim.outcome.result == ["good"] * 1_001
