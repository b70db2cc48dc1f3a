"""The scripted model over real sockets, with the official SDK and a plain HTTP client as its users."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import psutil
import pytest

from loom_cli.dev.fake_model.app import FakeModel
from loom_cli.dev.fake_model.server import load_script, running
from loom_dsl.errors import ConfigurationError, DocumentError, NotFoundError
from loom_dsl.simulation.script import Script
from tests.support.waiting import PATIENCE, eventually

USER = {"role": "user", "content": "hi"}


def script(*steps: dict[str, Any], **fields: Any) -> Script:
    return Script.model_validate({"loom": 1, "kind": "fake-model", "name": "demo", "steps": list(steps), **fields})


def assistant(*ids: str, text: str | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if ids:
        function = {"name": "t", "arguments": "{}"}
        message["tool_calls"] = [{"id": id, "type": "function", "function": function} for id in ids]
    return message


def tool(id: str, content: str = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def _client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(trust_env=False, timeout=PATIENCE)


@asynccontextmanager
async def post(model: FakeModel) -> AsyncIterator[Any]:
    async with running(model) as url, _client() as client:

        async def call(*messages: dict[str, Any], **fields: Any) -> httpx2.Response:
            headers = fields.pop("headers", {})
            body = {"model": "m", "messages": list(messages or (USER,)), **fields}
            return await client.post(f"{url}/chat/completions", json=body, headers=headers)

        yield call


async def test_the_official_client_reads_a_stream_with_text_calls_and_usage() -> None:
    told = script(
        {
            "say": "I look at “it”.",
            "chunk": 4,
            "calls": [{"tool": "glob", "args": {"pattern": "*"}}, {"tool": "grep", "raw": "{oops", "id": "fixed"}],
            "usage": {"prompt": 100, "completion": 20, "cached": 60},
        }
    )
    async with running(told) as url, openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="m", messages=[USER], stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    assert [delta.content for delta in deltas if delta.content] == ["I lo", "ok a", "t “i", "t”."]
    calls = [call for delta in deltas for call in delta.tool_calls or ()]
    assert [(call.index, call.id, call.function.name) for call in calls if call.id] == [
        (0, "call_1_0", "glob"),
        (1, "fixed", "grep"),
    ]
    texts = ["".join(call.function.arguments for call in calls if call.index == index) for index in (0, 1)]
    assert texts == ['{"pattern":"*"}', "{oops"]
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "tool_calls"
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == 60
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.total_tokens) == (100, 120)


async def test_without_stream_the_answer_is_one_document_with_estimated_usage() -> None:
    async with running(script({"say": "x" * 400})) as url, openai.AsyncOpenAI(base_url=url, api_key="k") as client:
        answer = await client.chat.completions.create(model="m", messages=[USER])
        models = await client.models.list()
    assert answer.choices[0].message.content == "x" * 400
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 100
    assert [model.id for model in models.data] == ["demo"]


async def test_the_step_is_the_number_of_assistant_messages_so_a_repeated_call_gets_the_same_answer() -> None:
    async with post(FakeModel(script({"say": "one"}, {"say": "two: {last}"}))) as call:
        first = [(await call()).json()["choices"][0]["message"]["content"] for _ in range(3)]
        second = (await call(USER, assistant("a"), tool("a", "42"))).json()["choices"][0]["message"]["content"]
        third = (await call(USER, assistant(text="one"), assistant(text="two"))).json()
    assert (first, second) == (["one"] * 3, "two: 42")
    assert third["choices"][0]["message"]["content"] == "(end of script)"


async def test_a_request_over_the_window_is_refused_as_by_a_model_with_that_window() -> None:
    async with post(FakeModel(script({"say": "one"}, window=200))) as call:
        short, long = await call(), await call({"role": "user", "content": "x" * 800})
    assert (short.status_code, long.status_code) == (200, 400)
    error = long.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["message"].startswith("This model's maximum context length is 200 tokens.")


@pytest.mark.parametrize(
    ("before", "after", "answer"),
    [(("rules", "NOTES"), (), "with notes"), (("NOTES",), ("rules",), "with notes"), (("rules",), ("NOTES",), "plain")],
)
async def test_a_conversation_is_known_by_all_system_messages_that_come_first(
    before: tuple[str, ...], after: tuple[str, ...], answer: str
) -> None:
    system = [{"role": "system", "content": text} for text in before]
    later = [{"role": "system", "content": text} for text in after]
    cases = [{"when": {"contains": "NOTES"}, "steps": [{"say": "with notes"}]}]
    async with post(FakeModel(script({"say": "plain"}, cases=cases))) as call:
        said = (await call(*system, USER, *later)).json()
    assert said["choices"][0]["message"]["content"] == answer


async def test_a_repeated_step_numbers_its_calls() -> None:
    told = script({"repeat": 1000, "calls": [{"tool": "read", "args": {"path": "f{n}.txt"}}]})
    history = [message for n in range(500) for message in (assistant(f"c{n}"), tool(f"c{n}"))]
    async with post(FakeModel(told)) as call:
        message = (await call(USER, *history)).json()["choices"][0]["message"]
    assert message["tool_calls"][0]["id"] == "call_501_0"
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"path": "f501.txt"}


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([], "empty array"),
        ([USER, tool("a")], "must be a response to a preceeding message"),
        ([USER, assistant("a"), tool("b")], "must be a response to a preceeding message"),
        ([USER, assistant("a"), tool("a"), tool("a")], "must be a response to a preceeding message"),
        ([USER, assistant("a", "b"), tool("b")], "did not have response messages: a"),
        ([USER, assistant("a"), USER, tool("a")], "did not have response messages: a"),
        ([USER, assistant("a"), assistant(text="x")], "did not have response messages: a"),
        ([USER, assistant("a")], "did not have response messages: a"),
        ([USER, {**assistant(), "tool_calls": []}], "empty array"),
        ([USER, assistant()], "expected a string, got null"),
        ([{"role": "user", "content": None}], "expected a string, got null"),
        ([{"role": "robot", "content": "x"}], "Supported values"),
        ([{"role": "tool", "content": "x"}], "tool_call_id"),
        (["hi"], "expected an object"),
    ],
)
async def test_an_illegal_conversation_is_refused_as_the_api_does(messages: list[Any], told: str) -> None:
    async with running(script({"say": "x"})) as url, _client() as client:
        answer = await client.post(f"{url}/chat/completions", json={"model": "m", "messages": messages})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert told in error["message"]


@pytest.mark.parametrize(
    "messages",
    [
        [USER, assistant("a", "b"), tool("b"), tool("a"), assistant(text="x"), USER],
        [USER, assistant("same", "same"), tool("same"), tool("same")],
        [{"role": "system", "content": [{"type": "text", "text": "s"}]}, USER],
    ],
)
async def test_a_legal_conversation_is_answered(messages: list[Any]) -> None:
    async with post(FakeModel(script(otherwise={"say": "x"}))) as call:
        assert (await call(*messages)).status_code == 200


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"model": ""}, "model parameter"),
        ({"tools": []}, "empty array"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "does not match pattern"),
        ({"tool_choice": "auto"}, "only allowed when 'tools'"),
        ({"stream_options": {"include_usage": True}}, "only allowed when 'stream'"),
    ],
)
async def test_an_illegal_option_is_refused(fields: dict[str, Any], told: str) -> None:
    async with post(FakeModel(script({"say": "x"}))) as call:
        answer = await call(**fields)
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]


async def test_a_body_that_is_not_json_and_an_unknown_path_are_refused() -> None:
    async with running(script({"say": "x"})) as url, _client() as client:
        broken = await client.post(f"{url}/chat/completions", content=b"{")
        unknown = await client.post(f"{url}/completions", json={})
    assert (broken.status_code, unknown.status_code) == (400, 404)


async def test_a_failure_with_times_is_counted_per_step_and_conversation() -> None:
    told = script(
        {"fail": {"status": 429, "retry_after": "1500ms", "times": 2}, "say": "one"},
        {"fail": {"status": 500, "times": 1}, "say": "two"},
    )
    model = FakeModel(told)
    async with post(model) as call:
        statuses = [(await call()).status_code for _ in range(3)]
        limited = await call({"role": "user", "content": "another"})
        other_run = await call(headers={"x-loom-run": "r2"})
        second = [(await call(USER, assistant(text="one"))).status_code for _ in range(2)]
    assert (statuses, second) == ([429, 429, 200], [500, 200])
    assert (limited.status_code, other_run.status_code) == (429, 429)
    assert (limited.headers["retry-after"], limited.headers["retry-after-ms"]) == ("2", "1500")
    assert limited.json()["error"]["code"] == "rate_limit_exceeded"
    assert model.statuses == {429: 4, 200: 2, 500: 1}


async def test_only_the_configured_key_is_accepted_and_it_is_not_recorded() -> None:
    model = FakeModel(script({"say": "x"}), api_key="sk-right")
    async with post(model) as call:
        wrong = await call(headers={"authorization": "Bearer sk-wrong"})
        right = await call(headers={"authorization": "Bearer sk-right"})
    assert (wrong.status_code, wrong.json()["error"]["code"], right.status_code) == (401, "invalid_api_key", 200)
    assert "sk-right" not in str(model.requests)


async def test_requests_are_recorded_and_readable_over_http() -> None:
    model = FakeModel(script({"say": "x"}))
    async with running(model) as url, _client() as client:
        await client.post(f"{url}/chat/completions", json={"model": "m", "messages": [USER], "temperature": 0.5})
        await client.post(f"{url}/chat/completions", json={"model": "m", "messages": []})
        report = (await client.get(url.removesuffix("/v1") + "/_loom/requests")).json()
    assert (report["count"], report["statuses"]) == (2, {"200": 1, "400": 1})
    assert json.loads(report["requests"][0]["body"])["temperature"] == 0.5
    assert (model.requests[0].json["messages"], model.requests[0].step) == ([USER], 0)


async def test_kept_requests_are_bounded_by_their_size() -> None:
    model = FakeModel(script({"say": "x"}))
    async with post(model) as call:
        for _ in range(5):
            await call({"role": "user", "content": "x" * (20 << 20)})
    assert (model.count, len(model.requests)) == (5, 3)


@pytest.mark.parametrize("stream", [True, False])
async def test_closing_in_mid_stream_is_seen_as_a_broken_connection(stream: bool) -> None:
    async with post(FakeModel(script({"say": "x" * 100, "close_after": 2, "times": 1}))) as call:
        with pytest.raises(httpx2.RemoteProtocolError):
            await call(stream=stream)
        assert (await call(stream=stream)).status_code == 200


async def test_a_malformed_stream_holds_an_event_that_is_not_json() -> None:
    async with post(FakeModel(script({"malformed": True}))) as call:
        lines = [line[6:] for line in (await call(stream=True)).text.splitlines() if line.startswith("data: {")]
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        [json.loads(line) for line in lines]


async def test_a_hanging_model_does_not_keep_the_server_from_stopping() -> None:
    model = FakeModel(script({"hang": True}))
    async with post(model) as call:
        task = asyncio.create_task(call())
        await eventually(lambda: model.count)
        assert not task.done()
    with pytest.raises(httpx2.HTTPError):
        await task


async def test_delays_are_between_the_pieces() -> None:
    async with post(FakeModel(script({"say": "abc", "chunk": 1, "before": "50ms", "delay": "30ms"}))) as call:
        started = time.monotonic()
        assert (await call(stream=True)).status_code == 200
        # Role, three pieces, reason and end: six events, five delays.
        assert time.monotonic() - started >= 0.2


async def test_an_address_in_use_is_told_with_what_to_do() -> None:
    async with running(script({"say": "x"})) as url:
        with pytest.raises(ConfigurationError, match="port 0 takes a free one"):
            async with running(script({"say": "x"}), port=httpx2.URL(url).port):
                pass


def test_a_script_file_that_is_missing_or_wrong_is_told_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="Cannot read the script"):
        load_script(tmp_path / "none.yaml")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("loom: 1\nkind: fake-model\nname: demo\nsteps:\n  - says: hello\n")
    with pytest.raises(DocumentError, match=r"wrong.yaml:5"):
        load_script(wrong)


async def test_the_module_serves_a_file_as_a_process_and_stops_on_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "script.yaml"
    path.write_text("loom: 1\nkind: fake-model\nname: demo\nsteps: [{say: from a file}]\n")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loom_cli.dev.fake_model", "--script", str(path)), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        url = (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode().strip()
        async with _client() as client:
            answer = await client.post(f"{url}/chat/completions", json={"model": "m", "messages": [USER]})
        assert answer.json()["choices"][0]["message"]["content"] == "from a file"
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_server_that_has_stopped_holds_no_connection_of_a_request_that_it_cut_off() -> None:
    model = FakeModel(script({"hang": True}))
    async with running(model) as url:
        port = httpx2.URL(url).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps({"model": "m", "messages": [USER]})
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: here\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(f"{head}{body}".encode())
        await eventually(lambda: model.count)
    assert [each for each in psutil.Process().net_connections("tcp") if each.laddr.port == port] == []
    await reader.read()
    writer.close()
    await writer.wait_closed()


SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln{n}"}}}
GIVING = script(
    {"calls": [{"tool": "t", "fields": SIGNED}, {"tool": "t"}], "fields": {"reasoning_content": "r{n}"}},
    {"say": "done", "fields": {"reasoning_content": "twenty letters of it"}},
    requires_back=True,
    refuses=["store", "reasoning"],
)


def answered(signature: str = "c2ln1", **fields: Any) -> tuple[dict[str, Any], ...]:
    """A conversation in which the script's first answer is sent back."""
    message = {**assistant("call_1_0", "call_1_1"), "reasoning_content": "r1", **fields}
    if signature:
        message["tool_calls"][0] |= {"extra_content": {"google": {"thought_signature": signature}}}
    return USER, message, tool("call_1_0"), tool("call_1_1")


