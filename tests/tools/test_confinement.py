"""A command can do no harm: every way out is tried, with real processes, as whoever runs the tests."""

import contextlib
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from loom_dsl.errors import ConfigurationError, PermissionDenied, ToolUnavailable
from loom_tools.sandbox.order import Means, ResourceLimits
from loom_tools.sandbox.run import LAUNCHER, Ended, run_confined
from loom_tools.sandbox.settings import check, lacking, order_of
from tests.support.processes import gone
from tests.support.waiting import PATIENCE, longer, until
from tests.tools.escapes import CALLING, HARMING, READING, SECRET, WRITING

PYTHON = os.path.realpath(sys.executable)


@pytest.fixture(scope="module", autouse=True)
def means() -> Iterator[Means]:
    found = LAUNCHER.means()
    if lacking(found):
        pytest.skip(f"this machine lacks {' and '.join(lacking(found))}")
    yield found
    LAUNCHER.close()


WAYS = ["namespaces", "one process group"]
every_way = pytest.mark.parametrize("way", [*WAYS, "an old kernel"], indirect=True)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, means: Means) -> Means:
    """All ways of confining: settings without namespaces for ordinary users are common, and so are kernels of 2021."""
    if request.param == "namespaces" and not means.namespaces:
        pytest.skip("this user may not make namespaces")
    known = 1 if request.param == "an old kernel" else means.landlock
    return replace(means, landlock=known, namespaces=request.param == "namespaces")


@dataclass
class Place:
    """Where a command runs, and what is around it."""

    work: Path
    home: Path
    outside: Path
    means: Means

    def run(
        self, command: str, *, timeout: float = PATIENCE, limits: ResourceLimits | None = None, **options: object
    ) -> Ended:
        environment = {**os.environ, "HOME": str(self.home)}
        argv = ["/bin/bash", "--noprofile", "--norc", "-c", command]
        order = order_of(argv, self.work, self.means, environment, cpu=timeout, limits=limits)
        return run_confined(order, timeout=timeout, **options)  # type: ignore[arg-type]

    def python(self, code: str, **options: object) -> Ended:
        return self.run(f"{PYTHON} -c {shlex.quote(code)}", **options)  # type: ignore[arg-type]


