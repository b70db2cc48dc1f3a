"""Chat-Completions messages: how stored entries become them, and in which order they are legal.

An entry's head is the message's JSON without large content; the content comes from the store and is
put back by `render`. The API wants every assistant message with tool calls to be followed by one tool
message for each call before anything else; what guides the model comes after those.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

Head = dict[str, Any]
"""A message in the Chat-Completions form, perhaps without its content."""

PROJECT_CONTEXT = "project_context"
"""Name of the note that holds the project's own instructions; it becomes part of the system message."""
RUNTIME_DATA = "runtime_init_data"
"""Name of the note that holds what a run was given for the tools that need it; no model reads it."""
UNTRUSTED_TASK = "untrusted_task"
"""Name of the note before a task that another job wrote after it had read content from outside; no model reads it."""
INJECTED = "injected"
"""Name of the note before a message that was injected: who sent it; no model reads it."""
SUMMARY = "summary"
"""Name of the note that stands for the part of the conversation before it: what a compression wrote."""
NOT_COMPRESSED = "not_compressed"
"""Name of the note of a compression that failed: what it used, and why; no model reads it."""
ROLES = ("system", "developer", "user", "assistant", "tool")
_ENDED = "cancelled: the job was ended before this call had a result."
CANCELLED = f"{_ENDED} If it had begun, its effect is not known."
"""What the model reads of a call that has no result of its own."""
WITHHELD = f"{_ENDED} The tool ran to its end, so do not repeat the call; what it gave had not been passed on."
"""The same of a call that ran, where hooks say what of a result is passed on."""
KEPT_BACK = "the tool ran, and its result is withheld: "
"""Begins what the model reads of a call whose result a hook keeps from it, while the job goes on."""
TAKEN_BACK = f"{_ENDED} What it had done was taken back."
"""The same of a call whose effect was undone."""
PERHAPS_TAKEN_BACK = f"{_ENDED} What it had done was to be taken back; it is not known whether it was. Check."
"""The same where nobody knows whether it was undone."""


def render(head: Mapping[str, Any], content: str | None) -> str:
    """Write a message as JSON text: the head, with the content in it unless it is None.

    An assistant message without content gets ``"content": null``, which providers want beside tool calls.
    """
    message = dict(head)
    if content is not None:
        message["content"] = content
    elif message.get("role") == "assistant":
        message.setdefault("content", None)
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def call_ids(head: Mapping[str, Any]) -> list[str]:
    """Give the ids of an assistant message's tool calls, in call order."""
    if head.get("role") != "assistant":
        return []
    return [str(call.get("id", "")) for call in head.get("tool_calls") or []]


def legal_order(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what an API would refuse in this order of messages; nothing means legal.

    Content is not looked at, so that heads can be checked without their content.
    """
    problems: list[str] = []
    owner, pending, answered = 0, list[str](), set[str]()
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            problems += _answer(index, message, pending, answered)
            continue
        problems += _unanswered(owner, pending, f"before message {index} ({role})")
        pending, answered = [], set()
        if role not in ROLES:
            problems.append(f"message {index} has the role {role!r}, which the API does not know")
        owner, pending = index, call_ids(message)
        problems += _bad_ids(index, pending)
    return problems + _unanswered(owner, pending, "before the end")


def _answer(index: int, message: Mapping[str, Any], pending: list[str], answered: set[str]) -> list[str]:
    call = message.get("tool_call_id")
    if call in pending:
        pending.remove(call)
        answered.add(call)
        return []
    if call in answered:
        return [f"message {index} answers call {call!r} a second time"]
    return [f"message {index} answers call {call!r}, which the assistant message before it does not make"]


def _unanswered(owner: int, pending: Sequence[str], place: str) -> list[str]:
    return [f"call {call!r} of message {owner} has no tool message {place}" for call in pending]


def _bad_ids(index: int, ids: Sequence[str]) -> list[str]:
    problems = [f"message {index} has a tool call without an id"] if "" in ids else []
    twice = sorted({call for call in ids if call and ids.count(call) > 1})
    return problems + [f"message {index} has the call id {call!r} more than once" for call in twice]


def close_orphans(heads: Sequence[Mapping[str, Any]]) -> list[Head]:
    """Give the tool messages that the last assistant message still lacks, in call order.

    Appended to the session, they make it legal again after an abort or a crash. Nothing is missing when
    something other than a tool message already follows: what was legal then cannot be mended by appending.
    """
    answered: set[str] = set()
    for head in reversed(heads):
        if head.get("role") == "tool":
            answered.add(str(head.get("tool_call_id")))
            continue
        return [
            {"role": "tool", "tool_call_id": call, "content": CANCELLED}
            for call in dict.fromkeys(call_ids(head))
            if call not in answered
        ]
    return []


def unique_calls(calls: Sequence[Mapping[str, Any]]) -> list[Head]:
    """Give a model's tool calls with an id each that no other of them has.

    The first call with an id keeps it, the next ones become ``id#2``, ``id#3``; a call without an id
    becomes ``call_INDEX``. The same calls always get the same ids.
    """
    given = {str(call["id"]) for call in calls if call.get("id")}
    taken: set[str] = set()
    result: list[Head] = []
    for index, call in enumerate(calls):
        wanted = str(call.get("id") or f"call_{index}")
        name, number = wanted, 1
        while name in taken or (number > 1 and name in given) or (not call.get("id") and name in given):
            number += 1
            name = f"{wanted}#{number}"
        taken.add(name)
        result.append({**call, "id": name})
    return result


def legal_groups(heads: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Divide messages into ranges (start, end) that may be left out only as a whole.

    An assistant message stays with its tool messages, and guidance with the message that it comes after.
    """
    groups: list[tuple[int, int]] = []
    for index, head in enumerate(heads):
        if groups and head.get("role") in ("tool", "system", "developer"):
            groups[-1] = (groups[-1][0], index + 1)
        else:
            groups.append((index, index + 1))
    return groups
