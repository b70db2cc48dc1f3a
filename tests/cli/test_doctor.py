"""What doctor finds, and what it says to do about it."""

import json
import os
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from loom_cli.app import run
from loom_cli.dev.server import DevServer
from loom_cli.doctor import examine
from loom_cli.doctor.check import PROBE_SECONDS, Check, Status
from loom_cli.doctor.workers import Kept, asked, judged
from loom_client.settings import Settings
from loom_store.store import Store
from tests.cli.conftest import LOOM
from tests.support.waiting import PATIENCE, longer, until

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = "127.0.0.1:1"


def checks(settings: Settings, seconds: float = PROBE_SECONDS, **env: str) -> dict[str, Check]:
    """Everything that was looked at, by the first word of what it is."""
    return {check.what.replace("`", "").split(" (")[0]: check for check in examine(settings, env, seconds)}


def find(found: dict[str, Check], start: str) -> Check:
    (check,) = (check for what, check in found.items() if what.startswith(start))
    return check


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(address=NOWHERE, namespace="default", task_queue="nobody", store=str(tmp_path / "loom.db"))


def test_each_failure_says_what_to_do(settings: Settings) -> None:
    found = checks(settings)
    failed = [check for check in found.values() if check.status is Status.FAIL]
    assert [check.what for check in failed] == [f"Temporal server {NOWHERE}"]
    assert "loom dev" in failed[0].fix
    assert all(check.fix for check in found.values() if check.status is not Status.OK)


def test_a_server_without_a_worker_is_a_warning(settings: Settings, dev_server: DevServer) -> None:
    found = checks(settings.model_copy(update={"address": dev_server.address}), PATIENCE)
    assert find(found, "Temporal server").status is Status.OK
    assert find(found, "namespace default").status is Status.OK
    worker = find(found, "worker on nobody")
    assert (worker.status, "loom worker" in worker.fix) == (Status.WARN, True)


def test_workers_that_the_server_lists_and_that_have_ended_are_told_as_such(settings: Settings) -> None:
    seen = {"a@host": 43.2, "b@host": 3.0}
    (found,) = judged(settings, Kept("0ff9e13a26e2", known=frozenset(seen)), seen, {})
    assert (found.status, found.fix) == (Status.WARN, "start one with `loom worker --task-queue nobody`")
    names = "b@host (asked for work 3 s ago), a@host (asked for work 43 s ago)"
    assert found.found == f"none is alive: jobs wait. The server still lists {names}: stopped or dead since"
    assert asked(dict.fromkeys("abcde", 1.0)).endswith("c (asked for work 1 s ago) and 2 more")


def test_a_namespace_that_is_not_there_fails(settings: Settings, dev_server: DevServer) -> None:
    found = checks(settings.model_copy(update={"address": dev_server.address, "namespace": "none-such"}), PATIENCE)
    namespace = find(found, "namespace none-such")
    assert namespace.status is Status.FAIL
    assert "namespace create" in namespace.fix


def test_a_port_on_which_something_else_listens_is_told_from_one_that_is_closed(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=_say_hello, args=(other,), daemon=True).start()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        for seconds in longer(PROBE_SECONDS):  # on a slow machine they may be over before it is known
            server = find(checks(settings.model_copy(update={"address": address}), seconds), "Temporal server")
            if "does not speak" in server.found:
                break
    assert server.status is Status.FAIL
    assert "does not speak Temporal's protocol" in server.found
    assert "Connection refused" in find(checks(settings), "Temporal server").found


def _say_hello(listener: socket.socket) -> None:
    try:
        while True:
            taken, _ = listener.accept()
            taken.sendall(b"220 hello\r\n")
            taken.close()
    except OSError:
        return


# -- the store ---------------------------------------------------------------------------------------------


