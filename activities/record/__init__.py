"""The record of a job, as its activities read and extend it.

The argument that an activity gets, the facts of its job, its conversation, where the content of that comes from, and
what became of tool calls. Knows neither models nor tools' stages; imported by everything above.
"""
