"""A provider's own fields: which of them are kept, to whom they go back, and what a provider refuses."""

import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from activities.chat.endpoints import Endpoints
from activities.chat.provider import named
from activities.chat.send_back import refused_fields, send_back, without_fields
from loom_cli.dev.fake_model.app import FakeModel
from loom_cli.dev.fake_model.server import running
from loom_dsl.agent.provider_fields import ProviderFields, SendBack, given_fields
from loom_dsl.errors import ModelAccessRefused
from loom_dsl.simulation.script import Script

SECRET = "correct-horse-battery"
SECRETS = {"TOKEN": SECRET}
SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
DETAILS = [{"type": "reasoning.encrypted", "data": "AAA=", "index": 0}]
DUMMY = {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}


def kept(message: Mapping[str, Any] = {}, *calls: Mapping[str, Any], reasoning: str = "") -> ProviderFields | None:
    return given_fields(by="p@h", model="m", message=message, calls=calls, reasoning=reasoning, secrets=SECRETS)


def given(
    message: Mapping[str, Any] = {}, *calls: Mapping[str, Any], by: str = "p@h", model: str = "m"
) -> ProviderFields:
    return ProviderFields(by=by, model=model, message=message, calls=calls)


def assistant(*ids: str, text: str | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if ids:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": "t", "arguments": "{}"}} for id in ids
        ]
    return message


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"reasoning_content": "I think."}, {"reasoning_content": "I think."}),
        ({"reasoning_content": ""}, {"reasoning_content": ""}),
        ({"reasoning_content": None}, {}),
        ({"reasoning_details": DETAILS, "x": {"y": [1, 1.5, None, True]}}, None),
        ({"refusal": "no", "annotations": [], "audio": {"id": "a"}, "function_call": {"name": "f"}}, {}),
        ({"role": "tool", "content": "x", "tool_calls": [], "tool_call_id": "1"}, {}),
        ({"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "x"}]}, None),
        # What people read is masked; what may be signed is left out whole.
        ({"reasoning_content": f"The key is {SECRET}."}, {"reasoning_content": "The key is ${secret:TOKEN}."}),
        ({"reasoning_details": [{"text": f"The key is {SECRET}."}], "a": 1}, {"a": 1}),
        ({"signature": SECRET}, {}),
        ({SECRET: "x"}, {}),
        ({"bad": float("nan"), "worse": [float("inf")]}, {}),
    ],
)
def test_an_answers_fields_are_kept_as_they_came_but_for_secrets(
    fields: dict[str, Any], left: dict[str, Any] | None
) -> None:
    found = kept({**fields, "always": "there"})
    assert found is not None
    wanted = fields if left is None else left
    assert {name: value for name, value in found.message.items() if name != "always"} == wanted


def test_a_calls_own_fields_are_kept_without_those_of_the_api() -> None:
    found = kept({}, {**SIGNED, "index": 4, "id": "x", "function": {}}, {})
    assert found is not None
    assert found.calls == (SIGNED, {})


def test_nothing_is_kept_of_an_answer_that_has_nothing_of_its_own() -> None:
    assert kept({"refusal": None}, {}, {"index": 1}) is None


def test_reasoning_for_people_is_masked() -> None:
    found = kept(reasoning=f"use {SECRET}")
    assert found is not None
    assert SECRET not in found.reasoning


@pytest.mark.parametrize("text", ["plain", "é\u2028\U0001f600", "\ud800 alone", 'quote " \\ \u0000'])
def test_what_was_given_comes_back_from_the_store_as_it_was(text: str) -> None:
    one = given({"reasoning_content": text, "n": 12345678901234567890, "f": 1e-7}, SIGNED, {})
    assert ProviderFields.load(one.dump()) == one


TO = SendBack(by="p@h", model="m")
OWN = given({"reasoning_content": "r"}, SIGNED, {})


