"""What a reference `module:name` means in a module that is loaded."""

import inspect
from types import ModuleType
from typing import Any

from loom_dsl.tools.tool import Tool


def member(module: ModuleType, name: str) -> Any:
    """Return a tool of a module, or a function that is defined in it: what it merely imports is not offered."""
    found = getattr(module, name, None)
    if isinstance(found, Tool):
        return found
    if is_own_function(found, module.__name__):
        return found
    return next((made for made in vars(module).values() if isinstance(made, Tool) and made.name == name), None)


def is_own_function(found: Any, module: str) -> bool:
    """Whether something is a function that the module itself defines and offers."""
    return inspect.isfunction(found) and found.__module__ == module and not found.__name__.startswith("_")
