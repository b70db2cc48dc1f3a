"""What activities and child jobs report: a result lets a token go on, a failure fails its node."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loom_dsl.errors import ExpressionError
from loom_dsl.machine.checkpoint import done_after_all
from loom_dsl.machine.commands import ActivityFailed, ChildEnded
from loom_dsl.machine.compensation import adopt, confirm
from loom_dsl.machine.kinds.subgraphs import doomed_is_gone
from loom_dsl.machine.retry import answer_failed
from loom_dsl.machine.state import CHILD, READY, RUNNING

if TYPE_CHECKING:
    from loom_dsl.machine.moves import Moves as Machine


def activity_done(machine: "Machine", at: str, result: Any) -> None:
    """An activity gave its result."""
    machine.state.outbox.acknowledge(at)
    machine.issued.pop(at, None)
    if at in machine.side_work:
        taker = machine.side_work.pop(at)
        return taker(result, None) if taker else None
    token = machine.state.tokens.get(at)
    if token is None or token.status != RUNNING:
        return machine.emit("warning", code="stray_result", message=f"a result came for {at}, where nothing runs")
    taken = set(token.data.get("taken", ()))
    machine.state.inbox = [message for message in machine.state.inbox if message["id"] not in taken]
    if token.doomed:
        done_after_all(machine, token, result)
        confirm(machine, token, machine.node(token), result)  # it was done before it could be cancelled
        return doomed_is_gone(machine, token)
    return machine.complete(token, result)


def activity_failed(machine: "Machine", failed: ActivityFailed) -> None:
    """An activity failed for good, or was cancelled."""
    machine.state.outbox.take_back(failed.at)
    if failed.at in machine.side_work:
        taker = machine.side_work.pop(failed.at)
        return taker(None, failed) if taker else None
    token = machine.state.tokens.get(failed.at)
    if token is None or token.status != RUNNING:
        machine.emit("warning", code="stray_result", message=f"a failure came for {failed.at}, where nothing runs")
    elif token.doomed:
        machine.issued.pop(failed.at, None)
        doomed_is_gone(machine, token)
    else:
        answer_failed(machine, token, failed)
    return None


def child_ended(machine: "Machine", ended: ChildEnded) -> None:
    """A child job ended: its node goes on, or fails."""
    token = machine.state.tokens.get(ended.at)
    if token is None or token.status != CHILD:
        return
    try:
        adopt(machine, token, ended.undo)
    except ExpressionError as error:
        ended = replace(ended, code=error.code, message=error.message)
    if token.doomed:
        if not ended.code:
            done_after_all(machine, token, ended.result)
            confirm(machine, token, machine.node(token), ended.result)
        doomed_is_gone(machine, token)
    elif ended.code:
        token.status = READY
        machine.fail_node(token, ended.code, ended.message)
    else:
        machine.complete(token, ended.result)
