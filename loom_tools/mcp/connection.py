"""One connection to one MCP server. It lives in the event loop that MCP servers have to themselves."""

import asyncio
import base64
import binascii
import contextlib
import json
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from loom_dsl.errors import OutcomeUnknown, ToolError, ToolUnavailable
from loom_dsl.tools.context import MAX_IMAGES, Image, ToolOutput
from loom_dsl.tools.mcp import Definition, McpServer, with_secrets
from loom_tools.masking import redact
from loom_tools.running import describe
from loom_tools.secrets import AllowedSecrets

if TYPE_CHECKING:
    from mcp import Client


START_SECONDS = 30.0
"""A server that takes longer to start is given up."""
MAX_TOOLS = 500
"""Of one server."""
_CLOSED, _TIMEOUT = -32000, -32001
_MAX_SAID = 2_000
_LAST_WORDS = 1.0
"""Seconds to read what an ended server said last. A process that it left behind may keep its standard error open."""
_GUARD = Path(__file__).with_name("guard.py")


class McpConnection:
    """A connection: opened at once, closed when it is retired and its last call has ended.

    Args:
        name: Name of the server.
        settings: How to reach it.
        secrets: What the worker lends.
        start_seconds: How long the server may take to start.
    """

    def __init__(self, name: str, settings: McpServer, secrets: AllowedSecrets, start_seconds: float) -> None:
        self._name, self._settings, self._secrets = name, settings, secrets
        self._start_seconds = start_seconds
        self._said: deque[str] = deque(maxlen=20)
        self._garbage = ""
        self._listener: threading.Thread | None = None
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._opened.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._stop = asyncio.Event()
        self._calls = 0
        self.retired = False
        self._task = asyncio.create_task(self._live())

    @contextlib.asynccontextmanager
    async def used(self) -> "AsyncIterator[Client]":
        """Lend the client for a while.

        Raises:
            ToolUnavailable: The server does not start, or cannot be reached; says why.
        """
        self._calls += 1
        try:
            yield await asyncio.shield(self._opened)
        finally:
            self._calls -= 1
            if self.retired and not self._calls:
                self._stop.set()

    async def call(self, definition: Definition, arguments: dict[str, Any], tell: Callable[[str], None]) -> ToolOutput:
        """Call a tool of the server; `tell` takes what that says while it works.

        Raises:
            ToolError: It failed.
            OutcomeUnknown: The server was lost while the tool ran.
        """
        from mcp import MCPError

        async def heard(progress: float, total: float | None, message: str | None) -> None:
            if message:
                tell(message)

        async with self.used() as client:
            try:
                result = await client.call_tool(definition.tool, arguments, progress_callback=heard)
            except asyncio.CancelledError:
                self.retire()  # it hangs, or was told to stop: the next call gets a server that does not
                raise
            except MCPError as error:
                if error.code not in (_CLOSED, _TIMEOUT):
                    raise ToolError(f"the MCP server {self._name} refused the call: {error.message}") from None
                self.retire()
                await self.heard_out()
                raise OutcomeUnknown(self.why("was lost while the tool ran")) from None
            except Exception as error:
                self.retire()
                raise OutcomeUnknown(self.why(f"failed while the tool ran: {describe(error)[:300]}")) from None
        return output_of(self._name, result)

    def retire(self) -> None:
        """Take no more calls. What runs may end."""
        self.retired = True
        if not self._calls:
            self._stop.set()

    async def close(self) -> None:
        """End it, with the server if it was started here."""
        self.retired = True
        self._stop.set()
        if not self._opened.done():
            self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._task

    @property
    def ended(self) -> bool:
        """Whether nothing of it is left."""
        return self._task.done()

    def why(self, problem: str) -> str:
        """Say what is wrong, with what the server itself said last."""
        said = " | ".join(line for line in self._said if line.strip())[-_MAX_SAID:]
        more = "".join(f"; {text}" for text in (self._garbage, f"it said: {said}" if said else "") if text)
        return redact(f"the MCP server {self._name} {problem}{more}", self._secrets.values)

    async def heard_out(self) -> None:
        """Wait until what a server said before it ended has been read, so that `why` can tell it."""
        if self._listener is not None:
            await asyncio.to_thread(self._listener.join, _LAST_WORDS)

    async def _live(self) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(self._start_seconds):
                    client = await stack.enter_async_context(await self._client(stack))
                self._opened.set_result(client)
                await self._stop.wait()
        except asyncio.CancelledError:
            self._fail("was closed")
            raise
        except TimeoutError:
            self._fail(f"does not answer within {self._start_seconds:g} s")
        except Exception as error:
            await self.heard_out()
            self._fail(
                f"cannot be reached: {_told(error)}" if self._settings.url else f"does not start: {_told(error)}"
            )
        finally:
            self.retired = True

    def _fail(self, problem: str) -> None:
        if not self._opened.done():
            self._opened.set_exception(ToolUnavailable(self.why(problem)))

    async def _client(self, stack: contextlib.AsyncExitStack) -> "Client":
        from mcp import Client
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        settings, handler = self._settings, self._heard
        if settings.url:
            import httpx2

            headers = with_secrets(settings.headers, self._secrets.value)
            # The time of a call is bounded by the tool's timeout; this one is for a server that went away.
            timeout = httpx2.Timeout(self._start_seconds, read=settings.timeout + self._start_seconds)
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=timeout))
            transport = streamable_http_client(settings.url, http_client=http)
            return Client(transport, message_handler=handler, cache=None)
        guard = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), settings.command, *settings.args]
        parameters = StdioServerParameters(
            command=guard[0],
            args=guard[1:],
            env=with_secrets(settings.env, self._secrets.value),
            cwd=settings.cwd or None,
            encoding_error_handler="replace",
        )
        transport = _started(stdio_client(parameters, errlog=(errors := self._listen())), errors)
        return Client(transport, message_handler=handler, cache=None)

    async def _heard(self, message: Any) -> None:
        if isinstance(message, Exception):
            self._garbage = "it wrote what is not a message of MCP"

    def _listen(self) -> TextIO:
        """Give a file for the server's standard error, whose last lines are kept to say why it ended."""
        reading, writing = os.pipe()

        def listen() -> None:
            with os.fdopen(reading, errors="replace") as lines:
                while line := lines.readline(_MAX_SAID):
                    self._said.append(line.strip())

        self._listener = threading.Thread(target=listen, name="loom-mcp-stderr", daemon=True)
        self._listener.start()
        return os.fdopen(writing, "w")


