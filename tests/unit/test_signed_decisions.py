"""Signed decisions: none that was forged, changed, borrowed or used before counts, each is refused by name, and the
right ones count exactly once."""

import dataclasses
import json
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.jobs.signatures import keys_of
from loom_client.edited_arguments import evidence
from loom_client.signing import SigningKey
from loom_dsl.approvals.decision import Decision
from loom_dsl.approvals.policy import ApprovalPolicy, read_policy
from loom_dsl.approvals.signature import MAX_VALIDITY, SKEW, ApproverKey, signed_text
from loom_dsl.errors import ConfigurationError, ExpressionError, LoomError, NotFoundError, UserError
from loom_dsl.machine.commands import RunActivity
from loom_dsl.machine.decisions.signatures import MAX_VERIFIED
from loom_dsl.machine.kinds.approvals import needs_signature
from loom_dsl.machine.state import MachineState
from loom_dsl.permissions.combine import strengthened
from loom_dsl.simulation.in_memory import Simulation
from loom_dsl.text.canonical import canonical_json
from loom_store.queries.audit import AuditEntry
from loom_tools.approver_keys import ApproverKeys, is_signed_by, judged
from tests.support.signing import key_of, public_key, verifier, write_keys
from tests.support.simulated import JOB, SYSTEM, approvals, check_state, of_type, plan_of

START = 1_700_000_000
MARIA, BOB, EVE = key_of("maria"), key_of("bob"), key_of("eve")
MARIA_2 = key_of("maria", 2)
REQUEST = {"tool": "send", "requester": "agent hello", "arguments": "a" * 64, "summary": "send it", "risk": "high"}
Payload = dict[str, Any]


def known(*keys: ApproverKey) -> dict[str, ApproverKey]:
    return {key.name: key for key in keys}


USUAL = known(*map(public_key, (MARIA, BOB, MARIA_2)))


def asked(
    policy: dict[str, Any] | None = None,
    *,
    keys: dict[str, ApproverKey] | None = None,
    starter: str = "ada",
    steps: int | None = None,
    hold: list[RunActivity] | None = None,
    **how: Any,
) -> Simulation:
    """A job that has asked, under a policy that wants signatures."""
    nodes = {
        "ask": {
            "approval": {
                "request": how.pop("request", REQUEST),
                "policy": {"signed": "low", **(policy or {})},
                "choices": ["approve", "edit", "reject", "respond", "terminate"],
            },
            "next": "z",
        },
        "z": {"end": "${result}"},
    }
    handlers = {**SYSTEM, "loom.approval.verify": verifier(USUAL if keys is None else keys, JOB)}
    handlers["loom.signal.time"] = lambda command: {"sent": how.get("sent")}
    sim = Simulation(plan_of(nodes), MachineState(starter=starter), handlers, job=JOB, steps_per_run=steps)
    settle(sim)
    return sim


def settle(sim: Simulation) -> None:
    while sim.work:
        sim.step()
    check_state(sim.machine.state)


def payload_of(sim: Simulation, choice: str = "approve", **more: Any) -> Payload:
    """A decision about what waits."""
    edited = {"edited_arguments": {"to": "bob", "count": 1}} if choice == "edit" else {}
    message = {"message": "the result"} if choice == "respond" else {}
    name = approvals(sim)[0][1]
    return {"approval_id": name, "choice": choice, "digest": "a" * 64, **edited, **message, **more}


def signed(sim: Simulation, choice: str = "approve", key: SigningKey = MARIA, **more: Any) -> Payload:
    """A decision that is signed as it should be."""
    how = {name: more.pop(name) for name in ("seconds", "now", "job", "tool", "requester", "nonce") if name in more}
    how = {"job": JOB, "tool": "send", "requester": "agent hello", "now": sim.now, **how}
    return key.sign(payload_of(sim, choice, **more), **how)


def send(sim: Simulation, payload: Payload) -> str:
    """Send it as an update; the verdict."""
    sim.signal("loom.decision", payload, answer_to="u")
    settle(sim)
    return sim.outcome.answers.pop("u")


