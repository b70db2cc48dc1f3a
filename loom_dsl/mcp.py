"""Tools of MCP servers: their names, and what a server's description of a tool means here."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from loom_dsl.canonical import canonical_json, digest
from loom_dsl.errors import MissingTools, UnknownToolError
from loom_dsl.tools import Risk, Tool

PREFIX = "mcp__"
CONTEXT = "loom context"
"""The keyword under which a tool's function gets the `ToolContext`: no name that a server's arguments can have."""
_REFERENCE = re.compile(r"mcp__((?:[A-Za-z0-9-]|_(?!_))+)__(\*|[A-Za-z0-9_-]+)")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64
_SCHEMAS = ("allOf", "anyOf", "oneOf")

Invoke = Callable[["Definition", dict[str, Any], Callable[[str], None]], Awaitable[Any]]
"""Calls a tool of a server: its definition, the arguments, and whom to tell of progress."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool as its server describes it.

    Attributes:
        server: Name of the server in the worker's configuration.
        tool: Name of the tool at the server.
        description: What the model is told.
        parameters: JSON schema of the arguments.
        hints: The server's annotations, of which nothing is known to be true.
    """

    server: str
    tool: str
    description: str
    parameters: dict[str, Any]
    hints: dict[str, bool]

    @property
    def name(self) -> str:
        """What the model calls it."""
        return f"{PREFIX}{self.server}__{_NOT_IN_A_NAME.sub('_', self.tool)}"

    @property
    def fingerprint(self) -> str:
        """Names everything that the server says of it: another one means that the tool changed."""
        return digest(canonical_json(self.as_json()))

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON data."""
        return {name: getattr(self, name) for name in ("server", "tool", "description", "parameters", "hints")}

    @property
    def problem(self) -> str:
        """Why it cannot be offered; empty: it can."""
        if len(self.name) > _LONGEST_NAME:
            return f"its name {self.name} has over {_LONGEST_NAME} characters"
        if self.parameters.get("type") != "object" or not isinstance(self.parameters.get("properties", {}), dict):
            return "its schema is not that of an object"
        return ""


def is_mcp(reference: str) -> bool:
    """Whether a reference, or a model's name for a tool, means a tool of an MCP server."""
    return reference.startswith(PREFIX)


def split_reference(reference: str) -> tuple[str, str]:
    """Give the server and the tool, `*` for all of the server's.

    Raises:
        UnknownToolError: It is written in another way.
    """
    found = _REFERENCE.fullmatch(reference)
    if not found:
        raise UnknownToolError(
            f"{reference!r} names no tool of an MCP server; write mcp__SERVER__TOOL or mcp__SERVER__*"
        )
    return found[1], found[2]


def servers_of(references: Iterable[str]) -> list[str]:
    """List the MCP servers that references name, each once."""
    return list(dict.fromkeys(split_reference(reference)[0] for reference in references if is_mcp(reference)))


def is_named(definition: Definition, references: Iterable[str]) -> bool:
    """Whether references name this tool, or all of its server's."""
    return not {definition.name, f"{PREFIX}{definition.server}__*"}.isdisjoint(references)


def unconnected(reference: str) -> Tool:
    """Stand in for a tool where its server is not asked: what it takes is not known, and it cannot be called.

    Raises:
        UnknownToolError: The reference is not written as one.
    """
    server, tool = split_reference(reference)

    def missing(**_: object) -> None:
        raise MissingTools(f"{reference!r}: this worker has no MCP server {server!r}")

    name = f"{PREFIX}{server}__{tool}" if tool != "*" else f"{PREFIX}{server}__all"
    schema = {"type": "object", "properties": {}}
    return Tool(name=name[:_LONGEST_NAME], description="", parameters=schema, function=missing)


def tool_of(definition: Definition, invoke: Invoke, *, trusted: bool, timeout: float) -> Tool:
    """Make a tool of a server's description.

    What a server says of its own tools is a hint. One that asks for more care is followed; one that asks for less
    counts only where the deployment trusts the server.

    Args:
        definition: What the server says.
        invoke: Calls it.
        trusted: The deployment trusts the server's annotations.
        timeout: Seconds that a call may take.
    """
    hints = definition.hints
    read_only = trusted and hints.get("read_only", False)
    harmful = hints.get("destructive", False) and not read_only

    async def call(**given: Any) -> Any:
        context = given.pop(CONTEXT)
        return await invoke(definition, given, context.progress)

    return Tool(
        name=definition.name,
        description=definition.description,
        parameters={"properties": {}, **plain_schema(definition.parameters)},
        function=call,
        read_only=read_only,
        idempotent=read_only or (trusted and hints.get("idempotent", False)),
        risk=Risk.HIGH if harmful else Risk.LOW if read_only else Risk.MEDIUM,
        timeout=timeout,
        context_parameters=(CONTEXT,),
    )


def plain_schema(schema: Any) -> Any:
    """Write a JSON schema without `true` and `false` in the place of schemas, which Loom's own check does not read."""
    if schema is True:
        return {}
    if schema is False:
        return {"enum": []}
    if not isinstance(schema, Mapping):
        return schema
    plain = dict(schema)
    for key in ("properties", "$defs", "definitions"):
        if isinstance(plain.get(key), Mapping):
            plain[key] = {name: plain_schema(member) for name, member in plain[key].items()}
    for key in _SCHEMAS:
        if isinstance(plain.get(key), list):
            plain[key] = [plain_schema(member) for member in plain[key]]
    if "items" in plain:
        plain["items"] = plain_schema(plain["items"])
    return plain
