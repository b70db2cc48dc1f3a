"""Questions to people: asked, told again, passed on to others, answered by enough of those who may, or expired."""

from typing import Any

from loom_dsl.approvals.decision import approval_id, is_digest
from loom_dsl.approvals.policy import ApprovalPolicy, read_policy
from loom_dsl.graph.nodes import Approval
from loom_dsl.machine.commands import CancelTimer, RunActivity, StartTimer
from loom_dsl.machine.records import ApprovalRecord
from loom_dsl.machine.state import READY, WAITING, Token
from loom_dsl.machine.tokens.core import Core
from loom_dsl.machine.tokens.deadlines import deadline_of
from loom_dsl.machine.tokens.ending import ANNOUNCEMENTS, close_approval
from loom_dsl.machine.tokens.moves import Moves, NodeHandler
from loom_dsl.text.canonical import canonical_json, digest
from loom_dsl.tools.risk import reaches

ANNOUNCE = "loom.approval.announce"
"""Stores the request and tells whoever is to decide. Remote, so that it is tried again when it fails."""
EARLY = 0.05
"""Seconds by which a timer may seem to fire too soon."""
HALT_CAUSE = "approval_expired"
"""Why a step is halted whose question nobody answered in time, with `on_expiry: halt`."""
PIPELINES = frozenset({"loom.tool_call", "loom.tool_node"})
"""Graphs whose requests Loom itself makes, so that what is in them is true. Others could ask for anything."""
EXPIRED = {"choice": "expired", "by": "", "message": "nobody decided in time"}


class ApprovalHandler(NodeHandler[Approval]):
    """The node asks people, and waits for what they decide."""

    def enter(self, machine: Moves, token: Token, node: Approval, names: dict[str, Any]) -> None:
        """Ask a human."""
        request = machine.mapped(token, "request", node.approval.request, names)
        policy = read_policy(machine.mapped(token, "policy", node.approval.policy, names))
        turn = machine.state.turn.turn_counter if machine.state.turn else 0
        now, due = machine.state.last, token.deadline  # from before it got in: a lock, a condition
        if due is None:
            due = deadline_of(machine, token, node, names)
        if due is None and policy.expires is not None:
            due = now + policy.expires
        signed = needs_signature(machine.state.frames[token.frame].graph, request, policy)
        # With the time, so that a signature for a question counts for no later one, not even of a job of the same id.
        name = approval_id(machine.job, turn, token.at, [request, now] if signed else request)
        written = policy.model_dump(mode="json", exclude_defaults=True)
        remind = None if policy.remind is None else now + policy.remind
        token.reset(WAITING, ApprovalRecord(name, now, request, written, remind))
        token.deadline = due
        machine.emit(
            "approval_requested",
            approval_id=name,
            tool=request.get("tool", "") if isinstance(request, dict) else "",
            node=token.at,
            request=request,
            digest=digest_of(request),
            choices=list(node.approval.choices),
            expires_at=due,
            **({"policy": written} if written else {}),
            **({"signed": True} if signed else {}),
        )
        _announce(machine, token)
        set_timer(machine, token)

    def deadline(self, machine: Moves, token: Token) -> None:
        """A question is told again, passed on or expires; one that is not asked yet is too late."""
        if token.status == WAITING:
            return approval_due(machine, token)
        return machine.time_over(token)


def is_own_question(machine: Core, token: Token) -> bool:
    """Whether Loom itself asks, so that what the request says is true."""
    return machine.state.frames[token.frame].graph in PIPELINES and isinstance(token.kept(ApprovalRecord).request, dict)


def needs_signature(graph: str, request: Any, policy: ApprovalPolicy) -> bool:
    """Whether a question that a graph asks is decided only by signed decisions."""
    if graph not in PIPELINES or not isinstance(request, dict):
        return policy.signed is not None
    return request.get("signed") is True or reaches(request.get("risk"), policy.signed)


def must_be_signed(machine: Core, token: Token) -> bool:
    """Whether the question of a token is decided only by signed decisions."""
    return needs_signature(
        machine.state.frames[token.frame].graph, token.kept(ApprovalRecord).request, policy_of(token)
    )


