"""A job's events as a tree of turns, written as they come."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loom_cli.render.approvals import FOLLOWING, approval_lines, changed_line, decided_line
from loom_cli.render.halts import halted_text, waiting_line
from loom_cli.render.nodes import NodeLines, NodeTexts
from loom_cli.render.terminal import Terminal, WordWrap
from loom_cli.render.text import compressed_line, duration, place, plural, result_text, size, usage_line
from loom_dsl.agent.run import GraphResult, RunResult
from loom_dsl.observe.events import Event, EventType
from loom_dsl.text.canonical import read_json
from loom_dsl.text.printable import one_line, visible

# Tool calls as one line: the tool and as much of its arguments as tells them apart.


LONG_VALUE = 48
"""Characters of a value that is shown; a longer text is shown by its size when it is not the first argument."""


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """What a model asked for.

    Attributes:
        name: The tool's name.
        arguments: What the model sent as arguments: JSON, or not.
    """

    name: str
    arguments: str = ""


def short_arguments(arguments: str, most: int = 60) -> str:
    """Give the arguments of a call in at most `most` characters: ``src/a.py``, ``needle path=docs``."""
    try:
        value = read_json(arguments) if arguments else {}
    except ValueError:
        return one_line(arguments, most)
    if not isinstance(value, dict):
        return one_line(arguments, most)
    parts = [_part(index, name, item) for index, (name, item) in enumerate(value.items())]
    return one_line(" ".join(parts), most)


def _part(index: int, name: str, item: Any) -> str:
    text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
    if index == 0:  # the first argument is what the call is about: a path, a pattern, an expression
        return text
    if len(text) > LONG_VALUE or "\n" in text:
        return f"{one_line(name)}=({size(len(text))})"
    return f"{one_line(name)}={text}"


TEXT_GUTTER = ("┊ ", ": ")
"""Stands before each line of what a model says, and before no line of Loom's own: no text can look like one."""
_OF_TEXT = (EventType.LLM_DELTA, EventType.STREAM_RESET, EventType.LLM_FINISH)
_MARKS = {"success": ("✓", "+", "green"), "error": ("✗", "x", "red")}

BRIEF = 5.0
"""Seconds of a wait that nobody need be told of."""


