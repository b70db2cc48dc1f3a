"""What differs between two plans, as lines for people: ``+`` what is new, ``-`` what is gone, ``~`` what changed."""

import json
from typing import Any

from loom_client.render.paper import Paper
from loom_client.render.text import one_line
from loom_dsl.diff import Change, Difference, EdgeDiff, GraphDiff

LONGEST_VALUE = 200
"""Characters of a value that are shown."""
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow"), "renamed": ("~", "yellow")}


def write(paper: Paper, difference: Difference) -> None:
    """Write a difference; nothing where there is none."""
    _fields(paper, difference.fields, "")
    for graph in difference.graphs:
        _graph(paper, graph)


def _graph(paper: Paper, graph: GraphDiff) -> None:
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


def _edge(paper: Paper, edge: EdgeDiff) -> None:
    sign, style = _SIGNS[edge.change]
    arrow = paper.glyph("→", "->")
    label = f": {one_line(edge.label, LONGEST_VALUE)}" if edge.label else ""
    paper.line(f"  {sign} edge {edge.source} {arrow} {edge.target}{label}", style, hang=6)


def _fields(paper: Paper, fields: tuple[Change, ...], margin: str) -> None:
    arrow = paper.glyph("→", "->")
    for change in fields:
        paper.line(f"{margin}{change.field}: {_value(change.old)} {arrow} {_value(change.new)}", hang=len(margin) + 2)


def _value(value: Any) -> str:
    return "nothing" if value is None else one_line(json.dumps(value, ensure_ascii=False), LONGEST_VALUE)
