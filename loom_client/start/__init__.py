"""How jobs begin.

Agents and graphs written down and started once (submission), forks of a turn (forking) and of a failed graph
(graph_fork), and schedules. Imports `loom_client.server`; imported by `loom_client.client`.
"""
