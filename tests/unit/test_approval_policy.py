"""What happens to a question while nobody answers it, who may answer, and what every answer does (mission D3)."""

from typing import Any

import pytest

from loom_dsl.approvals.policy import ApprovalPolicy, is_among, person, read_policy
from loom_dsl.errors import ExpressionError
from loom_dsl.machine.outbox import is_told_once
from loom_dsl.machine.state import MachineState
from loom_dsl.machine.status import status_of
from loom_dsl.simulation.in_memory import Simulation
from loom_dsl.text.canonical import canonical_json, digest
from loom_dsl.text.confusables import mixes_scripts, revealed
from tests.support.simulated import (
    JOB,
    SYSTEM,
    Agent,
    approvals,
    call,
    check_state,
    check_states,
    decision,
    of_type,
    plan_of,
    simulate,
)

HOUR = 3600.0
EACH_STEP = pytest.mark.parametrize("steps", [None, 1])


def asked(policy: dict[str, Any], *, starter: str = "", steps: int | None = None, **node: Any) -> Simulation:
    """A graph's question with this policy, put."""
    told: list[Any] = []
    nodes = {
        "ask": {"approval": {"request": {"summary": "go?", "requester": "agent a"}, "policy": policy,
                             "choices": ["approve", "edit", "reject", "respond", "terminate"]}, "next": "z", **node},
        "late": {"end": "late"},
        "z": {"end": "${result}"},
    }  # fmt: skip
    if "deadline" not in node:
        del nodes["late"]
    handlers = {**SYSTEM, "loom.approval.announce": lambda command: told.append(command.arguments)}
    state = MachineState(starter=starter)
    sim = Simulation(plan_of(nodes), state, handlers, job=JOB, steps_per_run=steps)
    sim.told = told  # type: ignore[attr-defined]
    settle(sim)
    return sim


def settle(sim: Simulation) -> None:
    """Do what can be done without time passing."""
    while sim.work:
        sim.step()
    check_state(sim.machine.state)


def passes(sim: Simulation, seconds: float) -> None:
    """Let time pass; what is due meanwhile is done on time."""
    end = sim.now + seconds
    while sim.timers and min(sim.timers.values()) <= end and not sim.outcome.over:
        sim.step()
        settle(sim)
    sim.now = end


def say(sim: Simulation, choice: str = "approve", by: str = "ada", **more: Any) -> str:
    """Send a decision as an update; the verdict."""
    name = more.pop("name", None) or approvals(sim)[0][1]
    sim.signal("loom.decision", decision(name, choice, by=by, **more), answer_to="u")
    settle(sim)
    return sim.outcome.answers.pop("u")


def changes(sim: Simulation) -> list[str]:
    """What was told of the question besides its end."""
    return [event["what"] for event in of_type(sim.outcome, "approval_changed")]


def told(sim: Simulation) -> list[Any]:
    """Why, and whom, the hook was told each time."""
    return [(notice.get("again", ""), notice.get("to")) for notice in sim.told]  # type: ignore[attr-defined]


