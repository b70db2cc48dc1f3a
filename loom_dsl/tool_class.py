"""A tool that is written as a class: its attributes are the promises, its method `run` is the work."""

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

from loom_dsl.errors import ToolDeclarationError


def read_class(given: type, options: Iterable[str]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Make one object of a class, and give its `run` as a function with what its attributes say.

    Args:
        given: The class. It is made without arguments, once in each process.
        options: Names of the attributes that say something about the tool.

    Returns:
        The function, and the options by name. The name is the class's own, in small letters with `_`, unless said.

    Raises:
        ToolDeclarationError: It has no `run`, or cannot be made without arguments.
    """
    where = f"the class {given.__module__}.{given.__qualname__}"
    run = inspect.getattr_static(given, "run", None)
    if not callable(getattr(run, "__func__", run)):
        raise ToolDeclarationError(f"{where} has no method `run`; a tool that is a class does its work there")
    try:
        made = given()
    except TypeError as error:
        raise ToolDeclarationError(f"{where} cannot be made without arguments ({error}); give them defaults") from error
    found = {name: getattr(made, name) for name in options if hasattr(made, name)}
    found.setdefault("name", re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", given.__name__).lower())
    described = given.__dict__.get("__doc__")
    if described and "description" not in found:
        found["description"] = inspect.cleandoc(described)
    return _as_function(made.run, given), found


def _as_function(run: Callable[..., Any], given: type) -> Callable[..., Any]:
    """A function that stands at the place of the class, so that a worker finds it by name as it finds any other."""

    def call_sync(*args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs)

    async def call_async(*args: Any, **kwargs: Any) -> Any:
        return await run(*args, **kwargs)

    call: Any = call_async if inspect.iscoroutinefunction(run) else call_sync
    call.__wrapped__ = run
    call.__annotations__ = getattr(run, "__annotations__", {})
    call.__doc__ = run.__doc__
    call.__name__, call.__qualname__, call.__module__ = given.__name__, given.__qualname__, given.__module__
    function: Callable[..., Any] = call
    return function
