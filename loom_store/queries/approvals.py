"""Approvals as lists show them. The truth is the job's own state; these rows follow it."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import bindparam, insert, select, update

from loom_dsl.errors import NotFoundError
from loom_dsl.text.canonical import canonical_json
from loom_store.queries.audit import AuditQueries
from loom_store.queries.base import Queries
from loom_store.queries.blobs import pack_told, unpack_text
from loom_store.queries.jobs import jobs_with_those_below
from loom_store.rows import ApprovalRow, Moment, from_millis, to_millis
from loom_store.tables import approvals, jobs, rules

_ITEM = re.compile(r"\[(\d+)\]")
MAX_CHANGES = 50
"""So many changes of a request are kept besides votes: reminders, escalations."""
_SELECT = select(approvals, jobs.c.name).join(jobs, jobs.c.id == approvals.c.job)
_BY_ID = _SELECT.where(approvals.c.id == bindparam("approval"))
_ADD = insert(approvals)
_ONE = update(approvals).where(approvals.c.id == bindparam("approval"))
_CHANGE = _ONE.values(body=bindparam("new_body"))
_DECIDE = _ONE.values(status=bindparam("new_status"), decision=bindparam("new_decision"))


class ApprovalQueries(Queries):
    """The part of a transaction that deals with approvals."""

    def upsert_approval(self, row: ApprovalRow) -> None:
        """Write a request, or write it anew while it is pending. A decided one stays as it was decided."""
        found = self._execute(_BY_ID, {"approval": row.id}).first()
        if found is not None and found.status != "pending":
            return
        created_at = to_millis(row.created_at)
        body = asdict(row)
        body["created_at"] = from_millis(created_at)
        body["expires_at"] = None if row.expires_at is None else from_millis(to_millis(row.expires_at))
        del body["id"], body["job"]
        packed = pack_told(self._told(body))
        if found is not None:
            self._execute(_CHANGE, {"approval": row.id, "new_body": packed})
            return
        values = {"id": row.id, "job": self._job_id(row.job), "status": "pending"}
        self._execute(_ADD, {**values, "created_at": created_at, "body": packed})

    def change_approval(self, id: str, change: Mapping[str, Any]) -> None:
        """Write down what became of a request that still waits: its new `expires_at`, and the rest as `change`."""
        found = self._execute(_BY_ID, {"approval": id}).first()
        if found is None or found.status != "pending":
            return
        body = json.loads(unpack_text(found.body))
        if "expires_at" in change:
            due = change["expires_at"]
            body["expires_at"] = None if due is None else from_millis(to_millis(due))
        told = {key: value for key, value in change.items() if key != "expires_at"}
        changes = [*body["details"].get("changes", []), told]
        # Votes are as few as people; who has voted is wanted however often all were reminded.
        older = [index for index, one in enumerate(changes) if one.get("what") != "vote"][:-MAX_CHANGES]
        kept = [one for index, one in enumerate(changes) if index not in older]
        body["details"] = {**body["details"], "changes": kept}
        self._execute(_CHANGE, {"approval": id, "new_body": pack_told(self._told(body))})

    def decide_approval(  # noqa: PLR0913, PLR0917 - what is written down of a decision
        self,
        id: str,
        status: str,
        choice: str | None = None,
        by: str = "",
        at: Moment | None = None,
        message: str = "",
        keys: Sequence[str] = (),
        remember: str = "no",
        more: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write down how an approval ended (``approved``, ``rejected``, ``expired``, …). The first outcome stays.

        `keys` are those with which it was decided, where it was signed; `remember` says how long it counts, ``no``,
        ``job`` or ``rule``; `more` is what else is told of it: the digest of the arguments to which it was `edited`,
        and that it is `allowed` although it expired.

        Returns:
            True when this call wrote it.

        Raises:
            NotFoundError: There is no such approval.
        """
        found = self._execute(_BY_ID, {"approval": id}).first()
        if found is None:
            raise NotFoundError(f"there is no approval {id!r} in this store")
        if found.status != "pending":
            return False
        decided_at = from_millis(self._millis() if at is None else to_millis(at))
        told: dict[str, Any] = {"keys": list(keys)} if keys else {}
        told |= {"remember": remember} if remember != "no" else {}
        told |= more or {}
        decision = self._told({"choice": choice, "by": by, "at": decided_at, "message": message, **told})
        self._execute(_DECIDE, {"approval": id, "new_status": status, "new_decision": pack_told(decision)})
        return True

    def approvals(
        self, status: str | None = None, job: str | None = None, *, below: bool = False
    ) -> list[dict[str, Any]]:
        """List approvals, the oldest first, with the keys of `ApprovalRow`, status, choice, by, at and message.

        The calls of one turn ask side by side; their questions come in the order in which the calls run.

        Args:
            status: Only those.
            job: Only those of this job.
            below: Also those of its child jobs, and theirs.
        """
        query = _SELECT.order_by(approvals.c.created_at, approvals.c.id)
        if status is not None:
            query = query.where(approvals.c.status == status)
        if job is not None:
            query = query.where(jobs_with_those_below(job) if below else jobs.c.name == job)
        return _in_order([_shown(row) for row in self._execute(query)])

    def approval(self, id: str) -> dict[str, Any] | None:
        """Give one approval as `approvals` does, or None."""
        row = self._execute(_BY_ID, {"approval": id}).first()
        return None if row is None else _shown(row)


