"""The machine: a plan, a state, and `feed(input) -> commands`.

The interpreter drives; core, moves, scope and retry are what it moves tokens with; `kinds` has one module for each
kind of node. Signals, the outbox, status, checkpoints of failed graphs and migration stand beside them. Imports
`graph` and what is below it; imported by `simulation`, workflows, activities and clients.
"""