def with_signature(payload: Payload, **fields: Any) -> Payload:
    """The same decision, whose signature says something else."""
    return {**payload, "signature": {**payload["signature"], **fields}}


# -- the right ones ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [None, 1])
@pytest.mark.parametrize("choice", ["approve", "edit", "reject", "respond", "terminate"])
def test_a_decision_that_is_signed_counts_once(choice: str, steps: int | None) -> None:
    sim = asked(steps=steps)
    payload = signed(sim, choice)
    assert send(sim, payload) == "recorded"
    (decided,) = of_type(sim.outcome, "approval_decided")
    assert (decided["choice"], decided["by"], decided["keys"]) == (choice, "maria", [MARIA.name])
    assert decided["signed"]["value"] == payload["signature"]["value"]
    assert sim.outcome.over


@pytest.mark.parametrize("choice", ["approve", "edit", "respond"])
def test_what_was_told_is_enough_to_verify_the_decision_later(choice: str) -> None:
    sim = asked({"quorum": 2})
    send(sim, signed(sim, choice))
    send(sim, signed(sim, choice, key=BOB))
    told = [*of_type(sim.outcome, "approval_changed"), *of_type(sim.outcome, "approval_decided")]
    entries = [
        AuditEntry(number=number, at="", kind=data["t"], job=JOB, data=data, hash="")
        for number, data in enumerate([*of_type(sim.outcome, "approval_requested"), *told], 1)
    ]
    assert list(evidence(entries, USUAL)) == [(2, ""), (3, "")]
    revoked = known(public_key(MARIA, revoked=True), public_key(BOB, not_after="2000-01-01T00:00:00Z"))
    assert list(evidence(entries, revoked)) == [(2, ""), (3, "")]
    (wrong,) = [why for _, why in evidence(entries, known(public_key(BOB))) if why]
    assert "the file does not have" in wrong


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        ({"choice": "reject"}, "not what the entry says"),
        ({"approval_id": "ap_2"}, "not what the entry says"),
        ({"signed": {"text": "{}", "value": "00"}}, "can be read"),
        ({"signed": {}}, "can be read"),
    ],
)
def test_an_entry_that_says_something_else_than_was_signed_is_told(data: dict[str, Any], wrong: str) -> None:
    sim = asked()
    send(sim, signed(sim))
    (decided,) = of_type(sim.outcome, "approval_decided")
    told = {**decided, **data}
    entry = AuditEntry(number=7, at="", kind="approval_decided", job=JOB, data=told, hash="")
    ((number, why),) = evidence([entry], USUAL)
    assert (number, wrong in why) == (7, True)


def test_without_a_policy_that_asks_for_it_a_decision_needs_no_signature_and_one_that_is_there_must_hold() -> None:
    sim = asked({"signed": None})
    assert send(sim, with_signature(signed(sim), value="0" * 128)) == "bad_signature"
    assert send(sim, payload_of(sim, by="anybody")) == "recorded"
    (decided,) = of_type(sim.outcome, "approval_decided")
    assert "keys" not in decided


def test_a_question_about_what_is_no_text_is_decided_like_others() -> None:
    """A model can give half of a character, and a graph asks about what a model gave."""
    sim = asked(request={**REQUEST, "tool": "\ud800"})
    assert send(sim, signed(sim, tool="\ud800")) == "recorded"
    (decided,) = of_type(sim.outcome, "approval_decided")
    entry = AuditEntry(number=1, at="", kind="approval_decided", job=JOB, data=decided, hash="")
    assert list(evidence([entry], USUAL)) == [(1, "")]


# -- forgeries ---------------------------------------------------------------------------------------------------


def changed(**fields: Any) -> Callable[[Simulation], Payload]:
    """Signed, and then changed."""
    return lambda sim: {**signed(sim, "edit" if "edited_arguments" in fields else "approve"), **fields}


def signature_says(**fields: Any) -> Callable[[Simulation], Payload]:
    return lambda sim: with_signature(signed(sim), **fields)


def made(key: SigningKey = MARIA, **how: Any) -> Callable[[Simulation], Payload]:
    """Signed, but not as it should be."""
    return lambda sim: signed(sim, key=key, **how)


