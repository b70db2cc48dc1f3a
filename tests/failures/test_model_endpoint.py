"""A model's endpoint that refuses, hangs, breaks off or answers nonsense: what the job comes to, and what it says."""

import re
from itertools import pairwise
from typing import Any

import pytest

from loom_dsl.observe.events import EventType
from tests.durability.reading import of, watched
from tests.failures.bad_tools import CREDENTIAL
from tests.failures.stand import MODEL_KEY, Stand

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

ENVIRONMENT = {
    "LOOM_MODEL_FIRST_BYTE": "20s",
    "LOOM_MODEL_IDLE": "5s",
    "LOST_BASE_URL": "http://model.invalid/v1",
    "LOST_API_KEY": "nothing",
    "NOKEY_BASE_URL": "https://model.invalid/v1",
    "BROKEN_BASE_URL": "model.invalid",
}

FAILING: dict[str, tuple[dict[str, Any], int, str, str]] = {
    # model or steps, requests to the scripted model, code, words of the message
    "400": (
        {"steps": [{"fail": {"status": 400, "message": "unknown field `colour`"}}]},
        1,
        "model_refused",
        r"refuses the request \(400\): unknown field",
    ),
    "too long": (
        {"steps": [{"fail": {"status": 400, "code": "context_length_exceeded", "message": "8193 tokens"}}]},
        1,
        "context_length",
        r"too long for the model 'scripted'",
    ),
    "malformed for ever": (
        {"steps": [{"say": "I begin", "malformed": True}]},
        4,
        "model_protocol",
        r"answered with broken JSON",
    ),
    "empty and filtered": (
        {"steps": [{"empty": True, "finish": "content_filter"}]},
        1,
        "model_refused",
        r"filter withheld the whole answer",
    ),
    "page": ({"model": "page:m"}, 0, "model_protocol", r"answered with a web page.*PAGE_BASE_URL"),
    "binary": ({"model": "binary:m"}, 0, "model_protocol", r"no event stream"),
    "wrongform": ({"model": "wrongform:m"}, 0, "model_protocol", r"cannot be used: a tool call is not an object"),
    "refused content": (
        {"steps": [{"fail": {"status": 403, "message": "flagged by moderation"}}]},
        1,
        "model_refused",
        r"refuses the content \(403\): flagged",
    ),
}

HALTING: dict[str, tuple[dict[str, Any], int | None, str, str]] = {
    # model or steps, requests to the scripted model (None: as many as the outage's time allows), cause, words
    "refuses": (
        {"model": "gone:m"},
        None,
        "model_unavailable",
        r"Nothing listens at 127\.0\.0\.1:\d+\. .*check GONE_BASE_URL",
    ),
    "no such host": ({"model": "lost:m"}, None, "model_unavailable", r"no host model\.invalid: .*Check LOST_BASE_URL"),
    "falls silent": (
        {"steps": [{"say": "I think of it", "chunk": 4, "delay": "300s"}]},
        None,
        "model_unavailable",
        r"fell silent for 5 s .*LOOM_MODEL_IDLE",
    ),
    "401": (
        {"steps": [{"fail": {"status": 401}}]},
        1,
        "model_access",
        r"refuses the credential \(401\).*OPENAI_API_KEY.*OPENAI_BASE_URL",
    ),
    "403": ({"steps": [{"fail": {"status": 403}}]}, 1, "model_access", r"refuses the credential \(403\)"),
    "404": (
        {"steps": [{"fail": {"status": 404}}]},
        1,
        "model_access",
        r"404 for the model 'scripted'.*OPENAI_BASE_URL",
    ),
    "quota": (
        {"steps": [{"fail": {"status": 429, "code": "insufficient_quota"}}]},
        1,
        "model_access",
        r"quota is used up",
    ),
    "429 for ever": (
        {"steps": [{"fail": {"status": 429, "retry_after": "50ms"}}]},
        None,
        "rate_limit",
        r"answered 429.*Lower the rate",
    ),
    "500 for ever": ({"steps": [{"fail": {"status": 500}}]}, None, "model_unavailable", r"answered 500.*status page"),
    "closes for ever": (
        {"steps": [{"say": "I begin", "close_after": 2}]},
        None,
        "model_unavailable",
        r"closed the connection before its answer was complete|ended its answer before",
    ),
    "key in the refusal": (
        {"steps": [{"fail": {"status": 401, "message": f"bad key {MODEL_KEY} or {CREDENTIAL}"}}]},
        1,
        "model_access",
        r"bad key \*\*\* or \*\*\*",
    ),
    "no key": ({"model": "nokey:m"}, 0, "model_access", r"No key for the model 'nokey:m': set NOKEY_API_KEY"),
    "no address": (
        {"model": "nobody:m"},
        0,
        "model_access",
        r"provider 'nobody', which has no address\. Set NOBODY_BASE_URL",
    ),
    "bad address": ({"model": "broken:m"}, 0, "model_access", r"BROKEN_BASE_URL is not an address"),
    "moved": ({"model": "moved:m"}, 0, "model_access", r"redirects to https://elsewhere\.test/v1.*MOVED_BASE_URL"),
    "silent": ({"model": "silent:m"}, None, "model_unavailable", r"127\.0\.0\.1:\d+"),
    "nohttp": ({"model": "nohttp:m"}, None, "model_unavailable", r"127\.0\.0\.1:\d+"),
    "unended": ({"model": "unended:m"}, None, "model_unavailable", r"ended its answer before it was complete"),
    "excused": ({"model": "excused:m"}, None, "model_unavailable", r"the model is being loaded"),
}

