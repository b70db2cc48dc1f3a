"""Run by Alembic: migrates over the connection that loom_store.engine hands in, inside its transaction."""

from alembic import context

from loom_store.engine import VERSION_TABLE
from loom_store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    # SQLite's DDL is transactional when the driver does not commit behind our back, and ours does not.
    transactional_ddl=True,
)
context.run_migrations()
