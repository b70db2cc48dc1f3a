"""Signatures in the audit trail, held against the public keys once more."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from activities.approver_keys import is_signed_by
from loom_dsl.approver_key import ApproverKey
from loom_dsl.canonical import read_json
from loom_store.audit import AuditEntry


def evidence(entries: Iterable[AuditEntry], keys: Mapping[str, ApproverKey]) -> Iterator[tuple[int, str]]:
    """Give each signed decision of the trail: the entry's number, and what is wrong with its signature, or nothing.

    A key that has expired or was revoked since proves who decided then.
    """
    for entry in entries:
        signed = entry.data.get("signed")
        if isinstance(signed, dict):  # of a request it says that a signature is needed
            yield entry.number, _wrong(entry, signed, keys)


def _wrong(entry: AuditEntry, signed: Mapping[str, Any], keys: Mapping[str, ApproverKey]) -> str:
    try:
        text, value = signed["text"], bytes.fromhex(signed["value"])
        said = read_json(text)
        key, told = keys.get(said["key"]), [said[name] for name in ("job", "approval", "choice", "by")]
    except (ValueError, KeyError, TypeError):
        return "it has no signature that can be read"
    if key is None:
        return f"it was signed with {said['key']}, which the file does not have"
    if not is_signed_by(bytes.fromhex(key.public), value, text.encode("utf-8", "surrogatepass")):
        return f"its signature is not one by {key.name}"
    if told != [entry.job, entry.data["approval_id"], entry.data["choice"], key.by]:
        return "what was signed is not what the entry says"
    return ""
