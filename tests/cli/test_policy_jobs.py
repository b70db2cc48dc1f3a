"""Policies around an agent's own, in jobs on a real worker."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import House, models_served, served

pytestmark = pytest.mark.server
POLICY = "loom: 1\nkind: policy\npermissions: {deny: ['write_file(report.md)']}\n"
FUNCTION = """
def rules(call):
    if call.paths == ("a.md",):
        return "ask", "a.md is looked at first"
    if call.arguments.get("pattern") == "**/*":
        raise RuntimeError("not today")
    return None
"""


READER = """
  - calls: [{tool: network_request, args: {url: "http://127.0.0.1:9/"}}]
  - calls: [{tool: write_file, args: {path: named.md, content: x}}]
  - calls: [{tool: write_file, args: {path: other.md, content: x}}]
  - {say: "It is written."}
"""


@pytest.fixture(scope="module")
def strict(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A worker with a policy of its deployment, and a function that decides."""
    folder = tmp_path_factory.mktemp("strict")
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "deciding_module.py").write_text(FUNCTION)
    with models_served({"reader": READER}) as models:
        queue = f"strict-{uuid.uuid4().hex[:8]}"
        made = replace(house, folder=folder, queue=queue, models={**house.models, **models})
        environment = made.environment(LOOM_POLICY=str(folder / "policy.yaml"), PYTHONPATH=f"{folder}:{Path.cwd()}")
        with served(["worker", "--tools", "deciding_module"], environment, folder, "worker ready", made.ready):
            yield made


def results(house: House, job: str) -> list[str]:
    assert house.loom("wait", job).code == 0
    told = [json.loads(line) for line in house.loom("watch", job, "--json").out.splitlines()]
    return [json.dumps(event) for event in told if event.get("event_type", event.get("type")) == "tool_result"]


def test_the_deployments_policy_goes_before_permissions_that_are_switched_off(strict: House) -> None:
    job = strict.started("writer", permissions={"enabled": False})
    (told,) = results(strict, job)
    assert "the rule 'write_file(report.md)' of the deployment's policy covers it" in told
    assert not list(strict.folder.glob("work-*/report.md"))


def test_a_function_decides_and_its_reason_is_what_the_approver_reads(strict: House) -> None:
    job = strict.started("pair", permissions={"allow": ["write_file"], "function": "deciding_module:rules"})
    (asked,) = strict.pending(job)
    assert asked["reason"] == "write_file must be approved: a.md is looked at first"
    assert (asked["details"]["layer"], asked["details"]["rule"]) == ("function", "deciding_module:rules")
    shown = strict.loom("show", job).out
    assert "a.md is looked at first" in " ".join(shown.split()), shown
    assert strict.loom("approve", asked["id"]).code == 0
    assert len(results(strict, job)) == 2
    assert {path.name for path in strict.folder.glob("work-*/?.md")} == {"a.md", "b.md"}


def test_a_function_that_fails_denies_and_the_model_hears_why(strict: House) -> None:
    job = strict.started("calm", permissions={"function": "deciding_module:rules"})
    told = results(strict, job)
    assert "RuntimeError" in told[0]
    assert "permission_denied" in told[0]


def test_after_something_from_outside_only_what_the_user_named_is_written_unasked(strict: House) -> None:
    agent = strict.agent("reader", tools=["network_request", "write_file"], permissions={"allow": ["*"]})
    said = strict.loom("run", agent, "Read it, and write named.md", "--workdir", strict.workdir(), "--detach")
    (asked,) = strict.pending(said.out.strip())
    assert asked["details"]["layer"] == "untrusted"
    assert "what network_request gave was read before, and the user did not name 'other.md'" in asked["reason"]
    assert list(strict.folder.glob("work-*/named.md"))
    assert strict.loom("approve", asked["id"]).code == 0
    assert len(results(strict, said.out.strip())) == 3
    assert list(strict.folder.glob("work-*/other.md"))


def test_a_projects_policy_and_a_mode_narrow_a_job(house: House) -> None:
    agent, place = house.agent("writer", permissions={"allow": ["*"]}), house.workdir()
    (Path(place) / ".loom").mkdir()
    (Path(place) / ".loom" / "policy.yaml").write_text(POLICY)
    for options, words in (((), "project's policy"), (("--mode", "plan"), "the mode plan is for reading only")):
        where = house.workdir() if options else place
        job = house.loom("run", agent, "do it", "--workdir", where, "--detach", *options).out.strip()
        (told,) = results(house, job)
        assert words in told
        assert not (Path(where) / "report.md").exists()


def test_a_worker_does_not_start_without_the_policy_that_it_is_to_have(house: House) -> None:
    said = house.loom("worker", LOOM_POLICY="/nowhere/policy.yaml")
    assert said.code == 2
    assert "the policy /nowhere/policy.yaml (LOOM_POLICY) cannot be read" in said.err