# -- what a policy can say -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ({"remind": "10ms"}, "`remind` must be at least 1s"),
        ({"on_expiry": "escalate", "expires": "1h"}, "needs a step in `escalate` without `after`"),
        ({"on_expiry": "escalate", "escalate": [{"to": "lead"}]}, "needs `expires`"),
        ({"escalate": [{"to": "lead"}]}, "a step of `escalate` needs `after`"),
        ({"escalate": [{"after": "1h", "to": []}]}, "policy.escalate.0.to"),
        ({"quorum": 3, "approvers": ["ann", "Ann", "bob"]}, "there are 2"),
        ({"quorum": 0}, "policy.quorum"),
        ({"quorum": True}, "policy.quorum"),
        ({"four_eyes": "yes"}, "policy.four_eyes"),
        ({"expires": "soon"}, "policy.expires"),
        ({"expire": "1h"}, "policy.expire"),
        ("never", "`policy` of an approval"),
        ({"on_expiry": "wait"}, "policy.on_expiry"),
    ],
)
def test_a_policy_that_is_none_is_told_with_its_place(written: Any, wrong: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        read_policy(written)
    assert wrong in caught.value.message
    assert "\n" not in caught.value.message


def test_a_policy_is_read_from_a_document_and_from_what_an_expression_gives() -> None:
    written = {"expires": "1h", "remind": "10m", "escalate": [{"after": "30m", "to": "lead"}], "approvers": "ann"}
    computed = {"expires": 3600, "remind": 600.0, "escalate": [{"after": 1800, "to": ["lead"]}], "approvers": ["ann"]}
    assert read_policy(written) == read_policy(computed) == ApprovalPolicy.model_validate(written)
    assert read_policy(None) == ApprovalPolicy()


def test_a_graph_whose_policy_cannot_be_is_refused_when_it_is_read() -> None:
    with pytest.raises(ValueError, match="quorum"):
        plan_of({"a": {"approval": {"ask": "?", "policy": {"quorum": 0}}, "next": "z"}, "z": {"end": 1}})


def test_a_policy_that_turns_out_wrong_fails_its_node_and_not_the_machine() -> None:
    nodes = {"a": {"approval": {"ask": "?", "policy": "${input}"}, "next": "z"}, "z": {"end": 1}}
    sim = simulate(plan_of(nodes), input={"quorum": "many"})
    failure = sim.run().failure
    assert failure is not None
    assert failure.code == "expression_error"
    assert "policy.quorum" in failure.message


# -- reminders, escalation, expiry -----------------------------------------------------------------------------


@EACH_STEP
def test_who_does_not_answer_is_reminded_until_somebody_does(steps: int | None) -> None:
    sim = asked({"remind": "1h"}, steps=steps)
    passes(sim, 3.5 * HOUR)
    assert told(sim) == [("", None)] + [("reminder", None)] * 3
    assert say(sim) == "recorded"
    passes(sim, 10 * HOUR)
    assert len(told(sim)) == 4
    assert sim.outcome.result["choice"] == "approve"


def test_reminders_that_nobody_was_up_to_send_are_sent_once() -> None:
    sim = asked({"remind": "1h"})
    sim.now += 5.2 * HOUR
    assert sim.step()
    settle(sim)
    assert told(sim) == [("", None), ("reminder", None)]
    assert min(sim.timers.values()) == pytest.approx(sim.now + 0.8 * HOUR)


@EACH_STEP
def test_steps_of_the_escalation_are_taken_on_time_and_their_people_may_decide_from_then_on(steps: int | None) -> None:
    policy = {"approvers": ["ann"], "escalate": [{"after": "2h", "to": "cto"}, {"after": "1h", "to": ["lead", "bob"]}]}
    sim = asked(policy, steps=steps)
    assert say(sim, by="lead") == "not_allowed"
    passes(sim, 1 * HOUR)
    assert told(sim) == [("", ["ann"]), ("escalation", ["lead", "bob"])]
    assert say(sim, by="cto") == "not_allowed"
    passes(sim, 1 * HOUR)
    assert told(sim)[2:] == [("escalation", ["cto"])]
    assert status_of(sim.machine)["approvals"][0]["approvers"] == ["ann", "lead", "bob", "cto"]
    assert say(sim, by="cto") == "recorded"
    assert sim.outcome.result["by"] == "cto"


def test_a_decision_counts_by_the_steps_that_were_due_when_it_came() -> None:
    sim = asked({"approvers": ["ann"], "escalate": [{"after": "1h", "to": "lead"}]})
    sim.now += 1.5 * HOUR  # no worker was up
    assert say(sim, by="lead") == "recorded"
    assert changes(sim) == ["escalated"]


@EACH_STEP
def test_escalation_at_expiry_gives_the_next_people_the_whole_time(steps: int | None) -> None:
    policy = {"expires": "1h", "on_expiry": "escalate", "approvers": ["ann"],
              "escalate": [{"to": "lead"}, {"to": "cto"}]}  # fmt: skip
    sim = asked(policy, steps=steps)
    passes(sim, 2.5 * HOUR)
    assert told(sim) == [("", ["ann"]), ("escalation", ["lead"]), ("escalation", ["cto"])]
    assert not sim.outcome.over
    passes(sim, 0.5 * HOUR)
    failure = sim.outcome.failure
    assert failure is not None
    assert failure.code == "approval_expired"
    assert [event["choice"] for event in of_type(sim.outcome, "approval_decided")] == ["expired"]


@pytest.mark.parametrize(("on_expiry", "edge", "result"), [("deny", True, "late"), ("allow", True, "late")])
def test_with_a_deadline_the_graph_itself_says_what_follows(on_expiry: str, edge: bool, result: str) -> None:
    sim = asked({"on_expiry": on_expiry}, deadline={"after": "1h", "to": "late"})
    passes(sim, 1 * HOUR)
    assert sim.outcome.result == result
    assert ["allowed" in event for event in of_type(sim.outcome, "approval_decided")] == [False]


def test_without_an_edge_what_nobody_answers_is_allowed_or_fails_by_name() -> None:
    sim = asked({"expires": "1h", "on_expiry": "allow"})
    passes(sim, 1 * HOUR)
    assert (sim.outcome.result["choice"], sim.outcome.result["by"], sim.outcome.result["expired"]) == (
        "approve", "", True,
    )  # fmt: skip
    assert [event.get("allowed") for event in of_type(sim.outcome, "approval_decided")] == [True]
    sim = asked({"expires": "1h"}, catch={"approval_expired": "z"})
    passes(sim, 1 * HOUR)
    assert [event.get("allowed") for event in of_type(sim.outcome, "approval_decided")] == [None]
    assert sim.outcome.result["code"] == "approval_expired"


def test_a_decision_after_the_end_is_told_that_it_expired_and_not_that_it_was_decided() -> None:
    nodes = {
        "both": {"next": ["a", "b"]},
        "a": {"approval": "first?", "deadline": {"after": "1h", "to": "z"}, "next": "z"},
        "b": {"approval": "second?", "next": "z"},
        "z": {"end": None},
    }
    sim = simulate(plan_of(nodes))
    settle(sim)
    (_, first), (_, second) = approvals(sim)
    passes(sim, 1 * HOUR)
    assert say(sim, name=first) == "expired"
    sim.signal("loom.decision", decision(second, "approve"), answer_to="one")
    assert sim.outcome.answers["one"] == "recorded"


@EACH_STEP
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"escalate": [{"after": "1h", "to": "lead"}, {"after": "2h", "to": "lead"}], "remind": "1h"}, 2 + 4 + 2),
        ({"expires": "1h", "on_expiry": "halt"}, 3 + 2 + 2),
    ],
)
def test_nothing_that_becomes_of_a_question_is_told_twice_in_the_same_words(
    policy: dict[str, Any], expected: int, steps: int | None
) -> None:
    sim = asked({"approvers": ["ann", "bob", "lead"], "quorum": 3, **policy}, steps=steps)
    passes(sim, 1.5 * HOUR)
    say(sim, by="ann")
    for number in range(2):
        sim.signal("loom.control", {"op": "resume", "by": "ops", "id": f"c{number}"})
        settle(sim)
        passes(sim, 1.5 * HOUR)
    say(sim, by="bob")
    once = [canonical_json(event) for event in sim.outcome.events if is_told_once(event)]
    assert len(set(once)) == len(once)
    assert len(of_type(sim.outcome, "approval_changed")) == expected
    assert len([text for text in once if '"control"' in text]) == 2


