"""Tools, and where they run.

The built-in tools, the registry of users' modules, users' code in a process of its own (isolation), the sandbox of
commands, workspaces, MCP servers, the parser of shell lines, and files that only their owner may write. Imports
`loom_store` and `loom_dsl`; `activities`, `worker.py` and the calling side (`loom_client`, `loom_gateway`, `loom_cli`)
may import it, `workflows` may not.
"""
