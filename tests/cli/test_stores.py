"""Stores and servers that are lost, replaced or not the same for all: what workers and commands say of it."""

import json
import re
import shutil
import sqlite3
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from loom_cli.dev.server import DevServer
from loom_store.store import Store
from tests.cli.conftest import LOOM, SCRIPTS, House, Said, models_served
from tests.support.copied import copied
from tests.support.server import run_apart, small_server
from tests.support.waiting import PATIENCE, until

pytestmark = [pytest.mark.server, pytest.mark.crash]

TOOLS = "tests.support.external"


@pytest.fixture
def place(dev_server: DevServer, loom_at_hand: list[str], tmp_path: Path) -> Iterator[House]:
    """A house without a worker, with a store and a queue of its own."""
    with models_served({name: SCRIPTS[name] for name in ("calm", "steered", "writer")}) as models:
        queue = f"stores-{uuid.uuid4().hex[:8]}"
        yield House(tmp_path, dev_server.address, tmp_path / "loom.db", queue, models, 2.0, "default", loom_at_hand)


class Worker:
    """A worker as a process."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process, self._log = process, log

    def said(self) -> str:
        return self._log.read_text()

    def ended(self) -> int:
        """Wait until it ends by itself; its exit status."""
        return int(until(lambda: (self.process.poll() is not None and (self.process.returncode,)) or None)[0])


@contextmanager
def working(place: House, *arguments: str, **more: str) -> Iterator[Worker]:
    log = place.folder / f"worker-{uuid.uuid4().hex[:6]}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*LOOM, "worker", "--root", "/", *arguments], stdout=out, stderr=out, env=place.environment(**more)
        )
    try:
        worker = Worker(process, log)

        def ready() -> bool:
            assert process.poll() is None, worker.said()
            return "worker ready" in worker.said()

        until(ready)
        yield worker
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE)


def checks(place: House, **more: str) -> tuple[int, dict[str, dict[str, str]]]:
    said = place.loom("doctor", "--json", **more)
    return said.code, {check["what"]: check for check in json.loads(said.out)}


def judged(place: House, code: int, status: str, **more: str) -> dict[str, dict[str, str]]:
    """Ask until the queue's workers are found to be so: it soon gives up on a server that is slow."""

    def so() -> dict[str, dict[str, str]]:
        ended, found = checks(place, **more)
        assert (ended, found[f"worker on {place.queue}"]["status"]) == (code, status), found
        return found

    return until(so)


def aged(store: Path) -> None:
    """Make the jobs of a store older than a start can take."""
    with closing(sqlite3.connect(store)) as opened, opened:
        opened.execute("UPDATE jobs SET created_at = created_at - 600000")


