"""Whether a model writes its reasoning into its text: told by its name, or by the variable of its provider."""

import pytest

from activities.chat.endpoints import Endpoints
from activities.chat.reply import ModelReply
from loom_cli.dev.fake_model.server import running
from loom_dsl.errors import ModelAccessRefused
from loom_dsl.simulation.script import Script

SAID = "<think>I look.</think>\n\nIt is 4."


async def asked(model: str, told: str) -> tuple[ModelReply, str]:
    script = Script.model_validate({"loom": 1, "kind": "fake-model", "name": "d", "steps": [{"say": SAID, "chunk": 3}]})
    shown: list[str] = []
    async with running(script) as url:
        endpoints = Endpoints({"P_BASE_URL": url, "P_THINK_TAGS": told})
        body = endpoints.body(model, ['{"role":"user","content":"hi"}'], parameters={})
        reply = await endpoints.ask(model, body, job="j", on_text=shown.append)
        await endpoints.close()
    return reply, "".join(shown)


@pytest.mark.parametrize(
    ("model", "told", "text", "reasoning"),
    [
        ("p:qwen3", "", "It is 4.", "I look."),
        ("p:qwen3", "off", SAID, ""),
        ("p:some-model", "", SAID, ""),
        ("p:some-model", "on", "It is 4.", "I look."),
    ],
)
async def test_reasoning_is_taken_out_where_the_name_or_the_variable_says_so(
    model: str, told: str, text: str, reasoning: str
) -> None:
    reply, shown = await asked(model, told)
    assert (reply.text, shown, reply.reasoning) == (text, text, reasoning)


async def test_a_variable_that_is_no_switch_is_told() -> None:
    with pytest.raises(ModelAccessRefused, match="P_THINK_TAGS is 'perhaps'"):
        await asked("p:qwen3", "perhaps")
