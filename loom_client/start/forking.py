"""Forking a job: another job that goes on from one of its turns, in a session of its own.

Only the store is looked at, so a job can be forked that the server has forgotten. Nothing is copied: the new session
points at the entries of the old one, and a prune leaves what a fork reads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loom_client.effects import effects_of
from loom_dsl.agent.definition import Agent
from loom_dsl.agent.fork import ForkPoint, Said, check_turn, turn_ends
from loom_dsl.agent.messages import PROJECT_CONTEXT
from loom_dsl.errors import JobExists, NotFoundError, UserError
from loom_dsl.graph.compiler import compile_agent
from loom_dsl.graph.plan import Plan
from loom_store.job_facts import last_key, runtime_data, sources_below
from loom_store.queries.jobs import Mark
from loom_store.rows import Entry
from loom_store.transaction import Transaction
from loom_tools.workspace.project import project_context

COPIED: tuple[Mark, ...] = ("words", "written")
"""Marks that a fork has from the job that it was forked from."""

TAKEN_BACK = "Since then, what these calls did was taken back, or may have been: {0}. Look before you rely on it."
NEW_LIMITS = "The limits that were spoken of are no longer those: go on, there are turns left."


@dataclass(frozen=True, slots=True)
class Fork:
    """What a fork begins with.

    Attributes:
        point: The job and the turn.
        session: The session whose first entries it shares.
        plan: What it runs: the plan of the job that was forked, unless another agent is to go on.
        workdir: That job's working directory.
        task: That job's task, as lists show it.
        runtime: What that job's run was given for its tools.
        known: What the shared entries say of the project.
        context: What that job was told of it.
        news: What the model must know because the shared entries say otherwise.
        finished: Whether the agent's last word is its answer, so that somebody must say how to go on.
        marks: What is known of that job and holds for the fork.
    """

    point: ForkPoint
    session: str
    plan: Plan
    workdir: str
    task: str
    runtime: dict[str, Any]
    known: str
    context: str
    news: tuple[str, ...]
    finished: bool
    marks: tuple[tuple[Mark, str], ...]

    @property
    def agent(self) -> Agent:
        """The agent that goes on."""
        return Agent.from_plan_data(self.plan.agent)

    def context_in(self, place: Path) -> str:
        """Give what agents are told of the project in a directory: in the job's own, what that job was told."""
        return self.context if str(place) == self.workdir else project_context(place)

    def redefined(self, agent: Agent, turns: Plan | None) -> "Fork":
        """Give the fork with another agent. What the project's policy was goes with the definition of its time."""
        kept = tuple(mark for mark in self.marks if mark[0] != "policy")
        return replace(self, plan=compile_agent(agent, turns), marks=kept)

    def with_model(self, model: str) -> "Fork":
        """Give the fork with another model.

        Raises:
            UserError: That is no model's name.
        """
        try:
            agent = Agent.from_plan_data({**self.plan.agent, "model": model})
        except ValidationError as error:
            raise UserError(f"the model: {error.errors()[0]['msg']}") from None
        return replace(self, plan=compile_agent(agent, self.plan))


def read_fork(tx: Transaction, job: str, turn: int) -> Fork:
    """Look up what a fork of a job after one of its turns begins with.

    Args:
        tx: A transaction on the store.
        job: The job, whatever became of it.
        turn: How many of its turns the fork has; 0: only the task.

    Raises:
        NotFoundError: There is no such job.
        UserError: It is a graph's, or it has not finished so many turns.
    """
    row = tx.job(job)
    if row is None:
        raise NotFoundError(f"there is no job {job!r} in this store")
    plan = Plan.load(tx.get_blob(row["plan"]).decode())
    if not plan.agent:
        raise UserError(
            f"job {job} runs the graph {row['agent']}, which has no turns; `loom fork {job}` goes on where it failed"
        )
    entries = tx.read_entries(row["session"])
    point = _point(tx, row, turn, entries)
    marks = [(kind, value) for kind in (*COPIED, "policy") for value in tx.marks(job, kind)]
    marks += [("earlier", tool) for tool in sources_below(tx, job)]
    shared = [entry for entry in entries if entry.seq < point.end]
    known = _context(tx, shared)
    own = _context(tx, [entry for entry in entries if entry.job == job])
    return Fork(
        point=point,
        session=row["session"],
        plan=plan,
        workdir=row["workdir"],
        task=row["task"],
        runtime=runtime_data(tx, job, row["session"]),
        known=known or "",
        context=(known if own is None else own) or "",
        news=tuple(_news(tx, point, shared)),
        finished=_answered(shared),
        marks=(("forked", point.text()), *marks),
    )