def renamed(key: SigningKey, by: str) -> SigningKey:
    """A key in the hands of somebody who says to be another person."""
    return dataclasses.replace(key, by=by)


FORGERIES: list[tuple[str, str, Callable[[Simulation], Payload]]] = [
    ("without a signature", "unsigned", lambda sim: payload_of(sim, by="maria")),
    ("without a signature, rejecting", "unsigned", lambda sim: payload_of(sim, "reject", by="maria")),
    ("an empty signature", "invalid", lambda sim: {**payload_of(sim), "by": "maria", "signature": {}}),
    ("a token in its place", "invalid", lambda sim: {**payload_of(sim), "signature": secrets.token_hex(64)}),
    ("a random signature", "bad_signature", signature_says(value=secrets.token_hex(64))),
    ("a signature of zeros", "bad_signature", signature_says(value="0" * 128)),
    ("a signature that is cut", "invalid", lambda sim: with_signature(signed(sim), value="ab" * 63)),
    ("an unknown key", "key_unknown", made(EVE)),
    ("an unknown key of a known name", "key_unknown", made(renamed(EVE, "maria"))),
    ("a known key's name on another's signature", "bad_signature",
     lambda sim: with_signature(signed(sim, key=renamed(EVE, "maria")), key=MARIA.name)),
    ("another known key's name", "bad_signature", signature_says(key=BOB.name)),
    ("somebody else's name", "wrong_person", made(renamed(BOB, "maria"))),
    ("the name changed afterwards", "bad_signature", changed(by="bob")),
    ("a name that looks alike", "wrong_person", made(renamed(MARIA, "mаria"))),
    ("a name with capitals", "wrong_person", made(renamed(MARIA, "Maria"))),
    ("a name that hides a character", "wrong_person", made(renamed(MARIA, "ma​ria"))),
    ("another job", "wrong_job", made(job="job-2")),
    ("another job, said to be this one", "bad_signature",
     lambda sim: with_signature(signed(sim, job="job-2"), job=JOB)),
    ("another approval", "bad_signature",
     lambda sim: {**signed(sim, approval_id="ap_" + "0" * 24), "approval_id": approvals(sim)[0][1]}),
    ("another tool", "bad_signature", made(tool="read")),
    ("another requester", "bad_signature", made(requester="agent other")),
    ("another digest", "wrong_digest", made(digest="b" * 64)),
    ("another digest, changed afterwards", "bad_signature",
     lambda sim: {**signed(sim, digest="b" * 64), "digest": "a" * 64}),
    ("no digest", "wrong_digest", changed(digest="")),
    ("another choice", "bad_signature", changed(choice="reject")),
    ("a message", "bad_signature", changed(message="and more")),
    ("what is remembered", "bad_signature", changed(remember="rule")),
    ("other arguments", "bad_signature", changed(edited_arguments={"to": "eve", "count": 1})),
    ("more arguments", "bad_signature", changed(edited_arguments={"to": "bob", "count": 1, "cc": "eve"})),
    ("arguments of another type", "bad_signature", changed(edited_arguments={"to": "bob", "count": "1"})),
    ("true for one", "bad_signature", changed(edited_arguments={"to": "bob", "count": True})),
    ("a fraction for a whole number", "bad_signature", changed(edited_arguments={"to": "bob", "count": 1.0})),
    ("a list for a value", "bad_signature", changed(edited_arguments={"to": ["bob"], "count": 1})),
    ("arguments that look alike", "bad_signature", changed(edited_arguments={"to": "bоb", "count": 1})),
    ("arguments in another form of Unicode", "bad_signature", changed(edited_arguments={"to": "ｂob", "count": 1})),
    ("a time that is text", "invalid", lambda sim: with_signature(signed(sim), expires_at=str(START + 900))),
    ("a time that is a fraction", "invalid", lambda sim: with_signature(signed(sim), expires_at=START + 900.5)),
    ("a time that is true", "invalid", signature_says(issued_at=True)),
    ("a longer time", "bad_signature",
     lambda sim: with_signature(signed(sim), expires_at=signed(sim)["signature"]["expires_at"] + 1)),
    ("another nonce", "bad_signature", signature_says(nonce="A" * 22)),
    ("a nonce that is short", "invalid", signature_says(nonce="A")),
    ("a field of its own", "invalid", signature_says(admin=True)),
    ("a time that is over", "signature_expired", lambda sim: signed(sim, now=sim.now - 1000, seconds=900)),
    ("a time that is to come", "signature_expired", lambda sim: signed(sim, now=sim.now + SKEW + 10)),
]  # fmt: skip


