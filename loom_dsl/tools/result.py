"""From what happened to a tool call to the message that the model reads (mission C2, C4)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from loom_dsl.text.redaction import cut_middle
from loom_dsl.tools.arguments import ADVICE

REFERENCE = "out-"
"""How a reference to a whole output begins; the beginning of its digest follows."""
SHORTEST_REFERENCE = 12
LIMIT = 10_000
"""Characters of a tool message; the middle of a longer output is cut out."""
_ADVICE: Mapping[str, str] = {
    "validation_error": ADVICE,
    "timeout": "Make the call simpler or split it, then call again.",
    "permission_denied": "This needs authorization. Do not repeat this call; go on without it or say what you need.",
    "tool_not_found": "Use one of the tools that you were given.",
    "tool_unavailable": "Find another way, or report it.",
    "outcome_unknown": "It may have happened or not. Check before anything that depends on it; do not repeat it.",
    "approval_expired": "Nobody decided in time, so it was not done. Go on without it.",
    "unreadable_result": "The tool ran, so do not repeat the call. Go on without its result, or report it.",
    "aborted": "The job is being ended.",
}
_OTHER = "Find another way, or report it. Do not repeat this call unchanged."
RECOVERABLE = frozenset({"validation_error", "timeout"})


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """What the model reads, and its status.

    Attributes:
        status: ``success``, ``warning`` or ``error``.
        code: Why not success, or empty.
        content: The text.
        cut: Whether output was left out.
    """

    status: Literal["success", "warning", "error"]
    code: str
    content: str
    cut: bool = False


def success(output: str, limit: int = LIMIT, reference: str = "") -> ToolMessage:
    """The message of a call that gave an output.

    Args:
        output: All of it.
        limit: Characters that the message may have.
        reference: By what `read_output` finds the whole output; empty when the agent does not have that tool.
    """
    if not output.strip():
        return ToolMessage("warning", "empty_response", "The tool ran and gave no output.")
    if reference and len(output) > limit:
        return ToolMessage("success", "", _cut_with_reference(output, limit, reference), cut=True)
    text, cut = cut_middle(output, limit)
    return ToolMessage("success", "", text, cut)


def reference_of(digest: str) -> str:
    """Give the reference to a whole output that a model is told, from the output's digest."""
    return f"{REFERENCE}{digest[:16]}"


def _cut_with_reference(output: str, limit: int, reference: str) -> str:
    def mark(count: int, at: int) -> str:
        return f"\n[... {count} characters left out; read_output(ref={reference!r}, start={at}) shows them ...]\n"

    room = limit - len(mark(len(output), len(output)))
    head, tail = room - room // 2, room // 2
    return output[:head] + mark(len(output) - head - tail, head + 1) + output[len(output) - tail :]


def failure(code: str, message: str) -> ToolMessage:
    """The message of a call that failed: what happened, and what to do."""
    text, _ = cut_middle(message, LIMIT)
    advice = "" if text.endswith(ADVICE) else f"\n{_ADVICE.get(code, _OTHER)}"
    return ToolMessage("error", code, f"Error ({code}): {text}{advice}")


def refusal(decision: Mapping[str, Any]) -> ToolMessage:
    """The message of a call that a human did not approve."""
    if decision["choice"] == "expired":
        return failure("approval_expired", "nobody approved this call before its deadline")
    by = f" by {decision['by']}" if decision.get("by") else ""
    reason = f": {cut_middle(decision['message'], LIMIT)[0]}" if decision.get("message") else "."
    text = f"The call was rejected{by}{reason}\nDo not repeat this call unchanged."
    return ToolMessage("error", "rejected", text)
