"""Where a job may be forked: after which turns its conversation is whole, and what a fork knows of its origin."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from loom_dsl.agent.messages import legal_order
from loom_dsl.errors import UserError
from loom_dsl.text.canonical import canonical_json


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """What a job was forked from.

    Attributes:
        job: The job whose conversation it goes on with.
        turn: How many of that job's turns it has; they are numbered from 1, and 0 is only the task.
        end: How many entries of the conversation it has.
        earlier: What that job itself was forked from.
    """

    job: str
    turn: int
    end: int
    earlier: "ForkPoint | None" = None

    @property
    def line(self) -> "Iterator[ForkPoint]":
        """This one, and those before it."""
        one: ForkPoint | None = self
        while one is not None:
            yield one
            one = one.earlier

    @property
    def place(self) -> str:
        """Where in that job it begins, in words. A graph's job has no turns, and goes on where it failed."""
        return f"at turn {self.turn}" if self.end else "where it failed"

    def text(self) -> str:
        """Give it as the store keeps it."""
        return canonical_json([[one.job, one.turn, one.end] for one in self.line])

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `text` gave."""
        found: Self | None = None
        for job, turn, end in reversed(json.loads(text)):
            found = cls(job, turn, end, found)
        if found is None:
            raise ValueError("this is no text of a fork's point")
        return found


@dataclass(frozen=True, slots=True)
class Said:
    """An entry that a job wrote.

    Attributes:
        seq: Its place in the session.
        turn: Number of the turn that wrote it, from 0.
        head: The message without its content; of a note nothing.
        given: Whether the job was started with it.
        cut: Whether it stands for a result that there never was, since the job ended in the middle of the turn.
    """

    seq: int
    turn: int
    head: Mapping[str, Any]
    given: bool = False
    cut: bool = False


def turn_ends(said: Sequence[Said], *, first: int, start: int, latest: int, over: bool) -> list[int]:
    """Give the ends of a job's turns in its session: before its first one, and after each that is finished.

    A turn is finished when another has begun, or the job is over and its last answer has all its results. One that
    was ended in its middle is not: what its tools did is not in the conversation.

    Args:
        said: The entries that the job wrote, in order.
        first: Number of its first turn, from 0: of a fork how many turns it was begun with.
        start: How many entries of others come before its own.
        latest: Number of the latest turn that is known to have begun.
        over: Whether the job has ended.
    """
    ends = [max([start, *(one.seq + 1 for one in said if one.given)])]
    for turn in range(first, latest + 1):
        own = [one for one in said if one.turn == turn and not one.given]
        if not _is_finished(own, last=turn == latest, over=over):
            break
        ends.append(max([ends[-1], *(one.seq + 1 for one in own)]))
    return ends


def _is_finished(own: Sequence[Said], *, last: bool, over: bool) -> bool:
    if any(one.cut for one in own) or legal_order([one.head for one in own if one.head]):
        return False
    answered = any(one.head.get("role") == "assistant" for one in own)
    return not last or (over and answered)


def check_turn(job: str, turn: int, *, finished: int, over: bool) -> None:
    """Refuse a turn after which a job cannot be forked.

    Args:
        job: The job's id.
        turn: How many turns the fork is to have.
        finished: How many are finished by now.
        over: Whether the job has ended.

    Raises:
        UserError: There is no such turn, or it is not finished.
    """
    if 0 <= turn <= finished:
        return
    turns = f"{finished} turn{'' if finished == 1 else 's'}"
    what = f"has finished {turns}" if over else f"runs, and has finished {turns} so far"
    most = f"a turn from 0 to {finished}; 0" if finished else "0, which"
    raise UserError(f"job {job} {what}, so it cannot be forked at turn {turn}; give {most} is only its task")
