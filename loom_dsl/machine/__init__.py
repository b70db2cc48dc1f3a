"""The machine: a plan, a state, and `feed(input) -> commands`.

The interpreter drives. It is given a table of handlers, one for each kind of node (`kinds`), which `moves` asks; core,
scope, ending, retry and the like are what tokens are moved, taken away and tried again with. Signals, the outbox,
status, checkpoints of failed graphs and migration stand beside them; pyproject.toml has the layers. Imports `graph`
and what is below it; imported by `simulation`, workflows, activities and clients.
"""
