"""Tools as users write them.

`@tool`, a tool's context, its schema and arguments, hooks, results, secrets by reference, risk, and tools of MCP
servers. Imports `documents`, `fields` and `text`; imported by `approvals` and all above.
"""
