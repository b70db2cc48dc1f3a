"""What a model call costs beside the model: the prepared body against the SDK's typed path, and the fake model.

Run ``python -m benchmarks.measurements.model_call``. CPU is this process's; the fake model runs in its own. The
messages are JSON text before and Python text after, as the session store holds and takes them.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai

from activities.chat.client import ChatEndpoint, chat_body

SCRIPT = """\
loom: 1
kind: fake-model
name: bench
otherwise: {say: I will now look at the next file and see what it says., calls: [{tool: read, args: {path: "f{n}"}}]}
"""


def conversation(messages: int, size: int) -> list[str]:
    """Return a conversation of tool rounds, each message serialised, with `size` characters a result."""
    parts: list[dict[str, Any]] = [{"role": "system", "content": "x" * 500}, {"role": "user", "content": "task"}]
    for number in range((messages - 2) // 2):
        function = {"name": "read_file", "arguments": json.dumps({"path": f"f{number}.py", "limit": 100})}
        calls = [{"id": f"c{number}", "type": "function", "function": function}]
        parts.append({"role": "assistant", "content": None, "tool_calls": calls})
        parts.append({"role": "tool", "tool_call_id": f"c{number}", "content": "def é():\n" * (size // 9)})
    return [json.dumps(part, ensure_ascii=False) for part in parts]


def tools() -> str:
    properties = {"path": {"type": "string"}, "limit": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": ["path"]}
    specs = [{"name": f"tool_{n}", "description": "d" * 80, "parameters": schema} for n in range(12)]
    return json.dumps([{"type": "function", "function": spec} for spec in specs])


async def measure(name: str, call: Callable[[], Awaitable[object]], times: int) -> None:
    await call()
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(times):
        await call()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(f"{name:28} {cpu / times * 1000:7.2f} ms CPU  {wall / times * 1000:7.2f} ms")


async def compare(url: str, messages: int, size: int, times: int) -> None:
    parts, specs = conversation(messages, size), tools()
    print(f"{messages} messages, {sum(map(len, parts)) // 1024} KiB, 12 tools; client CPU and time a call:")
    endpoint, client = ChatEndpoint(url, "k"), openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0)

    async def prepared() -> None:
        body = chat_body(parts, model="m", tools_json=specs, parameters={"temperature": 0})
        await endpoint.stream(body, on_text=lambda text: None)

    async def typed() -> None:
        stream = await client.chat.completions.create(
            model="m",
            messages=[json.loads(part) for part in parts],
            tools=json.loads(specs),
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for _ in stream:
            pass

    await measure("typed client", typed, times)
    await measure("prepared body", prepared, times)
    await endpoint.aclose()
    await client.close()


async def throughput(url: str, calls: int, at_once: int) -> None:
    endpoint = ChatEndpoint(url, "k")
    body = chat_body(conversation(2, 0), model="m", tools_json=None, parameters={})

    async def caller() -> None:
        for _ in range(calls // at_once):
            await endpoint.stream(body, on_text=lambda text: None)

    await caller()
    start = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(at_once)))
    seconds = time.perf_counter() - start
    print(f"{at_once} at once, 2 messages: {calls / seconds:.0f} calls/s, {seconds / calls * 1000:.2f} ms a call")
    await endpoint.aclose()


async def run(url: str, times: int) -> None:
    for messages, size in ((2, 0), (200, 1000), (200, 9000)):
        await compare(url, messages, size, times)
    for at_once in (1, 10):
        await throughput(url, 1000, at_once)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.yaml")
        script.write_text(SCRIPT, encoding="utf-8")
        command = [sys.executable, "-m", "loom_cli.dev.fake_model", "--script", str(script)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                asyncio.run(run(server.stdout.readline().strip(), times))
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