def test_a_store_is_looked_at_and_not_made(settings: Settings, tmp_path: Path) -> None:
    assert find(checks(settings), "store").found.startswith("it is not there yet")
    assert list(tmp_path.iterdir()) == []
    Store.open(settings.store).close()
    before = (tmp_path / "loom.db").read_bytes()
    store = find(checks(settings), "store")
    assert (store.status, "writable" in store.found) == (Status.OK, True)
    assert (tmp_path / "loom.db").read_bytes() == before


def _at(revision: str, path: Path) -> None:
    Store.open(path).close()
    with sqlite3.connect(path) as opened:
        opened.execute("UPDATE loom_version SET version_num = ?", (revision,))
    opened.close()


def _foreign(path: Path) -> None:
    with sqlite3.connect(path) as opened:
        opened.execute("CREATE TABLE theirs (x)")
    opened.close()


@pytest.mark.parametrize(
    ("make", "said", "fix"),
    [
        (partial(_at, "9999"), "revision 9999, which is newer than this release's", "upgrade Loom"),
        (partial(_at, "0009"), "revision 0009, which is older than this release's first", "let its jobs end"),
        (_foreign, "it belongs to another program", "LOOM_STORE"),
        (lambda path: path.write_bytes(b"not a database" * 100), "it is not a store", "LOOM_STORE"),
        (lambda path: path.mkdir(), "it cannot be used", "LOOM_STORE"),
    ],
)
def test_a_store_that_cannot_be_used_fails(
    settings: Settings, tmp_path: Path, make: object, said: str, fix: str
) -> None:
    assert callable(make)
    make(tmp_path / "loom.db")
    store = find(checks(settings), "store")
    assert store.status is Status.FAIL
    assert said in store.found
    assert fix in store.fix


