"""The first tables, all of them.

Revision ID: 0010
Revises: none
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = None
branch_labels = None
depends_on = None

# As SQLite has them: every whole number has 64 bits, and text is compared by its bytes.
Integer = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create every table."""
    _create_store()
    _create_jobs()
    _create_conversations()
    _create_events()
    _create_effects()
    _create_approvals()


def _only(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def _create_store() -> None:
    op.create_table(
        "meta",
        sa.Column("name", Text, primary_key=True),
        sa.Column("value", Text, nullable=False),
    )
    op.create_table(
        "workers",
        sa.Column("id", Integer, primary_key=True),
        sa.Column("process", Text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
        sa.Column("stopped_at", sa.BigInteger),
        sa.Column("about", Text, nullable=False),
        sa.Index("workers_by_process", "process", unique=True),
        sqlite_autoincrement=True,
    )


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", Integer, primary_key=True),
        sa.Column("name", Text, nullable=False),
        sa.Column("created_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("session", Text),
        sa.Column("agent", Text),
        sa.Column("plan", Text),
        sa.Column("task", sa.LargeBinary),
        sa.Column("workdir", Text),
        sa.Column("namespace", Text),
        sa.Column("task_queue", Text),
        sa.Column("state", Text),
        sa.Column("status", Text),
        sa.Column("paused_by", Text),
        sa.Column("waiting", Text),
        sa.Column("result", Text),
        sa.Column("abort", Text),
        sa.Column("above", Integer),
        sa.Column("halted", Text),
        sa.Column("failed_at", Text),
        sa.Index("jobs_by_above", "above", **_only("above IS NOT NULL")),
        sa.Index("jobs_by_name", "name", unique=True),
        sa.Index("jobs_by_session", "session"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "marks",
        sa.Column("id", Integer, primary_key=True),
        sa.Column("job", Integer, nullable=False),
        sa.Column("kind", Text, nullable=False),
        sa.Column("value", Text, nullable=False),
        sa.Index("marks_by_job", "job", "kind", "value", unique=True),
    )
    op.create_table(
        "steps",
        sa.Column("id", Integer, primary_key=True),
        sa.Column("job", Integer, nullable=False),
        sa.Column("key_hash", sa.BigInteger, nullable=False),
        sa.Column("key", Text, nullable=False),
        sa.Column("process", Text),
        sa.Column("begun_at", sa.BigInteger, nullable=False),
        sa.Column("deaths", Integer, nullable=False, server_default="0"),
        sa.Column("suspected", Integer, nullable=False, server_default="0"),
        sa.Index("steps_by_key", "job", "key_hash", unique=True),
        sa.Index("steps_by_process", "process", **_only("process IS NOT NULL")),
    )


def _create_conversations() -> None:
    op.create_table(
        "blobs",
        sa.Column("id", Integer, primary_key=True),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("size", Integer, nullable=False),
        sa.Column("put_at", Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Index("blobs_by_digest", "digest", unique=True),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "sessions",
        sa.Column("id", Integer, primary_key=True),
        sa.Column("name", Text, nullable=False),
        sa.Column("parent", Integer),
        sa.Column("parent_end", Integer),
        sa.Column("lease", Integer),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Index("sessions_by_name", "name", unique=True),
        sa.Index("sessions_by_parent", "parent"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "entries",
        sa.Column("id", Integer, primary_key=True),
        sa.Column("session", Integer, nullable=False),
        sa.Column("seq", Integer, nullable=False),
        sa.Column("n", Integer, nullable=False),
        sa.Column("size", Integer, nullable=False),
        sa.Column("key_hash", sa.BigInteger),
        sa.Column("key", Text, nullable=False),
        sa.Column("kind", Integer, nullable=False),
        sa.Column("job", Integer, nullable=False),
        sa.Column("turn", Integer, nullable=False),
        sa.Column("content", Integer),
        sa.Column("head", sa.LargeBinary, nullable=False),
        sa.Index("entries_by_key", "session", "key_hash", **_only("key_hash IS NOT NULL")),
        sa.Index("entries_by_seq", "session", "seq", unique=True),
    )


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("id", Integer, primary_key=True),
        sa.Column("job", Integer, nullable=False),
        sa.Column("last", Integer, nullable=False),
        sa.Column("count", Integer, nullable=False),
        sa.Column("key_hash", sa.BigInteger),
        sa.Column("at", Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Index("events_by_key", "job", "key_hash", unique=True, **_only("key_hash IS NOT NULL")),
        sa.Index("events_by_offset", "job", "last", unique=True),
    )
    op.create_table(
        "streams",
        sa.Column("job", Integer, primary_key=True, autoincrement=False),
        sa.Column("stream", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("attempt", Integer, nullable=False),
        sa.Column("sequence", Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "deliveries",
        sa.Column("id", Integer, primary_key=True),
        sa.Column("message", Text, nullable=False),
        sa.Column("job", Integer, nullable=False),
        sa.Column("endpoint", Text, nullable=False),
        sa.Column("event", Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("died_at", sa.BigInteger),
        sa.Column("problem", Text),
        sa.Index("deliveries_by_job", "job", "endpoint"),
        sa.Index("deliveries_by_message", "message", unique=True),
        sqlite_autoincrement=True,
    )


def _create_effects() -> None:
    op.create_table(
        "effects",
        sa.Column("id", Integer, primary_key=True),
        sa.Column("key_hash", sa.BigInteger, nullable=False),
        sa.Column("key", Text, nullable=False),
        sa.Column("job", Integer, nullable=False),
        sa.Column("turn", Integer, nullable=False),
        sa.Column("call_id", Text, nullable=False),
        sa.Column("tool", Text, nullable=False),
        sa.Column("arguments", sa.LargeBinary(32), nullable=False),
        sa.Column("status", Text, nullable=False),
        sa.Column("result", sa.LargeBinary(32)),
        sa.Column("note", sa.LargeBinary),
        sa.Column("begun_at", sa.BigInteger, nullable=False),
        sa.Column("settled_at", sa.BigInteger),
        sa.Column("summary", sa.LargeBinary),
        sa.Column("attempts", Integer, nullable=False, server_default="1"),
        sa.Column("reconciled", Text),
        sa.Column("holder", Text),
        sa.Column("held_until", sa.BigInteger),
        sa.Column("images", Text),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("idempotent", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Index("effects_by_job", "job"),
        sa.Index("effects_by_key", "key_hash"),
    )


def _create_approvals() -> None:
    op.create_table(
        "approvals",
        sa.Column("id", Text, primary_key=True),
        sa.Column("job", Integer, nullable=False),
        sa.Column("status", Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("decision", sa.LargeBinary),
        sa.Index("approvals_by_job", "job"),
        sa.Index("approvals_by_status", "status"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "rules",
        sa.Column("id", Integer, primary_key=True),
        sa.Column("approval", Text, nullable=False),
        sa.Column("rule", Text, nullable=False),
        sa.Column("arguments", Text),
        sa.Column("agent", Text, nullable=False),
        sa.Column("workdir", Text, nullable=False),
        sa.Column("summary", Text, nullable=False),
        sa.Column("kept_by", Text, nullable=False),
        sa.Column("kept_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_by", Text),
        sa.Column("revoked_at", sa.BigInteger),
        sa.Column("asked_by", Text, nullable=False, server_default='["agent"]'),
        sa.Index("rules_by_agent", "agent", "workdir"),
        sa.Index("rules_by_approval", "approval", "rule", unique=True),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "audit",
        sa.Column("number", Integer, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("kind", Text, nullable=False),
        sa.Column("job", Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.LargeBinary(32), nullable=False),
        sa.Index("audit_by_job", "job"),
    )
