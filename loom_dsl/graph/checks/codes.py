"""The codes of what is found in a graph: stable names, with a title and a severity each."""

from collections.abc import Mapping

from loom_dsl.errors import Severity

WARNING: Severity = "warning"
ERROR: Severity = "error"

CODES: Mapping[str, tuple[Severity, str]] = {
    "L101": (ERROR, "no start"),
    "L102": (ERROR, "unknown target"),
    "L103": (ERROR, "name of a graph of Loom's"),
    "L104": (ERROR, "unreachable node"),
    "L105": (ERROR, "dead end"),
    "L106": (ERROR, "no end can be reached"),
    "L107": (ERROR, "cycle without a bound"),
    "L108": (ERROR, "edge to itself without a bound"),
    "L109": (ERROR, "choice without a default"),
    "L110": (ERROR, "arm of a race"),
    "L111": (ERROR, "join needs more than can come"),
    "L112": (ERROR, "join without a split before it"),
    "L113": (ERROR, "join waits for a branch that may not come"),
    "L114": (WARNING, "branches meet without a join"),
    "L115": (WARNING, "arm of a race with an effect"),
    "L116": (ERROR, "recursion that never ends"),
    "L117": (WARNING, "detached map that may be cut off"),
    "L118": (WARNING, "refusal that nobody catches"),
    "L119": (WARNING, "error code that there is not"),
    "L120": (ERROR, "parallel writers without a reducer"),
    "L121": (ERROR, "unknown reference"),
    "L122": (ERROR, "result that may not be there"),
    "L123": (ERROR, "value of another type"),
    "L124": (WARNING, "never used"),
    "L125": (ERROR, "secret in the open"),
    "L126": (ERROR, "field that a result does not have"),
    "L130": (ERROR, "not an expression"),
    "L131": (WARNING, "constant condition"),
    "L132": (ERROR, "condition that is no condition"),
    "L133": (WARNING, "expression of another language"),
    "L134": (ERROR, "text that is not computed"),
    "L135": (ERROR, "condition that waits for what comes after it"),
    "L136": (WARNING, "node that cancels itself"),
    "L137": (WARNING, "heartbeat that is never missed"),
    "L140": (ERROR, "wait without a deadline"),
    "L141": (WARNING, "long activity without a heartbeat"),
    "L142": (ERROR, "too many at once"),
    "L143": (ERROR, "too much data in the document"),
    "L144": (ERROR, "results that cannot be read"),
    "L145": (WARNING, "nothing to compensate"),
    "L146": (ERROR, "deadline where nothing waits"),
    "L147": (ERROR, "exhausted without a bound"),
    "L148": (ERROR, "lock that its holder waits for"),
    "L149": (WARNING, "locks taken in two orders"),
    "L150": (ERROR, "unknown tool, agent, model or activity"),
    "L152": (ERROR, "arguments that do not fit"),
    "L153": (WARNING, "agent without a task"),
}
"""Severity and title, by code. `docs/reference/checks.md` has a paragraph on each."""


def severity_of(code: str) -> Severity:
    """The severity of a code; what is not here (a document that cannot be read, a wrong field) is an error."""
    return CODES[code][0] if code in CODES else ERROR