async def test_a_script_gives_fields_of_a_providers_own_whole_and_in_pieces() -> None:
    async with post(FakeModel(GIVING)) as call:
        message = (await call()).json()["choices"][0]["message"]
        streamed = (await call(*answered(), stream=True)).text
    assert message["reasoning_content"] == "r1"
    assert message["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "c2ln1"}}
    assert "extra_content" not in message["tool_calls"][1]
    deltas = [json.loads(line[6:])["choices"] for line in streamed.splitlines() if line.startswith("data: {")]
    pieces = [one[0]["delta"].get("reasoning_content") for one in deltas if one]
    assert [piece for piece in pieces if piece] == ["twenty letters o", "f it"]


@pytest.mark.parametrize(
    ("messages", "fields", "told"),
    [
        (answered(), {}, ""),
        (answered(""), {}, "'messages[1].tool_calls[0].extra_content' is missing: it must be passed back"),
        (answered("c2ln2"), {}, "'messages[1].tool_calls[0].extra_content' is not valid"),
        (answered(reasoning_content="r"), {}, "'messages[1].reasoning_content' is not valid"),
        ((USER, assistant("another"), tool("another")), {}, ""),
        (answered(reasoning="r"), {}, "'messages.1' : property 'reasoning' is unsupported"),
        (answered(), {"store": True}, "property 'store' is unsupported"),
    ],
)
async def test_a_script_requires_fields_back_and_refuses_others(
    messages: tuple[dict[str, Any], ...], fields: dict[str, Any], told: str
) -> None:
    async with post(FakeModel(GIVING)) as call:
        answer = await call(*messages, **fields)
    assert answer.status_code == (400 if told else 200)
    assert told in answer.text
