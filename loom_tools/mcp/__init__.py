"""Tools of MCP servers: the connections of a worker, and what each turn was offered."""
