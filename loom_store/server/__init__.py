"""The Temporal server beside the store: where both are (settings), and how the way to the server is secured (access).

The calling and the serving side read the same variables and the same certificates, so they are below both. May import
`loom_dsl` and `loom_store.location`; imported by `loom_client`, `loom_cli` and `worker.py`.
"""
