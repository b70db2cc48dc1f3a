"""What `loom worker --metrics` lets Prometheus read, by a real worker's jobs."""

import re
import socket
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from loom_dsl.observe.metrics import METRICS, STAGES
from tests.cli.conftest import House, served
from tests.support.ports import own_port
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.server
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass(frozen=True)
class Page:
    """Where a worker's metrics are."""

    port: int

    def read(self) -> Series:
        """Every series with its attributes and its value."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=PATIENCE) as answer:
            lines = answer.read().decode().splitlines()
        found = (re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line) for line in lines if not line.startswith("#"))
        named = ((line[1], frozenset(re.findall(r'(\w+)="([^"]*)"', line[2] or "")), line[3]) for line in found if line)
        return {(name, attributes): float(value) for name, attributes, value in named}

    def total(self, name: str, **wanted: str) -> float:
        """The sum of the series of a name that have these attributes."""
        return sum(value for (own, has), value in self.read().items() if own == name and wanted.items() <= set(has))

    def reaches(self, least: float, name: str, **wanted: str) -> None:
        """Wait until a sum is at least this: what an attempt did that was lost is done, and counted, again."""

        def met() -> bool:
            assert self.total(name, **wanted) >= least, self.read()
            return True

        until(met)


@pytest.fixture(scope="module")
def measured(house: House) -> Iterator[tuple[House, Page]]:
    """A worker on a queue of its own, whose metrics can be read."""
    own, page = replace(house, queue=f"metrics-{uuid.uuid4().hex[:8]}"), Page(own_port())
    with served(["worker", "--metrics", str(page.port)], own.environment(), own.folder, "worker ready", own.ready):
        yield own, page


def test_a_call_that_asks_is_measured_stage_by_stage(measured: tuple[House, Page]) -> None:
    house, page = measured
    asked, decided = (page.total(f"loom_approvals_{what}_total") for what in ("asked", "decided"))
    job = house.started("writer")
    house.pending(job)
    page.reaches(asked + 1, "loom_approvals_asked_total")
    assert page.total("loom_approvals_decided_total") == decided, "nobody has decided yet"
    assert house.loom("approve", job).code == 0
    assert house.loom("wait", job).code == 0
    page.reaches(decided + 1, "loom_approvals_decided_total", choice="approve")
    page.reaches(1, "loom_tool_calls_total", tool="write_file", status="success")
    page.reaches(1, "loom_stage_seconds_count", stage="authorize", outcome="asked")
    page.reaches(1, "loom_stage_seconds_count", carrier="local")  # what is too slow there runs remotely as well
    page.reaches(1, "loom_stage_seconds_count", stage="execute", carrier="remote", outcome="ok")
    for stage in set(STAGES) - {"authorize"}:
        page.reaches(1, "loom_stage_seconds_count", stage=stage, outcome="ok")
    for kind in ("prompt", "completion"):
        page.reaches(1, "loom_model_tokens_total", model="writer:any", kind=kind)
    # Each question is counted once, whatever was done again.
    assert page.total("loom_approvals_asked_total") == asked + 1
    assert page.total("loom_approvals_decided_total") == decided + 1


def test_what_nobody_declared_gets_no_series_of_its_own(measured: tuple[House, Page]) -> None:
    house, page = measured
    before = page.read()
    job = house.started("calm", name="nothing-to-see", tools=["write_file"])
    assert house.loom("wait", job).code == 0
    page.reaches(2, "loom_tool_calls_total", tool="unknown", status="error")
    page.reaches(2, "loom_stage_seconds_count", stage="discover", outcome="failed")
    new = {attributes for name, attributes in page.read().keys() - before.keys() if name == "loom_tool_calls_total"}
    assert all(("tool", "unknown") in attributes for attributes in new)


def test_attributes_are_those_that_are_documented_and_name_no_job(measured: tuple[House, Page]) -> None:
    house, page = measured
    job = house.started("calm", permissions={"deny": ["glob"]})
    assert house.loom("wait", job).code == 0
    page.reaches(1, "loom_stage_seconds_count", stage="authorize", outcome="denied")
    series = page.read()
    assert any(name.startswith("temporal_") for name, _ in series), "the SDK's own are there too"
    own = {"namespace", "task_queue", "service_name", "le"}
    for (name, attributes), _ in series.items():
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        if base.startswith("loom_"):
            assert {key for key, _ in attributes} - own == set(METRICS[base].attributes)
        assert not any(job in value for _, value in attributes)


def test_a_worker_says_that_it_cannot_listen(house: House) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = house.loom("worker", "--metrics", f"127.0.0.1:{port}")
    assert said.code == 2
    told = " ".join(said.err.split())
    assert f"--metrics 127.0.0.1:{port} (LOOM_METRICS): cannot listen there: Address already in use" in told
    assert "give another address or port" in told


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:"])
def test_what_is_no_address_is_told(house: House, address: str) -> None:
    said = house.loom("worker", LOOM_METRICS=address)
    assert said.code == 2
    assert f"--metrics {address} (LOOM_METRICS): write HOST:PORT" in " ".join(said.err.split())
