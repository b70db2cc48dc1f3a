"""What each kind of node does, a module for each family of kinds; none of them imports another.

`table` names who handles what: what leads tokens (control), work outside (work), subgraphs and loops, maps, joins,
waits, and approvals with the decisions about them. Each is a `NodeHandler` of `machine.tokens.moves`, which calls it
through the table that the interpreter is given. Imports `machine.tokens`; imported by the interpreter and signals, and
by the drivers above them.
"""
