"""Signed decisions on a real server: by command line, update and signal, while workers go and keys are changed."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from activities.jobs.signatures import keys_of
from loom_client.job import Job
from loom_client.signing import SigningKey
from loom_dsl.errors import DecisionRefused
from loom_dsl.observe.events import EventType
from tests.durability.conftest import House, Opener
from tests.durability.reading import account, effects_of, events, failed_tasks, histories, of
from tests.support.signing import key_of, public_key, write_keys
from tests.support.waiting import PATIENCE, eventually, longer
from worker import make_worker

pytestmark = pytest.mark.server

MARIA, NEW, BOB, EVE = key_of("maria"), key_of("maria", 2), key_of("bob"), key_of("eve")
STEPS = [{"calls": [{"tool": "send", "args": {"text": "one"}}]}, {"calls": [{"tool": "send", "args": {"text": "two"}}]}]
POLICY = "loom: 1\nkind: policy\nsigned: medium\n"
LATE = 3
"""Seconds for which a signature counts that is seen only after them; more where it took longer to reach the server."""


async def loom(house: House, *arguments: str) -> tuple[int, str]:
    """Run a command; its status, and all that it says."""
    own = {"LOOM_ADDRESS": house.settings.address, "LOOM_STORE": str(house.settings.store)}
    own |= {"LOOM_CONNECT_SECONDS": str(PATIENCE)}
    own |= {"LOOM_ANSWER_SECONDS": str(PATIENCE)}  # what is not confirmed by then counts as sent, and is not told
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loom_cli", *arguments),
        env={**os.environ, **own, "LOOM_TASK_QUEUE": house.settings.task_queue},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def refused(job: Job, payload: dict[str, Any]) -> str:
    """Send a decision as an update that is not taken; the verdict. A slow machine is asked again."""
    fields = {key: value for key, value in payload.items() if key not in ("approval_id", "choice")}
    while True:
        try:
            answer = await job.decide(payload["approval_id"], payload["choice"], **fields)
        except DecisionRefused as refusal:
            return refusal.verdict
        assert answer.verdict == "unconfirmed"


async def sent_in_time(job: Job, asked: "Asked") -> dict[str, Any]:
    """Send a decision as a signal that reaches the server before the signature's time is over."""
    for seconds in longer(LATE):
        payload = asked.signed(seconds=int(seconds))
        await job.handle.signal("loom.decision", payload)
        if time.time() < payload["signature"]["expires_at"]:
            break
    return payload


async def told(job: Job) -> list[str]:
    """The verdicts of all refusals."""
    return [data["verdict"] for data in of(await events(job), EventType.WARNING) if data["code"] == "signal_refused"]