def deleted(store: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{store}{suffix}").unlink()


def restored(store: Path) -> None:
    copied(store, store.with_name("backup.db")).rename(store)


@pytest.mark.parametrize("lose", [pytest.param(deleted, marks=pytest.mark.nightly), restored])
def test_a_worker_whose_store_is_taken_away_stops_with_one_line_and_writes_nothing_more(
    place: House, lose: Callable[[Path], None]
) -> None:
    with working(place) as worker:
        job = place.started("steered")
        until(lambda: "Step 1" in place.loom("show", job, "--entries").out or None)
        process = psutil.Process(worker.process.pid)
        assert process.is_running()
        lose(place.store)
        code = worker.ended()
        lines = [line for line in worker.said().splitlines() if line.startswith("error:")]
    assert code == 2
    (line,) = lines
    assert line.startswith(f"error: the store {place.store} was lost while this process had it open: it was ")
    assert "point LOOM_STORE at where it is now" in line
    if lose is deleted:
        assert not place.store.exists()
        said = place.loom("jobs")
        assert (said.code, "there is no store at" in said.err) == (2, True)
    else:
        with working(place) as again:  # the restored store: an epoch of its own, and the job goes on
            assert "epoch 2 begins" in again.said()
            assert place.loom("abort", job, "--reason", "seen").code == 0
        assert "2, since" in place.loom("store", "info").out


@pytest.mark.nightly
def test_a_worker_outlives_that_its_stores_files_are_immutable_and_its_job_goes_on(place: House) -> None:
    chattr = shutil.which("chattr")
    files = [f"{place.store}{suffix}" for suffix in ("", "-wal", "-shm")]
    with working(place) as worker:
        job = place.started("steered")
        until(lambda: "Step 1" in place.loom("show", job, "--entries").out or None)
        made = subprocess.run([str(chattr), "+i", *files], capture_output=True, check=False) if chattr else None
        if made is None or made.returncode:
            pytest.skip("chattr +i is not to be had here")
        try:
            refused = place.loom("jobs")
            assert (refused.code, "cannot be written" in refused.err) == (2, True), refused
            until(lambda: "store_read_only" in worker.said() or "cannot be written any more" in worker.said())
        finally:
            subprocess.run([str(chattr), "-i", *files], check=True)
        assert worker.process.poll() is None, worker.said()
        seen = len(re.findall(r"Step \d+", place.loom("show", job, "--entries").out))
        until(lambda: len(re.findall(r"Step \d+", place.loom("show", job, "--entries").out)) > seen + 1)
        assert place.loom("abort", job).code == 0


def test_a_client_that_waits_is_told_that_the_store_was_taken_away(place: House) -> None:
    job = place.started("calm")
    with place.at_terminal("watch", job) as terminal:
        terminal.expect("no worker serves this job's store")
        deleted(place.store)
        terminal.expect("was lost while this process had it open")
        assert terminal.end() == 2


def test_doctor_names_the_worker_of_the_store_and_what_it_has(place: House) -> None:
    place.loom("rules")  # makes no store: doctor is asked before there is one
    with working(place, "--tools", TOOLS):
        found = judged(place, 0, "ok")
        worker = found[f"worker on {place.queue}"]
        assert re.search(rf"process \d+ \(queue {place.queue}, tools {TOOLS}, root /\)", worker["found"])
        with Store.open(place.store) as store:
            assert f"id {store.id}" in found[f"store {place.store}"]["found"]
            (row,) = store.read_sync(lambda tx: tx.workers(alive=True))
            assert row.about["store"] == str(place.store)
        info = json.loads(place.loom("store", "info", "--json").out)
        assert [one["about"]["tools"] for one in info["workers"]] == [[TOOLS]]
        job = place.started("steered")
        assert place.shows(job, f"tools {TOOLS}, root /")
        place.loom("abort", job)
    judged(place, 0, "warn")


def test_doctor_says_that_the_workers_serve_another_store(place: House) -> None:
    job = place.started("calm")
    with working(place, LOOM_STORE=str(place.folder / "other.db")) as worker:
        with Store.open(place.folder / "other.db") as other, Store.open(place.store) as own:
            theirs, ours = other.id, own.id

        def told() -> bool:
            code, found = checks(place)
            worker_check = found[f"worker on {place.queue}"]
            assert (code, worker_check["status"]) == (1, "fail"), found
            assert f"none serves this store (id {ours})" in worker_check["found"]
            assert f"{worker.process.pid}@" in worker_check["found"]
            assert f"(store {theirs})" in worker_check["found"]
            return True

        until(told)
        assert place.shows(job, f"why no worker serves this job's store (id {ours}) on the queue {place.queue}; start")
        assert "no worker serves the queue" in place.loom("run", place.agent("calm"), "x", "--detach").err
        with working(place):
            assert place.loom("wait", job).code == 0
        assert "Completing" not in worker.said()


def test_doctor_says_that_a_worker_has_another_file_of_the_same_store(place: House) -> None:
    place.started("calm")
    copy = copied(place.store, place.folder / "copy.db")
    with working(place, LOOM_STORE=str(copy)) as worker:

        def told() -> bool:
            code, found = checks(place)
            check = found[f"worker on {place.queue}"]
            assert (code, check["status"]) == (1, "fail"), found
            assert "it works with another file that has the same id" in check["found"]
            assert f"{worker.process.pid}@" in check["found"]
            return True

        until(told)


def test_doctor_and_show_say_which_tools_of_a_job_no_worker_has(place: House) -> None:
    with working(place):
        job = place.started("calm", tools=["glob", f"{TOOLS}:add"])

        def told() -> bool:
            code, found = checks(place)
            assert code == 1, found
            check = found[f"job {job}"]
            assert check["found"] == f"no worker has its tools: {TOOLS}"
            assert f"--tools {TOOLS}" in check["fix"]
            return True

        until(told)
        assert place.shows(job, f"--tools {TOOLS}")
        place.loom("abort", job)


def test_an_epoch_begins_by_a_command_with_a_reason(place: House) -> None:
    place.started("calm")
    said = place.loom("store", "epoch", "--why", "restored from Monday's backup")
    assert (said.code, said.out.startswith("epoch 2 of the store")) == (0, True)
    assert "restored from Monday's backup" in place.loom("store", "info").out
    empty = place.loom("store", "epoch", "--why", " ")
    assert (empty.code, "--why is empty" in empty.err) == (2, True)


# -- the server's database ---------------------------------------------------------------------------------


@pytest.fixture
def fragile(place: House, tmp_path: Path) -> Iterator[tuple[House, DevServer]]:
    """A house with a server of its own, whose database may be lost."""
    server = small_server(tmp_path / "server")
    run_apart(server.start())
    place.address = server.address
    try:
        yield place, server
    finally:
        run_apart(server.stop())


def loses_everything(server: DevServer) -> None:
    """Stop a server, and start it again without its database."""
    run_apart(server.stop())
    assert server.db is not None
    for file in Path(server.db).parent.glob(f"{Path(server.db).name}*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    run_apart(server.start())


def test_jobs_that_the_server_lost_are_told_as_lost_and_can_be_forked(fragile: tuple[House, DevServer]) -> None:
    place, server = fragile
    with working(place):
        job = place.started("steered")
        until(lambda: "Step 2" in place.loom("show", job, "--entries").out or None)
    young = place.started("calm")
    asking = place.started("writer", permissions={"ask": ["write_file"]})
    run_apart(server.stop())
    aged(place.store)
    unreachable = place.loom("jobs", LOOM_CONNECT_SECONDS="1")
    assert job in unreachable.out
    assert "lost" not in unreachable.out + unreachable.err  # nobody can say while the server is away
    loses_everything(server)
    place.address = server.address

    def lost() -> Said:  # a list waits for a slow server only for a moment
        listed = place.loom("jobs")
        assert listed.code == 0
        assert re.search(rf"{job}\s+lost", listed.out), listed
        return listed

    listed = until(lost)
    turn = re.search(rf"job {job} is lost on the server, .*`loom fork {job} --turn (\d+)` goes on", listed.err)
    assert turn is not None, listed.err
    assert int(turn.group(1)) >= 1
    assert re.search(rf"{asking}\s+lost", listed.out)
    assert re.search(rf"{young}\s+lost", listed.out)
    assert place.shows(job, f"lost on the server, which does not know it any more; `loom fork {job} --turn")
    for command in (["wait", job], ["wait", young], ["watch", asking]):
        said = place.loom(*command)
        assert (said.code, "is lost on the server" in said.err) == (4, True), said
    assert until(lambda: place.loom("jobs", "--json", "--status", "lost").out)
    with working(place):
        forked = place.loom("fork", job, "--turn", turn.group(1), "--detach")
        assert forked.code == 0, forked
        assert place.loom("abort", forked.out.strip()).code == 0


def test_a_job_is_not_taken_for_lost_by_who_asks_another_server_and_runs_again_when_it_was(
    fragile: tuple[House, DevServer], dev_server: DevServer
) -> None:
    place, _ = fragile
    other = {"LOOM_ADDRESS": dev_server.address}
    with working(place):
        job = place.started("steered")
        until(lambda: "Step 1" in place.loom("show", job, "--entries").out or None)
        aged(place.store)
        assert re.search(rf"{job}\s+running", place.loom("jobs", **other).out)  # its worker serves another server
        check = judged(place, 1, "fail", **other)[f"worker on {place.queue}"]
        assert "asks for no work at this server" in check["found"]
    assert re.search(rf"{job}\s+running", place.loom("jobs", LOOM_NAMESPACE="none-such").out)
    until(lambda: re.search(rf"{job}\s+lost", place.loom("jobs", **other).out))
    assert re.search(rf"{job}\s+running", place.loom("jobs").out)
    assert place.loom("abort", job).code == 0
