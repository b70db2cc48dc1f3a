"""Jobs that run below a token, as workflows of their own."""

import re
from typing import Any

from loom_dsl.machine.commands import StartChild
from loom_dsl.machine.records import ChildRecord
from loom_dsl.machine.state import CHILD, Token
from loom_dsl.machine.tokens.core import Core
from loom_dsl.text.canonical import digest

_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")
MAX_ID = 190
"""Characters of a child job's id: it and its session's are ids as users write them, which have at most 200."""


def start_child(
    machine: Core,
    token: Token,
    arguments: Any,
    *,
    agent: str = "",
    graph: str = "",
    written: dict[str, str] | None = None,
) -> None:
    """Start a job below this one, whose end is the node's."""
    turn = f"{machine.state.turn.turn_counter}." if machine.state.turn else ""
    child = _child_id(f"{machine.job}.{turn}{id_part(token.at)}")
    token.reset(CHILD, ChildRecord(child))
    machine.command(
        StartChild(at=token.at, child=child, agent=agent, graph=graph, arguments=arguments, written=written)
    )


def id_part(at: str) -> str:
    """Write an execution's name with letters that a job's id may have."""
    return _UNSAFE.sub(".", at).strip(".")


def _child_id(full: str) -> str:
    """A job's id that says where it came from; what is too long for an id is cut, and stays one of its own."""
    return full if len(full) <= MAX_ID else f"{full[: MAX_ID - 17]}.{digest(full)[:16]}"
