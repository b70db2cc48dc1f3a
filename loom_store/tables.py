"""The tables, as the newest migration leaves them. Why they look so: docs/adr/0005-store.md.

Names of jobs and sessions are long and in every row, so rows hold integers instead; ids are never given twice
(AUTOINCREMENT), because caches outlive a prune. Keys are found by the first 64 bits of their SHA-256.
"""

from typing import Any

import sqlalchemy
from sqlalchemy import BigInteger, Boolean, Column, Index, LargeBinary, MetaData, Table, false, text

# As SQLite has them: every whole number has 64 bits, and text is compared by its bytes.
Integer = sqlalchemy.Integer().with_variant(BigInteger(), "postgresql")
Text = sqlalchemy.Text().with_variant(sqlalchemy.Text(collation="C"), "postgresql")

metadata = MetaData()


def _only(condition: str) -> dict[str, Any]:
    """Say which rows an index is about."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


meta = Table(
    "meta",
    metadata,
    Column("name", Text, primary_key=True),  # what is known of the store itself: its id, its epochs, its file
    Column("value", Text, nullable=False),
)

workers = Table(
    "workers",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("process", Text, nullable=False),  # names it among all processes that ever served this store
    Column("started_at", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),  # renewed while it serves
    Column("stopped_at", BigInteger),  # null: it serves, or has died
    Column("about", Text, nullable=False),  # JSON: its queue, tools, root, release, host
    Index("workers_by_process", "process", unique=True),
    sqlite_autoincrement=True,
)

steps = Table(
    "steps",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("job", Integer, nullable=False),
    Column("key_hash", BigInteger, nullable=False),
    Column("key", Text, nullable=False),  # shortened by the job's name
    Column("process", Text),  # whose attempt is under way; null: none is
    Column("begun_at", BigInteger, nullable=False),
    Column("deaths", Integer, nullable=False, server_default="0"),  # of workers, while they had this step alone
    Column("suspected", Integer, nullable=False, server_default="0"),  # of workers, while they had it and others
    Index("steps_by_key", "job", "key_hash", unique=True),
    Index("steps_by_process", "process", **_only("process IS NOT NULL")),
)

blobs = Table(
    "blobs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", LargeBinary(32), nullable=False),
    Column("size", Integer, nullable=False),  # bytes of the content, not of the packed body
    Column("put_at", Integer, nullable=False),  # seconds; the last time somebody put this content
    Column("body", LargeBinary, nullable=False),
    Index("blobs_by_digest", "digest", unique=True),
    sqlite_autoincrement=True,
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("created_at", BigInteger),  # null: only named by events, effects or an abort so far
    Column("ended_at", BigInteger),
    Column("session", Text),
    Column("agent", Text),
    Column("plan", Text),
    Column("task", LargeBinary),
    Column("workdir", Text),
    Column("namespace", Text),
    Column("task_queue", Text),
    Column("state", Text),
    Column("status", Text),
    Column("paused_by", Text),
    Column("waiting", Text),  # JSON
    Column("result", Text),  # JSON
    Column("abort", Text),  # JSON {reason, by, at}
    Column("above", Integer),  # id of the job that started it; null: none did
    Column("halted", Text),  # JSON: the steps that wait for a person
    Column("failed_at", Text),  # JSON: where a failed graph can go on from
    Index("jobs_by_name", "name", unique=True),
    Index("jobs_by_session", "session"),
    Index("jobs_by_above", "above", **_only("above IS NOT NULL")),
    sqlite_autoincrement=True,
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("parent", Integer),
    Column("parent_end", Integer),  # the parent's entries before this one come first
    Column("lease", Integer),  # id of the job that writes
    Column("created_at", BigInteger, nullable=False),
    Index("sessions_by_name", "name", unique=True),
    Index("sessions_by_parent", "parent"),
    sqlite_autoincrement=True,
)

entries = Table(
    "entries",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("session", Integer, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("n", Integer, nullable=False),  # place in its append
    Column("size", Integer, nullable=False),  # entries of its append
    Column("key_hash", BigInteger),  # only in the first row of an append
    Column("key", Text, nullable=False),  # shortened by the job's name
    Column("kind", Integer, nullable=False),
    Column("job", Integer, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("content", Integer),  # id in blobs
    Column("head", LargeBinary, nullable=False),
    Index("entries_by_seq", "session", "seq", unique=True),
    Index("entries_by_key", "session", "key_hash", **_only("key_hash IS NOT NULL")),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("job", Integer, nullable=False),
    Column("last", Integer, nullable=False),  # offset of the batch's last event
    Column("count", Integer, nullable=False),
    Column("key_hash", BigInteger),  # null for text deltas, which the stream's sequence identifies
    Column("at", Integer, nullable=False),  # seconds
    Column("body", LargeBinary, nullable=False),  # JSON array
    Index("events_by_offset", "job", "last", unique=True),
    Index("events_by_key", "job", "key_hash", unique=True, **_only("key_hash IS NOT NULL")),
)

streams = Table(
    "streams",
    metadata,
    Column("job", Integer, primary_key=True, autoincrement=False),
    Column("stream", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("sequence", Integer, nullable=False),
    sqlite_with_rowid=False,
)

effects = Table(
    "effects",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key_hash", BigInteger, nullable=False),
    Column("key", Text, nullable=False),  # shortened by the job's name
    Column("job", Integer, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("call_id", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("arguments", LargeBinary(32), nullable=False),
    Column("status", Text, nullable=False),
    Column("result", LargeBinary(32)),
    Column("note", LargeBinary),
    Column("begun_at", BigInteger, nullable=False),
    Column("settled_at", BigInteger),
    Column("summary", LargeBinary),
    Column("attempts", Integer, nullable=False, server_default="1"),
    Column("reconciled", Text),  # what the tool said when it was asked
    Column("holder", Text),  # the worker's process whose attempt runs
    Column("held_until", BigInteger),  # what it renews while it runs
    Column("images", Text),  # JSON: what the call returned beside its text; null: nothing
    Column("started_at", BigInteger),  # when the tool's function was called; null: not known to have been
    Column("idempotent", Boolean, nullable=False, server_default=false()),  # it may be repeated
    Index("effects_by_key", "key_hash"),
    Index("effects_by_job", "job"),
)

approvals = Table(
    "approvals",
    metadata,
    Column("id", Text, primary_key=True),
    Column("job", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),  # JSON
    Column("decision", LargeBinary),  # JSON
    Index("approvals_by_job", "job"),
    Index("approvals_by_status", "status"),
    sqlite_with_rowid=False,
)

rules = Table(
    "rules",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("approval", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("arguments", Text),  # digest of the only arguments that it is about
    Column("agent", Text, nullable=False),
    Column("workdir", Text, nullable=False),
    Column("summary", Text, nullable=False),
    Column("kept_by", Text, nullable=False),
    Column("kept_at", BigInteger, nullable=False),
    Column("revoked_by", Text),
    Column("revoked_at", BigInteger),
    Column("asked_by", Text, nullable=False, server_default='["agent"]'),  # JSON: whose questions it answers
    Index("rules_by_approval", "approval", "rule", unique=True),
    Index("rules_by_agent", "agent", "workdir"),
    sqlite_autoincrement=True,
)

marks = Table(
    "marks",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("job", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("value", Text, nullable=False),
    Index("marks_by_job", "job", "kind", "value", unique=True),
)

audit = Table(
    "audit",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("job", Text, nullable=False),  # its name: the trail outlives the job's row
    Column("body", LargeBinary, nullable=False),  # JSON
    Column("hash", LargeBinary(32), nullable=False),
    Index("audit_by_job", "job"),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("message", Text, nullable=False),  # the same for every attempt
    Column("job", Integer, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),  # JSON
    Column("died_at", BigInteger),  # null: it waits
    Column("problem", Text),
    Index("deliveries_by_message", "message", unique=True),
    Index("deliveries_by_job", "job", "endpoint"),
    sqlite_autoincrement=True,
)