@pytest.mark.parametrize(("verdict", "forge"), [row[1:] for row in FORGERIES], ids=[row[0] for row in FORGERIES])
def test_a_forgery_is_refused_by_name_and_the_right_decision_counts_after_it(
    verdict: str, forge: Callable[[Simulation], Payload]
) -> None:
    sim = asked()
    forged = forge(sim)
    assert send(sim, forged) == verdict
    sim.signal("loom.decision", forged)  # a signal is judged alike
    settle(sim)
    assert approvals(sim)
    assert {(event["code"], event["verdict"]) for event in of_type(sim.outcome, "warning")} == {
        ("signal_refused", verdict)
    }
    assert send(sim, signed(sim)) == "recorded"
    assert sim.outcome.result["choice"] == "approve"


def test_another_order_of_keys_is_the_same_decision_and_so_counts_once() -> None:
    sim = asked({"quorum": 2})
    payload = signed(sim, "edit")
    turned = json.loads(json.dumps(payload), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    assert list(turned) != list(payload)
    assert send(sim, turned) == "recorded"
    assert send(sim, payload) == "recorded"
    assert len(of_type(sim.outcome, "approval_changed")) == 1


# -- keys --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"revoked": True}, "key_revoked"),
        ({"not_after": "2023-11-14T22:13:20Z"}, "key_expired"),
        ({"not_before": "2024-01-01T00:00:00Z"}, "key_expired"),
        ({"not_before": "2023-11-14T00:00:00Z", "not_after": "2023-11-15T00:00:00Z"}, "recorded"),
    ],
)
def test_a_key_counts_only_in_its_time_and_until_it_is_revoked(fields: dict[str, Any], verdict: str) -> None:
    sim = asked(keys=known(public_key(MARIA, **fields)))
    assert send(sim, signed(sim)) == verdict


def test_keys_are_changed_while_both_count() -> None:
    for key in (MARIA, MARIA_2):
        sim = asked(keys=known(public_key(MARIA), public_key(MARIA_2)))
        assert send(sim, signed(sim, key=key)) == "recorded"
    sim = asked(keys=known(public_key(MARIA, revoked=True), public_key(MARIA_2)))
    assert send(sim, signed(sim)) == "key_revoked"
    assert send(sim, signed(sim, key=MARIA_2)) == "recorded"


# -- once --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [{"choice": "reject"}, {"message": "and more"}, {"remember": "job"}, {"digest": "b" * 64}, {"choice": "edit"}],
)
def test_another_decision_with_the_nonce_of_one_that_has_counted_is_a_replay(other: dict[str, Any]) -> None:
    sim, nonce = asked({"quorum": 2}), "A" * 22
    assert send(sim, signed(sim, nonce=nonce)) == "recorded"
    assert send(sim, signed(sim, **{"nonce": nonce, **other})) == "replayed"
    assert send(sim, signed(sim, key=BOB, nonce=nonce)) == "recorded"  # a nonce is one of its key
    assert sim.outcome.over


def test_the_same_person_counts_once_whatever_keys_they_have() -> None:
    sim = asked({"quorum": 2})
    assert send(sim, signed(sim)) == "recorded"
    assert send(sim, signed(sim, key=MARIA_2)) == "already_done"
    assert send(sim, signed(sim, "reject", key=renamed(EVE, "bob"))) == "key_unknown"
    assert approvals(sim)
    assert send(sim, signed(sim, key=BOB)) == "recorded"
    (decided,) = of_type(sim.outcome, "approval_decided")
    assert decided["keys"] == [MARIA.name, BOB.name]
    (vote,) = of_type(sim.outcome, "approval_changed")
    assert vote["keys"] == [MARIA.name]


