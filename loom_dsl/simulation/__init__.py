"""Graphs played in memory, with a virtual clock.

Scenarios, their mocks and reports, coverage, recordings and debug replay, and scripts of the fake model. Imports
`machine`; imported by `authoring`, clients and tests.
"""