class Timeline:
    """Writes events for people.

    Args:
        paper: Where to write.
        states: Show every change of state, also those that follow from the lines around them.
        turns: Show the turns of an agent; a graph has none.
        call: Looks up what the model asked for by the id of the call, or gives None.
        preview: Looks up the preview of an approval's request.
        how_to_decide: Whether to tell the commands by which the approval of this id is decided.
        now: The clock.
    """

    def __init__(
        self,
        paper: Terminal,
        *,
        states: bool = False,
        turns: bool = True,
        call: Callable[[int, str], RequestedCall | None] = lambda turn, call_id: None,
        preview: Callable[[Mapping[str, Any]], str] = lambda request: "",
        how_to_decide: Callable[[str], bool] = lambda approval: True,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.paper = paper
        self._states, self._turns, self._call, self._preview = states, turns, call, preview
        self._how_to_decide, self._now = how_to_decide, now
        self._turn = -1
        self._flow: WordWrap | None = None
        self._stream = self._shown_answer = self._noted = ""
        self._held: set[str] = set()
        """Nodes of which it was told that they wait."""
        self._halts: set[str] = set()
        """Nodes of which it was told that they are halted."""
        self._nodes = NodeLines(paper.fancy)
        texts = NodeTexts(self._begin_flow, self._end_flow, lambda: self._flow, self._line, self._nodes.title)
        told = (self._delta, self._reset, self._answer) if turns else (texts.delta, texts.reset, texts.finish)
        self._show = self._handlers() | dict(zip(_OF_TEXT, told, strict=True))

    def _handlers(self) -> dict[str, Callable[[Event], None]]:
        return {
            EventType.TOOL_RESULT: self._result,
            EventType.PROGRESS: self._progress,
            EventType.APPROVAL_REQUESTED: self._asked,
            EventType.APPROVAL_CHANGED: self._changed,
            EventType.APPROVAL_DECIDED: self._decided,
            EventType.STATE: self._state,
            EventType.CONTROL: self._control,
            EventType.HALTED: self._halted,
            EventType.RESUMED: self._resumed,
            EventType.WAITING: self._waits,
            EventType.WARNING: self._warning,
            EventType.ERROR: self._error,
            EventType.MAX_ITERATIONS_REACHED: self._iterations,
            EventType.COMPRESSION_APPLIED: self._compressed,
            EventType.AGENT_FINISH: self._finish,
            EventType.COMPENSATED: self._compensated,
            EventType.GRAPH_ADMITTED: self._written,
            EventType.GRAPH_REFUSED: self._written,
            EventType.NODE_START: self._node,
            EventType.NODE_RETRY: self._node,
            EventType.NODE_END: self._node,
        }

    def begin(self, job: Mapping[str, Any]) -> None:
        """Say which job this is.

        Args:
            job: The job's row in the store.
        """
        self.paper.line(f"{job['job']}  {job['agent']}  {job['workdir']}", "bold", hang=2)
        if job["task"]:
            what = "task" if self._turns else "input"
            self.paper.line(f"{what}: {one_line(str(job['task']), 400)}", follow=FOLLOWING)

    def feed(self, event: Event) -> None:
        """Write what an event tells."""
        if self._turns and event.turn > self._turn:
            self._enter_turn(event)
        show = self._show.get(event.type)
        if show is not None:
            if show not in (self._node, self._state):
                self._catch_up()
            show(event)
        elif not event.is_known:
            self._line(f"{self._dot} {one_line(event.type, 60)}", "dim")
        self.paper.flush()

    def waiting(self, reason: str) -> None:
        """Say why nothing happens: as a passing line at a terminal, else as a line when the reason has changed."""
        self._catch_up(everything=True)
        if self.paper.live:
            self.paper.status(f"  {self.paper.glyph('…', '...')} {reason}")
        elif reason != self._noted and not self._flow:
            self._line(f"(waiting: {reason})", "dim")
            self.paper.flush()
        self._noted = reason

    def has_told(self, halted: Sequence[Mapping[str, Any]]) -> bool:
        """Say whether these halted steps, as jobs list them, were told; those of other jobs are not."""
        return all("job" not in step and str(step.get("at")) in self._halts for step in halted)

    def end(self, result: RunResult | GraphResult, seconds: float | None = None) -> None:
        """Say how the job ended and what it used."""
        self._end_flow()
        paper = self.paper
        if result.status == "completed":
            paper.line(f"{paper.glyph('✓', '*')} done", "bold green")
        else:
            why = f": {one_line(result.error.beside(result.status), 1_000)}" if result.error else ""
            word = "aborted" if result.status == "aborted" else "failed"
            paper.line(f"{paper.glyph('✗', 'x')} {word}{why}", "bold red", follow=FOLLOWING)
        if isinstance(result, GraphResult):
            if seconds is not None:
                paper.line("  " + duration(seconds), "dim")
            if result.result is not None:
                paper.verbatim(result_text(result.result))
        else:
            paper.line("  " + usage_line(result, seconds, paper.glyph(" · ", ", ")), "dim", hang=2)
        paper.flush()

    def interrupt(self) -> None:
        """End what is open, so that somebody else may write."""
        self._end_flow()
        self.paper.end_line()
        self.paper.flush()

    # -- turns and text --------------------------------------------------------------------------

    @property
    def _bar(self) -> str:
        return self.paper.glyph("│ ", "| ") if self._turn >= 0 else ""

    @property
    def _dot(self) -> str:
        return self.paper.glyph("·", "-")

    def _line(self, text: str, style: str = "", follow: str = FOLLOWING) -> None:
        self._end_flow()
        self.paper.line(text, style, prefix=self._bar, follow=follow)

    def _enter_turn(self, event: Event) -> None:
        self._end_flow()
        self._turn = event.turn
        depth = f"  depth {event.depth}" if event.depth else ""
        self.paper.line(f"{self.paper.glyph('●', '*')} turn {event.turn + 1}{depth}", "bold cyan")

    def _end_flow(self) -> None:
        if self._flow is not None:
            self._shown_answer = self._flow.text
            flow, self._flow = self._flow, None
            flow.end()

    def _begin_flow(self, stream: str) -> WordWrap:
        self._end_flow()
        self.paper.end_line()
        self._stream, self._shown_answer = stream, ""
        self._flow = WordWrap(self.paper, self._bar + self.paper.glyph(*TEXT_GUTTER))
        return self._flow

    def _delta(self, event: Event) -> None:
        stream = str(event.data.get("stream", ""))
        flow = self._flow if self._flow is not None and stream == self._stream else self._begin_flow(stream)
        flow.add(str(event.data.get("content", "")))

    def _reset(self, event: Event) -> None:
        stream = str(event.data.get("stream", ""))
        taken = self._flow is not None and stream == self._stream and self._flow.take_back()
        if taken:
            self._flow = None
        elif stream == self._stream:
            attempt = event.data.get("attempt")
            self._line("(the answer starts again" + (f": attempt {attempt})" if attempt else ")"), "yellow")
        self._stream = self._shown_answer = ""

    def _answer(self, event: Event) -> None:
        """The whole answer: write what of it was not streamed to us."""
        whole = str(event.data.get("content", ""))
        flow = self._flow
        if flow is not None and whole.startswith(flow.text):
            flow.add(whole[len(flow.text) :])
        elif flow is not None and not whole.endswith(flow.text):
            # An attempt that was lost streamed this, and the attempt that counts streamed nothing to us.
            if not flow.take_back():
                self._line("(the text above was of an attempt that was lost)", "yellow")
            self._flow = None
            flow = None
        if flow is None and whole and whole != self._shown_answer:
            self._begin_flow("").add(whole)
        self._end_flow()
        self._shown_answer = whole

    def _finish(self, event: Event) -> None:
        content = str(event.data.get("content", ""))
        if content and not self._shown_answer:
            self._begin_flow("").add(content)
        self._end_flow()

    # -- tools -------------------------------------------------------------------------------------

    def _name(self, event: Event) -> str:
        call_id = str(event.data.get("tool_call_id", ""))
        call = self._call(event.turn, call_id)
        name = one_line(str(event.data.get("tool") or (call.name if call else "") or call_id), 60)
        short = short_arguments(call.arguments, max(20, self.paper.columns() - len(name) - 30)) if call else ""
        return f"{name} {short}".rstrip()

    def _result(self, event: Event) -> None:
        data: Mapping[str, Any] = event.data
        status, content = str(data.get("status", "")), str(data.get("content", ""))
        fancy, plain, colour = _MARKS.get(status, ("?", "?", "yellow"))
        notes = [size(len(content))] if status == "success" else [one_line(str(data.get("code") or status), 40)]
        if isinstance(data.get("ms"), int | float):
            notes.append(duration(data["ms"] / 1000))
        tail = "  " + self.paper.glyph(" · ", ", ").join(notes)
        self._line(f"{self.paper.glyph(fancy, plain)} {self._name(event)}{tail}", colour)
        if status != "success":
            # The first line says what is wrong; what follows is advice to the model.
            said = visible(content).strip().partition("\n")[0].removeprefix(f"Error ({data.get('code')}): ")
            self._line(FOLLOWING + one_line(said, 300))

    def _progress(self, event: Event) -> None:
        self._line(f"  {self._name(event)}: {one_line(str(event.data.get('content', '')), 300)}", "dim")

    # -- approvals, states, people -----------------------------------------------------------------

    def _asked(self, event: Event) -> None:
        request = event.data.get("request")
        request = request if isinstance(request, dict) else {}
        tell = self._how_to_decide(str(event.data.get("approval_id", "")))
        for text, style in approval_lines(event, request, self._preview(request), tell, self._now()):
            self._line(text, style)

    def _changed(self, event: Event) -> None:
        self._line(*changed_line(event, self._now()))

    def _decided(self, event: Event) -> None:
        self._line(*decided_line(event))

    def _state(self, event: Event) -> None:
        """A reader sees the state from the lines around it, so a change is told only to who asks for all of them."""
        new, old = str(event.data.get("state", "")), str(event.data.get("from", ""))
        if self._states:
            self._line(f"{self._dot} {one_line(old, 40)} -> {one_line(new, 40)}", "dim")

    def _control(self, event: Event) -> None:
        data = event.data
        words = {"pause": "paused", "resume": "resumed", "abort": "abort asked for", "inject": "message sent"}
        op = str(data.get("op", ""))
        by = f" by {one_line(str(data['by']), 80)}" if data.get("by") else ""
        reason = f": {one_line(str(data['reason']), 200)}" if data.get("reason") else ""
        self._line(f"{self._dot} {words.get(op, one_line(op, 40))}{by}{reason}", "yellow")

    def _halted(self, event: Event) -> None:
        self._held.add(str(event.data.get("node")))
        self._halts.add(str(event.data.get("node")))
        self._line(f"! {halted_text(_entry(event), event.job, self._now())}", "bold yellow")

    def _resumed(self, event: Event) -> None:
        if str(event.data.get("node")) not in self._held:
            return
        self._held.discard(str(event.data.get("node")))
        self._halts.discard(str(event.data.get("node")))
        at, by = place(str(event.data.get("node") or "")), event.data.get("by")
        cause = f" ({one_line(str(event.data['cause']), 80)})" if event.data.get("cause") else ""
        who = f" by {one_line(str(by), 80)}" if by else ""
        self._line(f"{self._dot} {one_line(at, 80) or 'the halted step'} goes on{who}{cause}", "yellow")

    def _waits(self, event: Event) -> None:
        due, since = event.data.get("next_at"), event.data.get("since")
        if isinstance(due, int | float) and isinstance(since, int | float) and due - since < BRIEF:
            return  # a line would be in the way of the answer that is about to begin again
        self._held.add(str(event.data.get("node")))
        self._line(f"{self._dot} {waiting_line(_entry(event), self._now())}", "yellow")

    def _warning(self, event: Event) -> None:
        self._line(f"! {one_line(str(event.data.get('message', '')), 300)}", "yellow")

    def _error(self, event: Event) -> None:
        if self._nodes.has_told(str(event.data.get("message", ""))):
            return
        code, message = (one_line(str(event.data.get(key, "")), 600) for key in ("error", "message"))
        self._line(f"! {code}: {message}", "red")

    def _iterations(self, event: Event) -> None:
        most = int(str(event.data.get("max_iterations", 0)))
        self._line(f"! the limit of {plural(most, 'turn')} is reached", "yellow")

    def _compressed(self, event: Event) -> None:
        self._line(f"{self._dot} {compressed_line(event.data)}", "dim")

    def _compensated(self, event: Event) -> None:
        outcome = str(event.data.get("outcome", ""))
        why = f": {one_line(str(event.data['message']), 300)}" if event.data.get("message") else ""
        style = "yellow" if outcome == "undone" else "red"
        told = {"failed": "could not be undone", "unknown": "may not be undone"}.get(outcome, one_line(outcome, 40))
        self._line(f"{self._dot} {one_line(str(event.data.get('node', '')), 60)} {told}{why}", style)

    def _node(self, event: Event) -> None:
        for text, style, hang in self._nodes.feed(event):
            self._line(text, style, " " * hang + "| ")
        if self.paper.live and (busy := self._nodes.under_way()):
            self.paper.status(f"{self.paper.glyph('▸', '>')} {busy}")

    def _catch_up(self, *, everything: bool = False) -> None:
        for text, style, hang in self._nodes.catch_up(everything=everything):
            self._line(text, style, " " * hang + "| ")

    def _written(self, event: Event) -> None:
        node, child, why = (one_line(str(event.data.get(key, "")), 600) for key in ("node", "child", "message"))
        self._line(f"{self._dot} {node}: {why or f'the written graph runs as {child}'}", "yellow" if why else "")


def _entry(event: Event) -> dict[str, Any]:
    """Give what an event says of a step as lists of jobs have it."""
    return {**event.data, "at": event.data.get("node", "")}
