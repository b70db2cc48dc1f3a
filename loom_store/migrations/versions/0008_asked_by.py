"""Whose questions a kept rule answers. One that was kept before counts for what the agent's own rules ask.

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("rules", sa.Column("asked_by", sa.Text, nullable=False, server_default='["agent"]'))
