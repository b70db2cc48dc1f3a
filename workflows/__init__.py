"""Loom's workflows: `loom.graph`, which drives the machine on Temporal, and those beside it; thin and deterministic.

They carry out what the machine commands and tell it what came of that; what touches the world is an activity, called
by its name. Imports only `loom_dsl` and `temporalio`: no store, no files, no clock of the system. `worker.py` and
`loom_cli` import it.
"""
