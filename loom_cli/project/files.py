"""The plan that a name or a file stands for, to draw it and to compare it."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from loom_client.start.submission import plan_of as plan_of_graph
from loom_dsl.agent.definition import read_agent
from loom_dsl.documents.document import Document, load_document
from loom_dsl.errors import Diagnostic, NotFoundError, UserError
from loom_dsl.graph.compiler import compile_agent
from loom_dsl.graph.library import NAMES, shipped
from loom_dsl.graph.plan import Plan


def near_file(path: Path) -> str:
    """Say ``did you mean `x`?`` when a document beside a file that is missing has a name like it, else nothing."""
    # By the stems: an ending that they share makes no names alike.
    names = {file.stem: file.name for file in path.parent.glob("*.y*ml")}
    near = difflib.get_close_matches(path.stem, sorted(names), n=1)
    return f"did you mean `{path.with_name(names[near[0]])}`?" if near else ""


def read_document(path: Path) -> bytes:
    """Read a document's bytes.

    Raises:
        NotFoundError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        hint = near_file(path)
        raise NotFoundError(f"{path} cannot be read: {error.strerror}" + (f"; {hint}" if hint else "")) from None
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror or error}") from None


ANY_MODEL = {"model": "any"}
"""The model has no part in a picture, so its variable need not be set."""


def plan_of(
    target: str,
    env: Mapping[str, str],
    fixed: Mapping[str, str] | None = None,
    warned: Callable[[Diagnostic], None] | None = None,
    document: Document | None = None,
) -> Plan:
    """Give the plan of a shipped graph (alone), of a graph's file, or of an agent's file.

    Args:
        target: Name or path.
        env: The environment's variables, for ``${env:NAME}``.
        fixed: Fields of an agent that are taken instead of those in the file.
        warned: Takes what is doubtful about a graph.
        document: What is in the file, where it was read already.

    Raises:
        NotFoundError: It is neither a shipped graph nor a file.
        DocumentError: The file is not valid.
        UserError: It is a document that has no graph.
    """
    if target in NAMES:
        return Plan(target, {target: shipped(target)}, {})
    path = Path(target)
    if not path.exists():
        near = difflib.get_close_matches(target, NAMES, 1)
        hint = f"did you mean {near[0]}?" if near else f"the graphs that Loom ships are {', '.join(NAMES)}"
        raise NotFoundError(f"there is no file and no graph {target!r}; {hint}")
    document = document or load_document(read_document(path), target)
    kind = document.data["kind"]
    if kind == "graph":
        return plan_of_graph(replace(document, source=str(path)), warned)
    if kind == "agent":
        agent = read_agent(document, env, dict(fixed or {}))
        return compile_agent(agent, plan_of_graph(path.parent / agent.turn) if agent.turn else None)
    raise UserError(f"{target} is a {kind} document, which has no graph; give an agent's or a graph's file")
