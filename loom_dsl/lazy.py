"""Names of a package that are loaded when they are first used (PEP 562)."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Give a package its names without loading the modules that they are in.

    Args:
        package: The package's `__name__`.
        homes: By module: its names, with blanks between them; modules below it count as names, too.

    Returns:
        The package's `__getattr__` and its `__dir__`.
    """
    modules = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(modules[name])
        value: object = getattr(home, name) if hasattr(home, name) else import_module(f"{home.__name__}.{name}")
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *modules})