@pytest.mark.parametrize(
    ("to", "one", "message", "calls"),
    [
        (TO, OWN, {"reasoning_content": "r"}, [SIGNED, {}]),
        (TO, None, {}, [{}, {}]),
        (TO, given({"a": 1}), {"a": 1}, [{}, {}]),
        (TO, given({}, SIGNED, {}, SIGNED), {}, [SIGNED, {}]),
        (SendBack(by="p@elsewhere", model="m"), OWN, {}, [{}, {}]),
        (SendBack(by="q@h", model="m"), OWN, {}, [{}, {}]),
        (SendBack(by="p@h", model="m2"), OWN, {}, [{}, {}]),
        (SendBack(by="p@h", model="m", names=frozenset()), OWN, {}, [{}, {}]),
        (SendBack(by="p@h", model="m", names=frozenset({"extra_content"})), OWN, {}, [SIGNED, {}]),
        (
            SendBack(by="p@h", model="m", without=frozenset({"extra_content"})),
            OWN,
            {"reasoning_content": "r"},
            [{}, {}],
        ),
    ],
)
def test_fields_go_back_to_the_provider_and_model_that_gave_them_and_to_no_other(
    to: SendBack, one: ProviderFields | None, message: dict[str, Any], calls: list[dict[str, Any]]
) -> None:
    plain = assistant("1", "2")
    told = [{**call, **more} for call, more in zip(plain["tool_calls"], calls, strict=True)]
    assert to.message(plain, one) == {**plain, **message, "tool_calls": told}
    assert plain == assistant("1", "2")


def place(model: str, host: str) -> Any:
    return named(f"x:{model}", {"X_BASE_URL": f"https://{host}/v1", "X_API_KEY": "k"})


@pytest.mark.parametrize(
    ("host", "model", "env", "one", "calls", "sent"),
    [
        ("api.deepseek.com", "v", {}, {"reasoning_content": "r"}, True, {"reasoning_content": "r"}),
        ("api.deepseek.com", "v", {}, {"reasoning_content": "r"}, False, {}),
        ("api.deepseek.com", "v", {}, None, True, {"reasoning_content": ""}),
        ("api.deepseek.com", "v", {}, None, False, {}),
        (
            "api.deepseek.com",
            "v",
            {"X_SEND_BACK": "all"},
            {"reasoning_content": "r"},
            False,
            {"reasoning_content": "r"},
        ),
        ("api.mistral.ai", "m", {}, {"a": 1}, True, {}),
        ("api.mistral.ai", "m", {"X_SEND_BACK": "a, b"}, {"a": 1, "c": 2}, True, {"a": 1}),
        ("api.mistral.ai", "m", {}, {"content": [{"type": "thinking"}]}, False, None),
        ("openrouter.ai", "z", {}, {"reasoning": "r", "reasoning_details": DETAILS}, False, None),
        ("api.groq.com", "z", {}, {"reasoning": "r"}, True, None),
        ("somewhere.example:8443", "z", {}, {"reasoning_content": "r"}, False, None),
        ("somewhere.example", "z", {"X_SEND_BACK": "none"}, {"reasoning_content": "r"}, True, {}),
    ],
)
def test_each_provider_gets_back_what_it_wants(
    host: str, model: str, env: dict[str, str], one: dict[str, Any] | None, calls: bool, sent: dict[str, Any] | None
) -> None:
    to = send_back(place(model, host), env)
    plain = assistant(*(["1"] if calls else []), text="hi")
    message = to.message(plain, None if one is None else given(one, by=to.by, model=model))
    assert message == {**plain, **((one if sent is None else sent) or {})}


@pytest.mark.parametrize(
    ("model", "foreign"),
    [("gemini-3-pro-preview", DUMMY), ("models/gemini-4", DUMMY), ("gemini-2.5-pro", {}), ("gemma-3", {})],
)
def test_calls_of_another_model_are_shown_to_gemini_with_the_signature_that_stands_for_none(
    model: str, foreign: dict[str, Any]
) -> None:
    to = send_back(place(model, "generativelanguage.googleapis.com"), {})
    plain = assistant("1", "2")
    first, second = to.message(plain, given({}, SIGNED, {}, by="openai@api.openai.com"))["tool_calls"]
    assert (first, second) == ({**plain["tool_calls"][0], **foreign}, plain["tool_calls"][1])
    own = to.message(plain, given({}, SIGNED, {}, by=to.by, model=model))["tool_calls"]
    assert own == [{**plain["tool_calls"][0], **SIGNED}, plain["tool_calls"][1]]


