"""The MCP servers of a deployment: the usual ``mcpServers`` file, with secrets by reference."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from loom_dsl.document import load_yaml, validate_model
from loom_dsl.secret_references import REFERENCE, put_secrets

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
