"""Decisions count in the order in which they came, and each of them once, however often it is sent."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.approvals.signature import VERIFIED
from loom_dsl.machine.commands import RunActivity, SignalReceived, UpdateAnswer
from loom_dsl.text.canonical import digest
from tests.support.asked import ASKED, KEYS, Payload, asked, decided, refusals, settle, signed, unsigned, verify
from tests.support.simulated import check_state, of_type

# -- order -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answered", [True, False])
def test_of_two_that_are_verified_at_the_same_time_the_one_counts_that_came_first(answered: bool) -> None:
    sim = asked({"signed": "low"})
    slots = ("first", "second") if answered else (None, None)
    for slot, by, choice in zip(slots, ("ann", "bob"), ("approve", "reject"), strict=True):
        sim.signal("loom.decision", signed(sim, by, choice), answer_to=slot)
    verify(sim, 1)
    assert (decided(sim), sim.outcome.answers) == ([], {})
    verify(sim, 0)
    assert decided(sim) == [("approve", "ann")]
    assert sim.outcome.answers == ({"first": "recorded", "second": "already_decided"} if answered else {})
    assert refusals(sim) == ["already_decided"]


def test_what_is_refused_needs_no_turn_and_takes_none() -> None:
    sim = asked({"signed": "low"})
    sim.signal("loom.decision", signed(sim, "ann"), answer_to="first")
    forged = signed(sim, "bob", "reject")
    forged["signature"]["value"] = "0" * 128
    sim.signal("loom.decision", forged, answer_to="forged")
    sim.signal("loom.decision", signed(sim, "cyd", "reject"), answer_to="third")
    verify(sim, 1)
    assert sim.outcome.answers == {"forged": "bad_signature"}
    verify(sim, 1)
    verify(sim, 0)
    assert decided(sim) == [("approve", "ann")]


def test_when_the_first_is_refused_the_second_counts_as_soon_as_that_is_known() -> None:
    sim = asked({"signed": "low"})
    forged = signed(sim, "ann", "reject")
    forged["signature"]["value"] = "0" * 128
    sim.signal("loom.decision", forged, answer_to="first")
    sim.signal("loom.decision", signed(sim, "bob"), answer_to="second")
    verify(sim, 1)
    assert sim.outcome.answers == {}
    verify(sim, 0)
    assert sim.outcome.answers == {"first": "bad_signature", "second": "recorded"}


def test_a_decision_without_a_signature_waits_for_a_signed_one_that_came_before_it() -> None:
    sim = asked()
    sim.signal("loom.decision", signed(sim, "ann", "reject"), answer_to="first")
    sim.signal("loom.decision", unsigned(sim, "bob"), answer_to="second")
    assert sim.outcome.answers == {}
    settle(sim)
    assert decided(sim) == [("reject", "ann")]
    assert sim.outcome.answers == {"first": "recorded", "second": "already_decided"}


def test_an_abort_answers_all_that_wait_for_their_turn() -> None:
    sim = asked()
    sim.signal("loom.decision", signed(sim, "ann"), answer_to="first")
    sim.signal("loom.decision", signed(sim, "ann"), answer_to="other")
    sim.signal("loom.decision", unsigned(sim, "bob"), answer_to="second")
    sim.signal("loom.control", {"op": "abort", "by": "ops"})
    settle(sim)
    assert sim.outcome.over
    assert sim.outcome.answers == dict.fromkeys(("first", "other", "second"), "already_decided")


WHO = st.tuples(st.sampled_from(sorted(KEYS)), st.sampled_from(["approve", "reject", "respond"]), st.booleans())


@given(come=st.lists(WHO, min_size=1, max_size=5), quorum=st.integers(1, 2), data=st.data())
def test_in_whatever_order_verifications_end_it_is_as_if_each_had_ended_before_the_next_came(
    come: list[tuple[str, str, bool]], quorum: int, data: st.DataObject
) -> None:
    ends = []
    for at_once in (False, True):
        sim = asked({"quorum": quorum})
        payloads = [
            signed(sim, by, choice) if with_key else unsigned(sim, by, choice, message="the result", id=f"{number}")
            for number, (by, choice, with_key) in enumerate(come)
        ]
        for number, payload in enumerate(payloads):
            sim.signal("loom.decision", payload, answer_to=f"u{number}")
            if not at_once:
                settle(sim)
        settle(sim, lambda most: data.draw(st.integers(0, most - 1)))
        assert len(sim.outcome.answers) == len(come)
        changes = [(event["by"], event["choice"]) for event in of_type(sim.outcome, "approval_changed")]
        ends.append((sim.outcome.answers, decided(sim), changes))
    assert ends[0] == ends[1]


# -- once --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [signed, unsigned])
@pytest.mark.parametrize("quorum", [1, 2])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_decision_that_is_sent_again_as_a_signal_counts_once_and_nobody_is_told_of_a_refusal(
    make: Callable[..., Payload], quorum: int, at_once: bool
) -> None:
    """As a client does whose update was taken and whose answer was lost."""
    sim = asked({"quorum": quorum})
    payload = make(sim, "ann")
    for slot in ("update", None, "update again"):
        sim.signal("loom.decision", dict(payload), answer_to=slot)
        if not at_once:
            settle(sim)
    settle(sim)
    assert sim.outcome.answers == {"update": "recorded", "update again": "recorded"}
    assert refusals(sim) == []
    assert decided(sim) == ([("approve", "ann")] if quorum == 1 else [])
    assert len(of_type(sim.outcome, "approval_changed")) == quorum - 1


@pytest.mark.parametrize("make", [signed, unsigned])
def test_what_became_of_a_decision_is_known_in_later_runs_and_while_the_job_ends(make: Callable[..., Payload]) -> None:
    sim = asked()
    payload = make(sim, "ann")
    sim.signal("loom.decision", payload)
    settle(sim)
    sim._continue_as_new()
    sim._feed()
    sim.signal("loom.decision", payload, answer_to="later")
    sim.signal("loom.event", {"name": "go"})
    assert sim.machine.state.ending is not None
    sim.signal("loom.decision", payload, answer_to="at the end")
    sim.signal("loom.decision", payload)
    sim.signal("loom.decision", {**payload, "choice": "reject"}, answer_to="another")
    settle(sim)
    assert sim.outcome.answers == {"later": "recorded", "at the end": "recorded", "another": "ended"}
    assert sim.outcome.over


def test_somebody_who_had_answered_already_is_told_so_again() -> None:
    sim = asked({"quorum": 2})
    for slot, name in (("one", "1"), ("two", "2"), ("two again", "2")):
        sim.signal("loom.decision", unsigned(sim, "ann", id=name), answer_to=slot)
    last = unsigned(sim, "ann", id="2")
    sim.signal("loom.decision", unsigned(sim, "bob"), answer_to="bob")
    sim.signal("loom.decision", last, answer_to="after the end")
    done = "already_done"
    assert sim.outcome.answers == {
        "one": "recorded", "two": done, "two again": done, "bob": "recorded", "after the end": done
    }  # fmt: skip


@pytest.mark.parametrize(
    "other", [{"choice": "reject"}, {"message": "x"}, {"by": "bob"}, {"remember": "job"}, {"digest": ASKED}]
)
def test_another_decision_is_not_the_same_because_it_has_the_same_id(other: dict[str, Any]) -> None:
    sim = asked()
    payload = unsigned(sim, "ann")
    sim.signal("loom.decision", payload, answer_to="one")
    sim.signal("loom.decision", {**payload, **other}, answer_to="two")
    settle(sim)
    assert sim.outcome.answers == {"one": "recorded", "two": "already_decided"}
    assert refusals(sim) == ["already_decided"]


@pytest.mark.parametrize("other", [{}, {"id": "another"}])
def test_what_says_the_same_as_what_counted_is_no_refusal_whatever_its_sender_calls_it(other: dict[str, Any]) -> None:
    sim = asked()
    payload = {**unsigned(sim, "ann"), "id": ""}
    sim.signal("loom.decision", payload, answer_to="one")
    sim.signal("loom.decision", {**payload, **other}, answer_to="two")
    sim.signal("loom.decision", {**payload, **other})
    settle(sim)
    assert sim.outcome.answers == {"one": "recorded", "two": "already_done"}
    assert refusals(sim) == []
    assert decided(sim) == [("approve", "ann")]


def test_an_unsigned_copy_of_a_signed_decision_is_not_the_same() -> None:
    sim = asked({"signed": "low"})
    payload = signed(sim, "ann")
    sim.signal("loom.decision", payload, answer_to="signed")
    settle(sim)
    sim.signal("loom.decision", {**payload, "signature": None}, answer_to="copy")
    assert sim.outcome.answers == {"signed": "recorded", "copy": "already_decided"}


def test_a_refusal_tells_what_was_refused_to_whom_and_how_it_came() -> None:
    sim = asked({"approvers": ["ann"]})
    payload = unsigned(sim, "eve", "reject")
    sim.signal("loom.decision", payload, answer_to="update")
    sim.signal("loom.decision", {**signed(sim, "bob"), "choice": "reject"})
    sim.signal("loom.decision", {"approval_id": 7, "choice": ["x"], "by": "eve", "secret": "hunter2"})
    settle(sim)
    told = [
        {name: value for name, value in event.items() if name not in ("t", "n", "at", "code", "message")}
        for event in of_type(sim.outcome, "warning")
    ]
    about = {"signal": "loom.decision", "approval_id": payload["approval_id"], "choice": "reject"}
    assert told[0] == {**about, "sent": "update", "by": "eve", "verdict": "not_allowed"}
    assert (told[1]["sent"], told[1]["by"], told[1]["key"]) == ("signal", "bob", KEYS["bob"].name)
    assert told[2] == {"signal": "loom.decision", "sent": "signal", "by": "eve", "verdict": "invalid"}


def test_an_edit_names_the_arguments_that_are_to_be_used_and_those_that_were_asked_about() -> None:
    sim = asked()
    sim.signal("loom.decision", unsigned(sim, "ann", "edit", edited_arguments={"b": 1, "a": [2]}))
    settle(sim)
    (told,) = of_type(sim.outcome, "approval_decided")
    assert (told["digest"], told["edited"]) == (ASKED, digest('{"a":[2],"b":1}'))


def test_how_many_have_answered_alike_is_told_with_their_names() -> None:
    sim = asked({"quorum": 2})
    answers = []
    for by in ("ann", "ANN"):
        signal = SignalReceived(now=sim.now, name="loom.decision", payload=unsigned(sim, by), answer_to=by)
        answers += [command.message for command in sim.machine.feed(signal) if isinstance(command, UpdateAnswer)]
    assert answers == ["approve recorded: 1 of 2 (ann)", "ANN has answered already, and counts once; 1 of 2 (ann)"]


def test_a_signature_of_another_job_is_refused_whatever_its_nonce() -> None:
    sim = asked()
    payload = signed(sim, "ann")
    stolen = {**payload, "signature": {**payload["signature"], "job": "job-2"}}
    sim.signal("loom.decision", stolen, answer_to="u")
    assert sim.outcome.answers == {"u": "wrong_job"}


def test_the_same_decision_is_refused_again_as_the_first_was_and_told_once_while_that_is_found_out() -> None:
    sim = asked({"signed": "low"})
    forged = signed(sim, "ann")
    forged["signature"]["value"] = "0" * 128
    for slot in ("one", "two", None):
        sim.signal("loom.decision", forged, answer_to=slot)
    settle(sim)
    assert sim.outcome.answers == {"one": "bad_signature", "two": "bad_signature"}
    assert refusals(sim) == ["bad_signature"]
    sim.signal("loom.decision", signed(sim, "ann"), answer_to="right")
    settle(sim)
    assert sim.outcome.answers["right"] == "recorded"


def test_what_is_too_late_as_an_update_counts_as_the_signal_that_the_server_had_in_time() -> None:
    """No worker was up: the client gave up waiting for an answer and sent a signal."""
    looked_up: list[str] = []

    def verifies(command: RunActivity) -> dict[str, str]:
        looked_up.append(command.arguments["signal"])
        return {"verdict": VERIFIED if command.arguments["signal"] else "signature_expired", "message": ""}

    sim = asked({"signed": "low"}, **{"loom.approval.verify": verifies})
    payload = signed(sim, "ann")
    sim.signal("loom.decision", payload, answer_to="update")
    sim.signal("loom.decision", payload)
    settle(sim)
    assert looked_up == ["", "loom.decision"]
    assert sim.outcome.answers == {"update": "recorded"}
    assert (decided(sim), refusals(sim)) == ([("approve", "ann")], [])


def test_what_is_kept_of_decisions_stays_small() -> None:
    sim = asked({"quorum": 100})
    for number in range(99):
        sim.signal("loom.decision", unsigned(sim, f"p{number}", id=f"i{number}"))
        sim.signal("loom.decision", unsigned(sim, f"p{number}", id=f"j{number}"))
    assert len(sim.machine.state.counted) == 100
    check_state(sim.machine.state)


def test_what_says_the_same_as_one_that_counted_while_both_waited_is_answered_as_that_one() -> None:
    sim = asked()
    forged = signed(sim, "ann", "reject")
    forged["signature"]["value"] = "0" * 128
    sim.signal("loom.decision", forged, answer_to="forged")
    sim.signal("loom.decision", unsigned(sim, "bob"), answer_to="first")
    sim.signal("loom.decision", unsigned(sim, "bob", id="bob-2"), answer_to="second")
    assert sim.outcome.answers == {}
    settle(sim)
    assert decided(sim) == [("approve", "bob")]
    assert sim.outcome.answers == {"forged": "bad_signature", "first": "recorded", "second": "already_done"}
    assert refusals(sim) == ["bad_signature"]


def test_a_decision_that_is_seen_too_late_and_cannot_count_is_refused_without_a_look_at_its_time() -> None:
    sim = asked({"expires": "1h"})
    sim.now += 3601.0
    sim.signal("loom.decision", unsigned(sim, "ann", "nonsense"))
    assert [work for work in sim.work if work.activity == "loom.signal.time"] == []  # type: ignore[union-attr]
    settle(sim)
    assert refusals(sim) == ["invalid"]
