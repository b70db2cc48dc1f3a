"""Showing a job to people: its events as a tree of turns, at any width, with and without colour.

Text of models and tools is never trusted: what a terminal would obey is made visible first (`visible`).
"""

from loom_cli.render.terminal import Terminal, terminal_for
from loom_cli.render.timeline import RequestedCall, Timeline, short_arguments
from loom_dsl.text.printable import visible

__all__ = ["RequestedCall", "Terminal", "Timeline", "short_arguments", "terminal_for", "visible"]
