"""Drawing what a name or a file stands for."""

import difflib
from collections.abc import Mapping
from pathlib import Path

from loom_client.project.validate import read_document
from loom_dsl.agent import load_agent
from loom_dsl.compile import compile_agent, compile_graph
from loom_dsl.document import load_document
from loom_dsl.draw import mermaid, mermaid_plan
from loom_dsl.errors import NotFoundError, UserError
from loom_dsl.library import NAMES, shipped


def picture(target: str, env: Mapping[str, str]) -> str:
    """Draw a shipped graph, a graph's file, or the plan of an agent's file, as Mermaid text.

    Raises:
        NotFoundError: It is neither a shipped graph nor a file.
        DocumentError: The file is not valid.
        UserError: It is a document that has no graph.
    """
    if target in NAMES:
        return mermaid(shipped(target))
    path = Path(target)
    if not path.exists():
        near = difflib.get_close_matches(target, NAMES, 1)
        hint = f"did you mean {near[0]}?" if near else f"the graphs that Loom ships are {', '.join(NAMES)}"
        raise NotFoundError(f"there is no file and no graph {target!r}; {hint}")
    text = read_document(path)
    kind = load_document(text, target).data["kind"]
    if kind == "graph":
        return mermaid_plan(compile_graph(text, target))
    if kind == "agent":
        # The model has no part in the picture, so its variable need not be set.
        return mermaid_plan(compile_agent(load_agent(text, target, env, {"model": "any"})))
    raise UserError(f"{target} is a {kind} document, which has no graph; give an agent's or a graph's file")
