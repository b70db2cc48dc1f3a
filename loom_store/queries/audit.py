"""The audit trail: who was asked what, who decided, by which rule, about which digest, when.

Each entry's hash is made of its content and of the hash before it, so that an entry cannot be changed, taken out or put
in without all that follow being written anew. Whoever keeps the last hash elsewhere sees that, too. `prune` leaves the
trail alone.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sqlalchemy import bindparam, insert, select

from loom_dsl.text.canonical import canonical_json
from loom_store.queries.base import Queries
from loom_store.queries.blobs import pack_told, unpack_text
from loom_store.rows import from_millis
from loom_store.tables import audit

FIRST = bytes(32)
"""The hash before the first entry."""
_LAST = select(audit.c.number, audit.c.hash).order_by(audit.c.number.desc()).limit(1)
_ALL = select(audit).where(audit.c.number > bindparam("after")).order_by(audit.c.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One entry.

    Attributes:
        number: Its place, from 1, without gaps.
        at: When it was written.
        kind: ``approval_requested``, ``approval_changed``, ``approval_decided``, ``decision_refused``, ``control``,
            ``rule_kept`` or ``rule_revoked``.
        job: The job, or empty.
        data: What happened.
        hash: 64 hexadecimal digits.
    """

    number: int
    at: str
    kind: str
    job: str
    data: dict[str, Any]
    hash: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What came of checking the trail.

    Attributes:
        entries: How many there are.
        head: Hash of the last one.
        problem: What is wrong with the first entry that is wrong, or empty.
    """

    entries: int
    head: str
    problem: str = ""


class AuditQueries(Queries):
    """The part of a transaction that deals with the audit trail."""

    def audit(self, kind: str, job: str, data: Mapping[str, Any]) -> None:
        """Add an entry."""
        last = self._execute(_LAST).first()
        number, before = (1, FIRST) if last is None else (last.number + 1, last.hash)
        at, text = self._millis(), self._told(dict(data))
        values = {
            "number": number,
            "at": at,
            "kind": kind,
            "job": job,
            "body": pack_told(text),
            "hash": _hash(before, number, at, kind, job, text),
        }
        self._execute(insert(audit), values)

    def audit_entries(self, job: str | None = None, after: int = 0) -> list[AuditEntry]:
        """Give the entries after a number, those of one job or all."""
        query = _ALL if job is None else _ALL.where(audit.c.job == job)
        return [
            AuditEntry(
                number=row.number,
                at=from_millis(row.at),
                kind=row.kind,
                job=row.job,
                data=json.loads(unpack_text(row.body)),
                hash=row.hash.hex(),
            )
            for row in self._execute(query, {"after": after})
        ]

    def verify_audit(self, head: str = "") -> AuditReport:
        """Check every entry against the one before it.

        Args:
            head: A hash that was the last one at some time; the trail must still have it.
        """
        before, count, problem, found = FIRST, 0, "", not head or head == FIRST.hex()
        for count, (number, wrong, its_hash) in enumerate(self._checked(), 1):
            problem = problem or wrong or (f"entry {count} is missing" if number != count else "")
            before, found = its_hash, found or its_hash.hex() == head
        if not problem and not found:
            problem = f"no entry has the hash {head}: the end of the trail was cut off, or it was written anew"
        return AuditReport(count, before.hex(), problem)

    def _checked(self) -> Iterator[tuple[int, str, bytes]]:
        before = FIRST
        for row in self._execute(_ALL, {"after": 0}):
            try:
                text = unpack_text(row.body)
                right = _hash(before, row.number, row.at, row.kind, row.job, text) == row.hash
            except (ValueError, zlib.error):  # what cannot be unpacked was not written by us
                right = False
            yield row.number, "" if right else f"entry {row.number} is not what was written", bytes(row.hash)
            before = bytes(row.hash)


def _hash(before: bytes, number: int, at: int, kind: str, job: str, text: str) -> bytes:
    return sha256(before + canonical_json([number, at, kind, job, text]).encode("utf-8", "surrogatepass")).digest()
