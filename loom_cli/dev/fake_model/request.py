"""Reading a chat request as strictly as the real API does.

A lenient fake would hide the bugs that matter most here: a tool call that never got its tool message,
a tool message without its call, a name or a parameter that the API does not take. The wording of the
refusals is the API's own.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import pydantic_core

from loom_dsl.simulation.script import Script, fill
from loom_dsl.text.canonical import read_json

_ROLES = ("system", "developer", "user", "assistant", "tool")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ApiError(Exception):
    """A refusal in the API's own form."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        self.status = status
        self.error: dict[str, str | None] = {
            "message": message,
            "type": "server_error" if status >= 500 else "invalid_request_error",
            "param": param,
            "code": code,
        }
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What the script needs to know of a request.

    Attributes:
        model: The model's name.
        stream: Whether server-sent events are asked for.
        include_usage: Whether the stream ends with the usage.
        step: The number of assistant messages.
        messages: The number of all messages.
        system: The text of the system or developer messages that come before all others.
        first_user: The text of the first user message.
        last_tool: The text of the last tool message.
        data: The request itself.
    """

    model: str
    stream: bool
    include_usage: bool
    step: int
    messages: int
    system: str
    first_user: str
    last_tool: str
    data: Mapping[str, Any]

    @property
    def opening(self) -> str:
        """The text by which a script tells conversations apart."""
        return f"{self.system}\n{self.first_user}"


def read_request(body: bytes) -> ChatRequest:
    """Check a request's body and read what the script needs.

    Raises:
        ApiError: The real API would refuse it.
    """
    data = _json_object(body)
    model, messages = data.get("model"), data.get("messages")
    if not isinstance(model, str) or not model:
        raise ApiError("you must provide a model parameter")
    if not isinstance(messages, list):
        raise ApiError("Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter")
    if not messages:
        raise ApiError(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param="messages",
            code="empty_array",
        )
    _check_options(data)
    for index, message in enumerate(messages):
        _check_message(index, message)
    _check_order(messages)
    options = data.get("stream_options") or {}
    return ChatRequest(
        model=model,
        stream=bool(data.get("stream")),
        include_usage=bool(options.get("include_usage")),
        step=sum(message["role"] == "assistant" for message in messages),
        messages=len(messages),
        system=_leading_text(messages),
        first_user=_first_text(messages, "user"),
        last_tool=_first_text(list(reversed(messages)), "tool"),
        data=data,
    )


def check_fields(request: ChatRequest, script: Script) -> None:
    """Check what a script says of fields that are not every provider's.

    Raises:
        ApiError: The request has one that the script refuses, or lacks one that it requires back.
    """
    for place, data in _objects(request.data):
        for name in script.refuses:
            if name in data:
                raise ApiError(f"{place}property '{name}' is unsupported", param=name)
    if not script.requires_back:
        return
    for index, message in enumerate(request.data["messages"]):
        for at, call in enumerate(message.get("tool_calls") or ()):
            source = script.source(call["id"], model=request.model, opening=request.opening)
            if source is None:
                continue
            number, step, scripted = source
            _check_back(f"messages[{index}]", message, fill(step.fields, number=number, last=""))
            _check_back(f"messages[{index}].tool_calls[{at}]", call, fill(scripted.fields, number=number, last=""))


def _objects(data: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "", data
    for index, message in enumerate(data["messages"]):
        yield f"'messages.{index}' : ", message
        for at, call in enumerate(message.get("tool_calls") or ()):
            yield f"'messages.{index}.tool_calls.{at}' : ", call


def _check_back(place: str, given: Mapping[str, Any], wanted: Any) -> None:
    for name, value in wanted.items():
        if name not in given:
            raise ApiError(f"'{place}.{name}' is missing: it must be passed back as it was given.", param=place)
        if given[name] != value:
            raise ApiError(f"'{place}.{name}' is not valid: it must be passed back as it was given.", param=place)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        # Three times faster than json on a long conversation; it refuses lone surrogates, which json takes.
        data = pydantic_core.from_json(body)
    except ValueError:
        try:
            data = read_json(body)
        except ValueError:
            data = None
    if not isinstance(data, dict):
        raise ApiError("We could not parse the JSON body of your request.")
    return data


def _check_options(data: Mapping[str, Any]) -> None:
    if data.get("stream_options") is not None and not data.get("stream"):
        raise ApiError(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )
    tools = data.get("tools")
    if tools is None:
        if data.get("tool_choice") not in (None, "none"):
            raise ApiError(
                "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
                param="tool_choice",
            )
        return
    if not isinstance(tools, list) or not tools:
        raise ApiError(
            "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param="tools",
            code="empty_array",
        )
    for index, spec in enumerate(tools):
        function = spec.get("function") if isinstance(spec, dict) else None
        if not isinstance(function, dict):
            raise ApiError(f"Missing required parameter: 'tools[{index}].function'.", param=f"tools[{index}].function")
        _check_name(function.get("name"), f"tools[{index}].function.name")


def _check_name(name: object, place: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ApiError(
            f"Invalid '{place}': string does not match pattern. "
            "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
            param=place,
            code="invalid_value",
        )


def _check_message(index: int, message: object) -> None:
    place = f"messages[{index}]"
    if not isinstance(message, dict):
        raise ApiError(f"Invalid type for '{place}': expected an object.", param=place, code="invalid_type")
    role = message.get("role")
    if role not in _ROLES:
        known = ", ".join(f"'{name}'" for name in _ROLES)
        raise ApiError(
            f"Invalid value: '{role}'. Supported values are: {known}.", param=f"{place}.role", code="invalid_value"
        )
    calls = message.get("tool_calls")
    if role == "assistant" and calls is not None:
        _check_calls(place, calls)
    elif not isinstance(message.get("content"), str | list):
        raise ApiError(
            f"Invalid value for 'content': expected a string, got {_json_type(message.get('content'))}.",
            param=f"messages.[{index}].content",
        )
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise ApiError(f"Missing required parameter: '{place}.tool_call_id'.", param=f"{place}.tool_call_id")


def _check_calls(place: str, calls: object) -> None:
    if not isinstance(calls, list) or not calls:
        raise ApiError(
            f"Invalid '{place}.tool_calls': empty array. Expected an array with minimum length 1, "
            "but got an empty array instead.",
            param=f"{place}.tool_calls",
            code="empty_array",
        )
    for number, call in enumerate(calls):
        at = f"{place}.tool_calls[{number}]"
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not call.get("id") or call.get("type") != "function":
            raise ApiError(f"Invalid '{at}': expected id, type 'function' and function.", param=at)
        _check_name(function.get("name"), f"{at}.function.name")
        if not isinstance(function.get("arguments"), str):
            raise ApiError(
                f"Invalid type for '{at}.function.arguments': expected a string.",
                param=f"{at}.function.arguments",
                code="invalid_type",
            )


def _check_order(messages: Sequence[Mapping[str, Any]]) -> None:
    open_calls: Counter[str] = Counter()
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            if not open_calls[message["tool_call_id"]]:
                raise ApiError(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message "
                    "with 'tool_calls'.",
                    param=f"messages.[{index}].role",
                )
            open_calls[message["tool_call_id"]] -= 1
            continue
        _check_answered(open_calls, index)
        open_calls = Counter(call["id"] for call in message.get("tool_calls") or ())
    _check_answered(open_calls, len(messages))


def _check_answered(open_calls: Counter[str], index: int) -> None:
    missing = [call for call, count in open_calls.items() if count > 0]
    if missing:
        raise ApiError(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(missing)}",
            param=f"messages.[{index}].role",
        )


def _leading_text(messages: Sequence[Mapping[str, Any]]) -> str:
    leading = list(takewhile(lambda message: message["role"] in ("system", "developer"), messages))
    return "\n".join(_first_text([message], "system", "developer") for message in leading)


def _first_text(messages: Sequence[Mapping[str, Any]], *roles: str) -> str:
    for message in messages:
        if message["role"] in roles:
            content = message["content"]
            if isinstance(content, str):
                return content
            return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return ""


def _json_type(value: object) -> str:
    return "null" if value is None else type(value).__name__
