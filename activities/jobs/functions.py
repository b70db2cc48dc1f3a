"""Calling a function of the user's for an ``activity: module:name`` node: by keyword, checked, in its own thread."""

import asyncio
import inspect
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, get_type_hints

import pydantic_core
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, create_model
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.lifecycle.shutdown import Stopping, refuse_to_begin
from activities.observe.events import store_events
from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobStore
from loom_dsl.errors import FunctionArguments, FunctionFailed, ResultTooLarge, ToolValidationError, UnreadableResult
from loom_dsl.text.canonical import canonical_json
from loom_dsl.text.redaction import mask_known
from loom_dsl.tools.arguments import ADVICE, check_arguments
from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.schema import clean_schema
from loom_tools.isolation.processes import LOADING_SECONDS
from loom_tools.masking import redact
from loom_tools.registry import ToolRegistry
from loom_tools.running import ProgressReporter, describe, run_function, runs_apart
from loom_tools.user_code import Code, Raised

MAX_RESULT = 256 * 1024
"""Bytes of a result, which goes through the history; a larger one belongs in a file."""
TIMEOUT = "timeout"
"""Code of a call that took longer than its node allows; tried again as often as the node says."""
MAX_MESSAGE = 2_000
MAX_PROGRESS = 2_000
_CODE = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_ENGINES_OWN = frozenset({"wrong_store", "missing_tools", "cancelled", "worker_stopped"})
"""Codes that mean something to the engine, so that no function may fail with them."""


@dataclass(frozen=True, slots=True)
class _Signature:
    """How a function takes its arguments: what validates them, and which parameters get the context."""

    model: type[BaseModel]
    schema: dict[str, Any]
    context: tuple[str, ...]


class FunctionCall:
    """The activity ``loom.function.call``."""

    def __init__(self, jobs: JobStore, registry: ToolRegistry, stopping: Stopping) -> None:
        self._jobs, self._registry, self._stopping = jobs, registry, stopping

    @activity.defn(name="loom.function.call")
    async def call(self, envelope: dict[str, Any]) -> Any:
        """Call a function of a module that this worker lists. Tried again, it is called again.

        Returns:
            What the function returned, as JSON, without the secrets that are known.

        Raises:
            FunctionArguments: They do not fit its parameters.
            UnreadableResult: What it returned is not JSON.
            ResultTooLarge: It is too much for a result.
        """
        call = ActivityCall.of(envelope)
        storing = asyncio.create_task(self._store_events(call))
        if activity.info().attempt > 1:
            await storing  # what waits for a store that fails does not call the function again and again
        try:
            return await self._called(call)
        finally:
            await storing

    async def _store_events(self, call: ActivityCall) -> None:
        if call.batches:
            await self._jobs.store.write(lambda tx: store_events(tx, call))

    async def _called(self, call: ActivityCall) -> Any:
        reference = call.arguments["function"]
        function = self._registry.function(reference)
        signature = _signature(function)
        keywords = _keywords(reference, signature, call.arguments["with"])
        stop, progress = threading.Event(), ProgressReporter(self._teller(call), MAX_PROGRESS)
        context = ToolContext(
            working_dir=(await self._jobs.facts(call.job)).workdir,
            job=call.job,
            turn=call.turn,
            call_id=call.at,
            idempotency_key=call.key,
            progress=progress,
            cancelled=stop.is_set,
        )
        keywords |= dict.fromkeys(signature.context, context)
        refuse_to_begin(self._stopping)
        try:
            with self._stopping.telling(stop):
                result = await self._in_time(function, keywords, Code((reference,)), call.arguments.get("timeout"))
        except TimeoutError:
            late = f"{reference} took longer than its timeout of {call.arguments['timeout']:g} s"
            raise ApplicationError(late, type=TIMEOUT) from None
        except Raised as raised:
            raise self._failed(reference, raised.error) from None
        finally:
            stop.set()
            await progress.settle()
        return self._checked(reference, result)

    async def _in_time(
        self, function: Callable[..., Any], keywords: Mapping[str, Any], code: Code, seconds: float | None
    ) -> Any:
        """Call a function, within the time of its node. A process of its own has some more to load the module in."""
        spare = LOADING_SECONDS if runs_apart(code) else 0.0
        is_async = inspect.iscoroutinefunction(function)
        async with asyncio.timeout(None if seconds is None else seconds + spare):
            return await run_function(function, keywords, is_async=is_async, code=code, seconds=seconds)

    def _teller(self, call: ActivityCall) -> Callable[[str], Any]:
        count = 0

        async def tell(text: str) -> None:
            nonlocal count
            count += 1
            content = redact(text, self._jobs.secrets)
            event = {"t": "progress", "n": call.turn, "tool_call_id": call.at, "content": content}
            key = f"{call.turn}/{call.at}/progress/{attempt}/{count}"
            await self._jobs.store.write(lambda tx: tx.append_events(call.job, key, [event]))

        # A remote attempt after a local one is counted as a first one, too.
        attempt = f"~{call.attempt}" if activity.info().is_local else str(call.attempt)
        return tell

    def _failed(self, reference: str, error: BaseException) -> ApplicationError:
        """What a function raised, under the code that it gives itself; tried again unless it says not to."""
        code = getattr(error, "code", None)
        own = isinstance(code, str) and _CODE.fullmatch(code) is not None and code not in _ENGINES_OWN
        text = redact(f"{reference}: {describe(error)}", self._jobs.secrets)[:MAX_MESSAGE]
        final = getattr(error, "retryable", True) is False
        return ApplicationError(text, type=code if own else FunctionFailed.code, non_retryable=final)

    def _checked(self, reference: str, result: Any) -> Any:
        try:
            text = canonical_json(pydantic_core.to_jsonable_python(result))
        except Exception as error:
            told = redact(describe(error), self._jobs.secrets)[:300]
            raise UnreadableResult(
                f"{reference} returned an object of the type {type(result).__name__}, which cannot be written as JSON "
                f"({told}); return text, numbers, lists, dicts, dataclasses or pydantic models"
            ) from None
        text = mask_known(text, self._jobs.secrets)
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > MAX_RESULT:
            raise ResultTooLarge(
                f"{reference} returned {size} bytes, and a result may have {MAX_RESULT}; "
                "write it into a file of the working directory and return the path"
            )
        return json.loads(text)


