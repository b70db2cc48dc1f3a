"""A worker is killed at every point of the stage `execute`: no effect is there twice, and what is unknown is told."""

import json
from typing import Any

import pytest

from tests.durability.conftest import Opener
from tests.durability.reading import account, effects_of
from tests.support import killing, stopped
from tests.support.external import lines
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

pytestmark = [pytest.mark.server, pytest.mark.crash]

INTENT, BEFORE, AFTER = "before the intent", "before the effect", "after the effect"
RETURNED, SETTLED, RECONCILED = "before it is settled", "after it is settled", "while it is reconciled"
MODULE = killing.__name__
TOOLS = ("send", "register", "put")
HOOKS: Any = {"before_execute": f"{MODULE}:before", "after_execute": f"{MODULE}:after"}
UNKNOWN = {BEFORE: 0, AFTER: 1, RETURNED: 1}
"""Where nobody can say what became of a tool that is not idempotent; and how often its effect is there."""


def case(tool: str, *points: str, nightly: bool = False) -> Any:
    """A tool, and where the process that it runs in is killed, one point after the other."""
    return pytest.param(tool, points, id=" and ".join((tool, *points)), marks=[pytest.mark.nightly] * nightly)


POINTS = (INTENT, BEFORE, AFTER, RETURNED, SETTLED)
BY_DAY = (("send", SETTLED), ("register", AFTER, RECONCILED))
"""What is settled is used, and who asks may be killed, too; other ways to go on are tried in `test_worker_killed`."""
ALL = [
    *((tool, point) for tool in TOOLS for point in POINTS),
    *(("register", point, RECONCILED) for point in (BEFORE, AFTER)),
    ("put", AFTER, RETURNED),
]
CASES = [case(*each, nightly=each not in BY_DAY) for each in ALL]


@pytest.mark.parametrize(("tool", "points"), CASES)
async def test_an_effect_is_there_once_wherever_its_worker_is_killed(
    house: Opener, tool: str, points: tuple[str, ...]
) -> None:
    calls = [{"tool": tool, "args": {"text": "one"}}]
    opened = await house([{"say": "I call.", "calls": calls}, {"say": "It says: {last}"}])
    references = [f"{MODULE}:{name}" for name in TOOLS]
    agent = opened.agent(tools=references, permissions={"allow": list(TOOLS)}, hooks=HOOKS)
    async with WorkerProcess(opened.settings, opened.url, opened.folder, tools=[MODULE]) as worker:
        job = await opened.start(agent, before={killing.KILL: "".join(f"{point}\n" for point in points)})
        assert await worker.ended() == 128 + 9
        await worker.start()  # at the points after the first one, the tool has a process of its own
        told = await account(opened.loom.store, job)
    effects = await opened.loom.store.read(lambda tx: tx.effects(job.id))
    is_unknown = tool == "send" and points[0] in UNKNOWN
    assert lines(opened.workdir(job), killing.KILL) == [], "it was killed at each of them"
    assert told.status == "completed"
    assert worker.starts == 2
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"] * (UNKNOWN[points[0]] if is_unknown else 1)
    message = told.messages[2]
    assert message["tool_call_id"] == "call_1_0"
    if is_unknown:
        assert "outcome_unknown" in message["content"]
    else:
        assert json.loads(message["content"]) == {"done": "one"}
    assert [effect.status for effect in effects] == ["unknown" if is_unknown else "settled"]
    assert [effect.idempotent for effect in effects] == [tool == "put"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("tool", "hooks"), [("late", {}), ("stubborn", {"before_execute": f"{stopped.__name__}:linger"})]
)
async def test_a_call_that_three_workers_died_before_is_done(house: Opener, tool: str, hooks: dict[str, str]) -> None:
    """An idempotent one before its effect, and one that is not before its intent; each death is the machine's."""
    opened = await house([{"calls": [{"tool": tool, "args": {"text": "one"}}]}, {"say": "It says: {last}"}])
    agent = opened.agent(tools=[f"{stopped.__name__}:{tool}"], permissions={"allow": [tool]}, hooks=hooks)
    async with WorkerProcess(opened.settings, opened.url, opened.folder, tools=[stopped.__name__]) as worker:
        name = stopped.ASKED if hooks else stopped.BEGUN
        for _ in range(4):  # a hook stands there for no longer than it may: a slow machine may kill after it
            job = await opened.start(agent)
            for number in range(1, 4):
                await eventually(lambda job=job, number=number: len(lines(opened.workdir(job), name)) >= number)  # type: ignore[misc]
                worker.kill()
                in_time = not (hooks and await opened.loom.store.read(lambda tx, job=job: tx.effects(job.id)))  # type: ignore[misc]
                await worker.start()
                if not in_time:
                    break
            (opened.workdir(job) / stopped.GO).touch()
            told = await account(opened.loom.store, job)
            if in_time:
                break
    assert told.status == "completed"
    assert told.messages[2]["content"] == "done: one"
