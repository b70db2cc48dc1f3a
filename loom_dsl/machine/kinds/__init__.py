"""What each kind of node does, a module for each.

`table` names who handles what. Work that activities and children do (work), subgraphs and loops, maps, joins, waits,
approvals and the decisions about them. Imports the machine's core and scope; imported by the interpreter, moves and
signals.
"""
