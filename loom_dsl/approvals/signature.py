"""Signed decisions: what is signed, and when a signature counts. Nothing here knows how Ed25519 works."""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from loom_dsl.approvals.decision import Signature
from loom_dsl.approvals.policy import person
from loom_dsl.text.canonical import canonical_json, digest
from loom_dsl.text.confusables import mixes_scripts, revealed

if TYPE_CHECKING:
    from loom_dsl.approvals.decision import Decision


FORM = "decision/1"
"""First field of what is signed, so that a signature of anything else is none of a decision."""
MAX_VALIDITY = 7 * 86_400
"""Seconds for which a signature may count."""
SKEW = 300
"""Seconds by which the clock of whoever signs may be ahead of the server's."""
KEY = re.compile("key_[0-9a-f]{24}")
TOO_LATE = ("signature_expired", "key_expired")
"""What it says where the time of the signature, or of its key, does not fit."""
VERIFIED = "verified"
"""What the activity `loom.approval.verify` says of a signature that holds."""


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
    if not 0 < signature.expires_at - signature.issued_at <= MAX_VALIDITY:
        return f"a signature counts for at most {MAX_VALIDITY // 86_400} days, and ends after it begins"
    if signature.issued_at > moment + SKEW:
        return f"the signature counts only {signature.issued_at - moment:.0f} s from now; is the signer's clock right?"
    if signature.expires_at <= moment:
        return f"the time of the signature was over {moment - signature.expires_at:.0f} s before it came; sign anew"
    return ""


# A public key of somebody who signs decisions, as the workers' file has it.


def checked_name(name: str) -> str:
    """Give a person's name back.

    Raises:
        ValueError: It is empty, hides characters, or mixes letters of several scripts.
    """
    if not person(name) or revealed(name) != name or mixes_scripts(name):
        raise ValueError("this is no name; give one as `approvers` and roles have it")
    return name


class ApproverKey(BaseModel):
    """One line of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: Annotated[str, Field(strict=True, max_length=200), AfterValidator(checked_name)]
    """Whose key it is: what `by` of a decision must say, to the letter."""
    public: str = Field(strict=True, pattern="^[0-9a-f]{64}$")
    """The 32 bytes of the public key, as hexadecimal digits."""
    key: str = Field(default="", strict=True)
    """Its name, which follows from the bytes; only for readers of the file."""
    not_before: AwareDatetime | None = None
    """From when on decisions count that it signed."""
    not_after: AwareDatetime | None = None
    """Until when."""
    revoked: bool = Field(default=False, strict=True)
    """Whether nothing that it signed counts any more."""

    @property
    def name(self) -> str:
        """What signatures call it."""
        return key_name(bytes.fromhex(self.public))

    def wrong_time(self, moment: float) -> str:
        """Say why it does not count at a moment, in seconds since 1970, or nothing."""
        at = datetime.fromtimestamp(moment, UTC)
        if self.not_before is not None and at < self.not_before:
            return f"the key {self.name} counts only from {self.not_before.isoformat()} on"
        if self.not_after is not None and at >= self.not_after:
            return f"the key {self.name} counted until {self.not_after.isoformat()}; sign with a newer one"
        return ""


def mark_of(decision: "Decision") -> str:
    """What is kept of a decision whose signature held."""
    return canonical_json([decision.approval_id, decision.choice, decision.by])
