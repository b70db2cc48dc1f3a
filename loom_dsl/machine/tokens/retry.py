"""What follows when a party answers that a step failed: another try, a wait for an outage, a halt, or the failure.

A retry budget belongs to the party that answered. The machine counts what it answered in the token and waits on a timer
of its own, so the count goes through continue-as-new and `resume` ends the wait. What nobody answered (a worker that
died, a store that is away) is not counted here: the engine tries that again without an end (docs/adr/0028).
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from loom_dsl.fields import MAX_OUTAGE
from loom_dsl.machine.commands import ActivityFailed, CancelTimer, RunActivity, StartTimer
from loom_dsl.machine.payloads import size_of
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
class Wait:
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


Verdict = Wait | Halt | None


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
        return Wait(pause if end is None else min(pause, end - now), since, tries)
    tries += failed.tries
    if not (failed.again or failed.outage) or tries >= attempts:
        return None
    own = growing_pause(tries, initial, backoff, longest)
    return Wait(own if asked is None else min(asked, max(longest, own)), None, tries)


def answer_failed(machine: Core, token: Token, failed: ActivityFailed) -> bool:
    """A party answered that a token's step failed: try again later, or wait for a person.

    Returns:
        False if neither is to be done: the node has failed.
    """
    command = machine.issued.pop(token.at, None)
    if command is None:
        token.status = READY
        return False
    known = token.data.get("retry", {})
    verdict = judge(
        failed,
        command.retry,
        now=machine.state.last,
        tries=known.get("tries", 0),
        outages=known.get("outages", 0),
        outage_since=known.get("outage"),
        max_outage=command.max_outage,
        caught=_is_caught(machine, token, failed.code, waits=command.waits),
    )
    token.status = READY
    if verdict is None:
        return False
    token.data["call"] = _kept(command)
    token.data["retry"] = record = {
        "cause": failed.code,
        "message": failed.message[:MAX_MESSAGE],
        "since": known.get("since", machine.state.last),
        "attempts": failed.attempt,
    }
    if isinstance(verdict, Halt):
        _halt(machine, token, record, failed.action)
        return True
    record["tries"] = verdict.tries
    if verdict.outage_since is not None:
        record |= {"outage": verdict.outage_since, "outages": known.get("outages", 0) + 1}
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


def _kept(command: RunActivity) -> dict[str, Any]:
    """What is needed to run the same again: the arguments that it was given, not those that it would be given now.

    Large ones are not kept, but found out again: the state of a job that waits must go through continue-as-new.
    """
    if size_of(command.arguments) > MAX_KEPT:
        return {}
    call: dict[str, Any] = {"activity": command.activity, "with": command.arguments, "retry": list(command.retry)}
    call |= {"carrier": command.carrier, "carries": command.carries, "timeout": command.timeout}
    call |= {"max_outage": command.max_outage, "waits": command.waits}
    return call if command.heartbeat is None else {**call, "heartbeat": command.heartbeat}


def _back_off(machine: Core, token: Token, record: dict[str, Any], seconds: float, *, spread: bool) -> None:
    token.status = BACKING_OFF
    if spread:  # nobody comes back before the time that was asked for
        seconds = _spread(f"{machine.job}/{token.at}/{record['attempts']}", seconds)
    record["next"] = machine.state.last + seconds
    told = {key: record[key] for key in ("cause", "message", "since")}
    count = record["tries"] + record.get("outages", 0)
    other = {} if "outage" in record else {"outage": False}
    machine.emit("waiting", node=token.at, **told, next_at=round(record["next"], 3), tries=count, **other)
    record["told"] = True
    retried(machine, token, attempt=record["attempts"] + 1, code=record["cause"], message=record["message"])
    wake_up(machine, token)


def _spread(name: str, seconds: float) -> float:
    """A long pause, a little shorter for each job by another part: without randomness, or a replay would differ."""
    if seconds < MAX_PAUSE / 10:
        return seconds
    part = int.from_bytes(sha256(name.encode("utf-8", "surrogatepass")).digest()[:4], "big") / 2**32
    return seconds * (1 - SPREAD * part)


def _halt(machine: Core, token: Token, record: dict[str, Any], action: str) -> None:
    token.status = HALTED
    record["since"] = machine.state.last
    record["action"] = action or "put right what is wrong"
    record["told"] = True
    told = {key: record[key] for key in ("cause", "message", "action")}
    machine.emit("halted", node=token.at, **told, since=record["since"])
    wake_up(machine, token)


def wake_up(machine: Core, token: Token) -> None:
    """Set the one timer of a token that waits: for its next try, or its deadline, whichever is sooner."""
    times = [token.data.get("deadline"), token.data.get("retry", {}).get("next")]
    due = min((time for time in times if time is not None), default=None)
    machine.command(CancelTimer(at=token.at) if due is None else StartTimer(at=token.at, when=due))


def is_due(token: Token) -> bool:
    """Whether a token is before its node only to run the same once more."""
    return token.status == READY and "call" in token.data


def pause_over(machine: Core, token: Token) -> None:
    """The timer of a step that is tried again fired: it runs when the job goes on."""
    if token.data["retry"]["next"] - machine.state.last > EARLY:
        return wake_up(machine, token)  # it was set for what had this name in the turn before
    return _ready(token)


def _ready(token: Token) -> None:
    token.data["retry"].pop("next", None)
    token.status = READY


def run_again(machine: Core, token: Token) -> bool:
    """Run a step once more, with what it was given the first time; False where that is to be found out again."""
    call, record = token.data.pop("call"), token.data["retry"]
    if not call:
        return False
    token.status = RUNNING
    machine.command(
        RunActivity(
            at=token.at,
            activity=call["activity"],
            arguments=call["with"],
            carries=call["carries"],
            carrier=call["carrier"],
            timeout=call["timeout"],
            heartbeat=call.get("heartbeat"),
            retry=(call["retry"][0], call["retry"][1], call["retry"][2], call["retry"][3]),
            max_outage=call["max_outage"],
            waits=call["waits"],
            before=record["attempts"],
            tries=record.get("tries", 0),
        )
    )
    if (due := token.data.get("deadline")) is not None:
        machine.command(StartTimer(at=token.at, when=due))
    return True


def resume_steps(machine: Core, by: str, cause: str = "") -> int:
    """End the waits and halts of all steps, or of those with one cause, and count anew.

    Returns:
        How many there were.
    """
    found = [
        token
        for token in machine.state.in_order()
        if token.status in (BACKING_OFF, HALTED) and cause in ("", token.data["retry"]["cause"])
    ]
    for token in found:
        record = token.data["retry"]
        machine.emit("resumed", node=token.at, cause=record["cause"], by=by)
        token.data["retry"] = {key: record[key] for key in ("cause", "message", "attempts")}
        token.data["retry"]["since"] = machine.state.last
        if token.data.get("deadline") is None:
            machine.command(CancelTimer(at=token.at))
        _ready(token)
    return len(found)


def wait_over(machine: Core, token: Token) -> None:
    """A step that had to wait has ended, however that was: observers see it no longer among what waits."""
    record = token.data.pop("retry", None)
    if record is not None and record.get("told"):
        machine.emit("resumed", node=token.at, cause=record["cause"], by="")


def halted(machine: Core) -> list[dict[str, Any]]:
    """The steps that wait for a person: `at`, `cause`, `message`, `action`, `since`."""
    names = ("cause", "message", "action", "since")
    waiting = (token for token in machine.state.in_order() if token.status == HALTED)
    return [{"at": token.at, **{name: token.data["retry"][name] for name in names}} for token in waiting]


def backing_off(machine: Core) -> list[dict[str, Any]]:
    """The steps that are tried again later: `at`, `cause`, `message`, `since`, `next_at`, `tries`."""
    waiting = [token for token in machine.state.in_order() if token.status == BACKING_OFF]
    return [
        {
            "at": token.at,
            **{name: token.data["retry"][name] for name in ("cause", "message", "since")},
            "next_at": token.data["retry"]["next"],
            "tries": token.data["retry"]["tries"] + token.data["retry"].get("outages", 0),
            **({} if "outage" in token.data["retry"] else {"outage": False}),
        }
        for token in waiting
    ]