def finished_turns(tx: Transaction, row: Mapping[str, Any]) -> int:
    """Count the turns of an agent's job after which it may be forked, with those of the job it was forked from."""
    return _finished(tx, row, tx.read_entries(row["session"]))


def _finished(tx: Transaction, row: Mapping[str, Any], entries: Sequence[Entry]) -> int:
    point = tx.fork_point(row["job"])
    first, start = (point.turn, point.end) if point else (0, 0)
    said = [_said(entry) for entry in entries if entry.job == row["job"]]
    latest = _latest(tx, row["job"], entries)
    return first + len(turn_ends(said, first=first, start=start, latest=latest, over=row["ended_at"] is not None)) - 1


def _point(tx: Transaction, row: dict[str, Any], turn: int, entries: Sequence[Entry]) -> ForkPoint:
    """Find the job of a turn, the forked one or one that it was forked from, and where the turn ends."""
    job, over = row["job"], row["ended_at"] is not None
    earlier, latest = tx.fork_point(job), _latest(tx, row["job"], entries)
    while earlier is not None and turn < earlier.turn:
        # All the turns that a fork was made after are finished.
        job, latest, over, earlier = earlier.job, earlier.turn, False, earlier.earlier
    first, start = (earlier.turn, earlier.end) if earlier else (0, 0)
    said = [_said(entry) for entry in entries if entry.job == job]
    ends = turn_ends(said, first=first, start=start, latest=latest, over=over)
    check_turn(job, turn, finished=first + len(ends) - 1, over=over)
    return ForkPoint(job, turn, ends[turn - first], earlier)


def _latest(tx: Transaction, job: str, entries: Sequence[Entry]) -> int:
    """The latest turn of which anything was told; its number."""
    told = tx.read_events(job, after=max(0, tx.last_offset(job) - 1), limit=1)
    numbers = [entry.turn for entry in entries if entry.job == job] + [event.get("n", 0) for _, event in told]
    return max(numbers, default=0)


def _said(entry: Entry) -> Said:
    head = entry.head if entry.kind == "message" else {}
    given, cut = f"{entry.job}/input", f"{entry.job}/{entry.turn}/orphans"
    return Said(entry.seq, entry.turn, head, given=entry.key == given, cut=entry.key == cut)


def _context(tx: Transaction, entries: Sequence[Entry]) -> str | None:
    notes = (entry for entry in reversed(entries) if entry.head.get("note") == PROJECT_CONTEXT)
    found = next(notes, None)
    return tx.get_blob(found.content_digest).decode() if found and found.content_digest else None


def _news(tx: Transaction, point: ForkPoint, shared: Sequence[Entry]) -> Iterator[str]:
    if undone := ", ".join(_undone(tx, point)):
        yield TAKEN_BACK.format(undone)
    if any(entry.key == last_key(point.job, point.turn - 1) for entry in shared):
        yield NEW_LIMITS


def _undone(tx: Transaction, point: ForkPoint) -> Iterator[str]:
    """Name what an abort took back after the conversation had said that it was done."""
    for one in reversed(list(point.line)):
        for effect in effects_of(tx, one.job):
            if effect.turn < one.turn and effect.undone and effect.undone.status != "failed":
                yield f"{effect.tool} (turn {effect.turn + 1})"


def _answered(shared: Sequence[Entry]) -> bool:
    last = next((entry.head for entry in reversed(shared) if entry.kind == "message"), {})
    return last.get("role") == "assistant" and not last.get("tool_calls")


def check_same(tx: Transaction, job: str, point: ForkPoint | None) -> None:
    """Refuse an id that stands for a job which was forked from somewhere else, or not at all.

    Raises:
        JobExists: It does.
    """
    if tx.job(job) is None or (known := tx.fork_point(job)) == point:
        return
    what = f"was forked from {known.job} {known.place}" if known else "was not forked"
    raise JobExists(f"job {job!r} exists already and {what}; take another id", ("fork",))
