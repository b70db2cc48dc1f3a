"""How much a call can do: three risks in their order."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any


class Risk(StrEnum):
    """How much a call can do, for the people who write policies."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


_ORDER = (Risk.LOW, Risk.MEDIUM, Risk.HIGH)


def reaches(risk: Any, floor: Risk | None) -> bool:
    """Whether a risk is at least another one. What is no risk counts as a high one; nothing reaches None."""
    known = Risk(risk) if isinstance(risk, str) and risk in set(Risk) else Risk.HIGH
    return floor is not None and _ORDER.index(known) >= _ORDER.index(floor)


def lowest(risks: Iterable[Risk | None]) -> Risk | None:
    """Give the lowest of several risks; None where there is none."""
    return min(filter(None, risks), key=_ORDER.index, default=None)