def _keywords(reference: str, signature: _Signature, given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        checked = check_arguments(reference, signature.model, signature.schema, dict(given))
    except ToolValidationError as error:
        text = error.message.removesuffix(ADVICE).rstrip()
        raise FunctionArguments(f"{text} Mend the node's `with`, or the function's parameters.") from None
    return checked.keywords | {name: value for name, value in given.items() if name not in checked.keywords}


@lru_cache(maxsize=1_000)
def _signature(function: Callable[..., Any]) -> _Signature:
    """Read a function's parameters. One without an annotation takes anything.

    Raises:
        FunctionArguments: It cannot be called by keyword, or an annotation cannot be read.
    """
    name = f"{function.__module__}:{function.__name__}"
    try:
        hints = get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {}
        context, config = [], ConfigDict(extra="forbid", arbitrary_types_allowed=False)
        for parameter in inspect.signature(function).parameters.values():
            if hints.get(parameter.name) is ToolContext:
                context.append(parameter.name)
            elif parameter.kind is parameter.VAR_KEYWORD:
                config = ConfigDict(extra="allow")
            elif parameter.kind is not parameter.VAR_POSITIONAL:
                default = ... if parameter.default is parameter.empty else parameter.default
                kind = hints.get(parameter.name, Any)
                # A name of its own, so that `schema`, `json` or `_x` can be parameters.
                fields[f"argument_{parameter.name}"] = (Annotated[kind, Field(alias=parameter.name)], default)
        model = create_model(function.__name__, __config__=config, **fields)
        return _Signature(model, clean_schema(model.model_json_schema(by_alias=True)), tuple(context))
    except (PydanticUserError, NameError, TypeError) as error:
        reason = describe(error).splitlines()[0]
        raise FunctionArguments(f"{name}: its parameters cannot be filled from JSON ({reason})") from None


def arguments_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """Give the JSON schema of the arguments that a node calls a function with.

    Raises:
        FunctionArguments: It cannot be called by keyword, or an annotation cannot be read.
    """
    return _signature(function).schema
