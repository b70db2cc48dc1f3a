"""Secrets by reference: ``${secret:NAME}`` stands for a value that only the worker knows which runs what needs it."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from loom_dsl.tools.arguments import schema_at, violations

REFERENCE = re.compile(r"\$\{secret:([^}]*)\}")
"""A reference; its group is the name, whatever stands there."""
_EXAMPLE = "${secret:NAME}"
_SAID = f"A secret is named here, never written: {_EXAMPLE}."
Schema = Mapping[str, Any]


def put_secrets(text: str, value: Callable[[str], str]) -> str:
    """Put secrets in the places of their references in a text.

    Args:
        text: Holds references, or none.
        value: Gives a secret by its name; what it raises is raised.
    """
    return REFERENCE.sub(lambda found: value(found[1]), text)


def secret_values(
    arguments: Mapping[str, Any], parameters: Iterable[str], value: Callable[[str], str]
) -> dict[str, str]:
    """Give what takes the place of the arguments that hold references.

    Args:
        arguments: Of a call.
        parameters: Those that take secrets; a reference in another one is plain text.
        value: As in `put_secrets`.
    """
    given = {name: arguments.get(name) for name in parameters}
    return {
        name: put_secrets(text, value)
        for name, text in given.items()
        if isinstance(text, str) and REFERENCE.search(text)
    }


def no_place(schema: Schema, name: str) -> str:
    """Say why a parameter cannot hold a reference; empty where it can.

    Args:
        schema: Of the arguments object.
        name: The parameter, which the schema has.
    """
    asked = schema_at(schema, (name,))
    branches = [branch for branch in asked.get("anyOf", [asked]) if branch.get("type") != "null"]
    kinds = {kind for branch in branches for kind in _kinds(branch)} - {"null"}
    if kinds != {"string"} or any({"format", "pattern"} & branch.keys() for branch in branches):
        return "it is not plain text"
    whole = {**schema, "required": [], "properties": {name: asked}}
    return "".join(found.text for found in violations(whole, {name: _EXAMPLE})[:1])


def _kinds(schema: Schema) -> list[Any]:
    kinds = schema.get("type")
    return kinds if isinstance(kinds, list) else [kinds]


def with_advice(schema: Schema, names: Iterable[str]) -> dict[str, Any]:
    """Give a schema whose descriptions say that a reference is written in these parameters."""
    named, properties = frozenset(names), schema.get("properties", {})
    return {**schema, "properties": {name: _advised(p) if name in named else p for name, p in properties.items()}}


def _advised(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    return {**schema, "description": f"{schema.get('description', '')} {_SAID}".strip()}
