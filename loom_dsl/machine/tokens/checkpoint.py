"""What is kept of a graph that fails, before its work is taken away, so that another job can go on where it failed.

A failure that nothing catches goes from graph to graph up to the job's end, and each of them may first wait for what it
cancelled. So each keeps what is below it when it fails, and the job puts these parts into the whole when it ends.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from loom_dsl.machine.payloads import MAX_RESULT, size_of
from loom_dsl.machine.records import MapRecord
from loom_dsl.machine.state import Frame, MachineState, Token
from loom_dsl.machine.tokens.core import Core

MAX_KEPT = 256 * 1024
"""Bytes as JSON of what is kept."""
TAKEN_BACK = "what it had done was taken back when it failed; start a new job"
UNREADABLE = "what it had come to could not be written down; start a new job"


def keep(machine: Core, token: Token, code: str) -> None:
    """Keep the graphs beside and below a token, which are about to be taken away because it failed.

    Nothing is kept where the failure is caught above, in an agent's turn, or when the job ends already.
    """
    frame = machine.state.frames[token.frame]
    known = frame.parent in machine.state.failed_at  # what was beside a stuck join is gone by now
    if known or not _is_kept(machine) or not _ends_the_job(machine, frame, code):
        return
    cause = [] if token.at in machine.state.failed_at else [token.at]
    if frame.parent:
        _keep_below(machine, machine.state.tokens[frame.parent], cause)
    else:
        keep_all(machine, cause)


def keep_stuck(machine: Core, token: Token, code: str) -> None:
    """Do as `keep` before tokens are taken away that wait for ever at the same join."""
    catch = machine.node(token).catch
    if code not in catch and "any" not in catch:
        keep(machine, token, code)


def keep_owner(machine: Core, owner: Token, code: str) -> None:
    """Keep the graphs of a node that fails by itself, and not because one of them did."""
    known = owner.failed is not None or owner.at in machine.state.failed_at
    if known or not _is_kept(machine) or not _ends_the_job(machine, machine.state.frames[owner.frame], code, owner):
        return
    if isinstance(owner.record, MapRecord) and not owner.record.detached:
        owner.record.left = False  # a map whose way on could not be told has not left its items behind
    _keep_below(machine, owner, [owner.at])


def keep_all(machine: Core, cause: list[str] | None = None) -> None:
    """Keep everything, before it is taken away because the job fails."""
    state = machine.state
    if not _is_kept(machine) or "" in state.failed_at:
        return
    whole = MachineState(
        input=state.input, events=state.events, locks=state.locks, undo=state.undo, last=state.last
    ).to_json()
    kept = _together(machine, list(state.tokens.values()), state.frames, cause or [])
    state.failed_at = {"": _written({**kept, "whole": whole})}


def done_after_all(machine: Core, token: Token, result: Any) -> None:
    """Work that was taken away has come to its end before it could be cancelled: it is not to be done again."""
    for kept in machine.state.failed_at.values():
        known = kept.get("tok", {}).get(token.at)
        if known is not None and not known.get("x"):
            kept["done"][token.at] = result


def where_failed(machine: Core, told: Any) -> dict[str, Any]:
    """Give what is stored of a failed graph, so that a fork can go on; of others nothing.

    Args:
        machine: The machine at its end.
        told: What is stored with it.
    """
    kept = machine.state.failed_at.get("")
    if kept is None:
        return {}
    if machine.state.undone:
        kept = {"why": TAKEN_BACK}
    size = size_of(kept)
    if size > MAX_KEPT or size + size_of(told) > MAX_RESULT:
        kept = _too_large(size)
    return {"failed_at": kept}


def stored(machine: Core) -> Callable[[Any, Any], None]:
    """Give what is done when the store has what is kept: the machine itself needs it no longer."""

    def forget(result: Any, failed: Any) -> None:
        if failed is None:
            machine.state.failed_at = {}

    return forget


def _is_kept(machine: Core) -> bool:
    state = machine.state
    return state.turn is None and state.abort is None and state.ending is None


def _ends_the_job(machine: Core, frame: Frame, code: str, owner: Token | None = None) -> bool:
    """Whether nothing catches that a graph fails, or that the node fails which owns graphs."""
    state = machine.state
    while owner is not None or frame.parent:
        owner = owner or state.tokens[frame.parent]
        catch = machine.node(owner).catch
        left = isinstance(owner.record, MapRecord) and owner.record.left
        if left or owner.failed is not None or code in catch or "any" in catch:
            return False
        frame, owner = state.frames[owner.frame], None
    return True


def _keep_below(machine: Core, owner: Token, cause: list[str]) -> None:
    state, below = machine.state, f"{owner.at}["
    frames = {key: frame for key, frame in state.frames.items() if key.startswith(below)}
    tokens = [owner, *(token for token in state.tokens.values() if token.frame in frames)]
    kept = _written(_together(machine, tokens, frames, cause))
    others = {at: part for at, part in state.failed_at.items() if at in state.tokens and not at.startswith(below)}
    state.failed_at = {**others, owner.at: kept}


def _together(machine: Core, tokens: list[Token], frames: Mapping[str, Frame], cause: list[str]) -> dict[str, Any]:
    """Tokens and frames as JSON, and in place of each node that fails already what it has kept."""
    made: dict[str, Any] = {
        "tok": {token.at: token.to_json() for token in tokens},
        "fr": {key: frame.to_json() for key, frame in frames.items()},
        "done": {},
        "at": list(cause),
    }
    for at, part in machine.state.failed_at.items():
        if at not in made["tok"]:
            continue
        if "why" in part:
            return part
        for what in ("tok", "fr"):
            outside = {name: one for name, one in made[what].items() if not name.startswith(f"{at}[")}
            made[what] = {**outside, **part[what]}
        made["done"] |= part["done"]
        made["at"] += part["at"]
    return made


def _written(kept: dict[str, Any]) -> dict[str, Any]:
    """A copy that nothing changes any more."""
    if "why" in kept:
        return {"why": kept["why"]}
    try:
        text = json.dumps(kept, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        return {"why": UNREADABLE}
    copy: dict[str, Any] = _too_large(len(text)) if len(text) > MAX_KEPT else json.loads(text)
    return copy


def _too_large(size: int) -> dict[str, str]:
    return {"why": f"what it had come to has {size} bytes, and {MAX_KEPT} are kept; start a new job"}
