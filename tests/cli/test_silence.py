"""What an agent says about questions, and what was remembered, lets nothing run that others ask about."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loom_store.store import Store
from tests.cli.conftest import House, models_served, served
from tests.support.waiting import longer

pytestmark = pytest.mark.server
POLICY = "loom: 1\nkind: policy\npermissions: {ask: [order, network_request]}\n"
TOOLS = """
from pathlib import Path

def order(item: str, count: int) -> str:
    \"\"\"Order something.\"\"\"
    with (Path(__file__).parent / "orders.txt").open("a") as file:
        file.write(f"{count} {item}\\n")
    return "ordered"
"""
ORDER = "{{tool: order, args: {{item: {}, count: {}}}}}"
GET = '{tool: network_request, args: {url: "http://127.0.0.1:9/"}}'
POST = '{tool: network_request, args: {url: "http://127.0.0.1:9/x", method: POST, body: all}}'
WRITE = "{tool: write_file, args: {path: pwn.txt, content: x}}"
SCRIPTS = {
    "buyer": f"""
  - calls: [{ORDER.format("hasty", 1)}]
  - calls: [{WRITE}]
  - {{say: "Done."}}
""",
    "reader": f"""
  - calls: [{GET}]
  - calls: [{WRITE}]
  - {{say: "Done."}}
""",
    "again": f"""
  - calls: [{ORDER.format("loom", 1)}]
  - calls: [{ORDER.format("loom", 1)}]
  - calls: [{ORDER.format("gold", 999)}]
  - calls: [{GET}]
  - calls: [{POST}]
  - calls: [{ORDER.format("loom", 1)}]
  - calls: [{ORDER.format("loom", 1)}]
  - {{say: "Done."}}
""",
}
SILENT = {"expires": "1s", "on_expiry": "allow"}


@pytest.fixture(scope="module")
def guarded(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A worker whose deployment asks about orders and requests."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "shop_module.py").write_text(TOOLS)
    with models_served(SCRIPTS) as models:
        queue = f"guarded-{uuid.uuid4().hex[:8]}"
        made = replace(house, folder=folder, queue=queue, models={**house.models, **models})
        environment = made.environment(LOOM_POLICY=str(folder / "policy.yaml"), PYTHONPATH=f"{folder}:{Path.cwd()}")
        with served(["worker", "--tools", "shop_module"], environment, folder, "worker ready", made.ready):
            yield made


def begun(house: House, model: str, **fields: Any) -> str:
    tools = ["shop_module:order", "network_request", "write_file"]
    return house.started(model, **{"tools": tools, "permissions": {"allow": ["*"]}, **fields})


def asked(house: House, job: str) -> list[dict[str, Any]]:
    with Store.open(house.store) as store:
        return store.read_sync(lambda tx: tx.approvals(job=job, below=True))


def orders(house: House) -> list[str]:
    file = house.folder / "orders.txt"
    return file.read_text().splitlines() if file.exists() else []


def test_silence_runs_what_the_agent_asks_and_nothing_that_the_deployment_asks(guarded: House) -> None:
    job = begun(guarded, "buyer", permissions={"allow": ["order"]}, approvals=SILENT)
    assert guarded.loom("wait", job).code == 0
    first, second = asked(guarded, job)
    assert (first["tool"], first["status"], first["details"]["asked_by"]) == ("order", "expired", ["deployment"])
    assert "it is refused (the agent's `on_expiry: allow` does not count" in first["details"]["unanswered"]
    assert "1 hasty" not in orders(guarded)
    assert (second["tool"], second["status"], second["details"]["asked_by"]) == ("write_file", "expired", ["agent"])
    assert second["details"]["unanswered"].endswith("it runs")
    workdir = Path(json.loads(guarded.loom("show", job, "--json").out)["workdir"])
    assert (workdir / "pwn.txt").exists()


def test_silence_runs_nothing_that_the_check_of_untrusted_content_asks(guarded: House) -> None:
    for seconds in longer(5):  # on a slow machine the first question may be over before its answer comes
        job = begun(guarded, "reader", approvals={**SILENT, "expires": f"{seconds:g}s"})
        first = guarded.pending(job, status=None)[0]
        approved = guarded.loom("decide", first["id"], "--approve")
        assert guarded.loom("wait", job).code == 0
        if approved.code == 0:
            break
    assert approved.code == 0, approved
    last = asked(guarded, job)[-1]
    assert (last["tool"], last["status"], last["details"]["asked_by"]) == ("write_file", "expired", ["untrusted"])
    workdir = Path(json.loads(guarded.loom("show", job, "--json").out)["workdir"])
    assert not (workdir / "pwn.txt").exists()


FAMILY = """
loom: 1
kind: graph
name: family
permissions: {ask: [write_file]}
agents:
  child: {model: "buyer:any", tools: [write_file], permissions: {enabled: false}, approvals: {expires: 1s, on_expiry: allow}}
nodes:
  a: {agent: child, with: {task: do it}, next: done}
  done: {end: null}
"""  # noqa: E501 - as the audit wrote it


def test_silence_runs_nothing_that_a_graph_around_an_agent_asks(guarded: House) -> None:
    path, name = guarded.folder / "family.yaml", f"family-{uuid.uuid4().hex[:8]}"
    path.write_text(FAMILY)
    workdir = guarded.workdir()
    assert guarded.loom("run", str(path), "--job", name, "--workdir", workdir, "--detach").code == 0
    assert guarded.loom("wait", name).code == 0
    (row,) = asked(guarded, name)
    assert (row["tool"], row["status"], row["details"]["layer"]) == ("write_file", "expired", "parent")
    assert not list(Path(workdir).iterdir())


def test_what_is_remembered_is_the_very_call_and_only_for_who_asked(guarded: House) -> None:
    job = begun(guarded, "again")
    seen: list[str] = []

    def decided(choice: str, *more: str) -> tuple[dict[str, Any], str]:
        (row,) = guarded.pending(job, but=tuple(seen))
        seen.append(row["id"])
        said = guarded.loom("decide", row["id"], f"--{choice}", *more)
        assert said.code == 0, said
        return row, " ".join(said.out.split())

    first, said = decided("approve", "--remember", "job")
    assert "remembered for this job: order with these very arguments" in said
    gold, _ = decided("reject")
    assert json.loads(gold["summary"].removeprefix("order(").removesuffix(")"))["item"] == "gold"
    get, said = decided("approve", "--remember", "job")
    assert "remembered for this job: network_request(GET domain:127.0.0.1) (HEAD too)" in said
    post, _ = decided("reject")
    assert post["details"]["rules"] == ["network_request(POST domain:127.0.0.1)"]
    later, _ = decided("approve", "--remember", "job")
    assert later["arguments_digest"] == first["arguments_digest"]
    assert (later["details"]["layer"], later["details"]["asked_by"]) == ("untrusted", ["deployment", "untrusted"])
    assert guarded.loom("wait", job).code == 0
    assert len(asked(guarded, job)) == 5
    assert [line for line in orders(guarded) if "hasty" not in line] == ["1 loom"] * 4
    shown = " ".join(guarded.loom("show", job).out.split())
    assert "this job order with these very arguments the deployment's policy order(" in shown
    assert "the deployment's policy, the check of untrusted content" in shown
    assert get["details"]["asked_by"] == ["deployment"]
