"""Whose messages to a job count as its user's own words: after something from outside was read, nobody else's do."""

import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.cli.conftest import House, models_served, served

pytestmark = pytest.mark.server
SCRIPT = """
  - calls: [{tool: network_request, args: {url: "http://127.0.0.1:9/"}}]
  - calls: [{tool: write_file, args: {path: page.md, content: x}}]
  - calls: [{tool: write_file, args: {path: helper.md, content: x}}]
  - calls: [{tool: write_file, args: {path: owner.md, content: x}}]
  - calls: [{tool: write_file, args: {path: stranger.md, content: x}}]
  - calls: [{tool: write_file, args: {path: nobody.md, content: x}}]
  - {say: "It is written."}
"""
POLICY = """
loom: 1
kind: policy
roles:
  helps: {who: [hilda], inject: true}
  decides: {who: [dora], approve: high}
"""
AGENT = """
loom: 1
kind: agent
name: scribe
model: "steered:any"
instructions: Write what you are told.
tools: [network_request, write_file]
permissions: {allow: ["*"]}
"""


@pytest.fixture(scope="module")
def steered(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder, queue = tmp_path_factory.mktemp("steered"), f"steered-{uuid.uuid4().hex[:8]}"
    (folder / "policy.yaml").write_text(POLICY)
    with models_served({"steered": SCRIPT}) as models:
        made = replace(house, folder=folder, queue=queue, models=models)
        environment = {**made.environment(), "LOOM_POLICY": str(folder / "policy.yaml")}
        with served(["worker"], environment, folder, "worker ready", made.ready):
            yield made


async def test_only_who_started_a_job_or_may_inject_names_what_it_writes(steered: House) -> None:
    folder = Path(steered.workdir())
    (folder / "scribe.yaml").write_text(AGENT)
    run = ("run", str(folder / "scribe.yaml"), "Read it.", "--workdir", str(folder), "--detach")
    started = steered.loom(*run)
    assert started.code == 0, started
    job = started.out.strip()
    (asked,) = steered.pending(job)
    assert "the user did not name 'page.md'" in asked["reason"]
    client = await Client.connect(steered.address)
    for name, by in {"stranger": "eve", "nobody": "", "helper": "Hilda"}.items():
        payload = {"op": "inject", "text": f"Write {name}.md.", "by": by}
        said = await client.get_workflow_handle(job).execute_update("loom.steer", payload)
        assert said["verdict"] == "recorded"
    assert steered.loom("inject", job, "Write owner.md.").code == 0
    answered: list[str] = []
    for name in ("page", "stranger", "nobody"):
        (asked,) = steered.pending(job, but=tuple(answered))
        answered.append(asked["id"])
        assert f"the user did not name '{name}.md'" in asked["reason"]
        assert steered.loom("reject", asked["id"], "--by", "dora").code == 0
    assert steered.loom("wait", job).code == 0
    assert {name for name in os.listdir(folder) if name.endswith(".md")} == {"helper.md", "owner.md"}
