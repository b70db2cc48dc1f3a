"""Tool calls as one line: the tool and as much of its arguments as tells them apart."""

import json
from dataclasses import dataclass
from typing import Any

from loom_client.render.text import one_line, size
from loom_dsl.canonical import read_json

LONG_VALUE = 48
"""Characters of a value that is shown; a longer text is shown by its size when it is not the first argument."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a model asked for.

    Attributes:
        name: The tool's name.
        arguments: What the model sent as arguments: JSON, or not.
    """

    name: str
    arguments: str = ""


def short_arguments(arguments: str, most: int = 60) -> str:
    """Give the arguments of a call in at most `most` characters: ``src/a.py``, ``needle path=docs``."""
    try:
        value = read_json(arguments) if arguments else {}
    except ValueError:
        return one_line(arguments, most)
    if not isinstance(value, dict):
        return one_line(arguments, most)
    parts = [_part(index, name, item) for index, (name, item) in enumerate(value.items())]
    return one_line(" ".join(parts), most)


def _part(index: int, name: str, item: Any) -> str:
    text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
    if index == 0:  # the first argument is what the call is about: a path, a pattern, an expression
        return text
    if len(text) > LONG_VALUE or "\n" in text:
        return f"{one_line(name)}=({size(len(text))})"
    return f"{one_line(name)}={text}"
