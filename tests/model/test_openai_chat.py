"""The provider adapter against the scripted model, over real sockets."""

import asyncio
import email.utils
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from activities.chat.client import ChatEndpoint, chat_body, endpoint_from_environment
from activities.chat.reply import ModelReply, Usage
from activities.chat.stream import Timeouts
from loom_cli.dev.fake_model.app import FakeModel
from loom_cli.dev.fake_model.server import running
from loom_dsl.errors import (
    ContextLengthExceeded,
    LoomError,
    ModelAccessRefused,
    ModelProtocolError,
    ModelRateLimit,
    ModelRequestRefused,
    ModelUnavailable,
)
from loom_dsl.simulation.script import Script
from tests.support.waiting import PATIENCE, eventually

BODY = chat_body([b'{"role":"user","content":"hi"}'], model="m-1", tools_json=None, parameters={})
PATIENT = Timeouts()
KEY = "sk-very-secret-key-123456"


def script(*steps: dict[str, Any], **fields: Any) -> Script:
    return Script.model_validate({"loom": 1, "kind": "fake-model", "name": "demo", "steps": list(steps), **fields})


@asynccontextmanager
async def endpoint(model: FakeModel | Script, key: str = KEY) -> AsyncIterator[ChatEndpoint]:
    async with running(model) as url:
        found = ChatEndpoint(url, key)
        try:
            yield found
        finally:
            await found.aclose()


class Watched(FakeModel):
    """A fake model that tells when an exchange ended, and over which connections they came."""

    def __init__(self, told: Script) -> None:
        super().__init__(told)
        self.ended = asyncio.Event()
        self.connections: set[tuple[str, int]] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.connections.add(tuple(scope["client"]))
        await super().__call__(scope, receive, send)
        self.ended.set()


async def ask(
    step: dict[str, Any],
    *,
    body: bytes = BODY,
    on_text: Callable[[str], None] = lambda text: None,
    timeouts: Timeouts = PATIENT,
) -> ModelReply:
    async with endpoint(script(step)) as found:
        return await found.stream(body, on_text=on_text, timeouts=timeouts)


