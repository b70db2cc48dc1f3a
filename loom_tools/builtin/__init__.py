"""The tools that Loom brings along."""

from loom_tools.builtin.calculator import calculator
from loom_tools.builtin.commands import execute_bash, python_repl
from loom_tools.builtin.network import network_request
from loom_tools.builtin.read import read_file
from loom_tools.builtin.search import file_search, glob, grep
from loom_tools.builtin.session import read_output, todo
from loom_tools.builtin.write import delete_file, edit_file, write_file

BUILTIN_TOOLS = (
    *(read_file, write_file, edit_file, delete_file, glob, grep, file_search, read_output),
    *(calculator, todo, network_request, execute_bash, python_repl),
)

__all__ = ["BUILTIN_TOOLS"]
