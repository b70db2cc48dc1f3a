"""Regular expressions mean the same in every Python that Loom runs on."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from re import _constants as code  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

PACKAGES = (
    "loom_dsl",
    "loom_store",
    "loom_tools",
    "loom_client",
    "loom_gateway",
    "loom_cli",
    "activities",
    "workflows",
)
SINGLE = (code.IN, code.LITERAL, code.NOT_LITERAL, code.ANY)


def _modules() -> Iterator[Any]:
    for package in PACKAGES:
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
            if not found.name.endswith(("__main__", "migrations.env")):
                yield importlib.import_module(found.name)


def _patterns(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from _patterns(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _patterns(part)


def _loses_its_way(tree: Any) -> bool:
    """Whether a pattern has a possessive or atomic group: Python before 3.11.5 forgets there what it had matched."""
    for kind, argument in tree:
        if kind is code.ATOMIC_GROUP:
            return True
        if kind is code.POSSESSIVE_REPEAT and not (len(argument[2]) == 1 and argument[2][0][0] in SINGLE):
            return True
        parts = argument if isinstance(argument, tuple) else (argument,)
        inner = [*parts, *(one for part in parts if isinstance(part, list) for one in part)]
        if any(_loses_its_way(part) for part in inner if isinstance(part, parser.SubPattern)):
            return True
    return False


def test_no_pattern_has_a_possessive_group() -> None:
    seen = {pattern for module in _modules() for value in vars(module).values() for pattern in _patterns(value)}
    assert len(seen) > 50
    flags = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE
    texts = [(one.pattern, one.flags & flags) for one in seen if isinstance(one.pattern, str)]
    assert [text for text, how in texts if _loses_its_way(parser.parse(text, how))] == []


@pytest.mark.parametrize("text", ["(?:ab)*+", "(?>a|b)", "x|(?:(y)|z)++"])
def test_such_groups_are_seen(text: str) -> None:
    assert _loses_its_way(parser.parse(text))


def test_what_repeats_one_character_is_not_meant() -> None:
    assert not _loses_its_way(parser.parse("[a-z]*+x++(?:a|b)*"))
