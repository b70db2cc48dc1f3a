"""Loom's durable side store: sessions, contents, events, effects, approvals and jobs in one SQLite file.

Its tables, queries and migrations, and what every process needs to find it and the server: the settings, and the
payloads that it holds for Temporal. Imports `loom_dsl`; `loom_tools`, `activities`, `worker.py` and the calling side
(`loom_client`, `loom_gateway`, `loom_cli`) may import it, `workflows` may not.
"""
