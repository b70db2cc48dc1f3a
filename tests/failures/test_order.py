"""The order of messages stays what an API takes, whatever became of the calls in one message: the next job shows it.

The scripted model refuses, as the API does, a call without a tool message, and a tool message without a call.
"""

from typing import Any

import pytest

from loom_client.records import ApprovalRecord
from loom_dsl.agent.messages import legal_order
from tests.failures.bad_tools import BUILTINS, NAMES
from tests.failures.stand import Stand
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

MIXED = [
    {"tool": "look", "args": {"text": "one"}},
    {"tool": "look", "raw": '{"text": '},
    {"tool": "nothing like this", "args": {}},
    {"tool": "look", "id": "same", "args": {"text": "two"}},
    {"tool": "plain", "id": "same", "args": {"what": "print"}},
    {"tool": "plain", "id": "", "args": {"what": "raise"}},
    {"tool": "slow_async", "args": {"text": "three"}},
    {"tool": "look", "args": {"text": "four"}},
]
"""`plain` is asked for; all others run."""
STEPS = [{"say": "All at once.", "calls": MIXED}, {"say": "It says: {last}"}]
ENDINGS = ("approve", "reject", "abort", "abort while asked", "expire")
CASES: dict[str, dict[str, Any]] = {name: {"steps": STEPS, "later": True} for name in (*ENDINGS, "next")}


def fields(ending: str) -> dict[str, Any]:
    rest = [name for name in NAMES if name != "plain"]
    agent: dict[str, Any] = {"permissions": {"allow": [*rest, *BUILTINS], "ask": ["plain"]}}
    if ending == "expire":
        agent["approvals"] = {"expires": "1s"}
    return agent


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_conversation_can_be_gone_on_with(stand: Stand, ending: str) -> None:
    session = f"s-{stand.tries}-{ending.replace(' ', '-')}"
    job = await stand.start(ending, agent=fields(ending), session=session)

    async def asked() -> list[ApprovalRecord]:
        return await stand.loom.approvals(job.id)

    if ending != "expire":
        rows: list[ApprovalRecord] = await eventually(asked)
        if ending == "abort while asked":
            await job.abort(by="me")
        elif ending == "abort":
            await job.decide(rows[0].id, "approve", by="me")
            await job.abort(by="me")
        else:
            await decide_all(stand, job.id, ending)
    first = await stand.unharmed(job)
    assert first.result.status == ("aborted" if ending.startswith("abort") else "completed")
    ids = [call["id"] for call in first.messages[1]["tool_calls"]]
    assert len(set(ids)) == len(MIXED)
    assert [message["tool_call_id"] for message in first.messages[2 : 2 + len(MIXED)]] == ids
    second = await stand.unharmed(await stand.start("next", session=session))
    assert second.result.status == "completed", second.result.error
    assert legal_order(second.messages) == []


async def decide_all(stand: Stand, job: str, choice: str) -> None:
    """Decide both approvals, the second of which may be asked for only then."""
    decided: set[str] = set()

    async def more() -> bool:
        for row in await stand.loom.approvals(job):
            if row.id not in decided:
                decided.add(row.id)
                await stand.loom.job(job).decide(row.id, choice, by="me")
        return len(decided) == 2

    await eventually(more)
