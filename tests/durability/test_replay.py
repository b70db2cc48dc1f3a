"""Histories that were recorded earlier replay, so that jobs which run while Loom is upgraded go on."""

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from loom_store.server.payloads import data_converter
from loom_store.store import Store
from tests.histories import record
from worker import PASSED_THROUGH
from workflows.graph import GraphWorkflow

NAMES = sorted(file.name.removesuffix(".history.json") for file in record.FOLDER.glob("*.history.json"))


def replayer(store: Store) -> Replayer:
    """Replays with what workers use."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    return Replayer(
        workflows=[GraphWorkflow],
        data_converter=data_converter(store),
        workflow_runner=SandboxedWorkflowRunner(restrictions),
        debug_mode=True,  # else a busy machine on which a replay stands still for two seconds is a failure
    )


def recorded(name: str) -> list[dict[str, Any]]:
    """The histories of a recorded job's runs, as JSON."""
    runs: list[dict[str, Any]] = json.loads((record.FOLDER / f"{name}.history.json").read_text())["runs"]
    return runs


async def keep_plan(store: Store, name: str) -> None:
    """Put the plan where the histories' claims find it."""
    plan = (record.FOLDER / f"{name}.plan.json").read_bytes()
    await store.write(lambda tx: tx.put_blob(plan))


def test_every_kind_of_job_is_recorded() -> None:
    assert sorted(record.RECORDINGS) == NAMES


@pytest.mark.parametrize("name", NAMES)
async def test_a_recorded_history_replays(name: str, tmp_path: Path) -> None:
    with Store.open(tmp_path / "loom.db") as store:
        await keep_plan(store, name)
        for run in recorded(name):
            await replayer(store).replay_workflow(WorkflowHistory.from_json(f"recorded-{name}", run))


async def test_a_history_that_another_machine_made_does_not_replay(tmp_path: Path) -> None:
    run = recorded("tools")[0]
    marker = next(event for event in run["events"] if "activityTaskScheduledEventAttributes" in event)
    marker["activityTaskScheduledEventAttributes"]["activityId"] = "0/another#1"
    marker["activityTaskScheduledEventAttributes"]["activityType"]["name"] = "loom.another"
    with Store.open(tmp_path / "loom.db") as store:
        await keep_plan(store, "tools")
        with pytest.raises(Exception, match=r"(?i)nondeterminism"):
            await replayer(store).replay_workflow(WorkflowHistory.from_json("recorded-tools", run))
