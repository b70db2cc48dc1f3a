"""Secrets in the arguments of a call: no tool is given the value of one as text, nor another text in its place."""

import re
from collections.abc import Mapping
from typing import Any

from loom_dsl.errors import PermissionDenied
from loom_dsl.text.canonical import canonical_json
from loom_dsl.text.redaction import mask_known

_REFERENCE = re.compile(r"\$\{secret:([A-Za-z0-9_.-]{1,64})\}")


def refuse_secrets(arguments: Mapping[str, Any], known: Mapping[str, str], *, masked: bool = False) -> None:
    """Refuse a call that would hand a tool the value of a secret.

    Args:
        arguments: Of the call.
        known: Names and values of secrets.
        masked: Values were masked in the arguments before, so what stands for one was not written by the caller.

    Raises:
        PermissionDenied: An argument holds one; names it, and says what to do.
    """
    for name, value in arguments.items():
        text = canonical_json({name: value})
        shown = mask_known(text, known)
        if shown != text or (masked and _REFERENCE.search(text)):
            found = _REFERENCE.search(shown)
            secret = found[1] if found else "?"
            raise PermissionDenied(
                f"the argument {name!r} holds the value of the secret {secret}, which no tool is given as text; "
                f"nothing was run. Leave it out, or where the tool takes a secret by its name, such as "
                f"network_request in headers, write ${{secret:{secret}}}"
            )
