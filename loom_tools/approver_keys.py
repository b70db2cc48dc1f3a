"""The public keys of those who sign decisions: a file on the worker, read anew when it changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from pydantic import ValidationError

from loom_dsl.approvals.decision import Decision, problem_of
from loom_dsl.approvals.signature import VERIFIED, ApproverKey, signed_text, wrong_time
from loom_dsl.errors import ConfigurationError
from loom_dsl.text.canonical import read_json
from loom_tools.workspace.owned_file import read_lines, state_of

KEYS_VARIABLE = "LOOM_APPROVER_KEYS"
"""Names the file, in the worker's environment."""
NO_LIBRARY = "signatures need the library `cryptography`: pip install 'loom-dsl[signed]'"
PRIVATE = (
    "this is a private key, which only its owner is to have; take it out, and put the line of its public half here, "
    "which `loom key show KEYFILE` prints where the private key is"
)
_PEM = b"PRIVATE KEY"
Verdict = tuple[str, str]
"""``verified`` or why not, and a sentence about it."""


@dataclass
class ApproverKeys:
    """The keys of a file. Several of one person may count at the same time, so that they can be changed.

    Attributes:
        path: The file: one JSON object a line, as `loom key new` prints it.
        named: How its operator named it, for messages: a flag or a variable.
    """

    path: Path
    named: str = KEYS_VARIABLE
    _seen: tuple[int, ...] = ()
    _keys: Mapping[str, ApproverKey] = field(default_factory=dict)

    def read(self) -> Mapping[str, ApproverKey]:
        """Give the keys by their names.

        Raises:
            ConfigurationError: The file cannot be read, has a line that is no key, or others may write it.
        """
        try:
            seen = state_of(self.path)
            if seen != self._seen:
                self._keys, self._seen = read_keys(self.path, self.named), seen
        except OSError as error:
            raise ConfigurationError(f"{self.path} ({self.named}) cannot be read: {error.strerror}") from None
        return self._keys


def read_keys(path: Path, named: str = KEYS_VARIABLE) -> Mapping[str, ApproverKey]:
    """Read a file of keys, by their names.

    Args:
        path: The file.
        named: How its operator named it.

    Raises:
        ConfigurationError: It has a line that is no key, or others than its owner may write it.
        OSError: It cannot be read.
    """
    keys: dict[str, ApproverKey] = {}
    for number, line in read_lines(path, named, "go-w"):
        try:
            key = _key_of(line)
        except ValueError as error:
            raise ConfigurationError(f"{path}:{number} ({named}): {error}") from None
        if key.name in keys:
            raise ConfigurationError(f"{path}:{number} ({named}): {key.name} is there twice")
        keys[key.name] = key
    return keys


def _key_of(line: bytes) -> ApproverKey:
    """Read one line.

    Raises:
        ValueError: It is no public key; says what it is, and repeats nothing of it.
    """
    try:
        found = read_json(line)
    except ValueError:
        raise ValueError(PRIVATE if _PEM in line else "this is not JSON") from None
    if isinstance(found, dict) and "private" in found:
        raise ValueError(PRIVATE)
    try:
        key = ApproverKey.model_validate(found)
    except ValidationError as error:
        raise ValueError(problem_of(error)) from None
    if key.key not in ("", key.name):
        raise ValueError(f"`key` is not that of `public`: {key.name}")
    return key


def ed25519() -> ModuleType:
    """Give the library for signatures, which is an optional one.

    Raises:
        ConfigurationError: It is missing.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519 as found
    except ImportError:
        raise ConfigurationError(NO_LIBRARY) from None
    return found


def has_library() -> bool:
    """Whether signatures can be verified here."""
    try:
        return bool(ed25519())
    except ConfigurationError:
        return False


def is_signed_by(public: bytes, signature: bytes, text: bytes) -> bool:
    """Whether a signature of a text is that of a key."""
    from cryptography.exceptions import InvalidSignature

    try:
        ed25519().Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def judged(  # noqa: PLR0911 - one for each verdict
    keys: Mapping[str, ApproverKey], decision: Decision, *, job: str, tool: str, requester: str, moment: float
) -> Verdict:
    """Hold a decision's signature against the keys.

    Args:
        keys: By their names.
        decision: The decision.
        job: The job that it came to.
        tool: What that asks about, or empty.
        requester: Who asks, or empty.
        moment: When the decision came, in seconds since 1970.
    """
    signature = decision.signature
    if signature is None:
        return "unsigned", "the decision has no signature"
    if signature.job != job:
        return "wrong_job", "the decision was signed for another job"
    key = keys.get(signature.key)
    if key is None:
        return "key_unknown", f"this worker does not know the key {signature.key}"
    text = signed_text(decision, tool, requester)
    if not is_signed_by(bytes.fromhex(key.public), bytes.fromhex(signature.value), text):
        return "bad_signature", "the signature is not one of this decision: something in it was changed, or is missing"
    if key.revoked:
        return "key_revoked", f"the key {key.name} was revoked"
    if decision.by != key.by:
        return "wrong_person", f"the key {key.name} is that of {key.by}, and `by` says somebody else"
    if late := key.wrong_time(moment):
        return "key_expired", late
    if late := wrong_time(signature, moment):
        return "signature_expired", late
    return VERIFIED, ""