@contextlib.asynccontextmanager
async def _started(server: contextlib.AbstractAsyncContextManager[Any], errors: TextIO) -> AsyncIterator[Any]:
    """Leave its standard error to the server alone, so that reading it ends with the server."""
    async with contextlib.AsyncExitStack() as stack:
        with errors:
            streams = await stack.enter_async_context(server)
        yield streams


async def definitions(client: "Client", server: str) -> tuple[list[Definition], list[str]]:
    """Ask a server for its tools; give those that can be offered, and a line about each that cannot."""
    found: dict[str, Definition] = {}
    left_out: list[str] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            made = _definition(server, tool)
            problem = made.problem or _schema_problem(made) or ("another has its name" if made.name in found else "")
            if problem or len(found) >= MAX_TOOLS:
                left_out.append(f"{tool.name[:80]}: {problem or f'the server has over {MAX_TOOLS} tools'}")
            else:
                found[made.name] = made
        cursor = page.next_cursor
        if not cursor or len(left_out) >= MAX_TOOLS:
            return list(found.values()), left_out


def _definition(server: str, tool: Any) -> Definition:
    said = tool.annotations
    hints: dict[str, Callable[[], bool | None]] = {
        "read_only": lambda: said.read_only_hint,
        "destructive": lambda: said.destructive_hint,
        "idempotent": lambda: said.idempotent_hint,
    }
    given = {name: value for name, hint in hints.items() if said is not None and (value := hint()) is not None}
    return Definition(server, tool.name, tool.description or "", dict(tool.input_schema), given)


def _schema_problem(made: Definition) -> str:
    from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped] # comes with `mcp`

    try:
        Draft202012Validator.check_schema(made.parameters)
        return "" if made.fingerprint else "it cannot be written as JSON"
    except (SchemaError, ValueError, RecursionError) as error:
        return f"its schema is wrong: {str(error).splitlines()[0][:200]}"


def _told(error: BaseException) -> str:
    """Say what went wrong, without the groups that it is wrapped in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return describe(error)[:500]


# What an MCP server answers, as the result of a tool.


def output_of(server: str, result: Any) -> ToolOutput:
    """Read a `CallToolResult`: text as it is, images as images, everything else told by what it is.

    Raises:
        ToolError: The tool says that it failed.
    """
    texts: list[str] = []
    images: list[Image] = []
    for block in result.content:
        read = _block(block)
        if isinstance(read, Image) and len(images) < MAX_IMAGES:
            images.append(read)
        elif isinstance(read, Image):
            texts.append(f"(one more image, {len(read.data):,} bytes, not shown)")
        else:
            texts.append(read)
    # Servers repeat structured content as text, for clients that do not read it.
    if result.structured_content is not None and not texts:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    text = "\n".join(texts)
    if result.is_error:
        raise ToolError(text or f"the MCP server {server} says that the call failed, and not why")
    if images and not text:
        text = f"{len(images)} image{'s' if len(images) > 1 else ''}"
    return ToolOutput(text=text, images=tuple(images))


def _block(block: Any) -> str | Image:
    kind = block.type
    if kind == "text":
        return str(block.text)
    if kind == "image":
        return _image(block)
    if kind == "audio":
        return f"(audio, {block.mime_type}, not shown)"
    if kind == "resource_link":
        return f"(resource {block.name}: {block.uri})"
    resource = block.resource
    text = getattr(resource, "text", None)
    return f"{resource.uri}:\n{text}" if text is not None else f"(resource {resource.uri}, not text, not shown)"


def _image(block: Any) -> str | Image:
    try:
        return Image(data=base64.b64decode(block.data, validate=True))
    except (binascii.Error, ValueError) as error:
        return f"(an image that cannot be shown: {error})"
