"""The gateway under requests that schemathesis makes from its description: real HTTP, and jobs that wait.

All of it is of the nightly lane; what the gateway answers to whom is in `test_gateway.py`.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import House
from tests.cli.door import Door, opened_door

pytestmark = [pytest.mark.server, pytest.mark.nightly]
FUZZED = """
seed = 20
warnings = false
continue-on-failure = true
request-timeout = 120.0
headers = {{ Authorization = "Bearer {token}" }}

[generation]
deterministic = true
database = "none"
max-examples = {examples}

[checks]
# What is valid by its form may still be wrong for a job: a choice it does not have, a digest of something else.
positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "410", "422", "429"]
negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "409", "410", "413", "415", "422"]

[dictionaries]
asks.values = {asks}
waits.values = {waits}
links.values = {links}
agents.values = ["calm", "writer"]
choices.values = ["approve", "edit", "reject", "respond", "terminate"]

[[operations]]
include-path-regex = "^/v1/approvals"
parameters."path.id" = {{ dictionary = "asks", probability = 0.8 }}
parameters."body.choice" = {{ dictionary = "choices", probability = 0.5 }}
phases.coverage.enabled = {thorough}

[[operations]]
include-path-regex = "^/v1/jobs/"
parameters."path.id" = {{ dictionary = "waits", probability = 0.8 }}
phases.coverage.enabled = {thorough}

[[operations]]
include-path-regex = "^/links"
parameters."path.text" = {{ dictionary = "links", probability = 0.8 }}
phases.coverage.enabled = {thorough}

[[operations]]
include-operation-id = "start"
parameters."body.agent" = {{ dictionary = "agents", probability = 0.5 }}
phases.coverage.enabled = {thorough}
"""


@pytest.fixture(scope="module")
def door(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with opened_door(house, tmp_path_factory.mktemp("gateway")) as door:
        yield door


def fuzzed(door: Door, folder: Path, examples: int, *, thorough: bool) -> str:
    """Run schemathesis at the gateway; what it says if it finds something, or nothing."""
    jobs = [door.house.started("pair") for _ in range(2)]
    asks = [row["id"] for job in jobs for row in door.house.pending(job, 2)]
    made = [door.ask("POST", f"/v1/approvals/{ask}/links", json={}).json() for ask in asks]
    values = {"asks": asks, "waits": jobs, "links": [link["approve"].rpartition("/")[2] for link in made]}
    config = folder / "schemathesis.toml"
    config.write_text(
        FUZZED.format(
            token=door.tokens["ann"],
            examples=examples,
            thorough=json.dumps(thorough),
            **{name: json.dumps(listed) for name, listed in values.items()},
        )
    )
    command = ["--config-file", str(config), "--no-color", "run", f"{door.url}/openapi.json"]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", *command], capture_output=True, text=True, cwd=folder, check=False
    )
    assert "13 selected / 13 total" in done.stdout, done.stdout + done.stderr  # all but the description itself
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_requests_that_the_description_leads_to_are_answered_as_described(door: Door, tmp_path: Path) -> None:
    said = fuzzed(door, tmp_path, 2, thorough=False)
    assert not said, said


@pytest.mark.timeout(1800)
def test_thousands_of_such_requests_are_answered_as_described(door: Door, tmp_path: Path) -> None:
    said = fuzzed(door, tmp_path, 100, thorough=True)
    assert not said, said
