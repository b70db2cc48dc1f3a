"""Where hooks are called."""

import re
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator

HookPoint = Literal[
    "before_discover",
    "after_discover",
    "before_validate",
    "after_validate",
    "before_authorize",
    "after_authorize",
    "before_check_cancel",
    "after_check_cancel",
    "before_execute",
    "after_execute",
    "before_format",
    "after_format",
]
"""When a hook is called."""
HOOK_POINTS: tuple[HookPoint, ...] = get_args(HookPoint)
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def _functions(value: dict[HookPoint, str]) -> dict[HookPoint, str]:
    for point, reference in value.items():
        if not _FUNCTION.fullmatch(reference):
            raise ValueError(f"{point}: {reference!r} is not a function; write `module:function`")
    return value


HookFunctions = Annotated[dict[HookPoint, str], AfterValidator(_functions)]
"""Functions by the points at which they are called."""
