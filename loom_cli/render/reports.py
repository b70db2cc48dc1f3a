"""A job's turns as a tree: the recursion is its trunk, tool calls and child jobs are its branches."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from loom_cli.render.terminal import Terminal
from loom_cli.render.text import compressed_line, duration, plural
from loom_dsl.authoring.diff import Change, Difference, EdgeDiff, GraphDiff
from loom_dsl.fields import format_duration
from loom_dsl.simulation.coverage import Covered
from loom_dsl.simulation.report import differences, hints
from loom_dsl.simulation.run import Played, Rehearsal
from loom_dsl.text.abridgement import abridge
from loom_dsl.text.confusables import revealed
from loom_dsl.text.printable import moment_of, one_line

# What differs between two plans, as lines for people: ``+`` what is new, ``-`` what is gone, ``~`` what changed.


MAX_VALUE = 200
"""Characters of a value that are shown."""
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow"), "renamed": ("~", "yellow")}


def write_difference(paper: Terminal, difference: Difference) -> None:
    """Write a difference; nothing where there is none."""
    _fields(paper, difference.fields, "")
    for graph in difference.graphs:
        _graph(paper, graph)


def _graph(paper: Terminal, graph: GraphDiff) -> None:
    sign, style = _SIGNS[graph.change]
    paper.line(f"{sign} graph {graph.graph}", f"bold {style}")
    _fields(paper, graph.fields, "  ")
    for node in graph.nodes:
        sign, style = _SIGNS[node.change]
        was = f" (was {node.was})" if node.was else ""
        paper.line(f"  {sign} node {node.node}{was}", style)
        _fields(paper, node.fields, "      ")
    for edge in graph.edges:
        _edge(paper, edge)


def _edge(paper: Terminal, edge: EdgeDiff) -> None:
    sign, style = _SIGNS[edge.change]
    arrow = paper.glyph("→", "->")
    label = f": {one_line(edge.label, MAX_VALUE)}" if edge.label else ""
    paper.line(f"  {sign} edge {edge.source} {arrow} {edge.target}{label}", style, hang=6)


def _fields(paper: Terminal, fields: tuple[Change, ...], margin: str) -> None:
    arrow = paper.glyph("→", "->")
    for change in fields:
        paper.line(f"{margin}{change.field}: {_value(change.old)} {arrow} {_value(change.new)}", hang=len(margin) + 2)


def _value(value: Any) -> str:
    return "nothing" if value is None else one_line(json.dumps(value, ensure_ascii=False), MAX_VALUE)


_STATUS = {"completed": "green", "failed": "red", "aborted": "red", "running": "cyan"}
_MARKS = {"success": ("✓", "+", ""), "error": ("✗", "x", "red")}


def draw_tree(paper: Terminal, tree: Mapping[str, Any], prefix: str = "") -> None:
    """Write a job and everything below it.

    Args:
        paper: Where to write.
        tree: What `loom_cli.commands.show.recursion.recursion_tree` found.
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


def _turn(paper: Terminal, turn: Mapping[str, Any], prefix: str) -> None:
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


def _branch(paper: Terminal, child: Mapping[str, Any], prefix: str) -> None:
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


# How the cases of a scenario went, as lines for people.


MAX_LINES = 200
"""Lines of what went on in one case."""
MAX_NAMES = 12


def write_rehearsal(paper: Terminal, rehearsal: Rehearsal, *, quiet: bool = False) -> None:
    """Write every case, and how much of the graph they use together.

    Args:
        paper: Where.
        rehearsal: What was played.
        quiet: Leave out what went on in cases that are as they are to be.
    """
    wrong = 0
    for played in rehearsal.cases:
        found = differences(played)
        wrong += bool(found)
        _case(paper, played, found, quiet)
    _coverage(paper, rehearsal.coverage)
    if rehearsal.unused:
        paper.line(f"not used by any case: {abridge(rehearsal.unused, MAX_NAMES)}", "yellow", hang=2)
    count = plural(len(rehearsal.cases), "case")
    paper.line(f"{count}: {f'{wrong} went another way' if wrong else 'ok'}", "bold red" if wrong else "bold green")


def _case(paper: Terminal, played: Played, found: list[str], quiet: bool) -> None:
    took = f"  {format_duration(played.duration)}" if played.duration else ""
    ended = played.code or played.status
    sign, style = ("FAILED", "bold red") if found else ("ok", "bold green")
    paper.line(f"{sign:<6}  {one_line(played.case.name)}  ({ended}){took}", style, hang=8)
    for line in found:
        paper.line(f"        {one_line(line)}", "red", hang=10)
    for line in hints(played) if found else ():
        paper.line(f"        {one_line(line)}", "yellow", hang=10)
    if quiet and not found:
        return
    width = max((len(f"+{format_duration(one.time)}") for one in played.log), default=0)
    for one in played.log[:MAX_LINES]:
        time = f"+{format_duration(one.time)}"
        paper.line(f"        {time:>{width}}  {one_line(f'{one.at}  {one.what}'.strip())}", "dim", hang=10)
    if len(played.log) > MAX_LINES:
        paper.line(f"        and {len(played.log) - MAX_LINES} more; --json has all", "dim")
    if played.waits:
        paper.line(f"        it waits at {', '.join(played.waits)}", "dim", hang=10)


def _coverage(paper: Terminal, coverage: Covered) -> None:
    paper.line(
        f"coverage: {coverage.nodes} of {coverage.all_nodes} nodes, {coverage.edges} of {coverage.all_edges} edges"
    )
    if coverage.unused_nodes:
        paper.line(f"  never entered: {abridge(coverage.unused_nodes, MAX_NAMES)}", "dim", hang=4)
    arrow = paper.glyph("→", "->")
    untaken = tuple(edge.replace("->", arrow) for edge in coverage.unused_edges)
    if untaken:
        paper.line(f"  never taken: {abridge(untaken, MAX_NAMES)}", "dim", hang=4)