RECOVERING: dict[str, tuple[list[dict[str, Any]], int]] = {
    # steps, requests
    "500 twice": ([{"fail": {"status": 500, "times": 2}, "say": "well"}], 3),
    "hangs once": ([{"hang": True, "times": 1, "say": "well"}], 2),
    "thinks for long": ([{"before": "6.5s", "say": "well"}], 1),
    "429 at once": ([{"fail": {"status": 429, "retry_after": "100ms", "times": 3}, "say": "well"}], 4),
    "429 later": ([{"fail": {"status": 429, "retry_after": "3s", "times": 1}, "say": "well"}], 2),
    "malformed once": ([{"malformed": True, "times": 1, "say": "well"}], 2),
    "closes once": ([{"say": "well " * 40, "close_after": 20, "delay": "10ms", "chunk": 5, "times": 1}], 2),
}

CASES: dict[str, dict[str, Any]] = {
    **{
        name: {"steps": given.get("steps", []), "agent": {"model": given["model"]} if "model" in given else {}}
        for name, (given, *_) in FAILING.items()
    },
    **{
        name: {
            "steps": given.get("steps", []),
            "agent": {"limits": {"max_outage": "2s"}, **({"model": given["model"]} if "model" in given else {})},
            "halts": True,
        }
        for name, (given, *_) in HALTING.items()
    },
    **{name: {"steps": steps} for name, (steps, _) in RECOVERING.items()},
    "unpriced": {"steps": [], "agent": {"model": "unpriced:m"}},
}


def requests(stand: Stand, job: str) -> int:
    return sum(kept.headers.get("x-loom-run") == job for kept in stand.model.requests)


@pytest.mark.parametrize("name", FAILING)
async def test_the_job_fails_and_says_what_to_check(stand: Stand, name: str) -> None:
    _, count, code, words = FAILING[name]
    found = await stand.outcome(name)
    error = found.result.error
    assert error is not None
    assert (found.result.status, error.code) == ("failed", code)
    assert re.search(words, error.message), error.message
    assert requests(stand, found.job.id) == count
    assert [message["role"] for message in found.messages] == ["user"]
    assert [data["message"] for data in of(found.told, EventType.ERROR)] == [error.message]


@pytest.mark.parametrize("name", HALTING)
async def test_what_a_person_can_put_right_halts_the_step_and_says_what_to_do(stand: Stand, name: str) -> None:
    _, count, cause, words = HALTING[name]
    found = await stand.outcome(name)
    (step,) = found.halted
    assert (step["at"], step["cause"]) == ("model#1", cause)
    assert re.search(words, step["message"]), step["message"]
    assert step["action"]
    if count is not None:
        assert requests(stand, found.job.id) == count
    (told,) = of(found.told, EventType.HALTED)
    assert told["message"] == step["message"]
    assert found.result.status == "aborted"


@pytest.mark.parametrize("name", RECOVERING)
async def test_the_job_goes_on_when_the_model_does(stand: Stand, name: str) -> None:
    _, count = RECOVERING[name]
    found = await stand.outcome(name)
    assert found.result.status == "completed", found.result.error
    assert found.result.answer.startswith("well")
    assert requests(stand, found.job.id) == count
    assert found.result.usage.prompt_tokens == 100
    assert found.result.usage.model_calls == 1
    seen = name == "closes once"  # of the other attempts that were lost, nothing had been answered
    assert found.result.usage.wasted.prompt_tokens == (100 if seen else 0)
    assert (found.result.usage.wasted.completion_tokens > 0) is seen


async def test_a_watcher_sees_a_reset_and_the_text_once(stand: Stand) -> None:
    found = await stand.outcome("closes once")
    assert len(of(found.told, EventType.STREAM_RESET)) == 1
    assert list(watched(found.told).values()) == ["well " * 40]
    assert len(of(found.told, EventType.LLM_DELTA)) > 1


@pytest.mark.parametrize(("name", "seconds"), [("429 at once", 0.1), ("429 later", 3.0)])
async def test_a_provider_says_when_to_ask_again(stand: Stand, name: str, seconds: float) -> None:
    # Alone: a busy worker loses attempts, and those come again sooner.
    for _ in range(3):
        found = await stand.unharmed(await stand.start(name))
        if not found.unheard_of:
            break
    waits = [later - sooner for sooner, later in pairwise(stand.asked[found.job.id])]
    assert min(waits) >= seconds
    told = of(found.told, EventType.WAITING)
    assert {data["cause"] for data in told} == {"rate_limit"}
    assert len(told) == len(stand.asked[found.job.id]) - 1


async def test_usage_that_a_provider_does_not_tell_is_estimated(stand: Stand) -> None:
    found = await stand.outcome("unpriced")
    assert found.result.status == "completed"
    assert found.result.answer == "hellohello"
    assert found.result.usage.prompt_tokens > 10
    assert found.result.usage.completion_tokens > 0
