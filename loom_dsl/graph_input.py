"""What a graph is started with, checked before anything starts: all that is wrong with it, at once."""

import json
from collections.abc import Mapping
from typing import Any

from loom_dsl.canonical import canonical_json
from loom_dsl.errors import UserError
from loom_dsl.graph import Body, InputField
from loom_dsl.validation import suggest
from loom_dsl.writes import fits

LARGEST_INPUT = 256 * 1024
"""Bytes of an input, which goes through every continue-as-new."""
TYPE_NAMES = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list"}
TYPE_NAMES |= {"dict": "a mapping", "any": "any value"}
"""What people call each type of an input."""


def checked_input(name: str, body: Body, given: Mapping[str, Any]) -> dict[str, Any]:
    """Give a graph's input with its defaults filled in.

    Args:
        name: The graph's name, for messages.
        body: The graph.
        given: Values by the names that its `input` declares; JSON.

    Raises:
        UserError: Values are missing, unknown, of another type, no JSON or too large; tells all of them.
    """
    wrong = [_unknown(body, key) for key in given if key not in body.input]
    filled: dict[str, Any] = {}
    for key, field in body.input.items():
        if key not in given:
            if field.default is None and not field.optional:
                wrong.append(f"`{key}` is missing: {_described(field)}")
            filled[key] = field.default
            continue
        filled[key] = given[key]
        if not fits(field.type, given[key]) and not (given[key] is None and field.optional):
            wrong.append(f"`{key}` is {_shown(given[key])}, and must be {TYPE_NAMES[field.type]}")
    if wrong:
        raise UserError(f"the input of the graph {name}: {'; '.join(wrong)}")
    try:
        size = len(canonical_json(filled).encode())
    except (TypeError, ValueError, RecursionError):
        raise UserError(f"the input of the graph {name} is not JSON: give text, numbers, lists and mappings") from None
    if size > LARGEST_INPUT:
        raise UserError(
            f"the input of the graph {name} has {size} bytes, and may have {LARGEST_INPUT}; "
            "put it into a file of the working directory and give its path"
        )
    return filled


def _unknown(body: Body, key: str) -> str:
    hint = suggest(key, list(body.input))
    listed = f"it has {', '.join(body.input)}" if body.input else "the graph takes none"
    return f"there is no `{key[:60]}` ({hint or listed})"


def _described(field: InputField) -> str:
    return f"{TYPE_NAMES[field.type]}{f', {field.doc}' if field.doc else ''}"


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
