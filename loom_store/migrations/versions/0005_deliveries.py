"""Messages of webhooks that are to be delivered, and those that could not be.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create their table."""
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
        sqlite_autoincrement=True,
    )
    op.create_index("deliveries_by_message", "deliveries", ["message"], unique=True)
    op.create_index("deliveries_by_job", "deliveries", ["job", "endpoint"])
