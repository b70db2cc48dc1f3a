"""Going on where a graph failed: the state in which another job does, made of what was kept of the failed one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loom_dsl.agent.states import RunState
from loom_dsl.graph.nodes import Fail, ToolCallNode
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.migration import moved
from loom_dsl.machine.outbox import Outbox
from loom_dsl.machine.records import LoopRecord, MapRecord
from loom_dsl.machine.state import JOINING, OWNING, READY, MachineState, Token
from loom_dsl.machine.tokens.node_events import OWN_GRAPHS

NOTHING_LEFT = "nothing was left to do when it failed: it had not begun, or it had come to its end; start a new job"


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a job goes on with where another one failed.

    Attributes:
        state: Where it stands; of use only if nothing stands in the way.
        again: The executions that are entered again, by name.
        problems: Why it cannot go on, a sentence each.
    """

    state: MachineState
    again: list[str]
    problems: list[str]


def failed_nodes(kept: Mapping[str, Any]) -> list[str]:
    """Name the executions at which a graph failed."""
    return [str(at) for at in kept.get("at", ())]


def resumed(
    kept: Mapping[str, Any], old: Plan, new: Plan, names: Mapping[str, str], *, job: str, now: float
) -> Resumed:
    """Give the state in which another job goes on where a graph failed.

    Args:
        kept: What the store has of it.
        old: The plan that it ran.
        new: The plan that the other job is to run.
        names: Old node → new node, where a node was renamed.
        job: The other job.
        now: The time, in seconds since the epoch.
    """
    if "why" in kept:
        return Resumed(MachineState(), [], [kept["why"]])
    raw = json.loads(json.dumps(kept))
    state = MachineState.from_json({**raw["whole"], "tok": list(raw["tok"].values()), "fr": raw["fr"]})
    _put_back(state, raw, old)
    if names or new.hash != old.hash:
        state, problems = moved(state, old, new, names, anew=True)
        if problems:
            return Resumed(state, [], problems)
    problems = _ends_itself(state, raw["at"], new) or _entered_too_often(state, new)
    if problems:
        return Resumed(state, [], problems)
    machine = Machine(new, state, job)
    state.last = max(now, state.last)
    _catch_up(machine, raw["done"])
    ending = state.ending
    if ending is not None and ending[0] == "fail":
        problems = [f"it would fail again at once: {ending[2]}"]
    elif ending is None and not state.tokens:
        problems = [NOTHING_LEFT]
    again = [token.at for token in state.in_order() if token.status == READY]
    state.outbox, state.failed_at, state.phase, state.run_state = Outbox(), {}, "", RunState.IDLE.value
    return Resumed(state, again, problems)


def _put_back(state: MachineState, kept: Mapping[str, Any], plan: Plan) -> None:
    """Put tokens before their nodes, but for those whose graphs or joins go on. What was taken away before stays so."""
    for token in list(state.tokens.values()):
        if token.at not in state.tokens or token.doomed:
            continue
        if (token.status == OWNING and _goes_on(state, token, kept, plan)) or token.status == JOINING:
            _begin_deadline_anew(token)
        else:
            _drop_below(state, token)
            token.reset(READY)


def _begin_deadline_anew(token: Token) -> None:
    if token.deadline is not None:
        token.deadline, token.anew = None, True


def _goes_on(state: MachineState, token: Token, kept: Mapping[str, Any], plan: Plan) -> bool:
    """Whether a node goes on with its graphs, and is not entered again: where something of it is done, or under way.

    The stages of a tool call belong to the job that made it. Another one goes through them all, unless the tool has
    run and only its result is still to be read.
    """
    below = f"{token.at}["
    frames = [frame for key, frame in state.frames.items() if key.startswith(below)]
    if isinstance(plan.node(state.frames[token.frame].graph, token.node), ToolCallNode):
        ran = any("execute" in frame.outputs for frame in frames) or any(
            at.startswith(below) and state.tokens[at].node == "execute" for at in kept["done"]
        )
        return ran and not any(at.startswith(below) for at in kept["at"])
    match token.record:
        case MapRecord(done=done, open=is_open):
            return bool(frames or done or is_open)
        case LoopRecord(round=number):
            return bool(frames or number)
    return bool(frames)


def _drop_below(state: MachineState, token: Token) -> None:
    below = f"{token.at}["
    state.frames = {key: frame for key, frame in state.frames.items() if not key.startswith(below)}
    state.tokens = {at: one for at, one in state.tokens.items() if one.frame in state.frames}


def _ends_itself(state: MachineState, failed: list[str], plan: Plan) -> list[str]:
    """Say at which `fail` nodes the graph ended itself: to enter them again would end it again."""
    there = (state.tokens[at] for at in failed if at in state.tokens)
    return [
        f"the graph ended itself at `{token.node}`; go on with a changed graph that gives another way there (--graph), "
        "or start a new job"
        for token in there
        if not state.frames[token.frame].graph.startswith(OWN_GRAPHS)
        and isinstance(plan.node(state.frames[token.frame].graph, token.node), Fail)
    ]


def _entered_too_often(state: MachineState, plan: Plan) -> list[str]:
    """Say which nodes were entered as often as they may be, also under this plan."""
    problems = []
    for token in state.in_order():
        if token.full is None:
            continue
        frame = state.frames[token.frame]
        most = plan.node(frame.graph, token.node).max_visits
        if most is None or frame.visits.get(token.node, 0) <= most:
            token.full = None
        else:
            problems.append(f"`{token.node}` was entered over {most} times; raise its `max_visits` in a changed graph "
                            "and go on with that (--graph)")  # fmt: skip
    return problems


def _catch_up(machine: Machine, done: Mapping[str, Any]) -> None:
    """Take what had come to its end by then: nothing is entered here."""
    state = machine.state
    for token in state.in_order():
        if token.doomed and token.at in state.tokens:
            machine.cancelled_reported(token)
    for at, result in done.items():
        if at in state.tokens:
            machine.complete(state.tokens[at], result)
    for token in state.in_order():
        if token.at not in state.tokens:
            continue
        if token.gave:
            token.gave = False
            machine.complete(token, state.frames[token.frame].outputs[token.node])
        elif token.status == OWNING:
            machine.handler(token).again(machine, token)
