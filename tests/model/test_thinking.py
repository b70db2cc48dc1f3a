"""Reasoning between think tags: taken out of the text where a model is known for it, however the text is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.chat.endpoints import Endpoints
from activities.chat.provider import named
from activities.chat.reply import ModelReply
from activities.chat.thinking import ThoughtReader, divided, writes_thoughts
from loom_cli.dev.fake_model.server import running
from loom_dsl.simulation.script import Script


@pytest.mark.parametrize(
    ("model", "thinks"),
    [
        *((f"x:{name}", True) for name in (
            "deepseek-r1", "deepseek-ai/DeepSeek-R1-0528", "deepseek-r1:70b", "deepseek-r1-distill-8b", "r1-1776",
            "qwq-32b", "Qwen/QwQ-32B-Preview", "qwen3:8b", "Qwen/Qwen3-235B-A22B", "magistral-small", "glm-4.5-air",
            "zai-org/GLM-Z1-9B", "MiniMax-M2", "kimi-k2-thinking", "Phi-4-reasoning-plus", "smollm3-3b",
        )),
        *((f"x:{name}", False) for name in (
            "gpt-4.1-mini", "gpt-5", "claude-sonnet-4-5", "gemini-3-pro", "llama-3.3-70b", "qwen2.5-coder", "mixtral",
            "deepseek-chat", "deepseek-v3", "llama-r12", "glm-4-9b", "kimi-k2", "phi-4",
        )),
    ],
)  # fmt: skip
def test_models_that_think_in_their_text_are_known_by_their_names(model: str, thinks: bool) -> None:
    env = {"X_BASE_URL": "http://127.0.0.1:1/v1"}
    place = named(model, env)
    assert writes_thoughts(place, env) is thinks
    assert writes_thoughts(place, {**env, "X_THINK_TAGS": "on"}) is True
    assert writes_thoughts(place, {**env, "X_THINK_TAGS": "off"}) is False


TEXTS = [
    ("<think>I look.</think>It is 4.", "I look.", "It is 4."),
    ("\n <think>\nI look.\n</think>\n\nIt is 4.\n", "\nI look.\n", "It is 4.\n"),
    ("<think></think>It is 4.", "", "It is 4."),
    ("<think>\n\n</think>\n\nIt is 4.", "\n\n", "It is 4."),
    ("<think>a < b, </thin> and </ think></think>x", "a < b, </thin> and </ think>", "x"),
    ("<think>I look, and then", "I look, and then", ""),
    ("<think>I look</thi", "I look</thi", ""),
    ("<think>one</think>two <think>three</think>", "one", "two <think>three</think>"),
    ("It is <think>4</think>.", "", "It is <think>4</think>."),
    ("<thin air>", "", "<thin air>"),
    ("<thi", "", "<thi"),
    ("  leading", "", "  leading"),
    ("", "", ""),
]


@pytest.mark.parametrize(("text", "thought", "said"), TEXTS)
def test_reasoning_is_divided_from_the_answer_wherever_the_text_is_cut(text: str, thought: str, said: str) -> None:
    for size in (1, 2, 3, 5, 8, len(text) + 1):
        reader = ThoughtReader()
        given_out = "".join(reader.feed(text[at : at + size]) for at in range(0, len(text), size)) + reader.rest()
        assert ("".join(reader.thoughts), given_out) == (thought, said)


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "think>", "</", " ", "a", "\n"])), st.data())
def test_where_a_text_is_cut_does_not_matter(words: list[str], data: st.DataObject) -> None:
    text = "".join(words)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    whole, pieces = ThoughtReader(), ThoughtReader()
    said = whole.feed(text) + whole.rest()
    in_pieces = "".join(pieces.feed(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True))
    assert (in_pieces + pieces.rest(), "".join(pieces.thoughts)) == (said, "".join(whole.thoughts))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("I look.\n</think>\n\nIt is 4.", ("I look.", "It is 4.")),
        ("<think>I look.</think>4", ("I look.", "4")),
        ("Write <think> and </think>.", ("", "Write <think> and </think>.")),
        ("It is 4.", ("", "It is 4.")),
    ],
)
def test_a_text_whose_opening_tag_stood_in_the_template_is_divided_too(text: str, parts: tuple[str, str]) -> None:
    assert divided(text) == parts


async def asked(model: str, say: str) -> tuple[ModelReply, str]:
    script = Script.model_validate({"loom": 1, "kind": "fake-model", "name": "d", "steps": [{"say": say, "chunk": 3}]})
    shown: list[str] = []
    async with running(script) as url:
        endpoints = Endpoints({"P_BASE_URL": url})
        body = endpoints.body(model, ['{"role":"user","content":"hi"}'], parameters={})
        reply = await endpoints.ask(model, body, job="j", on_text=shown.append)
        await endpoints.close()
    return reply, "".join(shown)


async def test_neither_watchers_nor_the_answer_have_what_a_model_thinks() -> None:
    reply, shown = await asked("p:qwen3", "<think>I look.</think>\n\nIt is 4.")
    assert (reply.text, shown, reply.reasoning) == ("It is 4.", "It is 4.", "I look.")


async def test_another_models_text_is_its_own() -> None:
    reply, shown = await asked("p:gpt-x", "<think>I look.</think>It is 4.")
    assert reply.text == shown == "<think>I look.</think>It is 4."
    assert reply.reasoning == ""
