"""What `--on-approval` is told, whatever a model or a graph put where the arguments stand."""

import dataclasses
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.registration import activities_of
from activities.runtime import Runtime
from loom_store.store import Store
from loom_tools.registry import ToolRegistry

COPY = "import shutil, sys; shutil.copyfileobj(sys.stdin.buffer, open(sys.argv[1], 'wb'))"


async def announced(folder: Path, request: Any, content: bytes | None = None) -> dict[str, Any]:
    """Announce an approval; what the command was told.

    Args:
        folder: Where the store is.
        request: What is asked.
        content: Stands in the store under the digest that the request names as its arguments.
    """
    notice = folder / "notice.json"
    command = shlex.join([sys.executable, "-c", COPY, str(notice)])
    with Store.open(folder / "loom.db") as store:
        if content is not None:
            digest = store.write_sync(lambda tx: tx.put_blob(content))
            request = {**request, "arguments": digest}
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(environment.info, workflow_id="job-1")
        runtime = Runtime(store, ToolRegistry.load(), folder, command)
        envelope = {"at": "ask#1", "turn": 2, "with": {"approval_id": "ap_1", "request": request}}
        await environment.run(activities_of(runtime)["loom.approval.announce"], envelope)
    told: dict[str, Any] = json.loads(notice.read_bytes())
    return told


@pytest.mark.parametrize("content", [b'{"path": "a', b"\xff", b"", b"[" * 50_000, json.dumps("x" * 65_536).encode()])
async def test_a_question_is_announced_whose_arguments_are_no_json_or_too_many(tmp_path: Path, content: bytes) -> None:
    told = await announced(tmp_path, {"tool": "send", "summary": "send it"}, content)
    assert (told["job"], told["turn"], told["approval_id"]) == ("job-1", 2, "ap_1")
    assert told["request"]["summary"] == "send it"
    assert "content" not in told


@pytest.mark.parametrize("request_", ["Keep it?", {}, {"arguments": 3}, {"arguments": "0" * 64}, None, [1]])
async def test_a_question_is_announced_that_names_no_arguments_that_are_there(
    tmp_path: Path, request_: str | Mapping[str, Any] | None
) -> None:
    told = await announced(tmp_path, request_)
    assert (told["request"], "content" in told) == (request_, False)


@pytest.mark.parametrize("arguments", [{"path": "a.md", "content": "größer"}, {"text": "half \ud83d of a pair"}])
async def test_arguments_are_told_as_they_are(tmp_path: Path, arguments: dict[str, str]) -> None:
    told = await announced(tmp_path, {"tool": "send"}, json.dumps(arguments).encode())
    assert told["content"] == arguments
