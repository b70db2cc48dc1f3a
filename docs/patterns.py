"""The table of the workflow patterns, made from their examples."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loom_dsl.documents.document import load_yaml

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "patterns"
HEAD = re.compile(r"# Pattern (?P<number>\d+), (?P<name>[^:]+): (?P<meaning>.+)\n")
PLAIN = frozenset({"activity", "end", "next", "with", "write", "set", "event", "deadline"})
"""What nodes have in most of the examples."""


def pattern_rows() -> Iterator[tuple[str, str, str, str]]:
    """Give the number, the name, the meaning and what the example says it with."""
    for path in sorted(EXAMPLES.glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        head = HEAD.match(text)
        assert head is not None, f"{path.name} does not begin with its pattern's number, name and meaning"
        link = f"[{head['name']}](../../examples/patterns/{path.name})"
        meaning = head["meaning"][:1].upper() + head["meaning"][1:]
        yield (
            head["number"],
            link,
            meaning,
            ", ".join(f"`{said}`" for said in _constructs(load_yaml(text, path.name).data)),
        )


def pattern_list() -> str:
    """Name all patterns in one paragraph, each with its number and a link to its example, for the README."""
    found = []
    for path in sorted(EXAMPLES.glob("*.yaml")):
        head = HEAD.match(path.read_text(encoding="utf-8"))
        assert head is not None
        found.append(f"{head['number']} [{head['name']}](examples/patterns/{path.name})")
    return " ·\n".join(found)


def _constructs(document: Any) -> list[str]:
    """What is particular in an example, in the words of its document."""
    found = ["on_abort"] if "on_abort" in document else []
    bodies = [document, *document.get("graphs", {}).values()]
    for body in bodies:
        for node in body["nodes"].values():
            found += _of_node(node)
    events = any("event" in node for body in bodies for node in body["nodes"].values())
    return list(dict.fromkeys(found)) or ["event" if events else "next"]


def _of_node(node: dict[str, Any]) -> Iterator[str]:
    follows = node.get("next")
    if isinstance(follows, list):
        yield "next: [a, b]" if isinstance(follows[0], str) else "if"
    elif isinstance(follows, dict):
        yield f"next: {{{next(iter(follows))}: …}}"
    for key, value in node.items():
        if key == "event" and isinstance(value, dict) and value.get("buffer") is False:
            yield "buffer: false"
        elif key == "deadline" and isinstance(value, dict):
            yield "deadline"
        elif key == "join":
            yield f"join: {value}" if isinstance(value, str) else f"join: {{{_inside(value)}}}"
        elif key in ("map", "loop"):
            options = {name: given for name, given in value.items() if name not in ("over", "do", "max")}
            yield f"{key}: {{{_inside(options)}}}" if options else key
        elif key == "terminate":
            yield "terminate: true"
        elif key not in PLAIN:
            yield key


def _inside(options: dict[str, Any]) -> str:
    return ", ".join(
        f"{name}: {str(given).lower()}" if isinstance(given, int) or given in ("ignore", "cancel", "block") else name
        for name, given in options.items()
    )
