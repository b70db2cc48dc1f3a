"""Links that decide: one approval, one choice, one person, for a time; signed, so that nobody can change them."""

import base64
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

LEAST_KEY = 32
"""Characters of the key."""
LINKED = ("approve", "reject")
"""The choices that a link can say."""
_CONTEXT = b"loom link 1\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a link says.

    Attributes:
        approval: Which approval it decides.
        choice: How.
        by: Who decides with it.
        digest: What was asked when it was made.
        expires: Until when it counts, in seconds since 1970.
        id: What tells it from others.
    """

    approval: str
    choice: str
    by: str
    digest: str
    expires: float
    id: str


def signed_links(key: bytes, url: str, row: Mapping[str, Any], by: str, expires: float) -> dict[str, str]:
    """Make a link for each choice of an approval that a link can say.

    Args:
        key: Signs them.
        url: How others reach the gateway, without a slash at the end.
        row: The approval.
        by: Who decides with them.
        expires: Until when they count, in seconds since 1970.
    """
    said = {"approval": row["id"], "by": by, "digest": row["arguments_digest"], "expires": expires}
    return {
        choice: f"{url}/links/{sign(key, Link(**said, choice=choice, id=secrets.token_hex(8)))}"
        for choice in LINKED
        if choice in row["choices"]
    }


def sign(key: bytes, link: Link) -> str:
    """Write a link down: what it says, a dot, and the signature. Safe in a URL."""
    said = _encoded(json.dumps(asdict(link), separators=(",", ":")).encode())
    return f"{said}.{_signature(key, said)}"


def read(key: bytes, text: str) -> Link | None:
    """Read a link; None: we did not write it so."""
    said, _, signature = text.partition(".")
    right = _signature(key, said)
    if not hmac.compare_digest(right.encode(), signature.encode("utf-8", "surrogatepass")):
        return None
    return Link(**json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4))))


def _signature(key: bytes, said: str) -> str:
    return _encoded(hmac.digest(key, _CONTEXT + said.encode("utf-8", "surrogatepass"), "sha256"))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
