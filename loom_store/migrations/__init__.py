"""Alembic migrations of the store, oldest first."""