@pytest.fixture
def place(tmp_path: Path, way: Means) -> Place:
    made = Place(tmp_path / "work", tmp_path / "home", tmp_path / "outside", way)
    for folder in (made.work, made.home / ".ssh", made.outside):
        folder.mkdir(parents=True)
    (made.home / ".ssh" / "id_rsa").write_text(SECRET)
    (made.outside / "file").write_text("as it was")
    return made


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user, with a secret in its environment, and its own group."""
    process = subprocess.Popen(["/bin/sleep", "1000"], env={"TOKEN": SECRET}, start_new_session=True)
    yield process
    process.kill()
    process.wait()


@every_way
def test_a_command_does_what_it_is_meant_to_do(place: Place) -> None:
    (place.work / "here.txt").write_text("beside\n")
    ended = place.run(
        'cat here.txt; echo made > made.txt; cat <(echo piped); echo tmp > $TMPDIR/x; cat "$TMPDIR/x"; exit 3'
    )
    assert (ended.output, ended.status, ended.stopped) == ("beside\npiped\ntmp\n", 3, "")
    assert (place.work / "made.txt").read_text() == "made\n"
    assert place.python("import tempfile, subprocess; print(subprocess.run(['true']).returncode)").output == "0\n"


@every_way
@pytest.mark.parametrize("what", READING)
def test_nothing_is_read(
    place: Place, victim: subprocess.Popen[bytes], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", SECRET)
    command = READING[what].format(home=place.home, victim=victim.pid, python=PYTHON)
    assert SECRET not in place.run(command).output
    assert (place.home / ".ssh" / "id_rsa").read_text() == SECRET


@every_way
@pytest.mark.parametrize("what", WRITING)
def test_nothing_is_changed(place: Place, what: str) -> None:
    file = place.outside / "file"
    before = os.stat(file)
    place.run(WRITING[what].format(outside=place.outside, python=PYTHON))
    after = os.stat(file)
    assert file.read_text() == "as it was"
    assert (after.st_ino, after.st_mode, after.st_mtime) == (before.st_ino, before.st_mode, before.st_mtime)
    assert os.listdir(place.outside) == ["file"]
    assert sorted(os.listdir(place.outside.parent)) == ["home", "outside", "work"]
    assert os.listxattr(file) == []


@every_way
@pytest.mark.parametrize("what", HARMING)
def test_no_other_process_is_harmed(place: Place, victim: subprocess.Popen[bytes], what: str) -> None:
    other = psutil.Process(victim.pid)
    own = psutil.Process().nice()
    before = (other.nice(), other.rlimit(psutil.RLIMIT_CPU), other.rlimit(psutil.RLIMIT_NOFILE))
    place.run(HARMING[what].format(victim=victim.pid, python=PYTHON))
    assert victim.poll() is None
    assert (other.nice(), other.rlimit(psutil.RLIMIT_CPU), other.rlimit(psutil.RLIMIT_NOFILE)) == before
    assert psutil.Process().nice() == own


@every_way
@pytest.mark.parametrize("what", CALLING)
def test_nobody_is_called(place: Place, tmp_path: Path, what: str) -> None:
    abstract = f"loom-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(made) for made in _listeners(place, tmp_path, abstract)]
        ports = {"tcp": listeners[0].getsockname()[1], "udp": listeners[1].getsockname()[1]}
        places = {"unix": tmp_path / "s", "datagrams": tmp_path / "d", "abstract": abstract}
        code = CALLING[what]
        if code is None:
            ended = place.run(f"exec 3<>/dev/tcp/127.0.0.1/{ports['tcp']}")
        else:
            ended = place.python(code.format(**ports, **places))
        assert ended.status not in (0, None) or what == "UDP"
        for listener in listeners:
            listener.settimeout(0.02)
            with pytest.raises(TimeoutError):
                listener.recv(1) if listener.type == socket.SOCK_DGRAM else listener.accept()


def _listeners(place: Place, tmp_path: Path, abstract: str) -> Iterator[socket.socket]:
    yield socket.create_server(("127.0.0.1", 0))
    yield _bound(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
    yield _bound(socket.AF_UNIX, socket.SOCK_DGRAM, str(tmp_path / "d"))
    for name in (str(tmp_path / "s"), f"\0{abstract}", str(place.work / "here")):
        made = _bound(socket.AF_UNIX, socket.SOCK_STREAM, name)
        made.listen()
        yield made


def _bound(family: int, kind: int, name: object) -> socket.socket:
    made = socket.socket(family, kind)
    made.bind(name)  # type: ignore[arg-type]
    return made


@every_way
def test_no_privileges_are_to_be_had(place: Place) -> None:
    ended = place.python("import ctypes; print(ctypes.CDLL(None).prctl(39,0,0,0,0))")
    assert ended.output == "1\n", "no_new_privs is not set"
    status = place.python("import ctypes,struct; b=ctypes.create_string_buffer(24); h=struct.pack('Ii',0x20080522,0); "
                          "ctypes.CDLL(None).capget(h,b); print(any(b.raw))")  # fmt: skip
    assert status.output == "False\n", "it has capabilities"
    place.run("cp /bin/true plain; cp /bin/true other; chmod 4755 plain; chmod g+s other")
    place.python("import os; os.close(os.open('made', os.O_CREAT | os.O_WRONLY, 0o4755))")
    place.python("import os; file = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755); "
                 "os.link(f'/proc/self/fd/{file}', 'named', follow_symlinks=True)")  # fmt: skip
    place.run("mknod disk b 8 0; mknod zero c 1 5")
    for path in place.work.iterdir():
        mode = path.stat().st_mode
        assert stat.S_ISREG(mode), path
        assert not mode & (stat.S_ISUID | stat.S_ISGID), path


def test_the_environment_is_clean(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "LD_PRELOAD_OF_MINE", "PYTHONSTARTUP", "SSH_AUTH_SOCK", "BASH_ENV"):
        monkeypatch.setenv(name, SECRET)
    names = {line.partition("=")[0] for line in place.run("env").output.splitlines()}
    assert {"PATH", "HOME", "TMPDIR"} <= names
    known = {"PATH", "HOME", "TMPDIR", "PWD", "SHLVL", "_", "TERM", "NO_COLOR", "PAGER", "LANG", "LANGUAGE", "TZ"}
    assert {name for name in names - known if not name.startswith(("GIT_", "LC_"))} == set()


def test_a_fork_bomb_ends(place: Place) -> None:
    ended = place.run("bomb() { bomb | bomb & }; bomb; sleep 30", limits=ResourceLimits(processes=60), timeout=3)
    assert ended.stopped in ("", "processes", "timeout")  # the shell waits between its attempts
    assert ended.stopped or ended.left > 0
    assert place.run("echo fine").output == "fine\n"


def test_processes_are_counted(place: Place) -> None:
    code = "import os, time\nfor n in range(2000):\n if not os.fork(): time.sleep(60)"
    ended = place.python(code, limits=ResourceLimits(processes=60))
    assert ended.stopped == "processes" or "Resource temporarily unavailable" in ended.output


def test_a_memory_bomb_ends(place: Place) -> None:
    few = ResourceLimits(memory=200 << 20)
    ended = place.python("x = bytearray(400 << 20)", limits=few)
    assert ended.status == 1
    assert "MemoryError" in ended.output
    hold = f"{PYTHON} -c 'import time; x = bytearray(120 << 20); time.sleep(600)' &"
    assert place.run(f"{hold} {hold} {hold} wait", limits=few).stopped == "memory"


def test_a_disk_is_not_filled(place: Place) -> None:
    small = ResourceLimits(file=10 << 20)
    ended = place.run("head -c 20000000 /dev/zero > big; echo $?", limits=small)
    assert (place.work / "big").stat().st_size <= 10 << 20
    many = "for i in $(seq 1000); do head -c 8000000 /dev/zero > big$i; sync big$i; done"
    ended = place.run(many, limits=ResourceLimits(file=10 << 20, disk=40 << 20))
    assert ended.stopped == "disk"
    assert sum(path.stat().st_size for path in place.work.iterdir()) < 1 << 30


DAEMONS = {
    "in the background": "sleep {n} & echo on",
    "disowned": "sleep {n} & disown; echo on",
    "in another session": "setsid sleep {n} & sleep .1; echo on",
    "forked twice": "{python} -c 'import os,time\nif not os.fork():\n if not os.fork(): time.sleep({n})'; echo on",
    "ignoring signals": "(trap '' TERM HUP INT; sleep {n}) & echo on",
    "renamed": "(exec -a kworker sleep {n}) & echo on",
}


def running(number: int) -> list[int]:
    """The processes whose command line has a number in it."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(number) in word for word in process.info["cmdline"] or []):
            found.append(process.pid)
    return found