def body(**fields: Any) -> bytes:
    messages = [{"role": "user", "content": "hi", "reasoning": "mine"}, {**assistant("1"), "reasoning": "r"}]
    messages[1]["tool_calls"][0] |= SIGNED  # type: ignore[index]
    return json.dumps(
        {"model": "m", "stream_options": {"include_usage": True}, "messages": messages, **fields}
    ).encode()


@pytest.mark.parametrize(
    ("told", "names"),
    [
        ("'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property 'reasoning' is "
         "unsupported)]", {"reasoning"}),
        ('[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]',
         {"stream_options"}),
        ("Unrecognized request argument supplied: stream_options", {"stream_options"}),
        ("Unknown name \"extra_content\" at 'messages[1].tool_calls[0]': Cannot find field.", {"extra_content"}),
        ("The reasoning in the thinking mode must be passed back, unknown otherwise", set()),
        ("property 'reasoning_content' is unsupported", set()),
        ("property 'temperature' is unsupported", set()),
        ("property 'content' is unsupported", set()),
        ("stream_options: the usage is too high", set()),
    ],
)  # fmt: skip
def test_a_refusal_tells_which_field_a_request_can_do_without(told: str, names: set[str]) -> None:
    assert refused_fields(body(), told) == names


def test_a_request_is_written_without_the_fields_and_otherwise_as_it_was() -> None:
    left = json.loads(without_fields(body(), frozenset({"stream_options", "reasoning", "extra_content"})))
    messages = [{"role": "user", "content": "hi", "reasoning": "mine"}, assistant("1")]
    assert left == {"model": "m", "messages": messages}


def script(*steps: dict[str, Any], **fields: Any) -> Script:
    return Script.model_validate({"loom": 1, "kind": "fake-model", "name": "demo", "steps": list(steps), **fields})


async def asked(endpoints: Endpoints, times: int = 1) -> None:
    own = json.dumps({**assistant(text="x"), "reasoning": "r"})
    for _ in range(times):
        to = endpoints.send_back("p:m")
        assert to is not None
        sent = own if "reasoning" not in to.without else json.dumps(assistant(text="x"))
        messages = ['{"role":"user","content":"hi"}', sent, '{"role":"user","content":"more"}']
        await endpoints.ask("p:m", endpoints.body("p:m", messages, parameters={}), job="j", on_text=lambda text: None)


async def test_what_a_provider_refuses_is_left_out_and_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    model = FakeModel(script(otherwise={"say": "x"}, refuses=["stream_options", "reasoning"]))
    async with running(model) as url:
        endpoints = Endpoints({"P_BASE_URL": url})
        with caplog.at_level(logging.WARNING):
            await asked(endpoints, 3)
        await endpoints.close()
    assert model.statuses == {400: 2, 200: 3}
    assert [record.getMessage().partition("; ")[2] for record in caplog.records] == [
        "it is left out from now on. P_STREAM_OPTIONS=off keeps it from being tried",
        "it is left out from now on. P_SEND_BACK=none keeps it from being tried",
    ]


@pytest.mark.parametrize(("told", "sent"), [("off", False), ("no", False), ("on", True), ("", True)])
async def test_stream_options_is_switched_off_by_a_variable(told: str, sent: bool) -> None:
    endpoints = Endpoints({"P_BASE_URL": "http://127.0.0.1:1/v1", "P_STREAM_OPTIONS": told})
    assert ("stream_options" in json.loads(endpoints.body("p:m", [], parameters={}))) is sent
    await endpoints.close()


@pytest.mark.parametrize(
    ("host", "sent"), [("api.mistral.ai", False), ("api.openai.com", True), ("not-api.mistral.ai.example", True)]
)
async def test_stream_options_is_off_where_the_service_is_known_to_refuse_it(host: str, sent: bool) -> None:
    endpoints = Endpoints({"P_BASE_URL": f"https://{host}/v1", "P_API_KEY": "k"})
    assert ("stream_options" in json.loads(endpoints.body("p:m", [], parameters={}))) is sent
    await endpoints.close()


async def test_a_switch_that_is_none_is_told_with_its_name() -> None:
    endpoints = Endpoints({"P_BASE_URL": "http://127.0.0.1:1/v1", "P_STREAM_OPTIONS": "maybe"})
    with pytest.raises(ModelAccessRefused, match="P_STREAM_OPTIONS is 'maybe'; set it to on or off"):
        endpoints.body("p:m", [], parameters={})
    await endpoints.close()