def policy_of(token: Token) -> ApprovalPolicy:
    """What happens to a token's question."""
    return read_policy(token.kept(ApprovalRecord).policy)


def digest_of(request: Any) -> str:
    """Name what is asked by its content: a tool's arguments, or the whole request of a graph's question."""
    named = request.get("arguments") if isinstance(request, dict) else None
    return str(named) if is_digest(named) else digest(canonical_json(request))


def deciders(token: Token) -> list[str]:
    """Who may decide now; empty: anybody."""
    policy, taken = policy_of(token), token.kept(ApprovalRecord).steps
    if not policy.approvers:
        return []
    return [*policy.approvers, *(name for step in taken for name in policy.escalate[step].to)]


def wake(token: Token) -> float | None:
    """When something is to be done about a token that waits; None: never."""
    times = [token.deadline]
    if isinstance(token.record, ApprovalRecord):
        times += [token.record.remind, *(when for _, when in _timed(token))]
    return min((when for when in times if when is not None), default=None)


def set_timer(machine: Moves, token: Token) -> None:
    """Wake up when the next thing is due, and not before."""
    when = wake(token)
    machine.command(CancelTimer(at=token.at) if when is None else StartTimer(at=token.at, when=when))


def _timed(token: Token) -> list[tuple[int, float]]:
    """The steps of the escalation that have a time and are not taken, the soonest first."""
    asked = token.kept(ApprovalRecord)
    if not asked.policy:
        return []
    steps = enumerate(policy_of(token).escalate)
    found = [(i, asked.since + step.after) for i, step in steps if step.after is not None and i not in asked.steps]
    return sorted(found, key=lambda step: step[1])


def _next_untimed(token: Token) -> int | None:
    taken = token.kept(ApprovalRecord).steps
    return next((i for i, s in enumerate(policy_of(token).escalate) if s.after is None and i not in taken), None)


def ends_at_deadline(token: Token) -> bool:
    """Whether nobody's decision counts any more after the deadline."""
    policy = policy_of(token)
    return policy.on_expiry != "halt" and (policy.on_expiry != "escalate" or _next_untimed(token) is None)


# -- time ------------------------------------------------------------------------------------------------------------


def approval_due(machine: Moves, token: Token) -> None:
    """The timer of a question fired."""
    when = wake(token)
    if when is None:
        return
    if when - machine.state.last <= EARLY:
        now = max(when, machine.state.last)
        catch_up(machine, token, now)
        if token.status == WAITING and _past(token, now) and ends_at_deadline(token):
            return _end_of_time(machine, token)
        if token.status == WAITING:
            _remind(machine, token, now)
    set_timer(machine, token)


def catch_up(machine: Moves, token: Token, now: float) -> None:
    """Do what was due by now, and does not end the question: ask others, or halt."""
    for timed, when in _timed(token):
        if when <= now:
            _escalate(machine, token, timed)
    if not _past(token, now):
        return
    step = _next_untimed(token)
    if policy_of(token).on_expiry == "halt":
        _halt(machine, token)
    elif policy_of(token).on_expiry == "escalate" and step is not None:
        # From now, or they would have no time when no worker was up to ask them.
        token.deadline = now + _period(token)
        _escalate(machine, token, step)


def _past(token: Token, now: float) -> bool:
    return token.deadline is not None and token.deadline <= now


def _period(token: Token) -> float:
    """How long the question stays open each time, in seconds."""
    asked = token.kept(ApprovalRecord)
    if asked.period is None:
        assert token.deadline is not None
        asked.period = token.deadline - asked.since
    return asked.period


def _end_of_time(machine: Moves, token: Token) -> None:
    """The question expires, unless decisions that came before are not settled yet."""
    asked = token.kept(ApprovalRecord)
    if machine.pending_decisions.get(asked.id):
        asked.fired = True
        return machine.command(CancelTimer(at=token.at))
    return expire(machine, token)