# -- halting -----------------------------------------------------------------------------------------------------


@EACH_STEP
def test_a_halted_job_waits_and_a_decision_picks_it_up(steps: int | None) -> None:
    sim = asked({"expires": "1h", "on_expiry": "halt"}, steps=steps)
    passes(sim, 9 * HOUR)
    assert changes(sim) == ["halted"]
    assert told(sim) == [("", None), ("halted", None)]
    status = status_of(sim.machine)
    assert status["paused"] is None
    assert status["approvals"][0]["halted"]
    (halted,) = status["halted"]
    assert halted["approval"] == status["approvals"][0]["approval_id"]
    assert (halted["cause"], halted["since"]) == ("approval_expired", sim.machine.state.last)
    assert f"loom approve job {halted['approval']}" in halted["action"]
    assert sim.timers == {}
    assert say(sim) == "recorded"
    assert sim.outcome.result["choice"] == "approve"
    assert of_type(sim.outcome, "control") == []
    (told_halted,), (resumed,) = of_type(sim.outcome, "halted"), of_type(sim.outcome, "resumed")
    assert told_halted["node"] == resumed["node"] == halted["at"]
    assert status_of(sim.machine)["halted"] == []


@EACH_STEP
def test_a_halted_job_that_is_resumed_asks_anew_with_the_whole_time(steps: int | None) -> None:
    sim = asked({"expires": "1h", "on_expiry": "halt", "approvers": ["ann"]}, steps=steps)
    passes(sim, 5 * HOUR)
    sim.signal("loom.control", {"op": "resume", "by": "ops"})
    settle(sim)
    assert status_of(sim.machine)["halted"] == []
    assert told(sim)[-1] == ("renewed", ["ann"])
    assert list(sim.timers.values()) == [sim.now + HOUR]
    passes(sim, 1 * HOUR)
    assert changes(sim) == ["halted", "renewed", "halted"]
    assert say(sim, by="ann") == "recorded"


