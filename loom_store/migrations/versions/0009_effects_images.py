"""The images that a call returned beside its text, for an attempt that gives what an earlier one did.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("effects", sa.Column("images", sa.Text))
