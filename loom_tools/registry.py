"""The tools of a worker: Loom's own, and the functions of the modules it was told to load."""

import difflib
import importlib
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType, ModuleType
from typing import Any, cast

from loom_dsl.errors import (
    ConfigurationError,
    ConflictError,
    MissingTools,
    ToolDeclarationError,
    UnknownFunction,
    UnknownToolError,
)
from loom_dsl.tools.mcp import is_mcp, unconnected
from loom_dsl.tools.tool import Tool, advice_on, tool
from loom_tools.builtin import BUILTIN_TOOLS
from loom_tools.references import is_own_function, member

_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class ToolRegistry:
    """Where a worker finds the tool that a reference means.

    Attributes:
        builtins: Loom's own tools by name.
        modules: The loaded modules by name. No other module is ever imported for a reference.
    """

    builtins: Mapping[str, Tool]
    modules: Mapping[str, ModuleType]
    _made: dict[str, Tool] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(cls, *, builtins: bool = True, modules: Sequence[str] = ()) -> "ToolRegistry":
        """Import the modules and collect the tools.

        Args:
            builtins: Offer Loom's own tools.
            modules: Names of modules that hold the user's tools; the caller sees to `sys.path`.

        Raises:
            ConfigurationError: A module cannot be imported; says which and why.
        """
        own = {made.name: made for made in BUILTIN_TOOLS} if builtins else {}
        loaded = {name: _import(name) for name in dict.fromkeys(modules)}
        return cls(MappingProxyType(own), MappingProxyType(loaded))

    def resolve(self, reference: str) -> Tool:
        """Find a tool.

        Args:
            reference: The name of a built-in, or `module:function`. A model calls it by the last part.
                For a tool of an MCP server, which is not asked, something stands in.

        Raises:
            UnknownToolError: There is none; names the nearest.
            MissingTools: The worker does not list the module.
            ToolDeclarationError: The function cannot be made into a tool.
        """
        if is_mcp(reference):
            return unconnected(reference)
        module, colon, name = reference.rpartition(":")
        if not colon:
            if reference in self.builtins:
                return self.builtins[reference]
            raise self._unknown(reference, f"there is no built-in tool {reference!r}")
        found = member(self._module(reference, module), name)
        if found is None:
            raise self._unknown(reference, f"the module {module!r} has no tool {name!r}")
        if reference not in self._made:
            made: Tool = tool(found)
            self._made[reference] = replace(made, name=name, reference=reference)
        return self._made[reference]

    def function(self, reference: str) -> Callable[..., Any]:
        """Find a function that a graph's node calls.

        Args:
            reference: ``module:function``.

        Raises:
            UnknownFunction: There is none, or it is a tool; names the nearest.
            MissingTools: The worker does not list the module.
        """
        module, _, name = reference.rpartition(":")
        found = vars(self._module(reference, module)).get(name)
        if isinstance(found, Tool):
            raise UnknownFunction(
                f"{reference!r} is a tool; run it with a node `tool: {reference}`, where the permissions count"
            )
        if is_own_function(found, module):
            return cast("Callable[..., Any]", found)
        known = [key for key, value in vars(self.modules[module]).items() if is_own_function(value, module)]
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {module}:{near[0]}?" if near else f"it has: {', '.join(sorted(known)) or 'none'}"
        raise UnknownFunction(f"the module {module!r} has no function {name!r}; {hint}")

    def _module(self, reference: str, module: str) -> ModuleType:
        if module in self.modules:
            return self.modules[module]
        listed = ", ".join(self.modules) or "none"
        raise MissingTools(
            f"{reference!r}: the worker does not list the module {module!r} (it lists: {listed}); "
            + advice_on(module, f"start it with --tools {module}")
        )

    def resolve_all(self, references: Iterable[str]) -> dict[str, Tool]:
        """Find the tools of an agent, by the name that a model calls them.

        Raises:
            UnknownToolError: One of them does not exist, or this worker does not list its module.
            ConflictError: Two have the same name; names both references.
        """
        tools: dict[str, Tool] = {}
        named: dict[str, str] = {}
        for reference in references:
            made = self.resolve(reference)
            if made.name in tools:
                raise ConflictError(
                    f"{named[made.name]!r} and {reference!r} are both called {made.name!r}; rename one of the functions"
                )
            tools[made.name], named[made.name] = made, reference
        return tools

    def references(self) -> list[str]:
        """List every reference that can be resolved, sorted; functions that cannot be tools are left out."""
        found = set(self.builtins)
        for module_name, module in self.modules.items():
            for name in vars(module):
                if not name.startswith("_") and _can_be_tool(member(module, name)):
                    found.add(f"{module_name}:{name}")
        return sorted(found)

    def is_builtin(self, reference: str) -> bool:
        """Say whether a reference means one of Loom's own tools."""
        return reference in self.builtins

    def spec(self, made: Tool) -> dict[str, Any]:
        """Describe a tool to a model, in the form of the OpenAI API."""
        function = {"name": made.name, "description": made.description, "parameters": made.parameters}
        return {"type": "function", "function": function}

    def _unknown(self, reference: str, problem: str) -> UnknownToolError:
        known = self.references()
        wanted = reference.rpartition(":")[2]
        by_name: dict[str, list[str]] = {}
        for candidate in known:
            by_name.setdefault(candidate.rpartition(":")[2], []).append(candidate)
        near = [ref for name in difflib.get_close_matches(wanted, by_name, 3, 0.6) for ref in by_name[name]]
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are: {', '.join(known) or 'none'}"
        return UnknownToolError(f"{problem}; {hint}")


def _import(name: str) -> ModuleType:
    if not _MODULE.fullmatch(name):
        raise ConfigurationError(
            f"--tools {name}: this is not a module's name; write it as in an import, such as my_tools, not my_tools.py"
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            where = sys.path[0] or "the current directory"
            reason = f"there is no module {error.name!r} in {where} or on the path"
            if name.endswith(".py"):
                reason += f"; write it as in an import: --tools {name.removesuffix('.py')}"
        else:
            reason = f"it imports {error.name!r}, which is not installed{_place(error)}"
        raise ConfigurationError(f"--tools {name}: {reason}") from error
    except (Exception, SystemExit) as error:
        where = f" in {error.filename}" if isinstance(error, SyntaxError) else _place(error)
        raise ConfigurationError(
            f"--tools {name}: importing it fails with {type(error).__name__}: {error}{where}"
        ) from error


def _place(error: BaseException) -> str:
    """Name the line of the user's code at which an import failed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""


def _can_be_tool(found: Any) -> bool:
    try:
        return found is not None and bool(tool(found))
    except ToolDeclarationError:
        return False
