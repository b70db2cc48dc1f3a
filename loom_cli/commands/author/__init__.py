"""Commands about a project's files.

Begin a project, validate, draw, compare, simulate, and explain a policy. Loaded by name when ``loom`` starts;
imported by nothing else.
"""