def test_who_started_the_job_cannot_sign_for_it_with_four_eyes() -> None:
    sim = asked({"four_eyes": True}, starter="maria")
    assert send(sim, signed(sim)) == "not_allowed"
    assert send(sim, signed(sim, key=MARIA_2)) == "not_allowed"
    assert send(sim, signed(sim, key=renamed(MARIA, "bob"))) == "wrong_person"
    assert send(sim, signed(sim, key=BOB)) == "recorded"


def test_a_signature_makes_nobody_an_approver() -> None:
    sim = asked({"approvers": ["bob"]})
    assert send(sim, signed(sim)) == "not_allowed"
    assert send(sim, signed(sim, key=BOB)) == "recorded"


def test_a_signature_counts_for_no_later_job_of_the_same_id_that_asks_the_same() -> None:
    first = asked()
    kept = signed(first)
    assert send(first, kept) == "recorded"
    later = asked()
    assert approvals(later)[0][1] == approvals_name(kept)  # at the very same moment, which the clock gives once
    elsewhen = Simulation(later.plan, MachineState(starter="ada"), later.handlers, job=JOB, start=START + 60.0)
    settle(elsewhen)
    assert approvals(elsewhen)[0][1] != approvals_name(kept)
    assert send(elsewhen, kept) == "unknown"


def approvals_name(payload: Payload) -> str:
    return str(payload["approval_id"])


def test_two_that_are_verified_at_the_same_time_count_once() -> None:
    sim = asked()
    payload = signed(sim)
    sim.signal("loom.decision", payload, answer_to="one")
    sim.signal("loom.decision", payload, answer_to="two")
    sim.signal("loom.decision", signed(sim, "reject", key=BOB), answer_to="three")
    assert sim.outcome.answers == {}
    settle(sim)
    assert sim.outcome.answers == {"one": "recorded", "two": "recorded", "three": "already_decided"}
    assert len(of_type(sim.outcome, "approval_decided")) == 1


# -- time --------------------------------------------------------------------------------------------------------


def test_a_question_does_not_expire_while_a_decision_that_came_in_time_is_verified() -> None:
    sim = asked({"expires": "1h"})
    sim.now += 3599
    sim.signal("loom.decision", signed(sim), answer_to="u")
    verifying = sim.work[:]
    sim.work.clear()
    sim.step()  # the deadline
    assert approvals(sim)
    sim.work += verifying
    settle(sim)
    assert sim.outcome.answers == {"u": "recorded"}


def test_a_question_expires_when_what_was_verified_at_its_deadline_does_not_hold() -> None:
    sim = asked({"expires": "1h"})
    sim.now += 3599
    sim.signal("loom.decision", with_signature(signed(sim), value="0" * 128), answer_to="u")
    verifying = sim.work[:]
    sim.work.clear()
    sim.step()
    sim.work += verifying
    settle(sim)
    assert sim.outcome.answers == {"u": "bad_signature"}
    assert of_type(sim.outcome, "approval_decided")[0]["choice"] == "expired"


@pytest.mark.parametrize(("sent", "ends"), [(3599, "approve"), (3601, "expired"), (None, "expired")])
def test_a_signal_that_is_seen_late_is_judged_by_when_it_was_sent(sent: float | None, ends: str) -> None:
    sim = asked({"expires": "1h"}, sent=None if sent is None else START + sent)
    sim.now += 3500
    payload = signed(sim, seconds=200)
    sim.now += 500  # after the deadline, and after the signature's time
    sim.signal("loom.decision", payload)
    settle(sim)
    while sim.step():
        settle(sim)
    (decided,) = of_type(sim.outcome, "approval_decided")
    assert decided["choice"] == ends


def test_only_so_many_signatures_are_verified_at_the_same_time() -> None:
    sim = asked()
    for number in range(MAX_VERIFIED + 1):
        forged = with_signature(signed(sim), value=f"{number:0128x}")
        sim.signal("loom.decision", forged, answer_to=str(number))
    assert sim.outcome.answers == {str(MAX_VERIFIED): "full"}
    settle(sim)
    assert send(sim, signed(sim)) == "recorded"


