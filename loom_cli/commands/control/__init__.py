"""Commands that steer jobs.

Pause, resume, abort and signals (steer), migration to another plan, schedules, debug replay, and the store itself.
Imports `loom_cli.commands.run` and `show`; imported by `loom_cli.app` alone.
"""
