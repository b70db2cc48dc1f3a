"""The tables, as the newest migration leaves them. Why they look so: docs/adr/0005-store.md.

Names of jobs and sessions are long and in every row, so rows hold integers instead; ids are never given twice
(AUTOINCREMENT), because caches outlive a prune. Keys are found by the first 64 bits of their SHA-256.
"""

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, Table, Text, text

metadata = MetaData()

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
    Index("jobs_by_name", "name", unique=True),
    Index("jobs_by_session", "session"),
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
    Index("entries_by_key", "session", "key_hash", sqlite_where=text("key_hash IS NOT NULL")),
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
    Index("events_by_key", "job", "key_hash", unique=True, sqlite_where=text("key_hash IS NOT NULL")),
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
