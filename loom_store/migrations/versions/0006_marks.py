"""What is known of a job beside its row: policies that count for it, and what it has read from outside.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create their table."""
    op.create_table(
        "marks",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("job", sa.Integer, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_index("marks_by_job", "marks", ["job", "kind", "value"], unique=True)
