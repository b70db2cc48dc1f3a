"""The tools that Loom brings along."""

from activities.builtin.calculator import calculator
from activities.builtin.delete import delete_file
from activities.builtin.execute_bash import execute_bash
from activities.builtin.network import network_request
from activities.builtin.outputs import read_output
from activities.builtin.python_repl import python_repl
from activities.builtin.read import read_file
from activities.builtin.search import file_search, glob, grep
from activities.builtin.todo import todo
from activities.builtin.write import edit_file, write_file

BUILTIN_TOOLS = (
    *(read_file, write_file, edit_file, delete_file, glob, grep, file_search, read_output),
    *(calculator, todo, network_request, execute_bash, python_repl),
)

__all__ = ["BUILTIN_TOOLS"]
