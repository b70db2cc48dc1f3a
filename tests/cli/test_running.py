"""The command line end to end: a real server, a real worker, real processes and terminals."""

import json
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import LOOM, House
from tests.cli.screen import Screen
from tests.support.waiting import PATIENCE, eventually, until

pytestmark = pytest.mark.server
CONTROL = [chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))]


def test_a_job_runs_to_its_end_and_is_shown_as_a_tree_of_turns(house: House, fresh: Callable[[str], str]) -> None:
    job = fresh("calm-1")
    said = house.loom("run", house.agent("calm"), "look", "--workdir", house.workdir(), "--job", job)
    assert said.code == 0, said
    assert not [character for character in CONTROL if character in said.out]
    # A slow machine makes it say why nothing happens.
    lines = re.sub(r"(?m)^(?:│ )?\(waiting: (?:.|\n)*?\)\n", "", said.out).splitlines()
    assert "● turn 1" in lines
    assert "│ ┊ I look first." in lines
    assert any(re.fullmatch(r"│ ✓ glob \*\*/\*  .* m?s", line) for line in lines), said.out
    assert any(line.startswith("│ ✗ read_file missing.txt  ") for line in lines), said.out
    assert "● turn 2  depth 1" in lines
    assert lines[-3] == "✓ done"
    assert "2 turns · 2 model calls · 2 tool calls" in said.out
    assert said.out.count("All is well.") == 1
    again = house.loom("watch", job)
    assert (again.code, again.out.splitlines()) == (0, lines)
    answer = house.loom("result", job)
    assert (answer.code, answer.out, answer.err) == (0, "All is well.\n", "")
    assert json.loads(house.loom("wait", job, "--json").out)["status"] == "completed"


def test_events_as_json_have_offsets_and_can_be_read_on_from_one(house: House) -> None:
    begun = int(time.time())
    said = house.loom("run", house.agent("calm"), "-", "--workdir", house.workdir(), "--json", stdin="look\n")
    events = [json.loads(line) for line in said.out.splitlines()]
    assert all(begun <= event["at"] <= time.time() for event in events[:-1])
    assert [event["offset"] for event in events[:-1]] == list(range(1, len(events)))
    assert events[-1]["type"] == "result"
    assert events[-1]["result"]["answer"] == "All is well."
    assert events[-1]["result"]["final_message"] == {"role": "assistant", "content": "All is well."}
    job = events[0]["job"]
    assert json.loads(house.loom("result", job, "--json").out) == {"job": job, **events[-1]["result"]}
    rest = house.loom("watch", job, "--json", "--from", "10")
    assert [json.loads(line) for line in rest.out.splitlines()] == events[10:]


def test_an_approval_without_ids_is_for_the_only_one_that_waits(house: House, fresh: Callable[[str], str]) -> None:
    job = fresh("writer-1")
    workdir = house.workdir()
    run = [*LOOM, "run", house.agent("writer"), "write", "--workdir", workdir, "--job", job]
    with subprocess.Popen(
        run, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=house.environment(), cwd=house.folder, text=True
    ) as process:
        (approval,) = house.pending(job)
        assert process.stdout is not None
        shown: list[str] = []
        while f"  loom approve {job} {approval['id']}" not in "".join(shown):  # what is decided is not told any more
            shown.append(process.stdout.readline())
            assert shown[-1], shown
        assert house.shows(job, f"approval {approval['id']} (write_file) since")
        listed = house.loom("approvals")
        assert f"loom approve {job} {approval['id']}" in listed.out
        assert "+one" in listed.out
        said = house.loom("approve", "--by", "ann")
        assert said.code == 0
        *call, last = said.out.splitlines()  # what is decided is shown before it is
        assert last == f"approved: {approval['id']} (write_file) of job {job}"
        assert "  write report.md (8 characters)" in call
        assert "    +one" in call
        out = process.stdout.read()
        assert process.wait(PATIENCE) == 0, out
    assert "approved by ann" in out
    assert (Path(workdir) / "report.md").read_text() == "one\ntwo\n"
    again = house.loom("approve", job, approval["id"])
    assert again.code == 2
    assert "is already decided: approved by ann at" in again.err
    assert f"loom approve {job} {approval['id']}" not in house.loom("watch", job).out


def test_of_several_approvals_one_must_be_named(house: House) -> None:
    job = house.started("pair")
    house.pending(job, 2)
    rows = house.loom("approvals", "--job", job, "--json").out.splitlines()
    first, second = (json.loads(row)["id"] for row in rows)
    said = house.loom("approve", job)
    assert said.code == 2
    assert "2 approvals wait; say which one" in said.err
    assert f"{job} {first}" in said.err
    assert house.loom("reject", job, first, "--reason", "not there").code == 0
    new = house.folder / "new.json"
    new.write_text(json.dumps({"path": "other.md", "content": "else\n"}))
    assert house.loom("approve", second, "--edit", str(new)).code == 0
    assert house.loom("wait", job).out == "Both are decided.\n"
    (workdir,) = [json.loads(row)["workdir"] for row in house.loom("jobs", "--json").out.splitlines() if job in row]
    assert sorted(path.name for path in Path(workdir).iterdir()) == ["other.md"]
    told = house.loom("watch", job).out
    assert "rejected by" in told
    assert ": not there" in told