def test_an_abort_does_not_wait_for_a_verification() -> None:
    sim = asked()
    sim.signal("loom.decision", signed(sim), answer_to="u")
    sim.signal("loom.control", {"op": "abort", "by": "ops"}, answer_to="a")
    settle(sim)
    assert sim.outcome.answers == {"u": "already_decided", "a": "recorded"}
    assert sim.outcome.over


def test_a_worker_that_cannot_verify_refuses() -> None:
    sim = asked()

    def broken(command: RunActivity) -> Any:
        raise LoomError("no keys here")

    right = sim.handlers["loom.approval.verify"]
    sim.handlers = {**sim.handlers, "loom.approval.verify": broken}
    assert send(sim, signed(sim)) == "unverifiable"
    sim.handlers = {**sim.handlers, "loom.approval.verify": right}
    assert send(sim, signed(sim)) == "recorded"


# -- what is signed ----------------------------------------------------------------------------------------------


def test_every_value_of_a_decision_that_makes_a_difference_is_signed() -> None:
    """But for the signature itself, and what nobody acts upon."""
    text = json.dumps({"to": "bob"})
    full = {
        "approval_id": "ap_1", "choice": "edit", "message": "m", "edited_arguments": json.loads(text),
        "remember": "no", "digest": "a" * 64, "by": "maria",
    }  # fmt: skip
    payload = MARIA.sign(full, job=JOB, now=START)
    other: dict[str, Any] = {
        "approval_id": "ap_2", "choice": "approve", "message": "n", "edited_arguments": {}, "remember": "job",
        "digest": "b" * 64, "by": "bob", "at": 5, "id": "x",
    }  # fmt: skip
    assert set(other) | {"signature"} == set(Decision.model_fields)
    for name, value in other.items():
        verdict, _ = judge({**payload, name: value})
        assert verdict == ("verified" if name in ("at", "id") else "bad_signature"), name


def judge(payload: Payload, **facts: Any) -> tuple[str, str]:
    given = {"job": JOB, "tool": "", "requester": "", "moment": START + 1.0, **facts}
    return judged(USUAL, Decision.model_validate(payload), **given)


ARGUMENTS = st.dictionaries(st.text(max_size=5), st.integers() | st.booleans() | st.text(max_size=5), max_size=3)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(arguments=ARGUMENTS, message=TEXT, tool=TEXT, requester=TEXT, data=st.data())
def test_any_byte_of_what_is_signed_that_is_changed_makes_the_signature_another_one(
    arguments: dict[str, Any], message: str, tool: str, requester: str, data: st.DataObject
) -> None:
    plain = {"approval_id": "ap_1", "choice": "edit", "message": message, "edited_arguments": arguments,
             "digest": "a" * 64}  # fmt: skip
    payload = MARIA.sign(plain, job=JOB, tool=tool, requester=requester, now=START)
    assert judge(payload, tool=tool, requester=requester) == ("verified", "")
    text = bytearray(signed_text(Decision.model_validate(payload), tool, requester))
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] ^= data.draw(st.integers(1, 255))
    value = bytes.fromhex(payload["signature"]["value"])
    assert not is_signed_by(MARIA.public, value, bytes(text))
    flipped = bytearray(value)
    flipped[data.draw(st.integers(0, 63))] ^= data.draw(st.integers(1, 255))
    assert judge(with_signature(payload, value=flipped.hex()), tool=tool, requester=requester)[0] == "bad_signature"


@given(first=ARGUMENTS, second=ARGUMENTS)
def test_a_signature_of_some_arguments_is_none_of_others(first: dict[str, Any], second: dict[str, Any]) -> None:
    plain = {"approval_id": "ap_1", "choice": "edit", "edited_arguments": first, "digest": "a" * 64}
    payload = {**MARIA.sign(plain, job=JOB, now=START), "edited_arguments": second}
    same = canonical_json(first) == canonical_json(second)
    assert judge(payload)[0] == ("verified" if same else "bad_signature")