async def test_text_calls_usage_and_names_come_back_complete() -> None:
    seen: list[str] = []
    reply = await ask(
        {
            "say": "Ich schaue “es” an 🙂.",
            "chunk": 3,
            "delay": "5ms",
            "calls": [{"tool": "glob", "args": {"pattern": "**/*.py"}}, {"tool": "grep", "raw": '{"pattern": '}],
            "usage": {"prompt": 70, "completion": 8, "cached": 64},
        },
        on_text=seen.append,
    )
    assert reply.text == "".join(seen) == "Ich schaue “es” an 🙂."
    assert len(seen) > 2
    assert [(call.index, call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        (0, "call_1_0", "glob", '{"pattern":"**/*.py"}'),
        (1, "call_1_1", "grep", '{"pattern": '),
    ]
    assert reply.usage == Usage(prompt_tokens=70, completion_tokens=8, cached_tokens=64)
    assert (reply.finish_reason, reply.model, reply.request_id) == ("tool_calls", "m-1", "req_1")


async def test_an_asynchronous_listener_is_awaited_and_its_error_ends_the_call() -> None:
    async def refuse(text: str) -> None:
        await asyncio.sleep(0)
        raise KeyError(text)

    async with endpoint(script({"say": "abc"})) as found:
        with pytest.raises(KeyError, match="abc"):
            await found.stream(BODY, on_text=refuse)


@pytest.mark.parametrize(
    ("step", "text", "finish"),
    [
        ({"empty": True}, "", "stop"),
        ({"say": "cut o", "finish": "length"}, "cut o", "length"),
        ({"say": "", "finish": "content_filter"}, "", "content_filter"),
    ],
)
async def test_an_answer_that_is_odd_but_whole_is_handed_on(step: dict[str, Any], text: str, finish: str) -> None:
    reply = await ask(step)
    assert (reply.text, reply.tool_calls, reply.finish_reason) == (text, (), finish)


async def test_ids_that_occur_twice_are_kept() -> None:
    reply = await ask({"calls": [{"tool": "a", "id": "x"}, {"tool": "b", "id": "x"}, {"tool": "c", "id": ""}]})
    assert [(call.id, call.name) for call in reply.tool_calls] == [("x", "a"), ("x", "b"), ("call_2", "c")]


async def test_a_message_of_ten_megabytes_arrives_and_one_over_the_limit_is_refused() -> None:
    reply = await ask({"big": 10 << 20})
    assert len(reply.text) == 10 << 20
    with pytest.raises(ModelProtocolError, match="over 16777216 characters"):
        await ask({"big": 17 << 20})
    with pytest.raises(ModelProtocolError, match="over"):
        await ask({"big": 40 << 20, "chunk": 40 << 20})


FAILURES: list[tuple[dict[str, Any], type[LoomError], bool, str]] = [
    ({"fail": {"status": 429, "retry_after": "2s"}}, ModelRateLimit, True, "answered 429: Rate limit reached"),
    ({"fail": {"status": 429, "code": "insufficient_quota"}}, ModelAccessRefused, False, "plan and billing"),
    ({"fail": {"status": 429, "message": "Request too large for m-1"}}, ContextLengthExceeded, False, "m-1"),
    ({"fail": {"status": 429, "headers": {"x-should-retry": "false"}}}, ModelAccessRefused, False, "not to try"),
    ({"fail": {"status": 500}}, ModelUnavailable, True, "status page"),
    ({"fail": {"status": 503, "headers": {"x-should-retry": "false"}}}, ModelAccessRefused, False, "not to try"),
    ({"fail": {"status": 529, "message": "Overloaded"}}, ModelUnavailable, True, "Overloaded"),
    ({"fail": {"status": 408}}, ModelUnavailable, True, "408"),
    ({"fail": {"status": 409}}, ModelUnavailable, True, "409"),
    ({"fail": {"status": 400, "headers": {"x-should-retry": "true"}}}, ModelUnavailable, True, "400"),
    (
        {"fail": {"status": 400, "code": "context_length_exceeded", "message": "Too many tokens."}},
        ContextLengthExceeded,
        False,
        "Too many tokens. Take a larger model, or set limits.max_context_tokens",
    ),
    ({"fail": {"status": 413}}, ContextLengthExceeded, False, "too long"),
    ({"fail": {"status": 400, "message": "bad temperature"}}, ModelRequestRefused, False, "(400): bad temperature"),
    ({"fail": {"status": 422, "message": "bad field"}}, ModelRequestRefused, False, "bad field"),
    ({"fail": {"status": 401}}, ModelAccessRefused, False, "Set OPENAI_API_KEY"),
    ({"fail": {"status": 403}}, ModelAccessRefused, False, "Set OPENAI_API_KEY"),
    ({"fail": {"status": 404}}, ModelAccessRefused, False, "404 for the model 'm-1'"),
    ({"close_after": 0}, ModelUnavailable, True, "closed the connection"),
    ({"say": "x" * 100, "close_after": 3}, ModelUnavailable, True, "closed the connection"),
    ({"malformed": True}, ModelProtocolError, True, "broken JSON"),
]


@pytest.mark.parametrize(("step", "kind", "retryable", "told"), FAILURES)
async def test_every_failure_has_its_class_and_says_what_to_do(
    step: dict[str, Any], kind: type[LoomError], retryable: bool, told: str
) -> None:
    with pytest.raises(kind) as caught:
        await ask(step)
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable
    assert told in caught.value.message
    assert "127.0.0.1" in caught.value.message or kind is ContextLengthExceeded


@pytest.mark.parametrize(
    ("step", "timeouts", "told"),
    [
        ({"hang": True}, Timeouts(first_byte=0.4), "did not begin to answer within 0.4 s"),
        ({"say": "abc", "chunk": 1, "delay": "300s"}, Timeouts(idle=0.4), "fell silent for 0.4 s"),
    ],
)
async def test_a_model_that_keeps_one_waiting_is_given_up(step: dict[str, Any], timeouts: Timeouts, told: str) -> None:
    with pytest.raises(ModelUnavailable, match=told) as caught:
        await ask(step, timeouts=timeouts)
    assert caught.value.retryable
    assert "127.0.0.1" in caught.value.message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "3600"}, 3600.0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"retry-after": email.utils.formatdate(time.time() + 3600, usegmt=True)}, pytest.approx(3600.0, abs=3000)),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({}, None),
    ],
)
async def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    for status, kind in ((429, ModelRateLimit), (503, ModelUnavailable)):
        with pytest.raises(kind) as caught:
            await ask({"fail": {"status": status, "headers": headers}})
        assert caught.value.retry_after == seconds


