"""What of a session the model of a job reads: its task, what the latest summary leaves, and the summary itself."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from activities.chat.endpoints import Endpoints
from activities.record.activity_call import ActivityCall, Run, remember
from activities.record.job_store import JobStore
from activities.record.transcript import Transcript
from loom_dsl.agent.context import estimate_tokens
from loom_dsl.agent.messages import NOT_COMPRESSED, SUMMARY, legal_groups
from loom_store.transaction import Transaction
from loom_store.transcript import NOTE, Message

MESSAGE_TOKENS = 4
"""What a message has beside its text."""
PAUSE = 5
"""Turns after a compression that failed in which none is tried, as long as the latest messages fit."""
Range = tuple[int, int]
"""Start and end of some entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a compression wrote.

    Attributes:
        seq: Its entry.
        since: The entry from which on the conversation is kept as it was said.
        text: The system message that stands for what was said before.
        kept: Ranges before that entry which it does not stand for, since they were kept, too.
        fresh: Whether it was written in this turn.
    """

    seq: int
    since: int
    text: str
    kept: tuple[Range, ...] = ()
    fresh: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of its message."""
        return estimate_tokens(self.text) + MESSAGE_TOKENS


@dataclass(frozen=True)
class View:
    """What is read of a session.

    Attributes:
        messages: All that it has, by sequence, with notes.
        groups: Ranges of messages that are read, in order; each is read or left out as a whole.
        task: The entry that states the job's task.
        summary: What stands for the messages that are not read, if they were compressed.
        paused: Whether a compression failed a short time ago, so that another would only fail and cost again.
    """

    messages: list[Message]
    groups: list[Range]
    task: int | None
    summary: Summary | None
    paused: bool = False

    @classmethod
    def of(cls, messages: list[Message], task: int | None, summary: Summary | None, *, paused: bool = False) -> "View":
        """Say what is read of a session: what no summary stands for, and the task."""
        heads = [{"role": role} for _, _, role in messages]
        since = summary.since if summary else 0
        old = [*(summary.kept if summary else ()), *([] if task is None else [(task, task + 1)])]
        # A summary ends a group: what comes after it may be guidance, which is read without what it came after.
        before = [
            one for one in legal_groups(heads[:since]) if any(start < one[1] and one[0] < end for start, end in old)
        ]
        after = [(since + start, since + end) for start, end in legal_groups(heads[since:])]
        return cls(messages, before + after, task, summary, paused)

    @cached_property
    def sizes(self) -> list[int]:
        """Tokens of each message; 0 for notes."""
        return [size for _, size, _ in self.messages]

    @property
    def tokens(self) -> int:
        """Tokens of all that is read."""
        return self.tokens_of(self.groups) + (self.summary.tokens if self.summary else 0)

    @property
    def task_tokens(self) -> int:
        """Tokens of the task, and of what stays with it."""
        return self.tokens_of(one for one in self.groups if self._has_task(one))

    @cached_property
    def compressible(self) -> list[Range]:
        """The groups without the task's, which stays as it was said, and without guidance that is read only now."""
        end = self._guidance
        others = [(start, min(stop, end)) for start, stop in self.groups if start < end]
        return [one for one in others if not self._has_task(one) and any(self.sizes[slice(*one)])]

    def unread(self, room: int) -> int:
        """Tokens of the latest group, which the model has not read yet; 0 where it is all there is, or leaves no room.

        It stays as it was said. An agent whose call's result became notes before it could read it would call again, and
        again.

        Args:
            room: Tokens that there are for the conversation beside the task.
        """
        latest = self.tokens_of(self.compressible[-1:])
        return 0 if len(self.compressible) < 2 or latest > room // 2 else latest

    def kept(self, since: int) -> list[Range]:
        """Say what is read where what can be compressed is, up to an entry."""
        gone = {start for start, _ in self.compressible if start < since}
        rest = [(since, end) if start in gone else (start, end) for start, end in self.groups]
        return [(start, end) for start, end in rest if start < end]

    def tokens_of(self, groups: Iterable[Range]) -> int:
        """Add up the tokens of some groups."""
        return sum(size for one in groups for size in self.sizes[slice(*one)])

    def spoken(self, groups: Iterable[Range]) -> list[tuple[int, str]]:
        """Give the messages in some groups, each with its entry's number; without notes."""
        numbers = (seq for one in groups for seq in range(*one))
        return [(seq, self.messages[seq][0]) for seq in numbers if not self.messages[seq][2].startswith(NOTE)]

    def _has_task(self, group: Range) -> bool:
        return self.task is not None and group[0] <= self.task < group[1]

    @property
    def _guidance(self) -> int:
        """Where the guidance begins with which the conversation ends."""
        found = len(self.messages)
        for seq in range(len(self.messages) - 1, -1, -1):
            role = self.messages[seq][2]
            if role in ("system", "developer"):
                found = seq
            elif not role.startswith(NOTE):
                break
        return found


class Views:
    """Looks at sessions."""

    def __init__(self, jobs: JobStore, transcript: Transcript, endpoints: Endpoints) -> None:
        self._jobs, self._transcript, self._endpoints = jobs, transcript, endpoints
        self._tasks: OrderedDict[Run, int] = OrderedDict()

    async def of(self, call: ActivityCall, end: int) -> View:
        """Give what a job reads of its session.

        Args:
            call: Of the job.
            end: Where its part of the session ends.
        """
        session = await self._jobs.conversation(call.job)
        model = (await self._jobs.facts(call.job)).agent.model
        messages = await self._transcript.messages(session, end, self._endpoints.send_back(model))
        summary = None
        at = next((seq for seq in range(end - 1, -1, -1) if messages[seq][2] == NOTE + SUMMARY), None)
        if at is not None:
            head = await self._transcript.head(session, at)
            kept = tuple((start, end) for start, end in head["kept"])
            fresh = (head["job"], head["turn"]) == (call.job, call.turn)
            summary = Summary(seq=at, since=head["since"], text=messages[at][0], kept=kept, fresh=fresh)
        return View.of(messages, await self._task(call, end), summary, paused=await self._paused(call, messages, at))

    async def _paused(self, call: ActivityCall, messages: list[Message], summary: int | None) -> bool:
        """Whether this job has failed to compress what is read, not many turns ago."""
        after = range(len(messages) - 1, -1 if summary is None else summary, -1)
        at = next((seq for seq in after if messages[seq][2] == NOTE + NOT_COMPRESSED), None)
        if at is None:
            return False
        head = await self._transcript.head(await self._jobs.conversation(call.job), at)
        return bool(head["job"] == call.job and call.turn - head["turn"] <= PAUSE)

    async def _task(self, call: ActivityCall, end: int) -> int | None:
        """The entry that states this job's task; it stays in the context however long the session gets."""
        if call.run not in self._tasks:
            found = await self._jobs.store.read(lambda tx: _task_entry(tx, call, end))
            if found is None:  # it may still come
                return None
            remember(self._tasks, call.run, found)
        return self._tasks[call.run]


def _task_entry(tx: Transaction, call: ActivityCall, end: int) -> int | None:
    """The first message of the user's in this job; where a fork was told nothing new, in the one that it came from."""
    told = [e for e in tx.read_entries(call.session, 0, end) if e.head.get("role") == "user"]
    point = tx.fork_point(call.job)
    jobs = (call.job, *(one.job for one in point.line)) if point else (call.job,)
    return next((entry.seq for job in jobs for entry in told if entry.job == job), None)
