"""The tools that Loom brings along."""

from activities.builtin.calculator import calculator
from activities.builtin.read import read_file
from activities.builtin.search import glob, grep
from activities.builtin.write import edit_file, write_file

BUILTIN_TOOLS = (read_file, write_file, edit_file, glob, grep, calculator)

__all__ = ["BUILTIN_TOOLS"]
