"""Compensation: what was done is taken back, last first, when the job fails or is aborted."""

from functools import partial
from typing import Any

from loom_dsl.errors import ExpressionError
from loom_dsl.fields import Retry
from loom_dsl.graph.edges import Node
from loom_dsl.machine.commands import ActivityFailed, RunActivity
from loom_dsl.machine.payloads import size_of
from loom_dsl.machine.state import Token
from loom_dsl.machine.tokens.core import Core

FUNCTION = "loom.function.call"
MAX_UNDO = 1_000
MAX_CARRIED = 256 * 1024
"""Bytes of what a child job hands to the job above it: how what it did is taken back."""
TOO_LARGE = "its arguments were too large to be handed to the job above"
NO_RESULT = "its arguments need the result of the node, which is not known"


def push(machine: Core, token: Token, node: Node, names: dict[str, Any]) -> None:
    """Write down, before a node starts, how it is taken back.

    Raises:
        ExpressionError: There are too many.
    """
    if node.compensate is None:
        return
    if len(machine.state.undo) >= MAX_UNDO:
        raise ExpressionError(f"over {MAX_UNDO} nodes of this job would have to be taken back")
    entry = {"at": _name(machine, token), "graph": machine.state.frames[token.frame].graph, "node": token.node}
    arguments = _arguments(machine, token, node, {**names, "result": None})
    machine.state.undo = [*machine.state.undo, {**entry, "with": arguments, "sure": False}]


def never_began(machine: Core, token: Token) -> None:
    """A node failed before anything of it was begun, so there is nothing to take back."""
    name = _name(machine, token)
    machine.state.undo = [entry for entry in machine.state.undo if entry["at"] != name]


def confirm(machine: Core, token: Token, node: Node, result: Any) -> None:
    """A node is done, so it is known with what it is taken back."""
    if node.compensate is None:
        return
    arguments = _arguments(machine, token, node, {**machine.names(token), "result": result})
    name = _name(machine, token)
    machine.state.undo = [
        {**entry, "with": arguments, "sure": True} if entry["at"] == name else entry for entry in machine.state.undo
    ]


def _arguments(machine: Core, token: Token, node: Node, names: dict[str, Any]) -> Any:
    """The arguments; null where they cannot be told, which is reported when it comes to it."""
    assert node.compensate is not None
    try:
        return machine.mapped(token, "compensate", node.compensate.with_, names)
    except ExpressionError:
        return None


def _name(machine: Core, token: Token) -> str:
    return f"{machine.state.turn.turn_counter}/{token.at}" if machine.state.turn else token.at


def take_back(machine: Core) -> bool:
    """Take the last thing back that is not taken back. False when there is nothing."""
    state = machine.state
    while state.undo:
        entry = state.undo[-1]
        if entry["with"] is None:
            _report(machine, entry, "unknown", entry.get("why", NO_RESULT))
            continue
        given = _how(machine, entry)
        retry = Retry.model_validate(given.get("retry", {}))
        name, arguments = activity_of(given["activity"], entry["with"], given["timeout"])
        at = f"~undo/{entry['at']}"
        machine.side_work[at] = partial(_done, machine, entry)
        machine.emit("compensating", node=entry["at"])
        machine.command(
            RunActivity(
                at=at,
                activity=name,
                arguments=arguments,
                timeout=given["timeout"],
                heartbeat=5.0,
                retry=(retry.attempts, retry.initial, retry.backoff, retry.longest),
            )
        )
        return True
    return False


def _how(machine: Core, entry: dict[str, Any]) -> dict[str, Any]:
    """The activity that takes an entry back, its timeout and its retries. A child's entry says them itself."""
    if "do" in entry:
        return dict(entry["do"])
    node = machine.plan.node(entry["graph"], entry["node"])
    assert node.compensate is not None
    given = node.compensate.model_dump(include={"activity", "timeout"})
    return {**given, "retry": node.compensate.retry.model_dump(exclude_defaults=True)}


def handed_up(machine: Core) -> list[dict[str, Any]]:
    """Say how what this job did is taken back, for the job above it, which does not know the job's plan."""
    entries = [
        {**{key: entry[key] for key in ("at", "with", "sure", "why") if key in entry}, "do": _how(machine, entry)}
        for entry in machine.state.undo
    ]
    if size_of(entries) <= MAX_CARRIED:
        return entries
    return [{**entry, "with": None, "why": TOO_LARGE} for entry in entries]


def adopt(machine: Core, token: Token, entries: list[dict[str, Any]]) -> None:
    """Take over from a child job that is done how what it did is taken back.

    Raises:
        ExpressionError: There are too many now. They are kept all the same: they were done.
    """
    if not entries:
        return
    name = _name(machine, token)
    machine.state.undo = [*machine.state.undo, *({**entry, "at": f"{name}/{entry['at']}"} for entry in entries)]
    if len(machine.state.undo) > MAX_UNDO:
        raise ExpressionError(f"over {MAX_UNDO} nodes of this job would have to be taken back")


def activity_of(name: str, arguments: dict[str, Any], timeout: float) -> tuple[str, dict[str, Any]]:
    """Name the activity and its arguments: a user's function is called by one that Loom has, which keeps its time."""
    if ":" not in name:
        return name, arguments
    return FUNCTION, {"function": name, "with": arguments, "timeout": timeout}


def _done(machine: Core, entry: dict[str, Any], result: Any, failed: ActivityFailed | None) -> None:
    if failed is not None:
        _report(machine, entry, "failed", f"{failed.code}: {failed.message}")
    elif entry["sure"]:
        _report(machine, entry, "undone", "")
    else:
        _report(machine, entry, "undone", "it was not known whether the node had its effect")


def _report(machine: Core, entry: dict[str, Any], outcome: str, message: str) -> None:
    state = machine.state
    state.undo = [other for other in state.undo if other is not entry and other["at"] != entry["at"]]
    told = {"node": entry["at"], "outcome": outcome, **({"message": message} if message else {})}
    state.undone = [*state.undone, told]
    machine.emit("compensated", **told)
