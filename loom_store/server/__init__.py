"""The Temporal server beside the store: where both are (settings), how the way there is secured (access), and what is
written on it (payloads).

The calling and the serving side read the same variables and the same certificates, so they are below both. May import
`loom_dsl`, `loom_store.location` and `loom_store.store`; imported by `loom_client`, `loom_cli` and `worker.py`.
"""
