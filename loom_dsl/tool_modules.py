"""The Python modules that tools and functions are in."""

import sys


def is_of_python(module: str) -> bool:
    """Whether a module is one of Python's own, of which no worker should be asked to offer the functions."""
    return module.partition(".")[0] in sys.stdlib_module_names


def advice_on(module: str, otherwise: str) -> str:
    """Say what to do about a module that nobody listed.

    Args:
        module: Its name.
        otherwise: What to do when it may be the user's own.
    """
    if not is_of_python(module):
        return otherwise
    return f"{module!r} is one of Python's own modules, which offer no tools; name a function of a module of yours"
