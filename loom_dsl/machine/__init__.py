"""The machine: a plan, a state, and `feed(input) -> commands`.

The interpreter drives. It is given a table of handlers, one for each kind of node (`kinds`); what tokens are moved,
tried again and taken away with is in `tokens`. Signals, the outbox, status, decisions that are not settled, migration
and the beginning of a job that goes on where another one failed (fork) stand beside them; pyproject.toml has the
layers. Imports `graph` and what is below it; imported by `simulation`, workflows, activities and clients.
"""
