"""What a worker measures of its own: the names, and how what happened is put into few words.

The values of every attribute are few and known beforehand, or declared by somebody: no arguments, no ids of jobs.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from loom_dsl.agent.definition import call_name
from loom_dsl.errors import PermissionDenied

Outcome = Literal["ok", "asked", "denied", "failed", "error", "cancelled"]

STAGES: Final = ("discover", "validate", "authorize", "check_cancel", "execute", "format")
CHOICES: Final = frozenset({"approve", "edit", "reject", "respond", "terminate", "expired", "cancelled"})
"""What questions about tool calls are answered with. The choices of a graph's own questions are counted as `other`."""
MAX_NAMES: Final = 200
"""Of tools, and of models, that one worker tells apart; all that come later are `other`."""
OTHER: Final = "other"
UNKNOWN: Final = "unknown"
"""Stands for a tool that nobody declared: a model may call anything."""
BUCKETS: Final = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)
"""Bounds of the time of a stage, in seconds: the first ones are for what only looks, the last ones for tools."""


class Metric(NamedTuple):
    """One of Loom's own metrics.

    Attributes:
        kind: What it is to Prometheus.
        unit: Of its value.
        attributes: Their names, besides the namespace and the task queue.
        meaning: What it counts or measures.
    """

    kind: Literal["histogram", "counter"]
    unit: str
    attributes: tuple[str, ...]
    meaning: str


STAGE_SECONDS: Final = "loom_stage_seconds"
TOOL_CALLS: Final = "loom_tool_calls_total"
TOKENS: Final = "loom_model_tokens_total"
COST: Final = "loom_model_cost_microusd_total"
ASKED: Final = "loom_approvals_asked_total"
DECIDED: Final = "loom_approvals_decided_total"
METRICS: Final[Mapping[str, Metric]] = {
    STAGE_SECONDS: Metric(
        "histogram",
        "seconds",
        ("stage", "carrier", "outcome"),
        "Time of each execution of a stage of a tool call.",
    ),
    TOOL_CALLS: Metric(
        "counter",
        "calls",
        ("tool", "status"),
        "Tool calls that have come to their end, with the status that the model is told.",
    ),
    TOKENS: Metric("counter", "tokens", ("model", "kind"), "Tokens that models were sent and have written."),
    COST: Metric("counter", "millionths of a dollar", ("model",), "What the calls of models with a known price cost."),
    ASKED: Metric("counter", "questions", (), "Questions to people that were written down."),
    DECIDED: Metric("counter", "questions", ("choice",), "Questions to people that are over, by how."),
}


class Names:
    """Names that an attribute may have: the first `most` that come, and `other` for the rest.

    Args:
        most: How many.
    """

    def __init__(self, most: int = MAX_NAMES) -> None:
        self._most = most
        self._known: set[str] = set()

    def bounded(self, name: str) -> str:
        """Give the name, or `other`."""
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(name)
        return name


def stage_outcome(stage: str, result: Any) -> Outcome:
    """Put what a stage gave into one word.

    Args:
        stage: The stage's name.
        result: What its activity returned. `format` gives a message whatever happened, so it is always `ok`.
    """
    if stage == "format" or not isinstance(result, Mapping):
        return "ok"
    if result.get("decision") == "ask":
        return "asked"
    if result.get("ok", True):
        return "ok"
    return "denied" if result.get("code") == PermissionDenied.code else "failed"


def tool_label(name: str, declared: Mapping[str, str]) -> str:
    """Name a tool as it was declared.

    Args:
        name: What the call names.
        declared: References of the tools that the call can mean, by the names that it may use for them.

    Returns:
        Its name as a model calls it, `mcp__SERVER__*` where all tools of a server were declared, or `unknown`.
    """
    if name in declared:
        return call_name(name)
    every = (reference for reference in declared if reference.endswith("__*") and name.startswith(reference[:-1]))
    return next(every, UNKNOWN)


def choice_label(choice: object) -> str:
    """Give how a question ended, or `other` for a choice of a graph's own."""
    return choice if isinstance(choice, str) and choice in CHOICES else OTHER