@pytest.mark.parametrize(
    ("answers", "written", "told"),
    [
        (["y\n"], "one\ntwo\n", "approved by"),
        (["n\n"], None, "rejected by"),
        (["r\n", "not this file\n"], None, ": not this file"),
        (["d\n", "nonsense\n", "y\n"], "one\ntwo\n", "y approve, n reject"),
        (["e\n"], "edited\n", "approved with other arguments"),
    ],
    ids=["yes", "no", "reason", "diff-first", "edit"],
)
def test_at_a_terminal_it_asks(house: House, answers: list[str], written: str | None, told: str) -> None:
    editor = house.folder / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i 's/one.*two.n/edited\\\\n/' \"$1\"\n")
    editor.chmod(0o755)
    workdir = house.workdir()
    with house.at_terminal("run", house.agent("writer"), "write", "--workdir", workdir, EDITOR=str(editor)) as terminal:
        place = 0
        for answer in answers:
            place = terminal.expect("reason: " if answer == "not this file\n" else "[y]es", since=place)
            terminal.type(answer)
        assert terminal.end() == 0, terminal.said
        assert told in terminal.screen, terminal.screen
        assert "+one" in terminal.screen
        assert "loom approve" not in terminal.screen
    file = Path(workdir) / "report.md"
    assert (file.read_text() if file.exists() else None) == written


def test_at_a_terminal_an_approval_can_be_remembered_for_the_job(house: House) -> None:
    with house.at_terminal("run", house.agent("twice"), "write", "--workdir", house.workdir()) as terminal:
        terminal.expect("[y]es")
        terminal.type("a\n")
        assert terminal.end() == 0
        assert terminal.said.count("[y]es") == 1
        assert "Both are written." in terminal.screen


def test_a_question_goes_away_when_somebody_else_answers_it(house: House, fresh: Callable[[str], str]) -> None:
    job = fresh("elsewhere")
    with house.at_terminal(
        "run", house.agent("writer"), "write", "--workdir", house.workdir(), "--job", job
    ) as terminal:
        terminal.expect("[y]es")
        assert house.loom("approve", job, "--by", "bob").code == 0
        assert terminal.end() == 0
        assert "approved by bob" in terminal.screen


def test_control_c_ends_the_watching_and_not_the_job(house: House, fresh: Callable[[str], str]) -> None:
    job = fresh("interrupted")
    arguments = ("run", house.agent("writer"), "write", "--workdir", house.workdir(), "--job", job)
    with house.at_terminal(*arguments) as terminal:
        terminal.expect("[y]es")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert f"the job goes on; see it again with `loom watch {job}`" in terminal.screen
        assert "Traceback" not in terminal.said
    with house.at_terminal("watch", job) as terminal:
        terminal.expect("approval ap_")
        terminal.type("\x03")
        assert terminal.end() == 130
    waiting = subprocess.Popen(
        [*LOOM, "wait", job], env=house.environment(), cwd=house.folder, stderr=subprocess.PIPE, text=True
    )
    assert until(lambda: psutil.Process(waiting.pid).net_connections("tcp"))  # it asks the server by now
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 130
    assert f"loom watch {job}" in err
    assert "Traceback" not in err
    assert house.loom("approve", job).code == 0
    assert house.loom("wait", job).code == 0


def test_the_same_id_is_one_job_and_other_content_is_refused(house: House, fresh: Callable[[str], str]) -> None:
    job = fresh("one")
    agent, workdir = house.agent("writer"), house.workdir()
    start = ("run", agent, "write", "--workdir", workdir, "--job", job, "--detach")
    assert house.loom(*start).out == f"{job}\n"
    assert house.loom(*start).out == f"{job}\n"
    other = house.loom("run", agent, "something else", "--workdir", workdir, "--job", job, "--detach")
    assert other.code == 2
    assert f"job '{job}' exists already with another task" in other.err
    house.pending(job)
    assert house.loom("reject", job).code == 0
    assert house.loom("wait", job).code == 0
    ended = house.loom(*start)
    assert ended.code == 2
    assert f"has ended (completed); its answer: `loom result {job}`" in ended.err


def test_without_a_worker_it_says_so_at_once_and_waits(house: House, fresh: Callable[[str], str]) -> None:
    job = fresh("alone")
    queue = {"LOOM_TASK_QUEUE": "nobody-there", "LOOM_ANSWER_SECONDS": "1"}
    start = ("run", house.agent("calm"), "x", "--workdir", house.workdir(), "--job", job, "--detach")
    said = house.loom(*start, **queue)
    assert (said.code, said.out) == (0, f"{job}\n")
    assert "no worker serves the queue nobody-there yet" in said.err
    assert "loom worker" in said.err
    why = "on the queue nobody-there; start one with `loom worker --task-queue nobody-there`"
    assert house.shows(job, why)
    assert house.shows(job, "why no worker serves this job's store (id")
    with house.at_terminal("watch", job, **queue) as terminal:
        terminal.expect("no worker serves this job's store (id")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert house.loom("abort", job, "--reason", "nobody", **queue).code == 0


