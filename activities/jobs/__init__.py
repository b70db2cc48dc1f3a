"""Activities about a job as a whole.

Its beginning by a schedule, its plan and its admission, children, functions of graphs, stretches that run in one
local activity, signatures of decisions, and its conclusion. Only the registration imports it.
"""