async def test_a_providers_message_is_cut_and_shows_no_credential() -> None:
    leak = f"bad key {KEY}, or sk-proj-abcdefgh12345, header Bearer tok.en-1; " + "y" * 2000
    with pytest.raises(ModelRequestRefused) as caught:
        await ask({"fail": {"status": 400, "message": leak}})
    said = caught.value.message
    assert len(said) < 600
    assert not any(secret in said for secret in (KEY, "sk-proj-abcdefgh12345", "tok.en-1"))


async def test_a_wrong_key_is_told_without_showing_it() -> None:
    async with endpoint(FakeModel(script({"say": "x"}), api_key="sk-right-000000"), key=KEY) as found:
        with pytest.raises(ModelRequestRefused, match="Set OPENAI_API_KEY") as caught:
            await found.stream(BODY, on_text=lambda text: None)
    assert KEY not in caught.value.message
    assert KEY not in repr(found.provider)


async def test_an_administrators_key_in_the_environment_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, f"private-{name}")
    model = FakeModel(script({"say": "x"}), api_key=KEY)
    async with endpoint(model) as found:
        assert (await found.stream(BODY, on_text=lambda text: None)).text == "x"
    assert "private-" not in str(model.requests)


async def test_a_failure_is_never_repeated_by_the_adapter() -> None:
    model = FakeModel(script({"fail": {"status": 500, "times": 1}, "say": "later"}))
    async with endpoint(model) as found:
        with pytest.raises(ModelUnavailable):
            await found.stream(BODY, on_text=lambda text: None)
        assert model.count == 1
        assert (await found.stream(BODY, on_text=lambda text: None)).text == "later"


async def test_an_illegal_order_of_messages_is_refused_with_the_providers_reason() -> None:
    orphan = [b'{"role":"user","content":"hi"}', b'{"role":"tool","tool_call_id":"a","content":"x"}']
    with pytest.raises(ModelRequestRefused, match="must be a response"):
        await ask({"say": "x"}, body=chat_body(orphan, model="m", tools_json=None, parameters={}))


async def test_nothing_listening_and_an_unknown_host_say_what_to_check() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        for url, told in (
            (f"http://127.0.0.1:{port}/v1", "Nothing listens at 127.0.0.1"),
            ("http://no-such-host.invalid/v1", "no-such-host.invalid"),
        ):
            found = ChatEndpoint(url, "k", url_name="MY_BASE_URL")
            with pytest.raises(ModelUnavailable, match="MY_BASE_URL") as caught:
                await found.stream(BODY, on_text=lambda text: None, timeouts=Timeouts(connect=PATIENCE))
            await found.aclose()
            assert told in caught.value.message


async def test_the_total_time_ends_an_answer_that_never_ends() -> None:
    step = {"say": "x" * 10_000, "chunk": 1, "delay": "20ms"}
    with pytest.raises(ModelUnavailable, match=r"did not finish its answer within 0\.3 s"):
        await ask(step, timeouts=Timeouts(total=0.3))


@pytest.mark.parametrize("step", [{"hang": True}, {"say": "x" * 1000, "chunk": 1, "delay": "1s"}])
async def test_cancelling_closes_the_connection_at_once(step: dict[str, Any]) -> None:
    model = Watched(script(step))
    async with endpoint(model) as found:
        task = asyncio.create_task(found.stream(BODY, on_text=lambda text: None))
        await eventually(lambda: model.count)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(model.ended.wait(), PATIENCE)


async def test_connections_are_reused_between_calls() -> None:
    model = Watched(script({"say": "x"}))
    async with endpoint(model) as found:
        for _ in range(5):
            await found.stream(BODY, on_text=lambda text: None)
    assert (model.count, len(model.connections)) == (5, 1)


async def test_many_calls_at_once_share_an_endpoint() -> None:
    async with endpoint(script({"say": "{n}", "delay": "5ms"})) as found:
        replies = await asyncio.gather(*(found.stream(BODY, on_text=lambda text: None) for _ in range(20)))
    assert [reply.text for reply in replies] == ["1"] * 20


async def test_the_environment_leads_to_the_endpoint_and_extra_headers_are_sent() -> None:
    model = FakeModel(script({"say": "x"}))
    async with running(model) as url:
        found, name = endpoint_from_environment("openai:gpt-x", {"OPENAI_BASE_URL": url})
        body = chat_body([b'{"role":"user","content":"hi"}'], model=name, tools_json=None, parameters={})
        reply = await found.stream(body, on_text=lambda text: None, headers={"x-loom-run": "job-1"})
        await found.aclose()
    assert (name, reply.model, model.requests[0].headers["x-loom-run"]) == ("gpt-x", "gpt-x", "job-1")
