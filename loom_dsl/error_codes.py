"""The codes that a node may fail with besides those that functions, tools and `fail` nodes give themselves."""

from collections.abc import Mapping

from loom_dsl import errors

ENGINE_CODES: Mapping[str, str] = {
    "max_visits": "The node was entered more often than its `max_visits`, and it has no `exhausted`.",
    "max_rounds": "The loop would need more rounds than its `max`.",
    "join_deadlock": "The join waits for a token that cannot come.",
    "deadlock": "The token waits for an `only_while` or a `mutex`, and nothing is left that could let it in.",
    "approval_expired": "Nobody answered in time, and no `deadline` says where to go.",
    "cancelled": "What the node did was cancelled.",
    "activity_failed": "The activity failed, and nothing says how.",
    "arguments_too_large": "The arguments are larger than what the engine carries to an activity.",
    "internal": "Something failed in a way that Loom does not know; the worker's log has the traceback.",
    "not_run": "The activity, or the job below this one, could not be started.",
    "child_lost": "The job below this one was terminated, or the server does not know it any more.",
    "endless_loop": "The job below this one entered a million nodes with nothing from outside.",
    "invalid_input": "What the job below this one was given is not what its graph's `input` declares.",
    "state_too_large": "What the job below this one holds is more than a run can hand on.",
    "failed": "The job below this one, or the graph inside this one, came to a `fail` without a code.",
    "max_iterations": "The agent reached the limit `max_iterations`.",
    "max_tool_calls": "The agent reached the limit `max_tool_calls`.",
    "max_tool_rounds": "The agent reached the limit `max_tool_rounds`.",
    "max_cost": "The agent reached the limit `max_cost`.",
    "max_run_duration": "The agent reached the limit `max_run_duration`.",
}
"""Codes that come from the engine and from no class of `errors`, with what each means."""

CLASSES: Mapping[str, str] = {
    name: found.code
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, errors.LoomError)
}
"""The codes of Loom's own errors, by the names of their classes."""

CODES: frozenset[str] = frozenset({*ENGINE_CODES, *CLASSES.values()})
"""Every code that Loom itself gives."""
