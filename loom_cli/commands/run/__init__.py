"""Commands that start jobs and wait for them.

Run and fork agents and graphs, follow a job's timeline, answer its questions at a terminal, and say when it is
halted. Imports `loom_cli.render`; imported by `approve` and `control`.
"""
