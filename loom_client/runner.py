"""An agent to call: the five ways in, each of them one durable job (mission A12)."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, overload

from loom_client.client import Loom
from loom_client.job import Job
from loom_dsl.agent.definition import Agent
from loom_dsl.agent.run import ErrorInfo, RecursionStats, RunInput, RunResult, RunUsage
from loom_dsl.agent.turn import ExecutionContext, TurnState
from loom_dsl.errors import LoomError, UserError
from loom_dsl.observe.events import Event

Messages = Sequence[Mapping[str, Any]]
Parsed = TypeVar("Parsed")
Output = TypeVar("Output")


class RunFailed(LoomError):
    """The run did not complete. `result` says how far it came."""

    code = "run_failed"

    def __init__(self, result: RunResult) -> None:
        self.result = result
        error = result.error
        super().__init__(f"{error.code}: {error.message}" if error else f"the run ended {result.status}")


@dataclass(frozen=True, kw_only=True)
class Reply(Generic[Output]):
    """What came of a request."""

    success: bool
    """Whether the run completed and its answer could be parsed."""
    output: Output
    """What `parse` made of the answer; the answer itself, as text, without `parse` and where there was no success."""
    error: ErrorInfo | None
    """What went wrong; ``output_parser`` where `parse` did."""
    job: str
    """The job's id."""
    status: Literal["completed", "failed", "aborted"]
    """How the run ended."""
    usage: RunUsage
    """Tokens, calls and cost."""
    recursion_stats: RecursionStats
    """How deep it went."""


class AgentRunner:
    """One agent on one connection.

    Args:
        loom: The connection.
        agent: The agent's definition.
        workdir: Directory that file tools are confined to; the current one when absent.
    """

    def __init__(self, loom: Loom, agent: Agent, workdir: str | None = None) -> None:
        self._loom, self.agent, self._workdir = loom, agent, workdir

    async def run(self, text: str) -> str:
        """Do a task and give the answer.

        Args:
            text: The task.

        Returns:
            The text of the agent's last message.

        Raises:
            RunFailed: It failed or was aborted.
            LoomError: The job cannot be started, as `Loom.start` says.
        """
        result = await (await self._start(RunInput.of_text(text))).result()
        if result.status != "completed":
            raise RunFailed(result)
        return result.answer

    async def execute(self, text: str) -> AsyncIterator[Event]:
        """Do a task and give its events as they happen.

        Args:
            text: The task.

        Yields:
            The job's events, in their order, until it has ended; how it ended is the last `state`.

        Raises:
            LoomError: The job cannot be started, as `Loom.start` says.
        """
        job = await self._start(RunInput.of_text(text))
        async for event in job.events():
            yield event

    async def execute_stream(self, messages: Messages, turn_state: TurnState | None = None) -> AsyncIterator[Event]:
        """Go on from messages, from a turn's state if one is given, and give the events.

        Args:
            messages: In the Chat Completions form; they are the conversation so far.
            turn_state: Where the recursion goes on: its number, limit and metadata are kept. None: at a first turn.

        Yields:
            The job's events, in their order, until it has ended.

        Raises:
            LoomError: The job cannot be started, as `Loom.start` says.
        """
        async for event in self.tt(messages, turn_state or TurnState.initial(), None):
            yield event

    async def tt(
        self, messages: Messages, turn_state: TurnState, context: ExecutionContext | None
    ) -> AsyncIterator[Event]:
        """Call the tail recursion itself: these messages, this turn, this context.

        Args:
            messages: In the Chat Completions form; they are the conversation so far.
            turn_state: Where the recursion stands: its number, limit and metadata are kept.
            context: Working directory and correlation id; None takes the runner's.

        Yields:
            The job's events, in their order, until it has ended.

        Raises:
            UserError: The context is cancelled already.
            LoomError: The job cannot be started, as `Loom.start` says.
        """
        if context is not None and context.is_cancelled():
            raise UserError("the context is cancelled already")
        run = RunInput(input_messages=tuple(dict(message) for message in messages), context=context)
        job = await self._start(run, turn_state)
        async for event in job.events():
            yield event

    @overload
    async def request(self, text: str, parse: None = None) -> Reply[str]: ...

    @overload
    async def request(self, text: str, parse: Callable[[str], Parsed]) -> Reply[Parsed | str]: ...

    async def request(
        self, text: str, parse: Callable[[str], Parsed] | None = None
    ) -> Reply[str] | Reply[Parsed | str]:
        """Ask and get one plain answer.

        Args:
            text: The task.
            parse: Turns the answer into the output; what it raises is the error.

        Returns:
            The answer, or what went wrong, and what it took.

        Raises:
            LoomError: The job cannot be started, as `Loom.start` says.
        """
        job = await self._start(RunInput.of_text(text))
        result = await job.result()
        output: Parsed | str = result.answer
        error = result.error
        if result.status == "completed" and parse is not None:
            try:
                output = parse(result.answer)
            except Exception as problem:
                error = ErrorInfo(code="output_parser", message=f"{type(problem).__name__}: {problem}")
        return Reply(
            success=result.status == "completed" and error is None,
            output=output,
            error=error,
            job=job.id,
            status=result.status,
            usage=result.usage,
            recursion_stats=result.recursion_stats,
        )

    async def _start(self, run: RunInput, turn_state: TurnState | None = None) -> Job:
        return await self._loom.start(self.agent, run, workdir=self._workdir, turn_state=turn_state)
