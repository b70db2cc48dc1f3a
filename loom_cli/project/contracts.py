"""What the functions and tools of loaded modules take and give, for the checks of graphs."""

import inspect
import sys
from collections.abc import Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import PydanticUserError, TypeAdapter
from typing_extensions import TypedDict, is_typeddict

from loom_dsl.errors import LoomError, MissingTools
from loom_dsl.graph.checks.unit import Contract
from loom_dsl.tools.mcp import is_mcp
from loom_dsl.tools.tool import advice_on
from loom_tools.registry import ToolRegistry


class Contracts:
    """Answers the questions of the checks about tools and activities.

    Attributes:
        registry: Where they are found.
        missing: Modules that were asked for and cannot be imported; nothing is said about what is in them.
        asked: Whether modules were asked for at all; without any, only Loom's own tools are known.
    """

    def __init__(self, registry: ToolRegistry, missing: frozenset[str], *, asked: bool) -> None:
        self.registry, self.missing, self.asked = registry, missing, asked

    def resolve(self, what: str, name: str) -> str | None:
        """Say what is wrong with the name of a tool or an activity, or nothing."""
        module, colon, _ = name.rpartition(":")
        dotted = name.rpartition(".")
        if what == "activity" and not colon and dotted[0] in self.registry.modules:
            return f"{name!r} names no function; write {dotted[0] + ':' + dotted[2]!r}"
        if what == "activity" and not colon and not name.startswith("loom."):
            return f"{name!r} names no module; write `module:{name}`, the function's module before it"
        foreign = module not in self.registry.modules
        if (module and foreign and not self.asked) or module in self.missing:
            return None
        try:
            if what == "tool":
                self.registry.resolve(name)
            elif what == "activity" and module:
                from activities.jobs.functions import arguments_schema  # only here: it brings all of a worker along

                arguments_schema(self.registry.function(name))
        except MissingTools:
            advice = advice_on(module, f"check it with --tools {module}, too")
            return f"{name!r} is in a module that was not looked at; {advice}"
        except LoomError as error:
            return error.message
        return None

    def of(self, what: str, name: str) -> Contract | None:
        """Give what a tool or a function takes and gives; None when there is none, or it is not known."""
        try:
            if what == "tool" and is_mcp(name):
                return None
            if what == "tool":
                tool, module = self.registry.resolve(name), name.rpartition(":")[0]
                # Loom's own say by their descriptions where they take some.
                secrets = frozenset(tool.secrets) if module else None
                return Contract(tool.parameters, raises=_raised(module), secrets=secrets)
            if what == "activity" and ":" in name:
                function = self.registry.function(name)
                from activities.jobs.functions import arguments_schema

                raised = _raised(function.__module__, name.rpartition(":")[0])
                return Contract(arguments_schema(function), _result(function), raised)
        except LoomError:
            return None
        return None


def _raised(*modules: str) -> Mapping[str, str] | None:
    """The codes of the errors that modules know, their own and those that they import, by the names of the classes."""
    loaded = [vars(sys.modules[module]) for module in modules if module in sys.modules]
    if not loaded:
        return None
    found = {name: value for names in loaded for name, value in names.items() if isinstance(value, type)}
    codes = {name: getattr(value, "code", "") for name, value in found.items() if issubclass(value, BaseException)}
    return {name: code if isinstance(code, str) else "" for name, code in codes.items()}


def _result(function: Any) -> Mapping[str, Any] | None:
    """The schema of what a function gives, where its annotation says it."""
    try:
        hints = get_type_hints(inspect.unwrap(function))
        return TypeAdapter(_readable(hints["return"])).json_schema(mode="serialization") if "return" in hints else None
    except (PydanticUserError, NameError, TypeError, RecursionError):
        return None


def _readable(hint: Any) -> Any:
    """A type as pydantic reads it on every Python: before 3.12 it takes no `TypedDict` of `typing`."""
    if is_typeddict(hint):
        fields = {name: _readable(field) for name, field in get_type_hints(hint, include_extras=True).items()}
        return TypedDict(hint.__name__, fields, total=hint.__total__)  # type: ignore[operator]
    inside = tuple(_readable(argument) for argument in get_args(hint))
    if inside == get_args(hint):
        return hint
    if isinstance(hint, UnionType):
        return Union[inside]  # noqa: UP007 # made of types that are known only here
    return get_origin(hint)[inside if len(inside) > 1 else inside[0]]
