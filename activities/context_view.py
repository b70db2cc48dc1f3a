"""What of a session the model of a job reads: its task, what the latest summary leaves, and the summary itself."""

from collections import OrderedDict
from dataclasses import dataclass

from activities.runtime import Call, Run, Runtime, remember
from activities.transcript import NOTE, Message, Transcript
from loom_dsl.context import estimate_tokens
from loom_dsl.messages import SUMMARY, legal_groups
from loom_store.transaction import Transaction

MESSAGE_TOKENS = 4
"""What a message has beside its text."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a compression wrote.

    Attributes:
        seq: Its entry.
        since: The entry from which on the conversation is kept as it was said.
        turn: Number of the turn that compressed.
        text: The system message that stands for what was said before.
    """

    seq: int
    since: int
    turn: int
    text: str

    @property
    def tokens(self) -> int:
        """Tokens of its message."""
        return estimate_tokens(self.text) + MESSAGE_TOKENS


@dataclass(frozen=True, slots=True)
class View:
    """What is read of a session.

    Attributes:
        messages: All that it has, by sequence, with notes.
        sizes: Tokens of each of them; 0 for notes.
        groups: Ranges (start, end) of messages that are read, in order; each is read or left out as a whole.
        task: The entry that states the job's task.
        summary: What stands for the messages that are not read, if they were compressed.
    """

    messages: list[Message]
    sizes: list[int]
    groups: list[tuple[int, int]]
    task: int | None
    summary: Summary | None

    @property
    def tokens(self) -> int:
        """Tokens of all that is read."""
        read = sum(size for start, end in self.groups for size in self.sizes[start:end])
        return read + (self.summary.tokens if self.summary else 0)

    @property
    def compressible(self) -> list[tuple[int, int]]:
        """The groups of messages without the task's, which stays as it was said."""
        others = [one for one in self.groups if self.task is None or not one[0] <= self.task < one[1]]
        return [(start, end) for start, end in others if any(self.sizes[start:end])]


class Views:
    """Looks at sessions."""

    def __init__(self, runtime: Runtime, transcript: Transcript) -> None:
        self._runtime, self._transcript = runtime, transcript
        self._tasks: OrderedDict[Run, int | None] = OrderedDict()

    async def of(self, call: Call, end: int) -> View:
        """Give what a job reads of its session.

        Args:
            call: Of the job.
            end: Where its part of the session ends.
        """
        session = await self._runtime.conversation(call.job)
        messages = await self._transcript.messages(session, end)
        summary = None
        at = next((seq for seq in range(end - 1, -1, -1) if messages[seq][2] == NOTE + SUMMARY), None)
        if at is not None:
            head = await self._transcript.head(session, at)
            summary = Summary(at, head["since"], head["turn"], messages[at][0])
        task = await self._task(call)
        groups = legal_groups([{"role": role} for _, _, role in messages])
        since = summary.since if summary else 0
        read = [one for one in groups if one[0] >= since or (task is not None and one[0] <= task < one[1])]
        return View(messages, [size for _, size, _ in messages], read, task, summary)

    async def _task(self, call: Call) -> int | None:
        """The entry that states this job's task; it stays in the context however long the session gets."""
        if call.run not in self._tasks:
            remember(self._tasks, call.run, await self._runtime.store.read(lambda tx: _task_entry(tx, call)))
        return self._tasks[call.run]


def _task_entry(tx: Transaction, call: Call) -> int | None:
    """The first message of the user's in this job; where a fork was told nothing new, in the one that it came from."""
    told = [e for e in tx.read_entries(call.session, 0, call.arguments["entries"]) if e.head.get("role") == "user"]
    point = tx.fork_point(call.job)
    jobs = (call.job, *(one.job for one in point.line)) if point else (call.job,)
    return next((entry.seq for job in jobs for entry in told if entry.job == job), None)
