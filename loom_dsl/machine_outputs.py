"""What nodes gave whose work is done, kept when an expression fails over it: the work is not lost with the job."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from loom_dsl.canonical import digest
from loom_dsl.errors import ExpressionError
from loom_dsl.machine_ends import issue_flush
from loom_dsl.machine_state import OWNING, Frame, Token
from loom_dsl.machine_told import TOLD

if TYPE_CHECKING:
    from loom_dsl.machine_moves import Moves as Machine

PIECE = 400_000
"""Characters of JSON that one activity takes along; escaped they are twice as many at most, and events come besides."""
MOST_KEPT = 50
"""Outputs that a job keeps: a loop that catches its failures could go on keeping for ever."""
FOR = frozenset({ExpressionError.code, "result_too_large", "state_too_large"})
"""Codes of failures that come of what was done, and not of doing it."""


def keep_outputs(machine: "Machine", key: str, code: str) -> None:
    """Store what the nodes of a graph gave that is about to go because an expression failed in it.

    The results of a map count that is not done, too: null stands for the items that are missing. An agent's own graph
    keeps everything in its conversation already.

    Args:
        machine: The machine.
        key: The graph's frame.
        code: Why it fails.
    """
    if code not in FOR or machine.state.turn is not None:
        return
    own = machine.state.frames[""].own
    for at, output, done in _outputs(machine, key, machine.state.frames[key]):
        if own.get("kept", 0) >= MOST_KEPT:
            return
        own["kept"] = own.get("kept", 0) + 1
        _keep(machine, at, output, done)


def _keep(machine: "Machine", at: str, output: Any, done: int | None) -> None:
    text = json.dumps(output, separators=(",", ":"))
    pieces = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    for piece in pieces[:-1]:
        issue_flush(machine, {"keep": piece})
    counted = {"items": len(output), "done": len(output) if done is None else done} if isinstance(output, list) else {}
    machine.emit("output_kept", node=at, size=len(text), blobs=[digest(piece) for piece in pieces], **counted)
    issue_flush(machine, {"keep": pieces[-1]})


def _outputs(machine: "Machine", key: str, frame: Frame) -> Iterator[tuple[str, Any, int | None]]:
    """The outputs in a graph by the execution that gave them; of a map that is not done, how many items are."""
    nodes = machine.plan.bodies[frame.graph].nodes
    above = f"{key}/" if key else ""
    under_way = {token.node: token for token in machine.state.tokens.values() if token.frame == key and _partial(token)}
    for name, output in frame.outputs.items():
        if nodes[name].kind in TOLD and output is not None:
            visit = frame.visits.get(name, 1) - (1 if name in under_way else 0)
            yield f"{above}{name}#{max(1, visit)}", output, None
    for token in under_way.values():
        yield token.at, _results(token), _done(token)


def _partial(token: Token) -> bool:
    return token.status == OWNING and bool(token.data.get("done")) and "results" in token.data


def _results(token: Token) -> list[Any]:
    data = token.data
    if not data.get("chunked"):
        return list(data["results"])
    parts = zip(data["items"], data["results"], strict=True)
    return [result for part, given in parts for result in (given or [None] * len(part["items"]))]


def _done(token: Token) -> int:
    data = token.data
    if not data.get("chunked"):
        return len(data["done"])
    return sum(len(data["items"][index]["items"]) for index in data["done"])
