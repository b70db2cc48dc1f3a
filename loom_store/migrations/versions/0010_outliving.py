"""What a job needs to outlive its workers and its store: the store's own identity, who serves, and what was begun.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables and columns."""
    op.create_table("meta", sa.Column("name", sa.Text, primary_key=True), sa.Column("value", sa.Text, nullable=False))
    op.create_table(
        "workers",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("process", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
        sa.Column("stopped_at", sa.BigInteger),
        sa.Column("about", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("workers_by_process", "workers", ["process"], unique=True)
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
    )
    op.create_index("steps_by_key", "steps", ["job", "key_hash"], unique=True)
    op.create_index("steps_by_process", "steps", ["process"], sqlite_where=sa.text("process IS NOT NULL"))
    op.add_column("effects", sa.Column("started_at", sa.BigInteger))
    op.add_column("effects", sa.Column("idempotent", sa.Boolean, nullable=False, server_default=sa.text("0")))
    op.add_column("jobs", sa.Column("halted", sa.Text))
    op.add_column("jobs", sa.Column("failed_at", sa.Text))
