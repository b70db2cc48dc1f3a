"""The MCP servers of a worker: connected when they are first needed, and again after they died."""

import asyncio
import concurrent.futures
import contextlib
import importlib.util
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from loom_dsl.errors import ConfigurationError, MissingTools, ToolError, ToolUnavailable
from loom_dsl.tools.context import ToolOutput
from loom_dsl.tools.mcp import Definition, McpServer, McpSettings, read_mcp_settings, split_reference, tool_of
from loom_dsl.tools.tool import Tool
from loom_tools.mcp.connection import START_SECONDS, McpConnection, definitions
from loom_tools.running import describe
from loom_tools.secrets import AllowedSecrets

SETTING = "LOOM_MCP"
LIST_SECONDS = 10.0
"""How long a server that runs may take to list its tools."""
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server offers.

    Attributes:
        tools: What can be offered to models.
        left_out: A line about each tool that cannot.
    """

    tools: tuple[Definition, ...]
    left_out: tuple[str, ...] = ()


class Servers:
    """All MCP servers of a worker. Its methods may be awaited in any event loop.

    Args:
        settings: How to reach them, by name.
        secrets: What the worker lends.

    Attributes:
        start_seconds: How long a server may take to start.
        list_seconds: How long a server that runs may take to list its tools.
    """

    def __init__(self, settings: Mapping[str, McpServer], secrets: AllowedSecrets) -> None:
        self.settings = settings
        self.start_seconds, self.list_seconds = START_SECONDS, LIST_SECONDS
        self._secrets = secrets
        self._known: dict[str, Listing] = {}
        self._connections: dict[str, McpConnection] = {}
        self._ending: list[McpConnection] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread()
        self._lock = threading.Lock()

    @classmethod
    def load(cls, file: Path | None, secrets: AllowedSecrets, named: str = SETTING) -> "Servers":
        """Read the deployment's file; no file means no servers.

        Args:
            file: The file.
            secrets: What is lent to it.
            named: How its operator named it: a flag or a variable.

        Raises:
            ConfigurationError: The file, or the package `mcp`, is missing, or a secret that it names is not lent.
            DocumentError: The file is wrong; says where.
        """
        if file is None:
            return cls({}, secrets)
        settings = read_file(file, named)
        if importlib.util.find_spec("mcp") is None:
            raise ConfigurationError(f"{file} ({named}) needs the package `mcp`: pip install 'loom-dsl[mcp]'")
        for name, server in settings.servers.items():
            if missing := sorted(server.secrets - set(secrets.values)):
                wanted = " ".join(f"--secret {secret}" for secret in missing)
                raise ConfigurationError(f"{file}: the server {name} needs secrets: start the worker with {wanted}")
        # What a server writes is not for the worker's log.
        logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)
        return cls(settings.servers, secrets)

    def check(self, server: str) -> McpServer:
        """Give a server's settings.

        Raises:
            MissingTools: The worker has no such server; another may.
        """
        if server in self.settings:
            return self.settings[server]
        listed = ", ".join(self.settings) or "none"
        raise MissingTools(
            f"the worker has no MCP server {server!r} (it has: {listed}); start it with --mcp FILE that names it"
        )

    def tool(self, definition: Definition) -> Tool:
        """Make a tool that a model can call of a server's description.

        Raises:
            MissingTools: The worker has no such server.
        """
        settings = self.check(definition.server)
        return tool_of(definition, self.call, trusted=settings.trust_annotations, timeout=settings.timeout)

    async def found(self, reference: str) -> Tool:
        """Find the one tool that a graph's node names, as its server describes it now.

        Raises:
            MissingTools: The worker has no such server.
            ToolUnavailable: The server cannot be asked, or has no such tool.
        """
        server, _ = split_reference(reference)
        self.check(server)
        listing = self._known.get(server) or await self.listing(server)
        for definition in listing.tools:
            if definition.name == reference:
                return self.tool(definition)
        self._known.pop(server, None)
        offered = ", ".join(definition.name for definition in listing.tools) or "none"
        raise ToolUnavailable(f"the MCP server {server} has no tool {reference!r}; it has: {offered}")

    def known(self, server: str) -> Listing | None:
        """What the server offered when it was last asked."""
        return self._known.get(server)

    async def listing(self, server: str) -> Listing:
        """Ask a server what it offers; one that does not run is started.

        Raises:
            ToolUnavailable: It does not start, or does not answer.
        """
        return await self._there(self._listing(server))

    async def call(self, definition: Definition, arguments: dict[str, Any], tell: Callable[[str], None]) -> ToolOutput:
        """Call a tool, if it is still what it was.

        Raises:
            ToolError: It failed.
            ToolUnavailable: Its server cannot be reached, or describes it otherwise now; it was not called.
            OutcomeUnknown: The server was lost while the tool ran.
        """
        return await self._there(self._call(definition, arguments, tell))

    async def about(self, server: str) -> tuple[bool, str]:
        """Say what a server offers, or why it does not."""
        try:
            async with asyncio.timeout(self.start_seconds):
                listing = await self.listing(server)
        except TimeoutError:
            return False, f"the MCP server {server} does not answer within {self.start_seconds:g} s"
        except ToolError as error:
            return False, error.message
        offered = ", ".join(definition.name for definition in listing.tools) or "no tools"
        return True, "; ".join(
            [f"the MCP server {server} offers {offered}", *map("not offered: {}".format, listing.left_out)]
        )

    async def tell(self, told: Callable[[str], None]) -> None:
        """Tell a line about each server, as soon as it is known."""

        async def one(server: str) -> None:
            _, line = await self.about(server)
            told(line)

        await asyncio.gather(*map(one, self.settings))

    async def close(self) -> None:
        """End all connections, and the servers that were started here."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        closing = asyncio.run_coroutine_threadsafe(self._close(), loop)
        with contextlib.suppress(TimeoutError, concurrent.futures.TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(closing), 15)
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(self._thread.join, 5)

    async def _close(self) -> None:
        ending = [*self._connections.values(), *self._ending]
        self._connections, self._ending = {}, []
        await asyncio.gather(*(connection.close() for connection in ending))

    async def _there(self, work: Coroutine[Any, Any, Value]) -> Value:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # The guards of servers end when this thread does.
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="loom-mcp", daemon=True)
                self._thread.start()
            loop = self._loop
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    def _connection(self, server: str) -> tuple[McpConnection, bool]:
        """The connection to a server, and whether it was there before."""
        found = self._connections.get(server)
        if found is not None and not found.retired:
            return found, True
        self._ending = [other for other in [*self._ending, *filter(None, [found])] if not other.ended]
        made = self._connections[server] = McpConnection(server, self.check(server), self._secrets, self.start_seconds)
        return made, False

    async def _listing(self, server: str) -> Listing:
        while True:
            connection, old = self._connection(server)
            try:
                return await self._listed(server, connection)
            except ToolError:
                # One that was open may have been lost long ago: another is tried, once.
                if not old:
                    raise

    async def _listed(self, server: str, connection: McpConnection) -> Listing:
        async with connection.used() as client:
            try:
                async with asyncio.timeout(self.list_seconds):
                    tools, left_out = await definitions(client, server)
            except TimeoutError:
                connection.retire()
                raise ToolUnavailable(
                    connection.why(f"does not list its tools within {self.list_seconds:g} s")
                ) from None
            except Exception as error:
                connection.retire()
                await connection.heard_out()
                raise ToolUnavailable(connection.why(f"does not list its tools: {describe(error)[:300]}")) from None
            self._known[server] = Listing(tuple(tools), tuple(left_out))
            return self._known[server]

    async def _call(self, definition: Definition, arguments: dict[str, Any], tell: Callable[[str], None]) -> ToolOutput:
        listing = await self._listing(definition.server)
        check_unchanged(definition, listing)
        connection, _ = self._connection(definition.server)
        return await connection.call(definition, arguments, tell)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def read_file(file: Path, named: str = SETTING) -> McpSettings:
    """Read the deployment's file, which was named so.

    Raises:
        ConfigurationError: It cannot be read.
        DocumentError: It is wrong; says where.
    """
    try:
        return read_mcp_settings(file.read_bytes(), str(file))
    except OSError as error:
        raise ConfigurationError(
            f"the MCP servers {file} ({named}) cannot be read: {error.strerror or error}"
        ) from None


def check_unchanged(definition: Definition, listing: Listing) -> None:
    """Make sure that a tool is still what the model and the approver were told.

    Raises:
        ToolUnavailable: It is not.
    """
    now = next((tool for tool in listing.tools if tool.name == definition.name), None)
    if now is None:
        raise ToolUnavailable(f"the MCP server {definition.server} does not have the tool {definition.tool!r} any more")
    if now.fingerprint != definition.fingerprint:
        raise ToolUnavailable(
            f"the MCP server {definition.server} describes {definition.tool!r} otherwise than when this call was "
            "made, so it was not run; look at its new description, and call it again if it still fits"
        )