class Asked:
    """One question of a job, and what is signed about it."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row

    def signed(self, key: SigningKey = MARIA, **how: Any) -> dict[str, Any]:
        plain = {"approval_id": self.row["id"], "choice": "approve", "digest": self.row["arguments_digest"]}
        facts = {"job": self.row["job"], "tool": self.row["tool"], "requester": self.row["requester"]}
        return key.sign(plain, **{**facts, **how})


async def question(house: House, job: Job, index: int = 0) -> Asked:
    name = await house.approval(job, index)

    async def row() -> dict[str, Any] | None:
        return await house.loom.store.read(lambda tx: tx.approval(name))

    return Asked(await eventually(row))  # type: ignore[arg-type]


def key_file(house: House, key: SigningKey, name: str) -> str:
    path = house.folder / name
    key.save(path)
    return str(path)


@asynccontextmanager
async def keeping(house: House, public: Path, policy: Path) -> AsyncIterator[None]:
    """A worker that knows the keys of a file, in a deployment with a policy."""
    async with house.runtime() as runtime:
        runtime.approver_keys = keys_of(public, {})
        runtime.environment = {**runtime.environment, "LOOM_POLICY": str(policy)}
        async with make_worker(house.loom.client, runtime, house.settings.task_queue):
            yield


async def forge(job: Job, first: Asked) -> None:
    """Try what does not count: as updates, and as signals that say nothing."""
    right, old = first.signed(), first.signed(now=time.time() - 60, seconds=30)
    plain = {key: value for key, value in right.items() if key != "signature"}
    for payload, verdict in [
        (plain, "unsigned"),
        (first.signed(EVE), "key_unknown"),
        (first.signed(job="another"), "wrong_job"),
    ]:
        assert await refused(job, payload) == verdict
    # Verdicts that no update before had, or it would not be known whose they are.
    for payload in ({**right, "choice": "reject"}, {**right, "by": "bob"}, old):
        await job.handle.signal("loom.decision", payload)

    async def all_told() -> bool:
        verdicts = await told(job)
        return [verdicts.count(verdict) for verdict in ("bad_signature", "signature_expired")] == [2, 1]

    await eventually(all_told)


async def test_only_what_the_right_person_signed_counts_and_that_once(house: Opener) -> None:
    opened = await house([*STEPS, {"say": "bye"}])
    public, policy = opened.folder / "keys", opened.folder / "policy.yaml"
    policy.write_text(POLICY)
    write_keys(public, public_key(MARIA), public_key(BOB))
    old, new = key_file(opened, MARIA, "old.key"), key_file(opened, NEW, "new.key")
    async with keeping(opened, public, policy):
        agent = opened.agent(permissions={"ask": ["send"]}, approvals={"four_eyes": True})
        job = await opened.start(agent, by="ada")
        first = await question(opened, job)
        assert first.row["details"]["signed"] is True
        await forge(job, first)
        assert effects_of(opened.workdir(job)) == []
    # What came in time counts, whenever a worker sees it.
    late = await sent_in_time(job, first)
    await asyncio.sleep(max(0.0, late["signature"]["expires_at"] - time.time()))
    async with keeping(opened, public, policy):
        second = await question(opened, job, 1)
        assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]
        again = {key: value for key, value in late.items() if key not in ("approval_id", "choice")}
        receipt = await job.decide(late["approval_id"], late["choice"], **again)
        assert receipt.verdict in ("recorded", "unconfirmed")  # the very same once more, which counts once
        assert await refused(job, first.signed(nonce=late["signature"]["nonce"])) == "replayed"
        other = {**first.signed(), "approval_id": second.row["id"]}
        assert await refused(job, other) == "wrong_digest"
        assert await refused(job, {**other, "digest": second.row["arguments_digest"]}) == "bad_signature"

        write_keys(public, public_key(MARIA, revoked=True), public_key(NEW))  # while the worker runs and the job waits
        status, said = await loom(opened, "decide", job.id, "--approve", "--sign", old, "--yes")
        assert (status, "was revoked" in said) == (2, True), said
        public.chmod(0o666)
        assert await refused(job, second.signed(NEW)) == "unverifiable"
        public.chmod(0o644)
        status, said = await loom(opened, "decide", job.id, "--approve", "--sign", new, "--yes")
        assert (status, "approved" in said) == (0, True), said
        found = await account(opened.loom.store, job)
    assert found.status == "completed"
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one", "1/call_2_0 two"]
    assert failed_tasks(await histories(opened.loom.client, job.id)) == []
    await check_trail(opened, job)


async def check_trail(house: House, job: Job) -> None:
    """By which key each decision was signed is told by the lists and by the audit trail, which has every refusal."""
    rows = await house.loom.approvals(job.id, status=None)
    assert [(row.status, row.by, row.keys) for row in rows] == [
        ("approved", "maria", (MARIA.name,)),
        ("approved", "maria", (NEW.name,)),
    ]
    entries = await house.loom.store.read(lambda tx: tx.audit_entries(job.id))
    decided = [entry.data for entry in entries if entry.kind == "approval_decided"]
    assert [data["keys"] for data in decided] == [[MARIA.name], [NEW.name]]
    assert {entry.data["verdict"] for entry in entries if entry.kind == "decision_refused"} == {
        *("unsigned", "key_unknown", "wrong_job", "bad_signature", "signature_expired", "replayed", "wrong_digest"),
        *("key_revoked", "unverifiable"),
    }
    status, said = await loom(house, "audit", "verify", "--approver-keys", str(house.folder / "keys"))
    assert (status, "2 signatures of those keys" in said) == (0, True), said


async def test_a_worker_without_keys_takes_no_signed_decision(house: Opener) -> None:
    opened = await house([STEPS[0], {"say": "bye"}])
    async with opened.inside():
        job = await opened.start(opened.agent(permissions={"ask": ["send"]}, approvals={"signed": "low"}))
        asked = await question(opened, job)
        assert await refused(job, asked.signed()) == "unverifiable"
        assert await refused(job, {"approval_id": asked.row["id"], "choice": "approve", "by": "maria"}) == "unsigned"
        await job.abort(by="ops")
        assert (await account(opened.loom.store, job)).status == "aborted"
    assert effects_of(opened.workdir(job)) == []