@pytest.mark.parametrize("hours", [0, 2])
def test_what_a_person_paused_stays_paused_when_a_halted_question_is_decided(hours: int) -> None:
    sim = asked({"expires": "1h", "on_expiry": "halt"})
    passes(sim, hours * HOUR)
    sim.signal("loom.control", {"op": "pause", "by": "ops"})
    settle(sim)
    passes(sim, 2 * HOUR)
    assert say(sim) == "recorded"
    assert sim.machine.state.paused == {"by": "ops", "at": sim.machine.state.paused["at"]}  # type: ignore[index]
    assert not sim.outcome.over


def test_an_agent_that_halts_goes_on_where_it_was() -> None:
    agent = Agent([[call(0, "write_ask")], []], approvals={"expires": "24h", "on_expiry": "halt"})
    settle(agent.sim)
    passes(agent.sim, 30 * HOUR)
    assert not agent.sim.outcome.over
    assert say(agent.sim) == "recorded"
    assert agent.run().result == {"status": "completed"}
    assert agent.executed == ["c0"]
    check_states(agent.sim.outcome)


def test_a_halted_question_holds_up_its_own_call_and_not_the_others() -> None:
    agent = Agent([[call(0, "read_ask"), call(1, "read_ask")], []], approvals={"expires": "1h", "on_expiry": "halt"})
    settle(agent.sim)
    passes(agent.sim, 2 * HOUR)
    assert say(agent.sim) == "recorded"
    settle(agent.sim)
    assert agent.executed == ["c0"]
    assert [step["cause"] for step in status_of(agent.sim.machine)["halted"]] == ["approval_expired"]
    assert say(agent.sim) == "recorded"
    assert agent.run().result == {"status": "completed"}
    assert sorted(agent.executed) == ["c0", "c1"]


# -- who may decide ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "verdict"),
    [("ann", "recorded"), ("ANN ", "recorded"), ("ann\u200b", "recorded"), ("bob", "not_allowed"), ("", "not_allowed"),
     ("\u0430nn", "not_allowed"), ("ann, bob", "not_allowed")],
)  # fmt: skip
def test_only_approvers_decide_and_look_alikes_are_none(by: str, verdict: str) -> None:
    sim = asked({"approvers": ["Ann"]})
    assert say(sim, by=by) == verdict
    assert (approvals(sim) == []) is (verdict == "recorded")
    refused = [event["verdict"] for event in of_type(sim.outcome, "warning")]
    assert refused == ([] if verdict == "recorded" else [verdict])


@pytest.mark.parametrize(
    ("starter", "by", "verdict"),
    [("ann", "bob", "recorded"), ("ann", "Ann", "not_allowed"), ("ann", "agent a", "not_allowed"),
     ("ann", "", "not_allowed"), ("", "bob", "not_allowed"), ("ann", "\u0430nn", "not_allowed")],
)  # fmt: skip
def test_four_eyes_are_not_those_of_who_started_the_job_or_asks(starter: str, by: str, verdict: str) -> None:
    assert say(asked({"four_eyes": True}, starter=starter), by=by) == verdict


@EACH_STEP
def test_a_quorum_needs_so_many_different_people_who_answer_alike(steps: int | None) -> None:
    sim = asked({"quorum": 2}, steps=steps)
    assert say(sim, by="ann", message="fine") == "recorded"
    assert say(sim, by="Ann") == "already_done"
    assert say(sim, "edit", by="ann") == "not_allowed"
    assert say(sim, by="") == "not_allowed"
    assert say(sim, "edit", by="eve") == "recorded"
    assert status_of(sim.machine)["approvals"][0]["votes"] == ["ann", "eve"]
    assert not sim.outcome.over
    assert say(sim, by="bob", message="go") == "recorded"
    assert sim.outcome.result == {"choice": "approve", "by": "ann, bob", "message": "fine; go"}
    assert [(e["by"], e["have"]) for e in of_type(sim.outcome, "approval_changed")] == [("ann", 1), ("eve", 1)]


@pytest.mark.parametrize("choice", ["reject", "terminate"])
def test_one_person_is_enough_to_stop_it_also_who_has_approved(choice: str) -> None:
    sim = asked({"quorum": 3})
    assert say(sim, by="ann") == "recorded"
    assert say(sim, choice, by="ann") == "recorded"
    assert sim.outcome.over


