"""Tells somebody that a job waits: a command that reads JSON from its input, or a URL that takes a POST."""

import asyncio
import json
import shlex
import shutil
from collections.abc import Mapping
from typing import Any

import httpx2

from loom_dsl.errors import ConfigurationError, LoomError

SECONDS = 20.0


class NoticeFailed(LoomError):
    """The command or the URL of `on_approval` did not take the notice."""

    code = "notice_failed"
    retryable = True


async def notify(target: str, notice: Mapping[str, Any]) -> None:
    """Send a notice.

    Args:
        target: An ``http(s)://`` URL, or a command line (no shell) that gets the notice as JSON on its input.
        notice: What to tell.

    Raises:
        NoticeFailed: It was not taken; the engine tries again.
    """
    # What a model wrote may hold half of a pair, which is no text in UTF-8; as an escape it is JSON as good as any.
    body = json.dumps(notice, ensure_ascii=False).encode("utf-8", "backslashreplace")
    try:
        async with asyncio.timeout(SECONDS):
            if target.startswith(("http://", "https://")):
                await _post(target, body)
            else:
                await _command(target, body)
    except TimeoutError:
        raise NoticeFailed(f"on_approval took longer than {SECONDS:g} s") from None


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


async def _post(url: str, body: bytes) -> None:
    try:
        async with httpx2.AsyncClient() as client:
            answer = await client.post(url, content=body, headers={"Content-Type": "application/json"})
    except httpx2.HTTPError as error:
        raise NoticeFailed(f"on_approval: {type(error).__name__}") from None
    if answer.status_code >= 300:
        raise NoticeFailed(f"on_approval: the URL answered {answer.status_code}")


async def _command(line: str, body: bytes) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(line), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
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
