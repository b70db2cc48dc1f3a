"""Tells somebody that a job waits: a command that reads JSON from its input, or a URL that takes a POST."""

import asyncio
import json
import os
import shlex
import shutil
from collections.abc import Mapping
from typing import Any

from activities.connections import Unreached, post
from loom_dsl.errors import ConfigurationError, LoomError

SECONDS = 20.0
"""How long the command or the URL may take."""
LAST_LOOK = 2.0
"""Seconds in which an answer is still found that came while this process was too busy to see it."""
VARIABLE = "LOOM_NOTICE_ID"


class NoticeFailed(LoomError):
    """The command or the URL of `on_approval` did not take the notice."""

    code = "notice_failed"
    retryable = True


async def notify(target: str, notice: Mapping[str, Any], name: str) -> None:
    """Send a notice once.

    Args:
        target: An ``http(s)://`` URL, or a command line (no shell) that gets the notice as JSON on its input.
        notice: What to tell.
        name: Its id, the same each time that it is sent: a receiver drops doubles by it.

    Raises:
        NoticeFailed: It was not taken; it is tried again.
    """
    # What a model wrote may hold half of a pair, which is no text in UTF-8; as an escape it is JSON as good as any.
    body = json.dumps(notice, ensure_ascii=False).encode("utf-8", "backslashreplace")
    web = target.startswith(("http://", "https://"))
    sending = asyncio.ensure_future(_post(target, body, name) if web else _command(target, body, name))
    try:
        await asyncio.wait([sending], timeout=SECONDS)
        if not sending.done():
            await asyncio.wait([sending], timeout=LAST_LOOK)
        if not sending.done():
            raise NoticeFailed(f"on_approval took longer than {SECONDS:g} s")
        sending.result()
    finally:
        sending.cancel()
        await asyncio.wait([sending])


def check_target(target: str) -> None:
    """Look whether somebody can be told at all, before a job relies on it.

    Raises:
        ConfigurationError: It is no command line, or there is no such command.
    """
    if not target or target.startswith(("http://", "https://")):
        return
    try:
        command = shlex.split(target)
    except ValueError as error:
        raise ConfigurationError(f"--on-approval {target!r} is not a command line: {error}") from None
    if not command or shutil.which(command[0]) is None:
        raise ConfigurationError(
            f"--on-approval {target!r}: there is no command {''.join(command[:1])!r} on this worker's PATH; "
            "name one that can be run, or an http:// or https:// address"
        )


async def _post(url: str, body: bytes, name: str) -> None:
    headers = {"Content-Type": "application/json", "Idempotency-Key": name}
    try:
        status, _ = await post(url, body, headers)  # one limit for all of it is set outside
    except Unreached as error:
        raise NoticeFailed(f"on_approval: {error.why}") from None
    if status >= 300:
        raise NoticeFailed(f"on_approval: the URL answered {status}")


async def _command(line: str, body: bytes, name: str) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(line),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            env={**os.environ, VARIABLE: name},
        )
    except (OSError, ValueError) as error:
        raise NoticeFailed(f"on_approval: the command cannot be started: {error}") from None
    try:
        await process.communicate(body)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise NoticeFailed(f"on_approval: the command ended with {process.returncode}")