def test_a_quorum_remembers_no_more_than_each_of_them_wants() -> None:
    agent = Agent([[call(0, "write_ask")], [call(1, "write_ask")], []], approvals={"expires": "never", "quorum": 2})
    settle(agent.sim)
    assert say(agent.sim, by="ann", remember="rule") == "recorded"
    assert say(agent.sim, by="bob", remember="no") == "recorded"
    assert len(approvals(agent.sim)) == 1
    assert say(agent.sim, by="ann", remember="rule") == "recorded"
    assert say(agent.sim, by="bob", remember="job") == "recorded"
    decided = of_type(agent.sim.outcome, "approval_decided")
    assert [event.get("remember") for event in decided] == [None, "job"]


# -- what a decision says ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "verdict", "why"),
    [
        ({"choice": "perhaps"}, "invalid", "is not one of approve, edit"),
        ({"choice": "approve", "edited_arguments": {}}, "invalid", "go with the choice edit"),
        ({"choice": "respond"}, "invalid", "needs a message"),
        ({"choice": "respond", "message": " "}, "invalid", "needs a message"),
        ({"choice": "reject", "remember": "rule"}, "invalid", "remember goes with the choice approve"),
        ({"choice": "approve", "digest": "0" * 64}, "wrong_digest", "has the digest"),
        ({"choice": "approve", "digest": "x"}, "invalid", "digest"),
        ({"choice": "approve", "approval_id": "ap_other"}, "unknown", "ap_other"),
    ],
)
def test_a_decision_that_does_not_fit_is_refused_by_name_and_the_question_stays(
    given: dict[str, Any], verdict: str, why: str
) -> None:
    sim = asked({})
    payload = {"approval_id": approvals(sim)[0][1], "by": "ada", **given}
    sim.signal("loom.decision", payload, answer_to="u")
    sim.signal("loom.decision", payload)
    settle(sim)
    assert sim.outcome.answers["u"] == verdict
    assert len(approvals(sim)) == 1
    assert say(sim) == "recorded"
    warnings = of_type(sim.outcome, "warning")
    assert [event["verdict"] for event in warnings] == [verdict] * 2
    assert all(why in event["message"] for event in warnings)


def test_a_decision_may_carry_the_digest_of_what_was_looked_at() -> None:
    sim = asked({})
    (event,) = of_type(sim.outcome, "approval_requested")
    assert event["digest"] == digest(canonical_json(event["request"]))
    assert say(sim, digest=event["digest"]) == "recorded"
    (decided,) = of_type(sim.outcome, "approval_decided")
    assert decided["digest"] == event["digest"]


def test_an_answer_in_the_tools_place_reaches_the_model_and_the_tool_does_not_run() -> None:
    formatted: list[Any] = []

    def form(command: Any) -> Any:
        formatted.append(command.arguments["outcome"])
        return {"id": "c0"}

    agent = Agent([[call(0, "write_ask")], []], handlers={"loom.tool.format": form})
    settle(agent.sim)
    assert say(agent.sim, "respond", message="use the other file") == "recorded"
    assert agent.run().result == {"status": "completed"}
    assert agent.executed == []
    assert formatted == [{"choice": "respond", "by": "ada", "message": "use the other file"}]


@EACH_STEP
def test_terminate_ends_the_job_as_an_abort_does(steps: int | None) -> None:
    agent = Agent([[call(0, "write_ask"), call(1, "read_ask")], []], steps_per_run=steps)
    settle(agent.sim)
    assert say(agent.sim, "terminate", message="enough") == "recorded"
    outcome = agent.run()
    assert outcome.over
    assert agent.executed == []
    assert agent.model_calls == 1
    check_states(outcome)
    assert [event["state"] for event in of_type(outcome, "state")][-1] == "aborted"
    choices = [event["choice"] for event in of_type(outcome, "approval_decided")]
    assert choices == ["terminate", "cancelled"]
    assert agent.sim.machine.state.abort["reason"] == "terminated by ada: enough"  # type: ignore[index]


