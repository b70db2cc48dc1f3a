"""Words for messages about values: a near name, a type, a value, a letter that looks like another."""

import difflib
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

from loom_dsl.text.canonical import Json

if TYPE_CHECKING:
    pass


def suggest(word: str, candidates: Iterable[str]) -> str:
    """Say ``did you mean `x`?`` when a candidate is near to the word, else nothing."""
    near = difflib.get_close_matches(word, sorted(candidates), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else ""


def type_name(value: Json) -> str:
    """Name a JSON value's type for people."""
    names = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "mapping"}
    return names.get(type(value), "null")


def shown(value: Json) -> str:
    """Quote a value in a message, cut to 60 characters."""
    text = (
        {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else repr(value)
    )
    return text if len(text) <= 60 else text[:57] + "..."


def strange_letter(text: str) -> str:
    """Name the first character that is no ASCII, so that those that look like others can be told; or nothing."""
    found = next((letter for letter in text if not letter.isascii()), "")
    return f"{found!r}, which is {unicodedata.name(found, 'no letter')}" if found else ""
