"""The tool calls in a model's answer: as the conversation keeps them, and what orders them."""

import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from temporalio import activity

from activities.catalogue import EXECUTE_MARGIN
from activities.chat.reply import ToolCall
from loom_dsl.agent.messages import unique_calls
from loom_dsl.errors import ModelProtocolError, ToolError, ToolUnavailable
from loom_dsl.text.canonical import digest
from loom_dsl.text.redaction import mask_known
from loom_dsl.tools.tool import Tool, validate_arguments
from loom_tools.masking import redact
from loom_tools.running import ANSWER_SECONDS, ask, describe, runs_apart
from loom_tools.user_code import Code, Raised, keys_of

MAX_CALLS = 1_000
"""Calls in one answer: as many items as a map in a workflow takes."""
_MAX_NAME, _MAX_ID, _MAX_KEY = 64, 64, 200
_MAX_LOG = 1_000
_FAILED = "the concurrency key of the tool %s failed (%s); it waits for all others"
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


def kept_calls(calls: Sequence[ToolCall], secrets: Mapping[str, str]) -> list[dict[str, Any]]:
    """Write a model's calls so that every provider takes them back with the next request.

    Ids are made unique. In names, what the API does not allow becomes an underscore. Names and ids travel through the
    history, so secrets in them are masked; in arguments, known ones are.

    Raises:
        ModelProtocolError: There are more than one turn can carry.
    """
    if len(calls) > MAX_CALLS:
        raise ModelProtocolError(
            f"the model asked for {len(calls)} tool calls in one answer; at most {MAX_CALLS} are taken. "
            "Say in the instructions that it should make fewer at a time."
        )
    named = [
        {
            "id": _short(redact(call.id, secrets), _MAX_ID),
            "name": _name(redact(call.name, secrets)),
            "arguments": mask_known(call.arguments, secrets),
        }
        for call in calls
    ]
    return [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in unique_calls(named)
    ]


async def traits(
    entry: int, calls: Sequence[dict[str, Any]], tools: Mapping[str, Tool], secrets: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What orders the calls of an answer among each other, and where their arguments are.

    Args:
        entry: The answer's place in the session.
        calls: The calls as they are kept.
        tools: The agent's tools by the name that a model calls them.
        secrets: What the log must not hold.
    """
    named = [(call, tools.get(call["function"]["name"])) for call in calls]
    keys = await _keys([(tool, call["function"]["arguments"]) for call, tool in named], secrets)
    return [_traits(index, entry, call, tool, keys[index]) for index, (call, tool) in enumerate(named)]


def _traits(index: int, entry: int, call: dict[str, Any], tool: Tool | None, key: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"id": call["id"], "name": call["function"]["name"], "e": entry, "i": index}
    if tool is None:
        return found | {"safe": True, "key": None, "quick": False, "timeout": 60.0}
    timeout = tool.timeout + EXECUTE_MARGIN
    return found | {"safe": tool.concurrency_safe, "key": key, "quick": tool.quick, "timeout": timeout}


async def _keys(calls: Sequence[tuple[Tool | None, str]], secrets: Mapping[str, str]) -> list[str | None]:
    """The concurrency keys of an answer's calls, found in one thread; without one, a call waits for all others."""
    keys: list[str | None] = [None] * len(calls)
    keyed = [(place, tool, raw) for place, (tool, raw) in enumerate(calls) if tool and tool.concurrency_key]
    users = [each for each in keyed if each[1].reference]
    code = Code(tuple(tool.reference for _, tool, _ in users), "tool", keys_of) if users else None
    if code is not None and runs_apart(code):
        for (place, tool, _), (found, why) in zip(users, await _keys_apart(code, users), strict=True):
            keys[place] = found and _short(found, _MAX_KEY)
            if why:
                activity.logger.error(_FAILED, tool.name, redact(why, secrets)[:_MAX_LOG])
        keyed, code = [each for each in keyed if not each[1].reference], None
    at = keyed[0][1].name if keyed else ""
    over = threading.Event()

    def find() -> None:
        nonlocal at
        for place, tool, raw in keyed:
            at = tool.name
            key = _key(tool, raw, secrets)
            if over.is_set():
                return
            keys[place] = key

    if keyed:
        try:
            await ask(find, code=code)
        except TimeoutError:
            over.set()
            late = "the concurrency key of the tool %s took over %g s; the calls without a key wait for all others"
            activity.logger.error(late, at, ANSWER_SECONDS)
    return list(keys)


async def _keys_apart(code: Code, users: Sequence[tuple[int, Tool, str]]) -> Sequence[tuple[str | None, str]]:
    """Find the keys in a process of its own, because an attempt before this one did not survive it."""
    try:
        found: Sequence[tuple[str | None, str]] = await ask(keys_of, code=code.given([raw for *_, raw in users]))
        return found
    except (TimeoutError, Raised, ToolUnavailable) as error:
        return [(None, describe(error.error if isinstance(error, Raised) else error))] * len(users)


def _key(tool: Tool, raw: str, secrets: Mapping[str, str]) -> str | None:
    assert tool.concurrency_key is not None
    try:
        key = tool.concurrency_key(validate_arguments(tool, raw))
        return None if key is None else _short(str(key), _MAX_KEY)
    except ToolError:
        return None  # it is not going to run
    except BaseException as error:  # also SystemExit: the other calls' keys are found
        activity.logger.error(_FAILED, tool.name, redact(describe(error), secrets)[:_MAX_LOG])
        return None


def _name(name: str) -> str:
    return _NOT_IN_A_NAME.sub("_", name.strip())[:_MAX_NAME] or "unnamed"


def _short(text: str, limit: int) -> str:
    """A long text by its beginning and its digest: it travels through the history."""
    return text if len(text) <= limit else f"{text[: limit - 17]}-{digest(text)[:16]}"
