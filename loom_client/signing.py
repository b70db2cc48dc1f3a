"""Private keys, with which people sign their decisions."""

import json
import os
import secrets
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from loom_dsl.approvals.decision import Decision, problem_of
from loom_dsl.approvals.signature import MAX_VALIDITY, ApproverKey, checked_name, key_name, signed_text
from loom_dsl.errors import NotFoundError, UserError
from loom_dsl.text.canonical import read_json
from loom_tools.approver_keys import ed25519

SECONDS = 900
"""For how long a signature counts, if nothing else is said: the server has the decision much sooner."""
FORM = "approver-key/1"
MAX_FILE = 16 * 1024


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A person's private key.

    Attributes:
        by: Whose it is.
        private: The 32 bytes of it.
    """

    by: str
    private: bytes = field(repr=False)

    @classmethod
    def new(cls, by: str) -> "SigningKey":
        """Make a key.

        Args:
            by: The name of the person, as approvers are listed.

        Returns:
            A key that nobody has had, which no file holds yet.

        Raises:
            UserError: `by` is no name.
            ConfigurationError: The library for signatures is missing.
        """
        ed25519()
        try:
            return cls(checked_name(by), secrets.token_bytes(32))
        except ValueError as error:
            raise UserError(f"{by[:80]!a}: {error}") from None

    @classmethod
    def load(cls, path: Path) -> "SigningKey":
        """Read a file that `save` wrote.

        Args:
            path: The file.

        Returns:
            The key in it.

        Raises:
            NotFoundError: There is no such file.
            UserError: It holds no key, or others may read it.
            ConfigurationError: The library for signatures is missing.
        """
        ed25519()
        try:
            if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UserError(f"others may read or write the private key {path}; say `chmod 600 {path}`")
            with path.open("rb") as file:
                found = read_json(file.read(MAX_FILE))
            return cls(checked_name(found["by"]), _private(found))
        except FileNotFoundError:
            raise NotFoundError(f"there is no file {path}; `loom key new NAME --out {path}` makes a key") from None
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path} is no private key of `loom key new`") from None

    def save(self, path: Path) -> None:
        """Write it into a new file, which only its owner may read.

        Args:
            path: The file, which must not be there.

        Raises:
            UserError: There is such a file, or it cannot be written.
        """
        body = {"form": FORM, "by": self.by, "key": self.name, "private": self.private.hex()}
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(json.dumps(body, ensure_ascii=False) + "\n")
        except FileExistsError:
            raise UserError(f"there is a file {path} already; a key is never overwritten") from None
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}") from None

    @property
    def public(self) -> bytes:
        """The 32 bytes of the public key."""
        raw: bytes = ed25519().Ed25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw()
        return raw

    @property
    def name(self) -> str:
        """What signatures call it."""
        return key_name(self.public)

    def entry(self, not_before: str | None = None, not_after: str | None = None) -> str:
        """Give the line for the workers' file of public keys.

        Args:
            not_before: When its signatures begin to count, such as ``2027-01-31T12:00:00Z``; None: at once.
            not_after: When they end to count; None: never.

        Returns:
            One line of JSON.

        Raises:
            UserError: A time is none, or has no zone.
        """
        fields = {"by": self.by, "key": self.name, "public": self.public.hex()}
        times = {"not_before": not_before, "not_after": not_after}
        line = {**fields, **{name: moment for name, moment in times.items() if moment}}
        try:
            ApproverKey.model_validate(line)
        except ValueError:
            raise UserError("give a time with its zone, such as 2027-01-31T12:00:00Z") from None
        return json.dumps(line, ensure_ascii=False)

    def sign(
        self,
        payload: Mapping[str, JsonValue],
        *,
        job: str,
        tool: str = "",
        requester: str = "",
        now: float | None = None,
        seconds: int = SECONDS,
        nonce: str | None = None,
    ) -> dict[str, JsonValue]:
        """Sign a decision.

        Args:
            payload: The decision, as the signal `loom.decision` carries it, with the `digest` of what is asked. Who
                decides is the key's person.
            job: The job that it is for.
            tool: The tool that is asked about; empty for a graph's question.
            requester: Who asks, as the request says it, or empty.
            now: From when on it counts, in seconds since 1970; the machine's clock by default.
            seconds: For how long.
            nonce: Random text; a new one by default.

        Returns:
            The payload with `by` and `signature`.

        Raises:
            UserError: It is said to be by somebody else, says no `digest`, or is no decision.
        """
        if payload.get("by") not in (None, "", self.by):
            raise UserError(f"the key is that of {self.by}, and the decision is said to be by {payload['by']}")
        if not payload.get("digest"):
            raise UserError("a signed decision needs the `digest` of what is asked")
        if not 0 < seconds <= MAX_VALIDITY:
            raise UserError(f"a signature counts for 1 to {MAX_VALIDITY} seconds")
        issued = int(time.time() if now is None else now)
        signature = {
            "key": self.name,
            "job": job,
            "issued_at": issued,
            "expires_at": issued + seconds,
            "nonce": nonce or secrets.token_urlsafe(16),
            "value": "0" * 128,
        }
        try:
            decision = Decision.model_validate({**payload, "by": self.by, "signature": signature})
            text = signed_text(decision, tool, requester)
        except ValidationError as error:
            raise UserError(f"this is no decision: {problem_of(error)}") from None
        except ValueError as error:  # such as a number that JSON does not have
            raise UserError(f"this is no decision: {error}") from None
        private = ed25519().Ed25519PrivateKey.from_private_bytes(self.private)
        return {**payload, "by": self.by, "signature": {**signature, "value": private.sign(text).hex()}}


def _private(found: dict[str, Any]) -> bytes:
    raw = bytes.fromhex(found["private"])
    if found["form"] != FORM or len(raw) != 32:
        raise ValueError(FORM)
    return raw
