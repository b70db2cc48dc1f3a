"""Asking a person at the terminal about an approval."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loom_cli.render.approvals import FOLLOWING, preview_lines
from loom_cli.render.terminal import Terminal
from loom_dsl.errors import ConflictError, LoomError, NotFoundError
from loom_dsl.observe.events import Event
from loom_dsl.text.canonical import read_json
from loom_dsl.text.confusables import revealed
from loom_dsl.text.printable import one_line
from loom_store.store import Store

if TYPE_CHECKING:
    from loom_cli.commands.run.follow import Follower
    from loom_client.signing import SigningKey


QUESTION = "[y]es [n]o [r]eject with a reason [e]dit [d]iff [a]lways in this job [l]ater? "
_HELP = "y approve, n reject, r reject and say why, e edit the arguments, d show the diff, a approve this and the same "
_MORE = (
    "again in this job, k keep a rule for later jobs too, w write what the tool would have given, t end the job, "
    "l leave it to somebody else"
)
_SHORT = {
    "y": ("approve", "no"),
    "yes": ("approve", "no"),
    "a": ("approve", "job"),
    "always": ("approve", "job"),
    "k": ("approve", "rule"),
    "keep": ("approve", "rule"),
    "n": ("reject", "no"),
    "no": ("reject", "no"),
}
"""Answers of one word: the choice, and what is remembered."""


@dataclass
class Lines:
    """Lines from a terminal, without a thread: waiting for one can be cancelled."""

    descriptor: int = 0
    _buffer: bytes = b""
    _ended: bool = False

    async def read(self) -> str | None:
        """Give the next line without its end; None when there will be no more."""
        loop = asyncio.get_running_loop()
        while b"\n" not in self._buffer:
            if self._ended:
                return None
            ready = asyncio.Event()
            loop.add_reader(self.descriptor, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(self.descriptor)
            piece = os.read(self.descriptor, 4096)
            self._ended = not piece
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")


@dataclass(frozen=True, slots=True)
class PromptAnswer:
    """What a person answered.

    Attributes:
        choice: ``approve``, ``reject``, ``edit``, ``respond`` or ``terminate``.
    """

    choice: str
    message: str = ""
    edited: dict[str, Any] | None = None
    remember: str = "no"


@dataclass
class Prompter:
    """Asks about approvals one after the other.

    Attributes:
        store: Where previews and arguments are.
        paper: The terminal.
        by: Who answers.
        sign: Signs the answers, whose person then answers; None: they are not signed.
        settle: Ends what the timeline has open.
        lines: The answers.
    """

    store: Store
    paper: Terminal
    by: str
    settle: Callable[[], None]
    sign: "SigningKey | None" = None
    lines: Lines = field(default_factory=Lines)
    _stopped: bool = False

    async def __call__(self, event: Event, follower: "Follower") -> None:
        """Ask until there is an answer, or somebody else has given one."""
        if self._stopped:
            self._tell_how(event)
            return
        approval = str(event.data["approval_id"])
        self.settle()
        elsewhere = asyncio.create_task(follower.decided(approval))
        asking = asyncio.create_task(self._ask(event))
        try:
            await asyncio.wait({elsewhere, asking}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                self.paper.break_line()
                return
            answer = asking.result()
        finally:
            for task in (elsewhere, asking):
                task.cancel()
            await asyncio.gather(elsewhere, asking, return_exceptions=True)
        if answer is None:
            self._tell_how(event)
        else:
            await self._send(event, answer, follower)

    async def _send(self, event: Event, answer: PromptAnswer, follower: "Follower") -> None:
        try:
            said = await follower.loom.job(event.job).decide(
                str(event.data["approval_id"]),
                answer.choice,
                message=answer.message,
                edited_arguments=answer.edited,
                remember=answer.remember,
                by=self.sign.by if self.sign else self.by,
                sign=self.sign,
                digest=str(event.data.get("digest") or ""),
            )
        except (ConflictError, NotFoundError) as error:
            self.paper.line(f"not taken: {error.message}", "yellow")
        else:
            if said.verdict != "recorded":
                self.paper.line(revealed(said.message), "yellow")

    async def _ask(self, event: Event) -> PromptAnswer | None:
        """Put the question until the answer is one; None: nobody wants to decide here."""
        request: Any = event.data.get("request") or {}
        while True:
            word = await self._line(QUESTION)
            if word is None:
                self._stopped = True
                return None
            key = word.strip().lower()
            if key in _SHORT:
                choice, remember = _SHORT[key]
                return PromptAnswer(choice, remember=remember)
            if key in ("l", "later"):
                return None
            answer = await self._longer_answer(key, request)
            if answer is not None:
                return answer

    async def _longer_answer(self, key: str, request: dict[str, Any]) -> PromptAnswer | None:
        if key in ("r", "reason", "reject"):
            reason = await self._line("reason: ")
            return PromptAnswer("reject", message=reason.strip()) if reason else None
        if key in ("w", "write"):
            text = await self._line("the tool's result: ")
            return PromptAnswer("respond", message=text.strip()) if text and text.strip() else None
        if key in ("t", "terminate"):
            sure = await self._line("end the whole job? [y]es [n]o ")
            return PromptAnswer("terminate") if (sure or "").strip().lower() in ("y", "yes") else None
        if key in ("d", "diff"):
            self._show(self._blob(request.get("preview")) or "(no diff: this call has no preview)")
        elif key in ("e", "edit"):
            return self._edit(self._blob(request.get("arguments")), self._blob(request.get("schema")))
        elif key:
            self.paper.line(_HELP + _MORE, "dim")
        return None

    def _show(self, preview: str) -> None:
        for text, style in preview_lines(preview):
            self.paper.line(text, style, follow=FOLLOWING)

    def _edit(self, arguments: str, schema: str) -> PromptAnswer | None:
        try:
            before = read_json(arguments)
            after = edited(before)
        except (ValueError, LoomError) as error:
            self.paper.line(f"not taken: {one_line(str(error), 300)}", "yellow")
            return None
        if after == before:
            self.paper.line("nothing was changed", "yellow")
            return None
        from loom_client.edited_arguments import problem_with

        if problem := problem_with(schema, after):
            self.paper.line(f"not taken: {one_line(problem, 300)}", "yellow")
            return None
        return PromptAnswer("edit", edited=after)

    async def _line(self, question: str) -> str | None:
        self.paper.end_line()
        self.paper.stream.write(self.paper.styled(question, "bold"))
        self.paper.flush()
        line = await self.lines.read()
        if line is None:
            self.paper.break_line()
        return line

    def _blob(self, name: object) -> str:
        if not isinstance(name, str) or not name:
            return ""
        return self.store.read_sync(lambda tx: tx.get_blob(name).decode("utf-8", "replace"))

    def _tell_how(self, event: Event) -> None:
        self.paper.line(f"it waits; decide with `loom approve {event.job} {event.data['approval_id']}`", "dim")


def edited(arguments: dict[str, Any]) -> dict[str, Any]:
    """Let the user's editor change the arguments of a call.

    Raises:
        UserError: The editor cannot be started or failed.
        ValueError: What was saved is not a JSON object.
    """
    from loom_dsl.errors import UserError

    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.NamedTemporaryFile("w+", suffix=".json", prefix="loom-arguments-", encoding="utf-8") as file:
        json.dump(arguments, file, indent=2, ensure_ascii=False)
        file.write("\n")
        file.flush()
        # Ctrl-C in the editor is the editor's. A handler, not SIG_IGN, because the editor would inherit that.
        before = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            status = subprocess.call([*shlex.split(command), file.name])
        except OSError as error:
            raise UserError(f"the editor {command!r} cannot be started: {error.strerror}; set EDITOR") from None
        finally:
            signal.signal(signal.SIGINT, before)
        if status:
            raise UserError(f"the editor ended with status {status}")
        with open(file.name, encoding="utf-8") as saved:  # anew: an editor may have put another file in its place
            value = read_json(saved.read())
    if not isinstance(value, dict):
        raise ValueError("the arguments must be a JSON object")
    return value


def can_ask() -> bool:
    """Whether a person sits at both ends."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
