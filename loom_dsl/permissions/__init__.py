"""Whether a call is allowed, asked or denied.

The rules and what they match (rules, traits, paths, domains), how a shell line or Python code is judged
(command_line, command_rules, python_code), layers and how the stricter wins (combine), roles, and the decision itself
(decide). Imports `approvals` and what is below it; imported by `agent` and all above.
"""
