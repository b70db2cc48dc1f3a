"""Patterns with stars as regular expressions that take linear time: a pattern may come from a model."""

import re
from collections.abc import Sequence
from functools import lru_cache


@lru_cache(maxsize=16_384)
def wildcard(pattern: str) -> re.Pattern[str]:
    """Translate a pattern over any text: `*` stands for anything, also for `/` and for nothing."""
    return with_stars_between([re.escape(piece) for piece in pattern.split("*")])


def with_stars_between(pieces: Sequence[str]) -> re.Pattern[str]:
    """Make one expression of the expressions around the stars of a pattern.

    The leftmost place of each piece between stars is always good enough, hence atomic groups: linear time.
    """
    source = pieces[0]
    for piece in pieces[1:-1]:
        source += f"(?>.*?{piece})" if piece else ""
    if len(pieces) > 1:
        source += f".*{pieces[-1]}"
    return re.compile(source, re.DOTALL)
