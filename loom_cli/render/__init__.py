"""Showing a job to people: its events as a tree of turns, at any width, with and without colour.

Text of models and tools is never trusted: what a terminal would obey is made visible first (`visible`).
"""

from loom_cli.render.terminal import Paper, paper_for
from loom_cli.render.timeline import Timeline, ToolCall, short_arguments
from loom_dsl.text.printable import visible

__all__ = ["Paper", "Timeline", "ToolCall", "paper_for", "short_arguments", "visible"]
