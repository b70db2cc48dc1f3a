"""Work outside the machine: activities, model calls and agents' jobs, and what follows from what they report."""

from dataclasses import replace
from typing import Any

from loom_dsl.errors import ExpressionError
from loom_dsl.graph.nodes import Activity, AgentNode, LlmNode
from loom_dsl.machine.commands import ActivityFailed, ChildEnded, RunActivity
from loom_dsl.machine.records import ActivityRecord
from loom_dsl.machine.state import CHILD, READY, RUNNING, Token
from loom_dsl.machine.tokens.checkpoint import done_after_all
from loom_dsl.machine.tokens.children import start_child
from loom_dsl.machine.tokens.compensation import activity_of, adopt, confirm
from loom_dsl.machine.tokens.deadlines import seconds_of
from loom_dsl.machine.tokens.moves import Moves, NodeHandler
from loom_dsl.machine.tokens.retry import answer_failed

LLM_RETRY = (4, 1.0, 2.0, 60.0)
"""Tries of a model that answers with what cannot be used."""


class ActivityHandler(NodeHandler[Activity]):
    """An activity runs; what it gives is the node's result."""

    def enter(self, machine: Moves, token: Token, node: Activity, names: dict[str, Any]) -> None:
        """Run the activity."""
        arguments = machine.mapped(token, "with", node.with_, names)
        if node.inbox == "take":
            due = [message for message in machine.state.inbox if not message.get("idle")]
            arguments["inject"] = due
            token.record = ActivityRecord([message["id"] for message in due])
        carrier = _one_of(machine, token, "carrier", node.carrier, ("local", "remote"), names)
        events = _one_of(machine, token, "events", node.events, ("carry", "leave"), names)
        timeout = seconds_of(machine.mapped(token, "timeout", node.timeout, names), f"the timeout of `{token.node}`")
        if not timeout:
            raise ExpressionError(f"the timeout of `{token.node}` is {timeout}; it is more than nothing")
        name, arguments = activity_of(node.activity, arguments, timeout)
        _run(
            machine,
            token,
            name,
            arguments,
            carries=events == "carry",
            carrier=carrier,
            timeout=timeout,
            heartbeat=float(node.heartbeat) if isinstance(node.heartbeat, (int, float)) else None,
            retry=(node.retry.attempts, node.retry.initial, node.retry.backoff, node.retry.longest),
            **_outage(machine, token, node, names),
        )


class LlmHandler(NodeHandler[LlmNode]):
    """A model is called once, without tools."""

    def enter(self, machine: Moves, token: Token, node: LlmNode, names: dict[str, Any]) -> None:
        """Call the model."""
        given = {
            slot: machine.mapped(token, slot, getattr(node.llm, slot), names)
            for slot in ("parameters", "model", "prompt", "system")
        }
        arguments = given
        outage = _outage(machine, token, node, names)
        _run(machine, token, "loom.llm.call", arguments, timeout=1800.0, heartbeat=5.0, retry=LLM_RETRY, **outage)


class AgentHandler(NodeHandler[AgentNode]):
    """An agent runs as a job of its own."""

    def enter(self, machine: Moves, token: Token, node: AgentNode, names: dict[str, Any]) -> None:
        """Start the agent's job."""
        arguments = machine.mapped(token, "with", node.with_, names)
        start_child(machine, token, arguments, agent=node.agent)


def _outage(machine: Moves, token: Token, node: Activity | LlmNode, names: dict[str, Any]) -> dict[str, Any]:
    if node.max_outage is None:
        return {}
    given = machine.mapped(token, "max_outage", node.max_outage, names)
    return {"max_outage": seconds_of(given, f"the max_outage of `{token.node}`"), "waits": True}


def _one_of(machine: Moves, token: Token, slot: str, value: str, known: tuple[str, ...], names: dict[str, Any]) -> str:
    given = machine.mapped(token, slot, value, names)
    if given not in known:
        raise ExpressionError(f"the {slot} of `{token.node}` is {given!r}; it can be {' or '.join(known)}")
    return str(given)


def _run(machine: Moves, token: Token, activity: str, arguments: dict[str, Any], **how: Any) -> None:
    token.status = RUNNING
    if token.retry is not None:  # of tries before this one
        how |= {"before": token.retry.attempts, "tries": token.retry.tries}
    machine.command(RunActivity(at=token.at, activity=activity, arguments=arguments, **how))


# What activities and child jobs report: a result lets a token go on, a failure fails its node.


def activity_done(machine: Moves, at: str, result: Any) -> None:
    """An activity gave its result."""
    machine.state.outbox.acknowledge(at)
    machine.issued.pop(at, None)
    if at in machine.side_work:
        taker = machine.side_work.pop(at)
        return taker(result, None) if taker else None
    token = machine.state.tokens.get(at)
    if token is None or token.status != RUNNING:
        return machine.emit("warning", code="stray_result", message=f"a result came for {at}, where nothing runs")
    if isinstance(token.record, ActivityRecord):
        taken = set(token.record.taken)
        machine.state.inbox = [message for message in machine.state.inbox if message["id"] not in taken]
    if token.doomed:
        done_after_all(machine, token, result)
        confirm(machine, token, machine.node(token), result)  # it was done before it could be cancelled
        return machine.cancelled_reported(token)
    return machine.complete(token, result)


def activity_failed(machine: Moves, failed: ActivityFailed) -> None:
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
        machine.cancelled_reported(token)
    elif not answer_failed(machine, token, failed):
        machine.fail_node(token, failed.code, failed.message)
    return None


def child_ended(machine: Moves, ended: ChildEnded) -> None:
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
        machine.cancelled_reported(token)
    elif ended.code:
        token.status = READY
        machine.fail_node(token, ended.code, ended.message)
    else:
        machine.complete(token, ended.result)
