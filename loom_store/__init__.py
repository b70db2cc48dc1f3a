"""Loom's durable side store: sessions, contents, events, effects, approvals and jobs in one SQLite file."""