def test_a_signature_is_for_seven_days_at_most() -> None:
    plain = {"approval_id": "ap_1", "choice": "approve", "digest": "a" * 64}
    with pytest.raises(UserError, match="1 to 604800"):
        MARIA.sign(plain, job=JOB, seconds=MAX_VALIDITY + 1)
    long = MARIA.sign(plain, job=JOB, now=START, seconds=MAX_VALIDITY)
    assert judge(long)[0] == "verified"
    assert judge(long, moment=START + MAX_VALIDITY - 0.5)[0] == "verified"
    assert judge(long, moment=START + MAX_VALIDITY + 0.0)[0] == "signature_expired"


# -- policy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "request_", "signed_from", "needed"),
    [
        ("loom.tool_call", {"risk": "high"}, "high", True),
        ("loom.tool_call", {"risk": "medium"}, "high", False),
        ("loom.tool_call", {"risk": "medium"}, "medium", True),
        ("loom.tool_call", {"risk": "low"}, "low", True),
        ("loom.tool_call", {"risk": "none"}, "high", True),
        ("loom.tool_call", {}, "high", True),
        ("loom.tool_call", {"risk": "low"}, None, False),
        ("loom.tool_node", {"risk": "low", "signed": True}, None, True),
        ("mine", {"risk": "low"}, "high", True),  # a graph may say anything of its own question
        ("mine", {"signed": True}, None, False),
        ("mine", "release it?", "high", True),
        ("mine", "release it?", None, False),
    ],
)
def test_a_policy_says_from_which_risk_on_a_decision_is_signed(
    graph: str, request_: Any, signed_from: str | None, needed: bool
) -> None:
    assert needs_signature(graph, request_, read_policy({"signed": signed_from})) is needed


@pytest.mark.parametrize(
    ("inner", "outer", "both"),
    [(None, "high", "high"), ("medium", "high", "medium"), ("high", "low", "low"), ("low", None, "low")],
)
def test_inside_another_policy_more_is_signed_and_never_less(inner: Any, outer: Any, both: str) -> None:
    given_both = strengthened(ApprovalPolicy(signed=inner), ApprovalPolicy(signed=outer))
    assert given_both.signed == both


def test_what_nobody_answers_is_not_allowed_where_a_signature_is_needed() -> None:
    with pytest.raises(ExpressionError, match="nobody signed"):
        read_policy({"signed": "high", "on_expiry": "allow"})


def test_a_question_says_whether_it_is_decided_only_by_a_signature() -> None:
    assert of_type(asked().outcome, "approval_requested")[0]["signed"] is True
    assert "signed" not in of_type(asked({"signed": None}).outcome, "approval_requested")[0]


# -- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("nonsense", "keys:2 (LOOM_APPROVER_KEYS): this is not JSON"),
        ('{"by": "bob"}', "keys:2 (LOOM_APPROVER_KEYS): public: this field is missing"),
        ('{"by": "bob", "public": "zz"}', "keys:2 (LOOM_APPROVER_KEYS): public:"),
        ('{"by": "bоb", "public": "' + "0" * 64 + '"}', "by: Value error, this is no name"),
        ('{"by": "bob", "public": "' + "0" * 64 + '", "revokd": true}', "revokd: there is no such field"),
        ('{"by": "bob", "public": "' + "0" * 64 + '", "revoked": "no"}', "revoked: Input should be a valid boolean"),
        ('{"by": "bob", "public": "' + "0" * 64 + '", "not_after": "2027-01-01"}', "not_after:"),
        ('{"by": "bob", "public": "' + "0" * 64 + '", "key": "key_1"}', "`key` is not that of `public`"),
        (MARIA.entry(), "is there twice"),
        ('{"private": "' + "0" * 64 + '"}', "keys:2 (LOOM_APPROVER_KEYS): this is a private key"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "keys:2 (LOOM_APPROVER_KEYS): this is a private key"),
        ("[]", "keys:2 (LOOM_APPROVER_KEYS): "),
    ],
)
def test_a_line_that_is_no_key_is_told_with_its_place(tmp_path: Path, line: str, wrong: str) -> None:
    path = tmp_path / "keys"
    path.write_text(f"{MARIA.entry()}\n{line}\n")
    path.chmod(0o644)
    with pytest.raises(ConfigurationError) as caught:
        ApproverKeys(path).read()
    assert wrong in caught.value.message


