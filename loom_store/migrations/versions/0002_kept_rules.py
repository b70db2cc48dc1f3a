"""Rules that approvers kept for later jobs.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create their table."""
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
        sqlite_autoincrement=True,
    )
    op.create_index("rules_by_approval", "rules", ["approval", "rule"], unique=True)
    op.create_index("rules_by_agent", "rules", ["agent", "workdir"])