_numbers = iter(range(900_000 + os.getpid() % 1000 * 64, 2_000_000))


@pytest.mark.parametrize("how", DAEMONS)
def test_what_a_command_leaves_running_is_ended(place: Place, how: str) -> None:
    number = next(_numbers)
    ended = place.run(DAEMONS[how].format(n=number, python=PYTHON))
    assert ended.output.endswith("on\n")
    assert running(number) == []


@pytest.mark.parametrize("how", ["a timeout", "an abort"])
def test_a_command_and_its_daemons_end_long_before_they_would(place: Place, how: str) -> None:
    number = next(_numbers)
    heard: list[str] = []
    cancelled = (lambda: bool(heard)) if how == "an abort" else lambda: False
    command = f"trap '' TERM; echo on; setsid sleep {number} 2>/dev/null & sleep {number} & sleep {number}"
    for seconds in longer(1.0) if how == "a timeout" else [PATIENCE]:
        ended = place.run(command, timeout=seconds, cancelled=cancelled, progress=heard.append)
        if heard:
            break
    assert ended.stopped == {"a timeout": "timeout", "an abort": "aborted"}[how]
    assert ended.output == "on\n"
    assert running(number) == []


def test_endless_output_is_stopped(place: Place) -> None:
    pieces: list[str] = []
    ended = place.run("yes", most_output=100_000, progress=pieces.append)
    assert (ended.stopped, len(ended.output)) == ("output", 100_000)
    assert all(len(piece) < 2_000 for piece in pieces)


