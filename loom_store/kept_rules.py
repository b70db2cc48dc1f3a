"""Rules that approvers kept for later jobs: each for one agent in one directory, until somebody takes it back."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, insert, select, update

from loom_dsl.canonical import canonical_json
from loom_store.audit import Audit
from loom_store.rows import from_millis
from loom_store.tables import rules


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


class KeptRules(Audit):
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
        values = {
            "approval": approval,
            "rule": rule,
            "arguments": arguments,
            "agent": agent,
            "workdir": workdir,
            "summary": summary,
            "kept_by": by,
            "kept_at": self._millis(),
            "asked_by": canonical_json(list(asked_by)),
        }
        self._execute(insert(rules), values)
        told = {
            "approval": approval,
            "rule": rule,
            "arguments": arguments,
            "agent": agent,
            "workdir": workdir,
            "by": by,
            "asked_by": list(asked_by),
        }
        self.audit("rule_kept", job, told)

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
