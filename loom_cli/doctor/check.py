"""One thing that was looked at."""

from dataclasses import dataclass
from enum import StrEnum

PROBE_SECONDS = 2.0
"""Seconds that what is looked for has to answer."""


class Status(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        status: `fail` when Loom cannot work like this.
        what: What was looked at.
        found: What is the case.
        fix: What to do; empty when nothing need be done.
    """

    status: Status
    what: str
    found: str
    fix: str = ""