def _remind(machine: Moves, token: Token, now: float) -> None:
    asked = token.kept(ApprovalRecord)
    due, every = asked.remind, policy_of(token).remind
    if due is None or every is None or due > now:
        return
    # Those that nobody was up to send are left out: one is enough.
    asked.remind = due + every * (int((now - due) // every) + 1)
    asked.reminded += 1
    machine.emit("approval_changed", approval_id=asked.id, what="reminded", times=asked.reminded)
    _announce(machine, token, again="reminder")


def _escalate(machine: Moves, token: Token, step: int) -> None:
    asked, due = token.kept(ApprovalRecord), token.deadline
    asked.steps = [*asked.steps, step]
    to = list(policy_of(token).escalate[step].to)
    which = machine.named(step=step + 1)  # two steps may ask the same people
    machine.emit("approval_changed", approval_id=asked.id, what="escalated", to=to, expires_at=due, **which)
    _announce(machine, token, again="escalation", to=to)


def _halt(machine: Moves, token: Token) -> None:
    """Nobody decided in time: the step is halted until somebody decides, or resumes the job; other branches go on."""
    _period(token)
    asked, due = token.kept(ApprovalRecord), token.deadline
    token.deadline, asked.halted = None, round(machine.state.last, 3)
    # Asked anew, it may halt again.
    machine.emit("approval_changed", approval_id=asked.id, what="halted", expires_at=None, **machine.named(due=due))
    told = halted_question(machine, token)
    machine.emit("halted", node=told.pop("at"), **told)
    _announce(machine, token, again="halted")


def halted_question(machine: Moves, token: Token) -> dict[str, Any]:
    """Say of a question that nobody answered in time what a halted step says of itself, and the approval's id."""
    asked, job = token.kept(ApprovalRecord), machine.job
    name = asked.id
    action = f"decide it with `loom approve {job} {name}` or `loom reject`, or have it asked anew with `loom resume"
    message = f"nobody decided {name} in time"
    told = {"at": token.at, "cause": HALT_CAUSE, "message": message, "action": f"{action} {job}`"}
    return {**told, "since": asked.halted, "approval": name}


def renew_halted(machine: Moves, by: str = "") -> None:
    """The job is resumed: the questions that halted steps are asked anew, with their whole time."""
    for token in machine.state.in_order():
        if token.status == WAITING and (asked := token.kept(ApprovalRecord)).halted:
            asked.halted = 0.0
            machine.emit("resumed", node=token.at, cause=HALT_CAUSE, by=by)
            token.deadline = due = machine.state.last + _period(token)
            machine.emit("approval_changed", approval_id=asked.id, what="renewed", expires_at=due)
            _announce(machine, token, again="renewed")
            set_timer(machine, token)


def expire(machine: Moves, token: Token) -> None:
    """Nobody decided in time."""
    node = machine.node(token)
    assert isinstance(node, Approval)
    allows = policy_of(token).on_expiry == "allow" and "approve" in node.approval.choices
    allows = allows and not must_be_signed(machine, token)
    edge = node.deadline is not None and node.deadline.to is not None
    # Where a graph has an edge for it, the graph says what follows; Loom's own pipelines say what the policy says.
    runs = allows and (not edge or machine.state.frames[token.frame].graph in PIPELINES)
    close_approval(machine, token, **EXPIRED, **({"allowed": True} if runs else {}))
    if node.deadline is not None and node.deadline.to is not None:
        machine.set_output(token, dict(EXPIRED))
        return machine.move(token, [node.deadline.to])
    machine.command(CancelTimer(at=token.at))
    token.reset(READY)
    if allows:
        return machine.complete(token, {**EXPIRED, "choice": "approve", "expired": True})
    return machine.fail_node(token, "approval_expired", f"nobody answered `{token.node}` in time")


def _announce(machine: Moves, token: Token, again: str = "", to: list[str] | None = None) -> None:
    """Have it told to who may decide, or to those who are asked besides."""
    asked = token.kept(ApprovalRecord)
    arguments: dict[str, Any] = {"approval_id": asked.id, "request": asked.request}
    arguments |= {"again": again} if again else {}
    if people := to or deciders(token):
        arguments["to"] = people
    at = ANNOUNCEMENTS + token.at
    if again:
        asked.told += 1
        at += f"+{asked.told}"
    machine.side_work[at] = None
    machine.command(RunActivity(at=at, activity=ANNOUNCE, arguments=arguments, timeout=30.0))