def test_output_that_is_no_text_is_told(place: Place) -> None:
    pieces: list[str] = []
    command = r"printf 'a\xff\xfeb\n'; printf 'on stderr\n' >&2; printf '\xe2\x82'; sleep .5; printf '\xac\n'"
    ended = place.run(command, progress=pieces.append)
    assert ended.output == "a\ufffd\ufffdb\non stderr\n€\n"
    assert "".join(pieces) == ended.output


WORKER = """
import os, sys
from dataclasses import replace
from pathlib import Path
from loom_tools.sandbox.run import LAUNCHER, run_confined
from loom_tools.sandbox.settings import order_of
means = replace(LAUNCHER.means(), namespaces=sys.argv[3] == "True")
order = order_of(["/bin/bash", "-c", sys.argv[2]], Path(sys.argv[1]), means, os.environ, cpu=60)
run_confined(order, timeout=120, progress=lambda text: print(text, end="", flush=True))
"""


@pytest.mark.parametrize("whom", ["worker", "launcher", "guard"])
def test_no_orphan_is_left_when_something_of_looms_is_killed(place: Place, whom: str) -> None:
    number = next(_numbers)
    command = f"setsid sleep {number} 2>/dev/null & (sleep {number} &); echo on; sleep {number}"
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": ":".join(filter(None, paths)), "HOME": str(place.home)}
    arguments = [sys.executable, "-c", WORKER, str(place.work), command, str(place.means.namespaces)]
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"on\n"
        launcher = psutil.Process(worker.pid).children()[0]
        guard = launcher.children()[0]
        assert len(running(number)) >= 2
        {"worker": psutil.Process(worker.pid), "launcher": launcher, "guard": guard}[whom].kill()
        if whom == "launcher":  # the command goes on, and so does the worker
            assert worker.poll() is None
            assert len(running(number)) >= 2
            worker.kill()
        try:
            until(lambda: not [pid for pid in running(number) if pid != worker.pid])
        finally:
            worker.kill()
    until(lambda: gone(guard))


def test_another_launcher_is_started_when_one_was_killed(place: Place) -> None:
    assert place.run("echo one").output == "one\n"
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # another one, that ends just now
            if "launcher.py" in " ".join(child.cmdline()):
                child.kill()
    assert place.run("echo two").output == "two\n"


def test_commands_run_side_by_side(place: Place) -> None:
    found: dict[int, str] = {}

    def one(number: int) -> None:
        found[number] = place.run(f"sleep 0.3; echo {number}").output

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: f"{number}\n" for number in range(8)}


