"""A job's turns as a tree: the recursion is its trunk, tool calls and child jobs are its branches."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from loom_client.render.paper import Paper
from loom_client.render.text import compressed_line, duration, moment_of, one_line, plural
from loom_dsl.lookalike import revealed

_STATUS = {"completed": "green", "failed": "red", "aborted": "red", "running": "cyan"}
_MARKS = {"success": ("✓", "+", ""), "error": ("✗", "x", "red")}


def draw_tree(paper: Paper, tree: Mapping[str, Any], prefix: str = "") -> None:
    """Write a job and everything below it.

    Args:
        paper: Where to write.
        tree: What `loom_client.cli.recursion.recursion_tree` found.
        prefix: Stands before every line.
    """
    ended = tree["ended_at"]
    span = (moment_of(ended) if ended else time.time()) - moment_of(tree["created_at"])
    many = [plural(len(tree["turns"]), "turn")] if tree["turns"] else []
    parts = [tree["job"], tree["agent"], tree["status"], *many, duration(span)]
    paper.line(
        "  ".join(_safe(part) for part in parts), f"bold {_STATUS.get(tree['status'], '')}".strip(), prefix=prefix
    )
    for turn in tree["turns"]:
        _turn(paper, turn, prefix)
    for child in tree["children"]:
        _branch(paper, child, prefix)
    if tree.get("cut"):
        paper.line("more jobs are below it: those that began first are shown", "yellow", prefix=prefix)


def _turn(paper: Paper, turn: Mapping[str, Any], prefix: str) -> None:
    depth = f"  depth {turn['depth']}" if turn["depth"] else ""
    usage = turn["usage"]
    told = [duration(turn["seconds"]), *_parts(turn)]
    told.append(f"{usage['prompt_tokens']:,} in, {usage['completion_tokens']:,} out")
    dot, between = paper.glyph("●", "*"), paper.glyph(" · ", ", ")
    trunk = prefix + paper.glyph("│ ", "| ")
    paper.line(f"{dot} turn {turn['turn']}{depth}  {between.join(told)}", "cyan", prefix=prefix, hang=2)
    for sizes in turn["compressions"]:
        paper.line(f"{paper.glyph('·', '-')} {compressed_line(sizes)}", "dim", prefix=trunk, hang=2)
    for tool in turn["tools"]:
        fancy, plain, style = _MARKS.get(tool["status"], ("?", "?", "yellow"))
        took = "" if tool["seconds"] is None else f"  {duration(tool['seconds'])}"
        why = f"  {_safe(tool['code'])}" if tool["code"] else ""
        paper.line(f"{paper.glyph(fancy, plain)} {_safe(tool['tool'])}{why}{took}", style, prefix=trunk, hang=2)
    for child in turn["children"]:
        _branch(paper, child, trunk)


def _branch(paper: Paper, child: Mapping[str, Any], prefix: str) -> None:
    """A child job, moved in; one that is so deep that there is no room goes where the one above it is."""
    room = len(prefix) < paper.columns() // 2
    draw_tree(paper, child, prefix + (paper.glyph("┆ ", ": ") if room else ""))


def _parts(turn: Mapping[str, Any]) -> Iterator[str]:
    if turn["model_seconds"] is not None:
        yield f"model {duration(turn['model_seconds'])}"
    if turn["tool_seconds"]:
        yield f"tools {duration(turn['tool_seconds'])}"
    if turn["waited_seconds"]:
        yield f"waited {duration(turn['waited_seconds'])}"


def _safe(text: str) -> str:
    return revealed(one_line(text, 120))
