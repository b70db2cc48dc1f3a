"""What the client knows of the Temporal server.

Its errors, calls that outlast it, its namespace, the workers that it and the store know of, which jobs only it can
tell of, and what it has lost. Imports `loom_store`; imported by the rest of `loom_client`.
"""
