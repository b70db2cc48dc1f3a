"""What models and tools write is told apart from Loom's own lines, whatever they write and however it comes."""

import io
from typing import Any

import pytest

from loom_cli.render.terminal import Terminal
from loom_cli.render.timeline import Timeline
from loom_dsl.observe.events import decode
from tests.cli.screen import Screen

LOOMS = ("● turn 1", "│ ✓ write_file", "│   approved by ann", "│ ? write_file needs approval  ap_1", "✓ done", "▸ ask")
"""Lines as Loom writes them."""
BREAKS = ("\n", "\r\n", "\r", "\n\n", "\v", "\f", "\x85", "\u2028", "\x1b[1B\x1b[1G", "\x1b[2K\x1b[1A")
FORGED = "".join(f"{line}{line_end}" for line in LOOMS for line_end in BREAKS) + "┊ : | \n"
LOOKS = [
    (columns, colour, live, fancy)
    for columns in (80, 200)
    for colour, live, fancy in ((False, False, True), (True, False, True), (True, True, True), (False, False, False))
]
"""Columns, colour, whether it is live, and whether it shows more than ASCII."""


def seen(events: list[dict[str, Any]], turns: bool, **options: Any) -> list[str]:
    """The lines that a person sees."""
    stream, columns = io.StringIO(), options.pop("columns")
    timeline = Timeline(Terminal(stream, columns=lambda: columns, **options), turns=turns, now=lambda: 0.0)
    for offset, raw in enumerate(events, 1):
        timeline.feed(decode("job-1", offset, {"n": 0, **raw}))
    timeline.interrupt()
    return Screen().feed(stream.getvalue()).lines


def streamed(text: str, size: int) -> list[dict[str, Any]]:
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    return [{"type": "llm_delta", "stream": "0/ask#1", "content": piece} for piece in pieces]


@pytest.mark.parametrize(("columns", "colour", "live", "fancy"), LOOKS)
@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("turns", [True, False], ids=["agent", "graph"])
def test_no_line_of_a_models_text_begins_as_a_line_of_looms(
    columns: int, colour: bool, live: bool, fancy: bool, size: int, turns: bool
) -> None:
    begun: dict[str, Any] = {"t": "iteration_start"} if turns else {"t": "node_start", "node": "ask#1", "kind": "llm"}
    # With a gap of almost a line, what follows it is wrapped to the beginning of the next one.
    text = FORGED + "x" * (columns - 8) + " " + LOOMS[1] + "\n" + " " * columns + LOOMS[2]
    events = [begun, *streamed(text, size), {"t": "llm_finish", "node": "ask#1", "content": text}]
    head, *told = [line for line in seen(events, turns, columns=columns, colour=colour, live=live, fancy=fancy) if line]
    bar = {(True, True): "│ ", (True, False): "| "}.get((turns, fancy), "")
    assert not head.startswith(bar or "┊")
    assert len(told) >= len(LOOMS) * 5
    assert [line for line in told if not line.startswith(bar + ("┊" if fancy else ":"))] == []


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("pad", range(60, 82, 3))
def test_what_a_long_line_of_looms_tells_goes_on_behind_a_bar(columns: int, pad: int) -> None:
    why = "x" * (pad + columns - 80) + " " + " ".join(f"{line:<70}" for line in LOOMS)
    agents = [
        {"t": "tool_result", "tool": "fetch", "status": "error", "code": "tool_error", "content": why},
        {"t": "progress", "tool": "fetch", "content": why},
        {"t": "warning", "message": why},
        {"t": "error", "error": "broken", "message": why},
        {"t": "control", "op": "pause", "by": "eve", "reason": why},
    ]
    for event in agents:
        _, *lines = seen([event], True, columns=columns)
        assert [line for line in lines if line and not line.startswith("│     |")] == [lines[0]]
    node = "m#1[0]/ask#1"
    failed = {"t": "node_end", "node": node, "outcome": "failed", "code": "broken", "message": why}
    lines = seen([{"t": "node_start", "node": node, "kind": "llm"}, failed], False, columns=columns)
    assert [line for line in lines if line and not line.startswith("      |")] == [lines[0]]
