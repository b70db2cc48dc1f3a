"""Showing a job to people: its events as a tree of turns, at any width, with and without colour.

Text of models and tools is never trusted: what a terminal would obey is made visible first (`visible`).
"""

from loom_client.render.calls import ToolCall, short_arguments
from loom_client.render.paper import Paper, paper_for
from loom_client.render.text import visible
from loom_client.render.timeline import Timeline

__all__ = ["Paper", "Timeline", "ToolCall", "paper_for", "short_arguments", "visible"]