def test_the_file_is_read_anew_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_keys(path, public_key(MARIA))
    keys = ApproverKeys(path)
    assert list(keys.read()) == [MARIA.name]
    write_keys(path, public_key(MARIA, revoked=True), public_key(BOB))
    assert [key.revoked for key in keys.read().values()] == [True, False]
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="others may write"):
        keys.read()
    path.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        keys.read()


def test_a_worker_without_keys_does_not_serve_where_the_deployment_wants_signatures(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("loom: 1\nkind: policy\nsigned: high\n")
    with pytest.raises(ConfigurationError, match="approver-keys"):
        keys_of(None, {"LOOM_POLICY": str(policy)})
    assert keys_of(None, {}) is None
    with pytest.raises(ConfigurationError, match="cannot be read"):
        keys_of(tmp_path / "none", {})


def test_a_private_key_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "maria.key"
    key = SigningKey.new("maria")
    key.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert SigningKey.load(path) == key
    assert key.private.hex() not in repr(key)
    with pytest.raises(UserError, match="never overwritten"):
        key.save(path)
    path.chmod(0o640)
    with pytest.raises(UserError, match="chmod 600"):
        SigningKey.load(path)
    path.chmod(0o600)
    path.write_text('{"by": "maria"}')
    with pytest.raises(UserError, match="no private key"):
        SigningKey.load(path)
    with pytest.raises(NotFoundError, match="loom key new"):
        SigningKey.load(tmp_path / "none")
    with pytest.raises(UserError, match="no name"):
        SigningKey.new("mаria")


def test_who_signs_is_the_keys_person_and_says_what_was_looked_at() -> None:
    with pytest.raises(UserError, match="that of maria"):
        MARIA.sign({"approval_id": "a", "choice": "approve", "digest": "a" * 64, "by": "bob"}, job=JOB)
    with pytest.raises(UserError, match="digest"):
        MARIA.sign({"approval_id": "a", "choice": "approve"}, job=JOB)


@pytest.mark.parametrize(
    ("fields", "how", "wrong"),
    [
        ({"message": "x" * 10_001}, {}, "message: .*at most 10000"),
        ({"digest": "xyz"}, {}, "digest"),
        ({"choice": "edit", "edited_arguments": {"x": float("nan")}}, {}, "JSON"),
        ({}, {"nonce": "short"}, "nonce"),
        ({}, {"job": ""}, "job"),
    ],
)
def test_what_is_no_decision_is_not_signed_and_said_in_a_line(
    fields: dict[str, Any], how: dict[str, Any], wrong: str
) -> None:
    payload = {"approval_id": "a", "choice": "approve", "digest": "a" * 64, **fields}
    with pytest.raises(UserError, match=wrong):
        MARIA.sign(payload, **{"job": JOB, **how})


WITHOUT_LIBRARY = """
import sys
from pathlib import Path
sys.modules["cryptography"] = None  # as where it is not installed
from loom_tools.approver_keys import ApproverKeys
from activities.record.activity_call import ActivityCall
from activities.jobs.signatures import Signed, keys_of
from loom_client.signing import SigningKey
from loom_dsl.errors import ConfigurationError

print(Signed(None, ApproverKeys(Path(sys.argv[1])))._judged(ActivityCall("job", 0, "", "", {}, []), 0.0))
for use in (lambda: keys_of(Path(sys.argv[1]), {}), lambda: SigningKey.new("maria")):
    try:
        use()
    except ConfigurationError as error:
        print(error.message)
"""


def test_without_the_library_nothing_counts_as_signed(tmp_path: Path) -> None:
    write_keys(tmp_path / "keys", public_key(MARIA))
    command = [sys.executable, "-c", WITHOUT_LIBRARY, str(tmp_path / "keys")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0].startswith("('unverifiable', ")
    assert ["loom-dsl[signed]" in line for line in said] == [True, True, True]
