"""Signed decisions: what is signed, and when a signature counts. Nothing here knows how Ed25519 works."""

import re
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from loom_dsl.canonical import canonical_json, digest

if TYPE_CHECKING:
    from loom_dsl.approval import Decision

FORM = "decision/1"
"""First field of what is signed, so that a signature of anything else is none of a decision."""
LONGEST = 7 * 86_400
"""Seconds for which a signature may count."""
SKEW = 300
"""Seconds by which the clock of whoever signs may be ahead of the server's."""
KEY = re.compile("key_[0-9a-f]{24}")
TOO_LATE = ("signature_expired", "key_expired")
"""What it says where the time of the signature, or of its key, does not fit."""
VERIFIED = "verified"
"""What the activity `loom.approval.verify` says of a signature that holds."""


class Signature(BaseModel):
    """Ed25519 over a decision, by somebody whose public key the workers have."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key: str = Field(pattern="^key_[0-9a-f]{24}$")
    """Which key signed."""
    job: str = Field(min_length=1, max_length=1_000)
    """Id of the job that the decision is for."""
    issued_at: int = Field(ge=0, lt=2**53)
    """From when on it counts, in seconds since 1970."""
    expires_at: int = Field(ge=0, lt=2**53)
    """Until when; at most seven days later. The server's time of the signal or update counts."""
    nonce: str = Field(pattern="^[A-Za-z0-9_-]{16,64}$")
    """Random text, another one in each decision."""
    value: str = Field(pattern="^[0-9a-f]{128}$")
    """The signature: 64 bytes as hexadecimal digits."""


def key_name(public: bytes) -> str:
    """Name a public key by its 32 bytes, so that no file can give its name to another one."""
    return "key_" + digest(public)[:24]


def signed_text(decision: "Decision", tool: str, requester: str) -> bytes:
    """Write what is signed: canonical JSON of whatever makes a difference, whose values are text and whole numbers.

    Args:
        decision: With a signature, whose `value` makes no difference.
        tool: The tool that is asked about; empty for a graph's question.
        requester: Who asks, as the request says it, or empty.
    """
    signature = decision.signature
    assert signature is not None
    edited = decision.edited_arguments
    document = {
        "form": FORM,
        "job": signature.job,
        "approval": decision.approval_id,
        "tool": tool,
        "requester": requester,
        "digest": decision.digest,
        "choice": decision.choice,
        "edited": "" if edited is None else digest(canonical_json(edited)),
        "message": digest(decision.message) if decision.message else "",
        "remember": decision.remember,
        "by": decision.by,
        "key": signature.key,
        "issued_at": signature.issued_at,
        "expires_at": signature.expires_at,
        "nonce": signature.nonce,
    }
    return canonical_json(document).encode("utf-8", "surrogatepass")


def stand_in(job: str, by: str) -> dict[str, Any]:
    """Give a signature that nobody made: for simulations, which vouch for the decisions of a scenario themselves."""
    nonce = digest(f"{job}/{by}")[:32]
    return {"key": key_name(b""), "job": job, "issued_at": 0, "expires_at": 1, "nonce": nonce, "value": "0" * 128}


def subject_of(request: Any) -> tuple[str, str]:
    """Give the tool and the requester that a request names; empty where it names none."""
    named = request if isinstance(request, dict) else {}
    tool, requester = named.get("tool"), named.get("requester")
    return tool if isinstance(tool, str) else "", requester if isinstance(requester, str) else ""


def wrong_time(signature: Signature, moment: float) -> str:
    """Say why a signature does not count at a moment, or nothing.

    Args:
        signature: The signature.
        moment: When the server received the decision, in seconds since 1970.
    """
    if not 0 < signature.expires_at - signature.issued_at <= LONGEST:
        return f"a signature counts for at most {LONGEST // 86_400} days, and ends after it begins"
    if signature.issued_at > moment + SKEW:
        return f"the signature counts only {signature.issued_at - moment:.0f} s from now; is the signer's clock right?"
    if signature.expires_at <= moment:
        return f"the time of the signature was over {moment - signature.expires_at:.0f} s before it came; sign anew"
    return ""