def test_nothing_is_left_in_the_temporary_directory(place: Place, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {"HOME": str(place.home), "TMPDIR": str(scratch)}
    command = "mkdir -p $TMPDIR/a/b; touch $TMPDIR/a/b/c; ln -s / $TMPDIR/a/root; chmod 0 $TMPDIR/a/b 2>/dev/null; true"
    argv = ["/bin/bash", "-c", command]
    order = order_of(argv, place.work, place.means, environment, cpu=5)
    assert run_confined(order, timeout=PATIENCE).status == 0
    until(lambda: os.listdir(scratch) == [])
    assert os.path.exists("/bin/bash")


def test_without_the_means_nothing_runs() -> None:
    with pytest.raises(ToolUnavailable, match=r"its machine lacks Landlock .* and seccomp filters .*loom doctor"):
        check("required", Means())
    check("best_effort", Means())
    check("off", Means())


@pytest.mark.parametrize(
    ("field", "value", "error", "words"),
    [
        ("LOOM_CONFINEMENT", "maybe", ConfigurationError, "LOOM_CONFINEMENT=maybe: give required, best_effort or off"),
        ("LOOM_CONFINEMENT_READ", "/", PermissionDenied, "LOOM_CONFINEMENT_READ names / holds .*home"),
    ],
)
def test_a_wrong_setting_is_told(place: Place, field: str, value: str, error: type[Exception], words: str) -> None:
    environment = {"HOME": str(place.home), field: value}
    with pytest.raises(error, match=words):
        order_of(["/bin/true"], place.work, place.means, environment, cpu=1)


@pytest.mark.parametrize("which", ["home", "above", "store", "root", "system"])
def test_no_command_runs_where_secrets_are(place: Place, which: str) -> None:
    environment = {"HOME": str(place.home)}
    where = {
        "home": place.home,
        "above": place.home.parent,
        "store": place.work,
        "root": Path("/"),
        "system": Path("/etc"),
    }[which]
    with pytest.raises(PermissionDenied, match=r"no command runs here: the working directory .* holds"):
        order_of(["/bin/true"], where, place.means, environment, cpu=1, protected=[place.work / "loom.db"])


def test_more_can_be_made_readable(place: Place) -> None:
    environment = {"HOME": str(place.home), "LOOM_CONFINEMENT_READ": str(place.outside)}
    command = f"cat {place.outside}/file; echo x > {place.outside}/made"
    order = order_of(["/bin/bash", "-c", command], place.work, place.means, environment, cpu=5)
    assert run_confined(order, timeout=PATIENCE).output.startswith("as it was")
    assert os.listdir(place.outside) == ["file"]


def test_the_projects_policy_stays(place: Place) -> None:
    policy = place.work / ".loom" / "policy.yaml"
    policy.parent.mkdir()
    policy.write_text("as it was")
    for line in ("echo > .loom/policy.yaml", "rm -r .loom", "mv .loom away", "mv .loom/policy.yaml .loom/x"):
        assert place.run(line).status
        assert policy.read_text() == "as it was"
    (place.work / "in").mkdir()
    assert place.run("cat .loom/policy.yaml; echo else > in/else").output == "as it was"
    assert (place.work / "in" / "else").read_text() == "else\n"


def test_switched_off_a_command_is_still_ended_with_all_that_it_started(place: Place) -> None:
    number = next(_numbers)
    environment = {"HOME": str(place.home), "LOOM_CONFINEMENT": "off"}
    command = f"cat {place.home}/.ssh/id_rsa; (setsid sleep {number} &); sleep {number}"
    order = order_of(["/bin/bash", "-c", command], place.work, place.means, environment, cpu=5)
    for seconds in longer(1.0):
        ended = run_confined(order, timeout=seconds)
        if ended.output:
            break
    assert (ended.output, ended.stopped) == (SECRET, "timeout")
    assert running(number) == []


def test_memory_shared_by_others_is_not_reached(place: Place) -> None:
    number = int(subprocess.run(["ipcmk", "-M", "64"], capture_output=True, text=True, check=True).stdout.split()[-1])
    try:
        code = f"import ctypes; c=ctypes.CDLL(None); c.shmat.restype=ctypes.c_long; print(c.shmat({number},0,0)>0)"
        assert place.python(code).output == "False\n"
        place.run(f"ipcrm -m {number}")
        assert f" {number} " in subprocess.run(["ipcs", "-m"], capture_output=True, text=True, check=True).stdout
    finally:
        subprocess.run(["ipcrm", "-m", str(number)], check=True)


def test_signals_do_not_reach_the_worker_by_its_group(place: Place) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        ended = place.run(f"kill -USR1 {os.getpid()} $PPID 0; true")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == []
    assert ended.status in (0, -signal.SIGUSR1)
