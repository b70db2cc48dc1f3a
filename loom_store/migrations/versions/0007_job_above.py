"""Which job started a job: written down, since an id with a dot in it may be a user's own.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, and fill it for jobs that were told by their ids until now."""
    op.add_column("jobs", sa.Column("above", sa.Integer))
    op.create_index("jobs_by_above", "jobs", ["above"], sqlite_where=sa.text("above IS NOT NULL"))
    rows = op.get_bind().execute(sa.text("SELECT id, name, created_at FROM jobs WHERE created_at IS NOT NULL")).all()
    known = {row.name: row for row in rows}
    for row in rows:
        parts = row.name.split(".")
        names = (".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
        above = next((known[name] for name in names if name in known), None)
        if above is not None and above.created_at <= row.created_at:
            found = {"above": above.id, "id": row.id}
            op.get_bind().execute(sa.text("UPDATE jobs SET above = :above WHERE id = :id"), found)
