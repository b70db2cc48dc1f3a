"""The first tables, all of them.

Revision ID: 0010
Revises: none
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table."""
    _create_store()
    _create_jobs()
    _create_conversations()
    _create_events()
    _create_effects()
    _create_approvals()


def _create_store() -> None:
    op.create_table(
        "meta",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("process", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
        sa.Column("stopped_at", sa.BigInteger),
        sa.Column("about", sa.Text, nullable=False),
        sa.Index("workers_by_process", "process", unique=True),
        sqlite_autoincrement=True,
    )


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("session", sa.Text),
        sa.Column("agent", sa.Text),
        sa.Column("plan", sa.Text),
        sa.Column("task", sa.LargeBinary),
        sa.Column("workdir", sa.Text),
        sa.Column("namespace", sa.Text),
        sa.Column("task_queue", sa.Text),
        sa.Column("state", sa.Text),
        sa.Column("status", sa.Text),
        sa.Column("paused_by", sa.Text),
        sa.Column("waiting", sa.Text),
        sa.Column("result", sa.Text),
        sa.Column("abort", sa.Text),
        sa.Column("above", sa.Integer),
        sa.Column("halted", sa.Text),
        sa.Column("failed_at", sa.Text),
        sa.Index("jobs_by_above", "above", sqlite_where=sa.text("above IS NOT NULL")),
        sa.Index("jobs_by_name", "name", unique=True),
        sa.Index("jobs_by_session", "session"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "marks",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("job", sa.Integer, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Index("marks_by_job", "job", "kind", "value", unique=True),
    )
    op.create_table(
        "steps",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("job", sa.Integer, nullable=False),
        sa.Column("key_hash", sa.BigInteger, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("process", sa.Text),
        sa.Column("begun_at", sa.BigInteger, nullable=False),
        sa.Column("deaths", sa.Integer, nullable=False, server_default="0"),
        sa.Column("suspected", sa.Integer, nullable=False, server_default="0"),
        sa.Index("steps_by_key", "job", "key_hash", unique=True),
        sa.Index("steps_by_process", "process", sqlite_where=sa.text("process IS NOT NULL")),
    )


def _create_conversations() -> None:
    op.create_table(
        "blobs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("put_at", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Index("blobs_by_digest", "digest", unique=True),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("parent", sa.Integer),
        sa.Column("parent_end", sa.Integer),
        sa.Column("lease", sa.Integer),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Index("sessions_by_name", "name", unique=True),
        sa.Index("sessions_by_parent", "parent"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "entries",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("session", sa.Integer, nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("key_hash", sa.BigInteger),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("kind", sa.Integer, nullable=False),
        sa.Column("job", sa.Integer, nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("content", sa.Integer),
        sa.Column("head", sa.LargeBinary, nullable=False),
        sa.Index("entries_by_key", "session", "key_hash", sqlite_where=sa.text("key_hash IS NOT NULL")),
        sa.Index("entries_by_seq", "session", "seq", unique=True),
    )


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("job", sa.Integer, nullable=False),
        sa.Column("last", sa.Integer, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("key_hash", sa.BigInteger),
        sa.Column("at", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Index("events_by_key", "job", "key_hash", unique=True, sqlite_where=sa.text("key_hash IS NOT NULL")),
        sa.Index("events_by_offset", "job", "last", unique=True),
    )
    op.create_table(
        "streams",
        sa.Column("job", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("stream", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("job", sa.Integer, nullable=False),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("died_at", sa.BigInteger),
        sa.Column("problem", sa.Text),
        sa.Index("deliveries_by_job", "job", "endpoint"),
        sa.Index("deliveries_by_message", "message", unique=True),
        sqlite_autoincrement=True,
    )


def _create_effects() -> None:
    op.create_table(
        "effects",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key_hash", sa.BigInteger, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("job", sa.Integer, nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("call_id", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("arguments", sa.LargeBinary(32), nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("result", sa.LargeBinary(32)),
        sa.Column("note", sa.LargeBinary),
        sa.Column("begun_at", sa.BigInteger, nullable=False),
        sa.Column("settled_at", sa.BigInteger),
        sa.Column("summary", sa.LargeBinary),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="1"),
        sa.Column("reconciled", sa.Text),
        sa.Column("holder", sa.Text),
        sa.Column("held_until", sa.BigInteger),
        sa.Column("images", sa.Text),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("idempotent", sa.Boolean, nullable=False, server_default=sa.text("0")),
        sa.Index("effects_by_job", "job"),
        sa.Index("effects_by_key", "key_hash"),
    )


def _create_approvals() -> None:
    op.create_table(
        "approvals",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("job", sa.Integer, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("decision", sa.LargeBinary),
        sa.Index("approvals_by_job", "job"),
        sa.Index("approvals_by_status", "status"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "rules",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("approval", sa.Text, nullable=False),
        sa.Column("rule", sa.Text, nullable=False),
        sa.Column("arguments", sa.Text),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("workdir", sa.Text, nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("kept_by", sa.Text, nullable=False),
        sa.Column("kept_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_by", sa.Text),
        sa.Column("revoked_at", sa.BigInteger),
        sa.Column("asked_by", sa.Text, nullable=False, server_default='["agent"]'),
        sa.Index("rules_by_agent", "agent", "workdir"),
        sa.Index("rules_by_approval", "approval", "rule", unique=True),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "audit",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.LargeBinary(32), nullable=False),
        sa.Index("audit_by_job", "job"),
    )