def test_a_job_is_paused_told_something_resumed_and_aborted(house: House) -> None:
    job = house.started("steered")
    assert "is paused" in house.loom("pause", job, "--by", "ann").out
    assert house.shows(job, f"paused by ann; go on with `loom resume {job}`")
    assert house.loom("inject", job, "-", stdin="look at b.txt too\n").code == 0
    assert "goes on" in house.loom("resume", job).out
    assert house.loom("abort", job, "--reason", "enough").code == 0
    ended = house.loom("wait", job)
    assert ended.code == 1
    assert f"job {job} was aborted: enough" in ended.err
    watched = house.loom("watch", job)
    assert watched.code == 1
    for told in ("paused by ann", "message sent", "resumed", "abort asked for", "✗ aborted: enough"):
        assert told in watched.out, watched.out
    late = house.loom("pause", job)
    assert late.code == 2
    assert "has already ended (aborted)" in late.err


def test_a_limit_of_turns_ends_the_job_with_status_1(house: House) -> None:
    said = house.loom("run", house.agent("steered"), "x", "--workdir", house.workdir(), "--max-turns", "2")
    assert said.code == 1
    assert "✗ failed: max_iterations: the limit of 2 iterations was reached" in said.out


def test_what_models_write_is_shown_and_never_obeyed(house: House, fresh: Callable[[str], str]) -> None:
    job = fresh("evil")
    arguments = ("run", house.agent("evil"), "x", "--workdir", house.workdir(), "--job", job)
    with house.at_terminal(*arguments) as terminal:
        assert terminal.end() == 0
        screen = Screen().feed(terminal.said).text  # refuses every code but colours and the few that Loom uses
        assert "red \\x1b[31mtext\\x1b]0;title\\x07" in screen
        assert "\\x9b2J" in screen
        assert "\\u202eabc" in screen
        assert "read_file \\x1b[2Jx" in screen
    answer = house.loom("result", job)
    assert answer.out == "\\x1b[2Jend\n"


def test_an_answer_that_starts_again_is_shown_once_at_a_terminal_and_marked_in_a_pipe(
    house: House, fresh: Callable[[str], str]
) -> None:
    job = fresh("again")
    whole = "one two three four five six seven eight nine ten"
    agent = house.agent("broken")
    with house.at_terminal("run", agent, "x", "--workdir", house.workdir(), "--job", job) as terminal:
        assert terminal.end() == 0
        assert "one two" in terminal.said.replace(whole, "")
        assert terminal.screen.count("one two") == 1, terminal.screen
        assert whole in terminal.screen
    piped = house.loom("watch", job)
    assert "│ (the answer starts again: attempt 2)" in piped.out.splitlines()
    assert piped.out.count(whole) == 1
    (wasted,) = re.findall(r"· (\d+) wasted ·", " ".join(piped.out.split()))
    shown = " ".join(house.loom("show", job).out.split())
    assert f"wasted {wasted} tokens of answers that were lost and asked for again" in shown


def test_show_says_when_the_model_is_asked_again(house: House) -> None:
    job = house.started("refusing")

    def shown() -> bool:
        said = house.loom("show", job).out
        return "why        waits for the model: " in said and "; tries again in " in " ".join(said.split())

    assert until(shown)
    assert house.loom("abort", job).code == 0


async def test_a_job_ended_on_the_server_is_told_as_such(house: House) -> None:
    from temporalio.client import Client

    job = house.started("hanging")
    client = await Client.connect(house.address)
    await eventually(lambda: "the model is answering since" in house.loom("show", job).out)
    await client.get_workflow_handle(job).terminate("by hand")
    assert house.shows(job, "it was ended on the server (terminated), outside Loom")
    said = house.loom("wait", job)
    assert said.code == 1
    assert said.err == f"error: job {job} was terminated on the server\n"


def test_lists_show_jobs_by_status(house: House) -> None:
    job = house.started("calm")
    assert house.loom("wait", job).code == 0
    shown = house.loom("jobs", "--status", "completed")
    assert any(line.startswith(job) and line.endswith("do it") for line in shown.out.splitlines())
    assert job not in house.loom("jobs", "--status", "failed").out
    assert json.loads(house.loom("show", job, "--json").out)["turns"] == 2


def test_a_reader_that_goes_away_is_no_error(house: House) -> None:
    job = house.started("calm")
    assert house.loom("wait", job).code == 0
    line = f"{shlex.join(LOOM)} watch {job} --states | head -1"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, env=house.environment(), check=False)
    assert done.stdout.startswith(job)
    assert done.stderr == ""
