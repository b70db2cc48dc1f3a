"""What a call of the ledger was about, how often it was tried, and who is at it.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("effects", sa.Column("summary", sa.LargeBinary))
    op.add_column("effects", sa.Column("attempts", sa.Integer, nullable=False, server_default="1"))
    op.add_column("effects", sa.Column("reconciled", sa.Text))
    op.add_column("effects", sa.Column("holder", sa.Text))
    op.add_column("effects", sa.Column("held_until", sa.BigInteger))
