"""How the cases of a scenario went, as lines for people."""

from loom_client.render.paper import Paper
from loom_client.render.text import one_line, plural
from loom_dsl.abridgement import abridge
from loom_dsl.coverage import Covered
from loom_dsl.duration import format_duration
from loom_dsl.scenario_report import differences, hints
from loom_dsl.scenario_run import Played, Rehearsal

MOST_LINES = 200
"""Lines of what went on in one case."""
MOST_NAMES = 12


def write(paper: Paper, rehearsal: Rehearsal, *, quiet: bool = False) -> None:
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
        paper.line(f"not used by any case: {abridge(rehearsal.unused, MOST_NAMES)}", "yellow", hang=2)
    count = plural(len(rehearsal.cases), "case")
    paper.line(f"{count}: {f'{wrong} went another way' if wrong else 'ok'}", "bold red" if wrong else "bold green")


def _case(paper: Paper, played: Played, found: list[str], quiet: bool) -> None:
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
    for one in played.log[:MOST_LINES]:
        time = f"+{format_duration(one.time)}"
        paper.line(f"        {time:>{width}}  {one_line(f'{one.at}  {one.what}'.strip())}", "dim", hang=10)
    if len(played.log) > MOST_LINES:
        paper.line(f"        and {len(played.log) - MOST_LINES} more; --json has all", "dim")
    if played.waits:
        paper.line(f"        it waits at {', '.join(played.waits)}", "dim", hang=10)


def _coverage(paper: Paper, coverage: Covered) -> None:
    paper.line(
        f"coverage: {coverage.nodes} of {coverage.all_nodes} nodes, {coverage.edges} of {coverage.all_edges} edges"
    )
    if coverage.unused_nodes:
        paper.line(f"  never entered: {abridge(coverage.unused_nodes, MOST_NAMES)}", "dim", hang=4)
    arrow = paper.glyph("→", "->")
    untaken = tuple(edge.replace("->", arrow) for edge in coverage.unused_edges)
    if untaken:
        paper.line(f"  never taken: {abridge(untaken, MOST_NAMES)}", "dim", hang=4)
