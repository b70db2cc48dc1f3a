"""The life of attempts and of the worker that makes them.

Notes of attempts and what deaths of workers prove (attempts, deaths), who holds an effect (lease), whether a process
is gone (process_identity), heartbeats, the worker's place in its store (presence) and how it stops (shutdown).
Imports `loom_tools` and `loom_store`; imported by all other activities.
"""
