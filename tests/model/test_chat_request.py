"""What is asked and where: the request's body, the model's address, and reading events from any cut of bytes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.chat.client import chat_body, model_of
from activities.chat.provider import address
from activities.chat.stream import EventReader
from loom_dsl.errors import ConfigurationError

TOOLS = '[{"type":"function","function":{"name":"t"}}]'


def test_a_body_is_joined_without_touching_the_messages() -> None:
    messages = [b'{"role": "system",  "content":"as it is"}', '{"role":"user","content":"é"}']
    body = chat_body(messages, model='m"1', tools_json=TOOLS, parameters={"temperature": 0.5, "max_tokens": 9})
    assert b'{"role": "system",  "content":"as it is"},{"role":"user","content":"\xc3\xa9"}' in body
    assert json.loads(body) == {
        "model": 'm"1',
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "max_tokens": 9,
        "tools": json.loads(TOOLS),
        "messages": [{"role": "system", "content": "as it is"}, {"role": "user", "content": "é"}],
    }
    assert model_of(body) == 'm"1'


@pytest.mark.parametrize("tools", [None, "", "[]", " [] "])
def test_without_tools_nothing_about_tools_is_said(tools: str | None) -> None:
    body = chat_body([], model="m", tools_json=tools, parameters={"tool_choice": "auto", "parallel_tool_calls": False})
    assert json.loads(body).keys() == {"model", "stream", "stream_options", "messages"}


def test_a_lone_surrogate_does_not_spoil_the_body() -> None:
    body = chat_body(['{"role":"user","content":"a\ud800b"}'], model="m", tools_json=None, parameters={})
    assert json.loads(body)["messages"][0]["content"] == "a?b"


def test_the_order_of_parameters_does_not_change_the_body() -> None:
    one = chat_body([], model="m", tools_json=None, parameters={"a": 1, "b": 2})
    assert one == chat_body([], model="m", tools_json=None, parameters={"b": 2, "a": 1})


@pytest.mark.parametrize(
    ("parameters", "told"),
    [({"stream": False}, "`stream` is set by Loom"), ({"messages": []}, "messages"), ({"top_p": float("nan")}, "JSON")],
)
def test_a_parameter_that_is_looms_own_or_not_json_is_refused(parameters: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        chat_body([], model="m", tools_json=None, parameters=parameters)


KEY = {"OPENAI_API_KEY": "k"}
LOCAL = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("model", "env", "name", "url", "key"),
    [
        ("gpt-x", KEY, "gpt-x", "https://api.openai.com/v1", "k"),
        ("openai:gpt-x", KEY, "gpt-x", "https://api.openai.com/v1", "k"),
        ("ft:gpt-x:org::id", KEY, "ft:gpt-x:org::id", "https://api.openai.com/v1", "k"),
        ("gpt-x", {"OPENAI_BASE_URL": f" {LOCAL}/ "}, "gpt-x", LOCAL, ""),
        ("gpt-x", {"OPENAI_BASE_URL": "http://[::1]:1/v1"}, "gpt-x", "http://[::1]:1/v1", ""),
        ("gpt-x", {**KEY, "OPENAI_BASE_URL": ""}, "gpt-x", "https://api.openai.com/v1", "k"),
        ("openai:llama3:8b", {"OPENAI_BASE_URL": LOCAL}, "llama3:8b", LOCAL, ""),
        ("ollama:llama3:8b", {}, "llama3:8b", "http://127.0.0.1:11434/v1", ""),
        ("groq:x/y", {"GROQ_API_KEY": " g\n"}, "x/y", "https://api.groq.com/openai/v1", "g"),
        ("my-host:x", {"MY_HOST_BASE_URL": "https://h/v1", "MY_HOST_API_KEY": "z"}, "x", "https://h/v1", "z"),
    ],
)
def test_a_models_name_and_the_environment_say_where_it_is(
    model: str, env: dict[str, str], name: str, url: str, key: str
) -> None:
    found = address(model, env)
    assert (found.model, found.base_url, found.api_key) == (name, url, key)


@pytest.mark.parametrize(
    ("model", "env", "told"),
    [
        ("gpt-x", {}, "set OPENAI_API_KEY"),
        ("gpt-x", {"OPENAI_API_KEY": "  "}, "set OPENAI_API_KEY"),
        ("gpt-x", {"OPENAI_BASE_URL": "https://proxy.example/v1"}, "set OPENAI_API_KEY"),
        ("mistral:x", KEY, "set MISTRAL_API_KEY"),
        ("llama3:8b", KEY, "write openai:llama3:8b"),
        ("openai:", KEY, "is not a model"),
        ("", KEY, "is not a model"),
        (":x", KEY, "is not a model"),
        ("gpt-x", {"OPENAI_API_KEY": "secret\nvalue"}, "OPENAI_API_KEY holds characters"),
        ("gpt-x", {"OPENAI_API_KEY": "sécret"}, "OPENAI_API_KEY holds characters"),
        ("gpt-x", {**KEY, "OPENAI_BASE_URL": "api.openai.com"}, "OPENAI_BASE_URL is not an address"),
        ("gpt-x", {**KEY, "OPENAI_BASE_URL": "ftp://h/v1"}, "OPENAI_BASE_URL is not an address"),
        ("gpt-x", {**KEY, "OPENAI_BASE_URL": "http://h:99999/v1"}, "OPENAI_BASE_URL is not an address"),
        ("gpt-x", {**KEY, "OPENAI_BASE_URL": "https://u:secret@h/v1"}, "holds a user or a password"),
    ],
)
def test_what_is_missing_is_told_and_a_secret_is_not(model: str, env: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        address(model, env)
    assert told in caught.value.message
    assert "secret" not in caught.value.message


@given(
    events=st.lists(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1), max_size=5),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    data=st.data(),
)
def test_events_do_not_depend_on_how_the_bytes_are_cut(events: list[str], end: str, data: st.DataObject) -> None:
    raw = "".join(f": comment{end}data: {event}{end}{end}" for event in events).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    reader, found = EventReader(1 << 20), []
    for start, stop in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        found += reader.feed(raw[start:stop])
    found += reader.finish()
    assert found == [event.encode() for event in events]
