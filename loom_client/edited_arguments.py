"""Arguments that an approver has edited, held against the tool's schema before they are sent.

The worker keeps the schema with the request, so whoever decides needs none of its tools. It is a service to people:
what the job takes is validated by the worker again, which knows more than a schema says.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from loom_dsl.approvals.policy import is_among
from loom_dsl.approvals.signature import ApproverKey
from loom_dsl.errors import BlobMissing, DecisionRefused
from loom_dsl.permissions.remembered import in_words
from loom_dsl.text.abridgement import abridge
from loom_dsl.text.canonical import canonical_json, digest, read_json
from loom_dsl.text.confusables import revealed
from loom_dsl.text.printable import one_line
from loom_dsl.tools.arguments import misfits
from loom_store.queries.audit import AuditEntry
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_tools.approver_keys import is_signed_by

MAX_SHOWN = 5


def problem_with(schema: str, arguments: Mapping[str, Any]) -> str:
    """Say what does not fit, or nothing; nothing also where it cannot be told.

    Args:
        schema: The tool's JSON schema as text; empty where none is known.
        arguments: What somebody has written in place of the tool's arguments.
    """
    if not schema:
        return ""
    try:
        found = misfits(json.loads(schema), json.loads(canonical_json(dict(arguments))))
    except (ValueError, TypeError, RecursionError):  # no JSON: the job says so
        return ""
    return abridge(found, MAX_SHOWN, between="; ", rest="; and ")


async def check_edit(store: Store, approval: str, arguments: Mapping[str, Any]) -> None:
    """Hold edited arguments against the schema of the tool that is asked about, if the store has it.

    Raises:
        DecisionRefused: They do not fit; says at which argument. Nothing was sent, so the question stays open.
    """
    tool, schema = await store.read(lambda tx: _asked(tx, approval))
    if problem := problem_with(schema, arguments):
        raise DecisionRefused(f"the arguments do not fit the tool {tool}, and nothing was decided: {problem}")


def _asked(tx: Transaction, approval: str) -> tuple[str, str]:
    row = tx.approval(approval)
    if row is None or row["status"] != "pending" or not row["details"].get("schema"):
        return "", ""
    try:
        return row["tool"], tx.get_blob(row["details"]["schema"]).decode()
    except BlobMissing:
        return "", ""


# Signatures in the audit trail, held against the public keys once more.


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


def rules_in_words(rules: object) -> str:
    """Say what is remembered of a request; empty: nothing can be. That of a graph of a user's may hold anything."""
    try:
        said = in_words(map(str, rules)) if isinstance(rules, list | tuple) else ""
    except ValueError:
        return ""
    return revealed(one_line(said, 400))


# The same decision once more: answered like the first, also by who only sees the store.


def is_repeated(row: Mapping[str, Any], by: str, said: Mapping[str, Any]) -> bool:
    """Whether an unsigned decision says what has been decided, by one of those who decided.

    Args:
        row: The approval, as the store has it.
        by: Who sends it.
        said: Its fields: `choice`, `message`, `edited_arguments`, `remember`, `digest`.
    """
    if row["choice"] is None or row.get("keys") or said.get("signature"):
        return False
    edited = said.get("edited_arguments")
    names, messages = str(row["by"] or ""), str(row["message"] or "")
    return (
        said["choice"] == row["choice"]
        and is_among(by, [names, *names.split(", ")])
        and said.get("message", "") in (messages, *messages.split("; "))
        and (None if edited is None else digest(canonical_json(edited))) == row.get("edited")
        and said.get("remember", "no") == row.get("remember", "no")
        and said.get("digest", "") in ("", row["arguments_digest"], row["details"].get("digest", ""))
    )
