"""Graphs as users write them, checked and compiled into a plan.

Nodes, edges and state, the builder for Python, the checks with their codes, the shipped plans, and the admission of
graphs that were written at run time. Imports `agent` and what is below it; imported by `machine` and all above.
"""
