"""Tools of MCP servers: their names, and what a server's description of a tool means here."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from loom_dsl.documents.document import load_yaml
from loom_dsl.documents.validation import validate_model
from loom_dsl.errors import MissingTools, UnknownToolError
from loom_dsl.text.canonical import canonical_json, digest
from loom_dsl.tools.risk import Risk
from loom_dsl.tools.secret_references import REFERENCE, put_secrets
from loom_dsl.tools.tool import Tool

PREFIX = "mcp__"
CONTEXT = "loom context"
"""The keyword under which a tool's function gets the `ToolContext`: no name that a server's arguments can have."""
_REFERENCE = re.compile(r"mcp__((?:[A-Za-z0-9-]|_(?!_))+)__(\*|[A-Za-z0-9_-]+)")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME = 64
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
        if len(self.name) > _MAX_NAME:
            return f"its name {self.name} has over {_MAX_NAME} characters"
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
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    return Tool(name=name[:_MAX_NAME], description="", parameters=schema, function=missing)


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


# The MCP servers of a deployment: the usual ``mcpServers`` file, with secrets by reference.


_NAME = re.compile(r"(?:[A-Za-z0-9-]|_(?!_)(?!$)(?<!^_))+")


def _server_name(name: str) -> str:
    if not _NAME.fullmatch(name) or len(name) > 32:
        raise ValueError(
            f"{name!r} is not a name for a server; use at most 32 letters, digits and '-', and single '_' inside"
        )
    return name


class McpServer(BaseModel):
    """One server: a command that is started and spoken to over its input and output, or an address."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    type: Literal["stdio", "http", "streamable-http"] | None = None
    """How it is spoken to; `command` and `url` say it already."""
    command: str = ""
    """The program."""
    args: list[str] = []
    """Its arguments."""
    env: dict[str, str] = {}
    """More variables for it; ``${secret:NAME}`` stands for a secret that the worker lends."""
    cwd: str = ""
    """Directory that it starts in; empty: the worker's."""
    url: str = ""
    """Address of a server that speaks streamable HTTP."""
    headers: dict[str, str] = {}
    """Headers of every request; ``${secret:NAME}`` as above."""
    timeout: float = Field(default=60.0, gt=0, le=3600)
    """Seconds that a call of one of its tools may take."""
    trust_annotations: bool = Field(default=False, alias="trustAnnotations")
    """Believe what it says of its tools: that one only reads, or may be repeated."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("give either `command`, for a server that is started, or `url`, for one that runs")
        if self.url and not re.match(r"https?://[^\s/]", self.url):
            raise ValueError(f"url: {self.url!r} is not an address; write http://… or https://…")
        if self.type is not None and (self.type == "stdio") != bool(self.command):
            raise ValueError(f"type: {self.type} does not go with `{'command' if self.command else 'url'}`")
        wrong = ("headers",) if self.command else ("args", "env", "cwd")
        for field in wrong:
            if getattr(self, field):
                raise ValueError(f"{field}: a server with `{'command' if self.command else 'url'}` takes none")
        return self

    @property
    def secrets(self) -> set[str]:
        """The names of the secrets that it needs."""
        texts = [*self.env.values(), *self.headers.values()]
        return {name for text in texts for name in REFERENCE.findall(text)}


class McpSettings(BaseModel):
    """All servers of a deployment."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    servers: dict[Annotated[str, AfterValidator(_server_name)], McpServer] = Field(alias="mcpServers")
    """By the names that agents use: ``mcp__NAME__TOOL``."""


def read_mcp_settings(text: str | bytes, source: str) -> McpSettings:
    """Read a file in the usual form, as JSON or YAML.

    Raises:
        DocumentError: It is wrong; says where.
    """
    return validate_model(load_yaml(text, source), McpSettings)


def with_secrets(texts: Mapping[str, str], value: Callable[[str], str]) -> dict[str, str]:
    """Put secrets in the places of their references.

    Args:
        texts: Variables or headers.
        value: Gives a secret by its name; what it raises is raised.
    """
    return {name: put_secrets(text, value) for name, text in texts.items()}
