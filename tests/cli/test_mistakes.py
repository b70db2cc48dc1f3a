"""What a user can do wrong: one clear line on standard error and status 2, before anything is started."""

import json
import re
import resource
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.client import Client

from loom_cli.dev.server import DevServer
from tests.cli.conftest import LOOM, House, Said
from tests.support.server import create_namespace, run_apart

pytestmark = pytest.mark.server
AGENT = "loom: 1\nkind: agent\nname: scribe\nmodel: calm:any\ntools: [glob]\n"

TOOLS = """
def fine(text: str) -> str:
    '''Say it.'''
    return text

def odd(text):
    '''Say it.'''
"""


@pytest.fixture(scope="module")
def place(dev_server: DevServer, loom_at_hand: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server and a store, and no worker; its ids of jobs are its own, also where the module is begun twice."""
    folder = tmp_path_factory.mktemp("place")
    models = {"calm": "http://127.0.0.1:9/v1"}
    own = run_apart(_namespace(dev_server.address))
    made = House(folder, dev_server.address, folder / "loom.db", "nobody", models, 1.0, own, loom_at_hand)
    (folder / "agent.yaml").write_text(AGENT)
    (folder / "my_tools.py").write_text(TOOLS)
    assert made.loom("run", "agent.yaml", "x", "--job", "job-one", "--detach").code == 0
    yield made
    assert made.loom("abort", "job-one").code == 0


async def _namespace(address: str) -> str:
    return await create_namespace(await Client.connect(address))


def mistaken(said: Said) -> str:
    assert said.code == 2, said
    assert said.out == ""
    assert "Traceback" not in said.err
    assert said.err.endswith("\n")
    return said.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AGENT.replace("name:", "  name:"), "bad.yaml:3:7: "),
        (AGENT + "tols: [grep]\n", "bad.yaml:6:1: "),
        (AGENT + "limits: {max_iterations: many}\n", "bad.yaml:6:26: "),
        (AGENT.replace("glob", "globb"), "bad.yaml:5:9: L150 tool `globb`: there is no built-in tool 'globb'; did you"),
        (AGENT.replace("model: calm:any\n", ""), "missing field `model`: no model is configured"),
        (AGENT.replace("calm:any", "${env:NO_SUCH_MODEL}"), "the environment variable NO_SUCH_MODEL is not set"),
        ("", "bad.yaml"),
        ("\x00", "bad.yaml"),
    ],
    ids=["yaml", "unknown-field", "wrong-type", "unknown-tool", "no-model", "unset-variable", "empty", "binary"],
)
def test_a_bad_agent_file_is_told_with_its_place(place: House, text: str, expected: str) -> None:
    (place.folder / "bad.yaml").write_text(text)
    said = mistaken(place.loom("run", "bad.yaml", "x", "--job", "never"))
    assert expected in said
    assert said.startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "no.yaml", "x"], "there is no file no.yaml; give the agent's file, or make one with `loom init`"),
        (["run", "agent.yml", "x"], "there is no file agent.yml; did you mean `agent.yaml`?"),
        (["run", "agent.yml"], "there is no file agent.yml; did you mean `agent.yaml`?"),
        (["run", ".", "x"], ". is a directory; give the agent's file"),
        (["run", "agent.yaml", "  "], "the task is empty"),
        (["run", "agent.yaml", "-"], "the task is empty"),
        (["run", "agent.yaml", "x", "--workdir", "nowhere"], "nowhere does not exist"),
        (
            ["run", "agent.yaml", "x", "--job", "a/b"],
            "'a/b' cannot be the id of a job; write up to 200 letters, digits",
        ),
        (["run", "agent.yaml", "x", "--model", ""], "bad"),
        (["run", "agent.yaml", "x", "--tools", "no_such_module"], "there is no module 'no_such_module'"),
        (["watch", "job-onne"], "there is no job 'job-onne' in the store"),
        (["watch", "job-onne"], "did you mean job-one?"),
        (["result", "nothing-like-it"], "the latest jobs are job-one"),
        (["pause", "job-onne"], "did you mean job-one?"),
        (["approve"], "no approval waits; `loom approvals --all` lists them all"),
        (["approve", "ap_none"], "there is no approval 'ap_none'; none waits"),
        (["approve", "job-one"], "no approval waits in job job-one"),
        (["approve", "a", "b", "c"], "give at most a job and an approval, not 3 names"),
        (["approve", "--edit", "no.json"], "--edit: there is no file no.json"),
        (["approve", "--edit", "agent.yaml"], "--edit agent.yaml: this is not JSON"),
        (["approve", "--remember", "ever"], "--remember ever: write no or job or rule"),
        (["inject", "job-one", " "], "the message is empty"),
        (["inject", "job-one", "x", "--when", "soon"], "--when soon: write asap or idle"),
        (["jobs", "--status", "done"], "--status done: write one of running, completed, failed, aborted"),
        (["watch", "job-one", "--address", "nowhere"], "'nowhere' is not an address; write HOST:PORT"),
        (["watch", "job-one", "--namespace", "other", "--store", "loom.db"], "has no namespace 'other'"),
        (["worker", "--root", "nowhere"], "there is no such directory"),
        (["worker", "--secret", "NOT_SET_HERE"], "--secret NOT_SET_HERE: not set in the environment"),
        (["worker", "--tools", "my_tools.py"], "--tools my_tools.py: "),
        (
            ["worker", "--on-approval", "no-such-bell --loud"],
            "there is no command 'no-such-bell' on this worker's PATH",
        ),
        (["worker", "--on-approval", "tee 'a"], "is not a command line: No closing quotation"),
        (["worker", "--on-approval", " "], "there is no command ''"),
        (["worker", "--mcp", "no.json"], "the MCP servers no.json (--mcp) cannot be read: No such file"),
        (["worker", "--webhooks", "no.yaml"], "the webhooks no.yaml (--webhooks) cannot be read: No such file"),
        (["webhooks", "test", "a", "--webhooks", "no.yaml"], "no.yaml (--webhooks) cannot be read: No such file"),
        (["worker", "--approver-keys", "no.keys"], "no.keys (--approver-keys) cannot be read: No such file"),
        (["audit", "verify", "--approver-keys", "agent.yaml"], "agent.yaml:1 (--approver-keys): this is not JSON"),
        (
            ["policy", "explain", "agent.yaml", "glob(*)", "--policy", "no.yaml"],
            "the policy no.yaml (--policy) cannot be read: No such file",
        ),
        (["fake-model", "--script", "no.yaml"], "no.yaml"),
        (["no-such-command"], "no-such-command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_that_says_what_to_do(place: House, arguments: list[str], expected: str) -> None:
    said = mistaken(place.loom(*arguments))
    if expected != "bad":
        assert expected in said
        assert said.count("\n") == 1 or arguments == ["no-such-command"]


@pytest.mark.parametrize("option", ["mcp", "webhooks", "approver-keys"])
def test_a_file_that_a_variable_names_is_told_by_the_variable(place: House, option: str) -> None:
    variable = f"LOOM_{option.replace('-', '_').upper()}"
    said = mistaken(place.loom("worker", **{variable: "./no.file"}))
    assert f"no.file ({variable}) cannot be read: No such file" in said


def test_a_private_key_among_the_approvers_is_told_as_one_and_not_shown(place: House) -> None:
    made = place.loom("key", "new", "maria", "--out", "maria.key")
    assert made.code == 0, made
    secret = json.loads((place.folder / "maria.key").read_text())["private"]
    said = mistaken(place.loom("worker", "--approver-keys", "maria.key"))
    assert "maria.key:1 (--approver-keys): this is a private key" in said
    assert "`loom key show KEYFILE`" in said
    assert secret not in said
    (place.folder / "approvers.jsonl").write_text(place.loom("key", "show", "maria.key").out)  # as it says
    assert place.loom("audit", "verify", "--approver-keys", "approvers.jsonl").code == 0


def test_without_a_server_it_says_how_to_start_one(place: House) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for command in (["worker"], ["run", "agent.yaml", "x"]):
            said = mistaken(place.loom(*command, LOOM_ADDRESS=address, LOOM_CONNECT_SECONDS="1"))
            assert f"no Temporal server answers at {address}; start one with `loom dev`" in said
        shown = place.loom("show", "job-one", LOOM_ADDRESS=address)
        assert shown.code == 0
        assert f"the Temporal server at {address} does not answer" in shown.out
        assert place.loom("jobs", LOOM_ADDRESS=address).out.count("job-one") == 1


def test_a_result_that_nobody_works_on_is_told_as_such(place: House) -> None:
    for command in ("result", "wait"):
        with place.at_terminal(command, "job-one") as terminal:
            terminal.expect("no worker serves the queue nobody yet for this store (id")
            terminal.type("\x03")
            assert terminal.end() == 130


def test_the_release_is_an_option_too(place: House) -> None:
    option, command = place.loom("--version"), place.loom("version")
    assert (option.code, option.out) == (0, command.out)
    assert option.out.strip()


def test_a_store_that_cannot_be_used_is_named(place: House, tmp_path: Path, fresh: Callable[[str], str]) -> None:
    missing = mistaken(place.loom("jobs", "--store", str(tmp_path / "none.db")))
    assert f"there is no store at {tmp_path / 'none.db'}" in missing
    newer, job = tmp_path / "newer.db", fresh("n")
    assert place.loom("run", "agent.yaml", "x", "--job", job, "--detach", "--store", str(newer)).code == 0
    assert place.loom("abort", job, "--store", str(newer)).code == 0
    with sqlite3.connect(newer) as connection:
        connection.execute("UPDATE loom_version SET version_num = '9999'")
    connection.close()
    assert "newer" in mistaken(place.loom("jobs", "--store", str(newer)))
    other = tmp_path / "text.db"
    other.write_text("this is no store, but it is long enough to be looked at as one by SQLite" * 20)
    assert str(other) in mistaken(place.loom("jobs", "--store", str(other)))
    assert "this is a directory" in mistaken(place.loom("jobs", "--store", str(tmp_path)))


def test_a_read_only_store_is_named(place: House, tmp_path: Path) -> None:
    """Root, too, runs the command without the right to write everywhere."""
    drop = "import ctypes, os, sys; ctypes.CDLL(None).prctl(24, 1); os.execv(sys.argv[1], sys.argv[1:])"
    bound = replace(place, ready=[sys.executable, "-c", drop, *LOOM])  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
    store = tmp_path / "loom.db"
    store.touch(0o400)
    assert "cannot be written; change its permissions" in mistaken(bound.loom("jobs", "--store", str(store)))


def test_tools_are_looked_at_before_anything_starts(place: House) -> None:
    (place.folder / "own.yaml").write_text(AGENT.replace("[glob]", '["my_tools:fine", "my_tools:odd"]'))
    said = mistaken(place.loom("run", "own.yaml", "x", "--tools", "my_tools", "--job", "never"))
    assert re.search(r"own\.yaml:5:26: L150 tool `odd`: odd \(.*my_tools\.py:\d+\): ", said)
    elsewhere = place.loom("run", "own.yaml", "x", "--job", "in-another-store", "--detach")
    assert elsewhere.code == 0  # the worker may have the module
    assert place.loom("abort", "in-another-store").code == 0
    assert "there is no job 'never'" in mistaken(place.loom("show", "never"))


def test_an_unknown_failure_is_one_line_and_the_traceback_is_for_those_who_ask(place: House) -> None:
    line = "import sys; from loom_cli.errors import outcome; sys.exit(outcome(lambda: 1 / 0))"
    for debug, traced in (("", False), ("1", True)):
        environment = place.environment(LOOM_DEBUG=debug)
        done = subprocess.run([LOOM[0], "-c", line], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 4
        assert "error: ZeroDivisionError: division by zero" in done.stderr
        assert ("Traceback" in done.stderr) is traced
        assert ("LOOM_DEBUG=1" in done.stderr) is not traced


def test_help_answers_at_once_and_imports_nothing_heavy(place: House) -> None:
    spent: list[float] = []
    while len(spent) < 3 or (min(spent) >= 0.3 and len(spent) < 15):  # what others do to the caches counts, too
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        said = place.loom("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert said.code == 0
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 0.3, spent
    for command in ("run", "watch", "approve", "dev", "validate"):
        assert command in said.out
    loaded = subprocess.run(
        [LOOM[0], "-X", "importtime", "-m", "loom_cli", "--help"],
        env=place.environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    names = {line.rpartition("|")[2].strip() for line in loaded.splitlines()}
    assert "typer" in names
    assert not names & {"temporalio", "pydantic", "sqlalchemy", "openai", "ruamel", "loom_dsl.errors"}


def test_every_command_has_help_with_its_options(place: House) -> None:
    names = re.findall(r"^  (\S+)  ", place.loom("--help").out.partition("Commands:")[2], re.MULTILINE)
    for name in names:
        assert place.loom(name, "--help").code == 0
    assert {"run", "watch", "result", "wait", "approvals", "approve", "reject", "pause", "show"} <= set(names)
    said = place.loom("run", "--help")
    for option in ("--workdir", "--detach", "--job", "--session", "--model", "--max-turns", "--json", "--no-input"):
        assert option in said.out
    assert said.err == ""