def test_a_rule_is_kept_only_of_requests_that_loom_itself_makes() -> None:
    agent = Agent([[call(0, "write_ask")], [call(1, "write_ask")], []])
    settle(agent.sim)
    assert say(agent.sim, remember="rule") == "recorded"
    assert agent.run().result == {"status": "completed"}
    (decided,) = of_type(agent.sim.outcome, "approval_decided")
    assert (decided["remember"], decided["rules"]) == ("rule", ["write_ask(*)"])
    nodes = {"a": {"approval": {"request": {"tool": "bash", "rules": ["*"]}}, "next": "z"}, "z": {"end": 1}}
    sim = simulate(plan_of(nodes))
    settle(sim)
    assert say(sim, remember="rule") == "recorded"
    (decided,) = of_type(sim.outcome, "approval_decided")
    assert decided["rules"] == []


# -- several decisions that come late ------------------------------------------------------------------------------


def test_decisions_that_were_sent_in_time_all_count_when_they_are_looked_up_late() -> None:
    sim = asked({"quorum": 2, "expires": "1h"})
    due = sim.now + HOUR
    sim.handlers = {**sim.handlers, "loom.signal.time": lambda command: {"sent": due - 5}}
    sim.now = due + 60
    name = approvals(sim)[0][1]
    sim.signal("loom.decision", decision(name, "approve", by="ann"))
    sim.signal("loom.decision", decision(name, "approve", by="bob"))
    settle(sim)
    assert sim.outcome.result["by"] == "ann, bob"


def test_a_late_one_among_them_does_not_and_the_question_expires() -> None:
    sim = asked({"quorum": 2, "expires": "1h"}, catch={"approval_expired": "z"})
    due = sim.now + HOUR
    times = iter([due - 5, due + 5])
    sim.handlers = {**sim.handlers, "loom.signal.time": lambda command: {"sent": next(times)}}
    sim.now = due + 60
    name = approvals(sim)[0][1]
    sim.signal("loom.decision", decision(name, "approve", by="ann"))
    sim.signal("loom.decision", decision(name, "approve", by="bob"))
    sim.timers.clear()
    from loom_dsl.machine.commands import TimerFired

    sim._feed(TimerFired(now=sim.now, at="ask#1"))
    settle(sim)
    assert sim.outcome.result["code"] == "approval_expired"
    assert [event["verdict"] for event in of_type(sim.outcome, "warning")] == ["expired"]


# -- names and texts that hide something ----------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "other"), [("Ann", " ann "), ("ＡＮＮ", "ann"), ("an\u200dn", "ann"), ("É", "é")])
def test_spellings_of_one_name_are_one_person(one: str, other: str) -> None:
    assert person(one) == person(other)
    assert is_among(one, [other])


def test_nobody_is_nobody() -> None:
    assert not is_among("", [""])
    assert not is_among("\u200b", ["", "\u200b"])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, tabs\tand\nlines", None),
        ("Größe naïve Ωμέγα Привет, мир! 日本語 עברית", None),
        ("\u0435tc/p\u0430sswd", "\\u0435tc/p\\u0430sswd"),
        ("rm\u202e fdp", "rm\\u202e fdp"),
        ("a\u200bb", "a\\u200bb"),
        ("\x1b[2J", "\\x1b[2J"),
        ("git\u00a0push", "git\\xa0push"),
        ("a\u2215b", "a\\u2215b"),
        ("\u0441\u043e\u0440 and file", "\\u0441\\u043e\\u0440 and file"),
        ("\U000e0041tag", "\\U000e0041tag"),
        ("paypa\u217c.com", "paypa\\u217c.com"),
        ("\uff52\uff4d -rf", "\\uff52\\uff4d -rf"),
        ("\U0001d42bm \ufb01le", "\\U0001d42bm \\ufb01le"),
        ("p\u0251ypal and \u0261it", "p\\u0251ypal and \\u0261it"),
        ("https://example\u3002com\uff1b", "https://example\\u3002com\\uff1b"),
        ("a\u2217 \u2800b \u01c0 c", "a\\u2217 \\u2800b \\u01c0 c"),
        ("中文，测试：好。ＡＢＣ", None),
        ("1º x² ½ … ™ – “x” ①", None),
    ],
)
def test_what_hides_turns_or_imitates_is_shown_as_it_is(text: str, shown: str | None) -> None:
    assert revealed(text) == (text if shown is None else shown)


@pytest.mark.parametrize(("name", "mixed"), [("ann", False), ("\u0430nn", True), ("Анна", False), ("Ann Анна", False)])
def test_a_word_of_several_scripts_is_found(name: str, mixed: bool) -> None:
    assert mixes_scripts(name) is mixed