def test_a_store_that_somebody_holds_fails(settings: Settings, tmp_path: Path) -> None:
    Store.open(settings.store).close()
    holder = sqlite3.connect(tmp_path / "loom.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    store = find(checks(settings), "store")
    holder.close()
    assert store.status is Status.FAIL
    assert "locked" in store.found
    assert "end the process" in store.fix


def test_an_address_of_a_store_that_is_none_fails(settings: Settings) -> None:
    found = checks(settings.model_copy(update={"store": "mysql://me:secret@host/db"}))
    assert found["store"].status is Status.FAIL
    assert "secret" not in found["store"].found


def test_a_store_on_a_server_that_does_not_answer_fails_without_its_password(settings: Settings) -> None:
    store = find(checks(settings.model_copy(update={"store": "postgresql://me:secret@127.0.0.1:1/db"})), "store")
    assert (store.what, store.status) == ("store postgresql://me@127.0.0.1:1/db", Status.FAIL)
    assert "does not answer" in store.found
    assert "secret" not in store.found + store.fix


# -- the model ---------------------------------------------------------------------------------------------


class _Models(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        granted = self.headers["Authorization"] == "Bearer sk-right"
        self.send_response(200 if self.path == "/v1/models" and granted else 401)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A model on this machine that takes the key `sk-right`."""
    server = HTTPServer(("127.0.0.1", 0), _Models)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("env", "status", "said"),
    [
        ({}, Status.WARN, "neither OPENAI_API_KEY nor OPENAI_BASE_URL is set"),
        ({"OPENAI_API_KEY": "sk-secret-1"}, Status.OK, "https://api.openai.com, OPENAI_API_KEY is set; not asked"),
        ({"OPENAI_BASE_URL": "https://models.example/v1"}, Status.FAIL, "set OPENAI_API_KEY"),
        ({"OPENAI_BASE_URL": "http://user:sk-secret-1@127.0.0.1:9/v1"}, Status.FAIL, "holds a user or a password"),
        ({"OPENAI_BASE_URL": "nonsense", "OPENAI_API_KEY": "sk-secret-1"}, Status.FAIL, "is not an address"),
        (
            {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"},
            Status.FAIL,
            "http://127.0.0.1:9, no key is needed: it does not answer",
        ),
        (
            {"OPENAI_BASE_URL": "https://models.example/v1?key=sk-secret-1", "OPENAI_API_KEY": "sk-secret-1"},
            Status.OK,
            "https://models.example, OPENAI_API_KEY is set",
        ),
    ],
)
def test_the_model_of_the_environment_is_judged_and_no_key_is_shown(
    settings: Settings, env: dict[str, str], status: Status, said: str
) -> None:
    model = find(checks(settings, **env), "model")
    assert model.status is status
    assert said in model.found
    assert "sk-secret-1" not in str(model)


@pytest.mark.parametrize(
    ("key", "status", "said"), [("sk-right", Status.OK, "answers"), ("sk-wrong", Status.FAIL, "it answers 401")]
)
def test_a_model_on_this_machine_is_asked(
    settings: Settings, endpoint: str, key: str, status: Status, said: str
) -> None:
    model = find(checks(settings, PATIENCE, OPENAI_BASE_URL=endpoint, OPENAI_API_KEY=key), "model")
    assert (model.status, said in model.found) == (status, True)


# -- the command -------------------------------------------------------------------------------------------


def test_a_named_temporal_cli_that_is_none_fails(settings: Settings, tmp_path: Path) -> None:
    cli = checks(settings, TEMPORAL_CLI=str(tmp_path / "none"))["Temporal CLI"]
    assert cli.status is Status.FAIL
    assert "TEMPORAL_CLI" in cli.found


def test_the_status_says_whether_loom_can_work(
    settings: Settings, dev_server: DevServer, capsys: pytest.CaptureFixture[str]
) -> None:

    def works() -> bool:  # it soon gives up on a server that is slow
        assert run(["doctor", "--store", settings.store, "--address", dev_server.address]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "Loom can work here."
        return True

    until(works)
    capsys.readouterr()
    assert run(["doctor", "--store", settings.store, "--address", NOWHERE]) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("checks failed")


def test_json_holds_every_check(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--store", settings.store, "--address", NOWHERE, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert {check["status"] for check in found} <= {"ok", "warn", "fail"}
    assert [set(check) for check in found] == [{"status", "what", "found", "fix"}] * len(found)
    assert [check["what"] for check in found if check["status"] == "fail"] == [f"Temporal server {NOWHERE}"]


@pytest.mark.parametrize("name", ["workflows", "activities"])
def test_a_package_that_shadows_looms_own_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LOOM_STORE": str(tmp_path / "loom.db"), "LOOM_ADDRESS": NOWHERE}
    done = subprocess.run(
        [*LOOM, "doctor", "--json"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 1, done.stderr
    (check,) = (check for check in json.loads(done.stdout) if check["what"] == f"package `{name}`")
    assert check["status"] == "fail"
    assert str(tmp_path / name) in check["found"]
    assert "environment of its own" in check["fix"]


POLICY = "loom: 1\nkind: policy\nroles: {ops: {who: [maria], approve: high}}\n"


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        ("loom: 1\nkind: policy\nsigned: high\n", Status.OK, "can be used"),
        (POLICY, Status.WARN, "who reaches the Temporal server decides as anybody"),
        (POLICY + "signed: medium\n", Status.WARN, "decides below the risk medium as anybody"),
        (POLICY + "signed: low\n", Status.OK, "can be used"),
        (POLICY + "rolls: {}\n", Status.FAIL, "cannot be used"),
        (None, Status.FAIL, "cannot be read"),
    ],
)
def test_roles_that_go_by_anybodys_word_are_told(
    settings: Settings, tmp_path: Path, text: str | None, status: Status, told: str
) -> None:
    file = tmp_path / "policy.yaml"
    if text is not None:
        file.write_text(text)
    check = find(checks(settings, LOOM_POLICY=str(file)), "policy")
    assert (check.status, told in check.found) == (status, True), check
    assert not [what for what in checks(settings) if what.startswith("policy")]
