"""A graph that is there as text only when the job runs: where the text comes from, and what such a graph may do."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from loom_dsl.errors import Diagnostic, GraphRefused
from loom_dsl.fields import Part
from loom_dsl.graph.edges import mapping
from loom_dsl.text.canonical import written_json

Kind = Literal["activity", "tool", "agent", "llm", "approval", "event", "timer", "map", "loop", "graph"]
MAX_REFUSAL = 4_000
"""Characters of a refusal's message."""
_NODE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([A-Za-z0-9_-]*)")
_YAML = ("", "yaml", "yml", "json")


class Allow(Part):
    """What a written graph may do. What is not here is refused."""

    kinds: tuple[Kind, ...] = ("activity", "tool", "agent", "llm")
    """Kinds of nodes. Those that only lead tokens (branch, join, race, set, cancel, end, fail) always are."""
    tools: tuple[str, ...] = ()
    """Tools of its nodes and of its agents: names of built-ins, and ``module:function``."""
    functions: tuple[str, ...] = ()
    """What its activities call: ``module:function``, or ``module`` for every function of it."""
    agents: tuple[str, ...] = ()
    """Agents of this graph that it may run, too."""
    models: tuple[str, ...] = ()
    """Models of its `llm` nodes, and of agents that it brings along."""
    secrets: tuple[str, ...] = ()
    """Names that may stand in a ``${secret:NAME}``."""
    max_nodes: Annotated[int, Field(ge=1, le=1_000)] = 30
    """Most nodes, those of the graphs inside it included."""
    max_depth: Annotated[int, Field(ge=0, le=10)] = 2
    """How deep graphs may stand inside it."""
    max_bytes: Annotated[int, Field(ge=1, le=256 * 1024)] = 64 * 1024
    """Bytes of its text."""
    max_cost_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """US dollars that all its agents may cost together, by their own limits and their nodes' `max_visits`."""


class GeneratedGraph(Part):
    """A graph that something wrote as text: it is checked like a file, held against a list, and run as a job."""

    from_: Annotated[str, Field(alias="from")]
    """A node, whose text or answer it is, or a `${…}` that gives the text. A fenced block in it is unwrapped."""
    allow: Allow
    """What it may do."""

    @field_validator("from_")
    @classmethod
    def _node_or_mapping(cls, value: str) -> str:
        if _NODE.fullmatch(value):
            return f"${{nodes.{value}}}"
        if "${" not in value:
            raise ValueError("should be a node's name, or a `${…}` that gives the text of a graph")
        mapped: str = mapping(value)
        return mapped


def text_of(value: Any) -> str | None:
    """Give the text of a graph in a node's result: the text itself, an agent's answer, a model's text, or a mapping.

    None where there is none.
    """
    if isinstance(value, dict) and "loom" not in value:
        value = next((value[key] for key in ("answer", "text") if isinstance(value.get(key), str)), value)
    if isinstance(value, dict):
        return written_json(value)
    return value if isinstance(value, str) else None


def unwrapped(text: str) -> list[str]:
    """Give what a text holds as a document: its fenced blocks of YAML or JSON, or all of it where there is none."""
    blocks: list[list[str]] = []
    mark, inside = "", False
    for line in text.splitlines(keepends=True):
        fence = _FENCE.match(line)
        if not mark and fence:
            mark, inside = fence[1], fence[2].lower() in _YAML
            if inside:
                blocks.append([])
        elif mark and fence and fence[1].startswith(mark) and not fence[2]:
            mark, inside = "", False
        elif inside:
            blocks[-1].append(line)
    return ["".join(block) for block in blocks] or [text]


def refusal(findings: Iterable[Diagnostic | str]) -> GraphRefused:
    """Say why a graph may not run, in at most `MAX_REFUSAL` characters."""
    lines = [str(found) for found in findings]
    head, kept = "the written graph is refused:", list[str]()
    room = MAX_REFUSAL - len(head) - 40
    for line in lines:
        shown = line if len(line) <= 600 else line[:599] + "…"
        room -= len(shown) + 1
        if room < 0:
            break
        kept.append(shown)
    more = [f"… and {len(lines) - len(kept)} more"] if len(kept) < len(lines) else []
    return GraphRefused("\n".join([head, *kept, *more]))


def too_large(size: int, most: int) -> GraphRefused:
    """Say that a text is too long to be looked at."""
    return refusal([f"the text has {size:,} bytes, and a written graph here may have {most:,}"])
