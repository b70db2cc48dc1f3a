"""The first tables.

Revision ID: 0001
Revises: none
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table."""
    _create_blobs()
    _create_jobs()
    _create_sessions()
    _create_entries()
    _create_events()
    _create_streams()
    _create_effects()
    _create_approvals()


def _create_blobs() -> None:
    op.create_table(
        "blobs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("put_at", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("blobs_by_digest", "blobs", ["digest"], unique=True)


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
        sqlite_autoincrement=True,
    )
    op.create_index("jobs_by_name", "jobs", ["name"], unique=True)
    op.create_index("jobs_by_session", "jobs", ["session"])


def _create_sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("parent", sa.Integer),
        sa.Column("parent_end", sa.Integer),
        sa.Column("lease", sa.Integer),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("sessions_by_name", "sessions", ["name"], unique=True)
    op.create_index("sessions_by_parent", "sessions", ["parent"])


def _create_entries() -> None:
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
    )
    op.create_index("entries_by_seq", "entries", ["session", "seq"], unique=True)
    op.create_index("entries_by_key", "entries", ["session", "key_hash"], sqlite_where=sa.text("key_hash IS NOT NULL"))


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
    )
    op.create_index("events_by_offset", "events", ["job", "last"], unique=True)
    op.create_index(
        "events_by_key", "events", ["job", "key_hash"], unique=True, sqlite_where=sa.text("key_hash IS NOT NULL")
    )


def _create_streams() -> None:
    op.create_table(
        "streams",
        sa.Column("job", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("stream", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
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
    )
    op.create_index("effects_by_key", "effects", ["key_hash"])
    op.create_index("effects_by_job", "effects", ["job"])


def _create_approvals() -> None:
    op.create_table(
        "approvals",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("job", sa.Integer, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("decision", sa.LargeBinary),
        sqlite_with_rowid=False,
    )
    op.create_index("approvals_by_job", "approvals", ["job"])
    op.create_index("approvals_by_status", "approvals", ["status"])
