"""What follows when a party answers that a step failed: another try, a wait for an outage, a halt, or the failure.

A retry budget belongs to the party that answered. The machine counts what it answered in the token and waits on a timer
of its own, so the count goes through continue-as-new and `resume` ends the wait. What nobody answered (a worker that
died, a store that is away) is not counted here: the engine tries that again without an end (docs/adr/0028).
"""

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from loom_dsl.fields import MAX_OUTAGE
from loom_dsl.machine.commands import ActivityFailed, CancelTimer, RunActivity, StartTimer
from loom_dsl.machine.payloads import size_of
from loom_dsl.machine.records import RetryRecord
from loom_dsl.machine.state import BACKING_OFF, HALTED, READY, RUNNING, Token
from loom_dsl.machine.tokens.core import Core
from loom_dsl.machine.tokens.node_events import OWN_GRAPHS, retried

MAX_PAUSE = 300.0
"""Seconds between two tries of what is away. Each costs some dozen events: 3,500 a day at this pause."""
SPREAD = 0.2
"""Share of a pause by which jobs differ, so that they do not all come at once when what was away is back."""
BELIEVED = 3
"""Answers in a row that may ask to come back sooner than Loom would; who says so for ever is not hurried after."""
EARLY = 0.05
"""Seconds by which a timer may seem to fire too soon."""
MAX_RETRY_AFTER = 7 * 86_400.0
"""Seconds of a party's own wish to wait that are believed: a week."""
MAX_KEPT = 4 * 1024
"""Bytes as JSON of the arguments that a step keeps while it waits."""
MAX_MESSAGE = 500
"""Characters of why a step waits that travel with its job."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """A step waits and is tried again.

    Attributes:
        seconds: How long.
        outage_since: Since when the party is away, in seconds since the epoch; None: it answers.
        tries: Answered tries that count.
    """

    seconds: float
    outage_since: float | None
    tries: int


@dataclass(frozen=True, slots=True)
class Halt:
    """A step waits for a person."""


Verdict = Backoff | Halt | None


def growing_pause(tries: int, initial: float, factor: float, longest: float) -> float:
    """Give the pause after so many tries, however many they are.

    Args:
        tries: Those before it, from 1.
        initial: Seconds after the first one.
        factor: By which each pause is longer than the one before.
        longest: Seconds at most.
    """
    try:
        return min(longest, initial * float(factor) ** (tries - 1))
    except OverflowError:
        return longest


def judge(
    failed: ActivityFailed,
    retry: tuple[int, float, float, float],
    *,
    now: float,
    tries: int = 0,
    outages: int = 0,
    outage_since: float | None = None,
    max_outage: float | None = MAX_OUTAGE,
    caught: bool = False,
) -> Verdict:
    """Say what follows from an answered failure.

    Args:
        failed: What was answered.
        retry: attempts, initial, backoff, longest (seconds) of the node.
        now: Seconds since the epoch.
        tries: Answered tries before this one that count.
        outages: Answers in a row that told of an outage.
        outage_since: When the first of these came.
        max_outage: Seconds for which an outage is waited for; None: without an end.
        caught: Whether the graph has a way of its own for this failure, so that it neither waits long nor halts.

    Returns:
        A wait, a halt, or None: the node has failed.
    """
    attempts, initial, backoff, longest = retry
    if failed.cancelled:
        return None
    asked = None if failed.retry_after is None else min(max(failed.retry_after, 0.0), MAX_RETRY_AFTER)
    if failed.halts and not caught:
        return Halt()
    if failed.outage and not caught:
        since = now if outage_since is None else outage_since
        end = None if max_outage is None else since + max_outage
        if end is not None and now >= end:
            return Halt()
        own = growing_pause(outages + 1, initial, 2.0, MAX_PAUSE)
        pause = own if asked is None else asked if outages < BELIEVED else max(asked, own)
        return Backoff(pause if end is None else min(pause, end - now), since, tries)
    tries += failed.tries
    if not (failed.again or failed.outage) or tries >= attempts:
        return None
    own = growing_pause(tries, initial, backoff, longest)
    return Backoff(own if asked is None else min(asked, max(longest, own)), None, tries)


def answer_failed(machine: Core, token: Token, failed: ActivityFailed) -> bool:
    """A party answered that a token's step failed: try again later, or wait for a person.

    Returns:
        False if neither is to be done: the node has failed.
    """
    command = machine.issued.pop(token.at, None)
    if command is None:
        token.status = READY
        return False
    known = token.retry or RetryRecord("", "", machine.state.last, 0)
    verdict = judge(
        failed,
        command.retry,
        now=machine.state.last,
        tries=known.tries,
        outages=known.outages,
        outage_since=known.outage,
        max_outage=command.max_outage,
        caught=_is_caught(machine, token, failed.code, waits=command.waits),
    )
    token.status = READY
    if verdict is None:
        return False
    message = failed.message[:MAX_MESSAGE]
    token.retry = record = RetryRecord(failed.code, message, known.since, failed.attempt, call=_kept(command))
    if isinstance(verdict, Halt):
        _halt(machine, token, record, failed.action)
        return True
    record.tries, record.outage = verdict.tries, verdict.outage_since
    if record.outage is not None:
        record.outages = known.outages + 1
    _back_off(machine, token, record, verdict.seconds, spread=failed.retry_after is None)
    return True


def _is_caught(machine: Core, token: Token, code: str, *, waits: bool) -> bool:
    """Whether the graph has a way of its own for a failure here, in the node or around it; or the job is being ended.

    Loom's own graphs say with `max_outage` that their `catch: any` is for what no wait and nobody can mend.
    """
    if machine.state.abort is not None:
        return True
    catch = machine.node(token).catch
    if code in catch or ("any" in catch and not waits):
        return True
    frame = machine.state.frames[token.frame]
    while frame.parent and machine.state.turn is None:
        owner = machine.state.tokens[frame.parent]
        frame = machine.state.frames[owner.frame]
        catch = machine.node(owner).catch
        if not frame.graph.startswith(OWN_GRAPHS) and (code in catch or "any" in catch):
            return True
    return False


def _kept(command: RunActivity) -> RunActivity | None:
    """What is needed to run the same again: the arguments that it was given, not those that it would be given now.

    Large ones are not kept, but found out again: the state of a job that waits must go through continue-as-new.
    """
    if size_of(command.arguments) > MAX_KEPT:
        return None
    return replace(command, events=[], before=0, tries=0)


def _back_off(machine: Core, token: Token, record: RetryRecord, seconds: float, *, spread: bool) -> None:
    token.status = BACKING_OFF
    if spread:  # nobody comes back before the time that was asked for
        seconds = _spread(f"{machine.job}/{token.at}/{record.attempts}", seconds)
    record.next = machine.state.last + seconds
    machine.emit("waiting", node=token.at, **_waiting(record, round(record.next, 3)))
    record.told = True
    retried(machine, token, attempt=record.attempts + 1, code=record.cause, message=record.message)
    wake_up(machine, token)


def _waiting(record: RetryRecord, next_at: float | None) -> dict[str, Any]:
    """What is told of a step that is tried again later."""
    told = {"cause": record.cause, "message": record.message, "since": record.since, "next_at": next_at}
    return {**told, "tries": record.tries + record.outages, **({} if record.outage is not None else {"outage": False})}


def _spread(name: str, seconds: float) -> float:
    """A long pause, a little shorter for each job by another part: without randomness, or a replay would differ."""
    if seconds < MAX_PAUSE / 10:
        return seconds
    part = int.from_bytes(sha256(name.encode("utf-8", "surrogatepass")).digest()[:4], "big") / 2**32
    return seconds * (1 - SPREAD * part)


def _halt(machine: Core, token: Token, record: RetryRecord, action: str) -> None:
    token.status = HALTED
    record.since = machine.state.last
    record.action = action or "put right what is wrong"
    record.told = True
    machine.emit("halted", node=token.at, **_halted(record))
    wake_up(machine, token)


def _halted(record: RetryRecord) -> dict[str, Any]:
    """What is told of a step that waits for a person."""
    return {"cause": record.cause, "message": record.message, "action": record.action, "since": record.since}


def wake_up(machine: Core, token: Token) -> None:
    """Set the one timer of a token that waits: for its next try, or its deadline, whichever is sooner."""
    times = [token.deadline, token.retry.next if token.retry else None]
    due = min((time for time in times if time is not None), default=None)
    machine.command(CancelTimer(at=token.at) if due is None else StartTimer(at=token.at, when=due))


def is_due(token: Token) -> bool:
    """Whether a token is before its node only to run the same once more."""
    return token.status == READY and token.retry is not None


def pause_over(machine: Core, token: Token) -> None:
    """The timer of a step that is tried again fired: it runs when the job goes on."""
    record = _record(token)
    if record.next is not None and record.next - machine.state.last > EARLY:
        return wake_up(machine, token)  # it was set for what had this name in the turn before
    record.next, token.status = None, READY
    return None


def _record(token: Token) -> RetryRecord:
    """What is known of a step that waits, or is tried again."""
    assert token.retry is not None
    return token.retry


def run_again(machine: Core, token: Token) -> bool:
    """Run a step once more, with what it was given the first time; False where that is to be found out again."""
    record = _record(token)
    call, record.call = record.call, None
    if call is None:
        return False
    token.status = RUNNING
    machine.command(replace(call, events=[], before=record.attempts, tries=record.tries))
    if token.deadline is not None:
        machine.command(StartTimer(at=token.at, when=token.deadline))
    return True


def resume_steps(machine: Core, by: str, cause: str = "") -> int:
    """End the waits and halts of all steps, or of those with one cause, and count anew.

    Returns:
        How many there were.
    """
    found = [
        token
        for token in machine.state.in_order()
        if token.status in (BACKING_OFF, HALTED) and cause in ("", _record(token).cause)
    ]
    for token in found:
        old = _record(token)
        machine.emit("resumed", node=token.at, cause=old.cause, by=by)
        token.retry = RetryRecord(old.cause, old.message, machine.state.last, old.attempts, call=old.call)
        if token.deadline is None:
            machine.command(CancelTimer(at=token.at))
        token.status = READY
    return len(found)


def wait_over(machine: Core, token: Token) -> None:
    """A step that had to wait has ended, however that was: observers see it no longer among what waits."""
    record, token.retry = token.retry, None
    if record is not None and record.told:
        machine.emit("resumed", node=token.at, cause=record.cause, by="")


def halted(machine: Core) -> list[dict[str, Any]]:
    """The steps that wait for a person: `at`, `cause`, `message`, `action`, `since`."""
    waiting = (token for token in machine.state.in_order() if token.status == HALTED)
    return [{"at": token.at, **_halted(_record(token))} for token in waiting]


def backing_off(machine: Core) -> list[dict[str, Any]]:
    """The steps that are tried again later: `at`, `cause`, `message`, `since`, `next_at`, `tries`."""
    waiting = (token for token in machine.state.in_order() if token.status == BACKING_OFF)
    return [{"at": token.at, **_waiting(record, record.next)} for token in waiting if (record := _record(token))]