def _in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put what the items of one node ask into the order of the items, where the first of them stands."""
    places: dict[tuple[str, int, str], int] = {}
    nodes = [row.get("node") or "" for row in rows]
    keys = [(row["job"], row["turn"], node.partition("[")[0]) for row, node in zip(rows, nodes, strict=True)]
    for place, key in enumerate(keys):
        places.setdefault(key, place)
    items = [tuple(map(int, _ITEM.findall(node))) for node in nodes]
    order = sorted(range(len(rows)), key=lambda place: (places[keys[place]], items[place]))
    return [rows[place] for place in order]


def _shown(row: Any) -> dict[str, Any]:
    undecided = {"choice": None, "by": None, "at": None, "message": None}
    decision = undecided if row.decision is None else json.loads(unpack_text(row.decision))
    request: dict[str, Any] = json.loads(unpack_text(row.body))
    return {"id": row.id, "job": row.name, "status": row.status, **request, **decision}


# Rules that approvers kept for later jobs: each for one agent in one directory, until somebody takes it back.


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRule:
    """A rule by which calls run that would ask.

    Attributes:
        id: Its number; no other rule ever gets it.
        rule: As permissions write it, such as ``write_file(report.md)``.
        arguments: Digest of the only arguments that it is about, or None: the rule itself says what it is about.
        asked_by: Whose questions it answers: who asked when it was kept.
        agent: Name of the agent or the graph whose jobs it holds for.
        workdir: The directory that they work in.
        summary: The call that was approved.
        approval: The approval with which it was kept.
        kept_by: Who kept it.
        kept_at: When.
        revoked_by: Who took it back, or None.
        revoked_at: When, or None.
    """

    id: int
    rule: str
    arguments: str | None
    agent: str
    workdir: str
    summary: str
    approval: str
    kept_by: str
    kept_at: str
    revoked_by: str | None = None
    revoked_at: str | None = None
    asked_by: tuple[str, ...] = ()


_KEPT = (
    select(rules)
    .where(rules.c.agent == bindparam("its_agent"), rules.c.workdir == bindparam("its_workdir"))
    .where(rules.c.revoked_at.is_(None))
    .order_by(rules.c.id)
)
_SAME = select(rules.c.id).where(rules.c.approval == bindparam("its_approval"), rules.c.rule == bindparam("its_rule"))
_REVOKE = (
    update(rules)
    .where(rules.c.id == bindparam("number"), rules.c.revoked_at.is_(None))
    .values(revoked_by=bindparam("who"), revoked_at=bindparam("moment"))
)


class RuleQueries(AuditQueries):
    """The part of a transaction that deals with rules that were kept."""

    def keep_rule(  # noqa: PLR0913 - each is a column
        self,
        *,
        approval: str,
        rule: str,
        arguments: str | None,
        agent: str,
        workdir: str,
        summary: str,
        by: str,
        asked_by: Sequence[str] = (),
        job: str = "",
    ) -> None:
        """Keep a rule. The same rule of the same approval again changes nothing, also when it was taken back."""
        if self._execute(_SAME, {"its_approval": approval, "its_rule": rule}).first() is not None:
            return
        kept = {"approval": approval, "rule": rule, "arguments": arguments, "agent": agent, "workdir": workdir}
        shown = {"summary": summary, "kept_by": by, "kept_at": self._millis(), "asked_by": canonical_json([*asked_by])}
        self._execute(insert(rules), kept | shown)
        self.audit("rule_kept", job, {**kept, "by": by, "asked_by": list(asked_by)})

    def rules_kept(self, agent: str, workdir: str) -> list[KeptRule]:
        """Give the rules that hold for an agent's jobs in a directory."""
        return [_rule(row) for row in self._execute(_KEPT, {"its_agent": agent, "its_workdir": workdir})]

    def all_rules(self, *, revoked: bool = False) -> list[KeptRule]:
        """List the rules that hold, or all that ever did."""
        query = select(rules).order_by(rules.c.id)
        return [_rule(row) for row in self._execute(query if revoked else query.where(rules.c.revoked_at.is_(None)))]

    def revoke_rule(self, id: int, by: str) -> bool:
        """Take a rule back, for jobs that run too; whether there was one that held."""
        done = self._execute(_REVOKE, {"number": id, "who": by, "moment": self._millis()})
        if done.rowcount:
            self.audit("rule_revoked", "", {"rule": id, "by": by})
        return bool(done.rowcount)


def _rule(row: object) -> KeptRule:
    fields = {name: getattr(row, name) for name in KeptRule.__slots__}
    fields["asked_by"] = tuple(json.loads(fields["asked_by"]))
    fields["kept_at"] = from_millis(fields["kept_at"])
    fields["revoked_at"] = None if fields["revoked_at"] is None else from_millis(fields["revoked_at"])
    return KeptRule(**fields)
