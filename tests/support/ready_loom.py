"""The command `loom` from a process that has its libraries already.

Half a second of a command's second goes to importing. Where hundreds of commands are run and their own start is not
what is tested, a process that has imported everything forks for each of them. What it runs is the command itself, in a
process of its own, with the arguments, variables, directory and streams it is given. Real starts are tested by every
command that stays, by those at a terminal and by following the README.

Run as ``python -m tests.support.ready_loom SOCKET``, it is the process that forks; as
``python -I -S ready_loom.py SOCKET ARGUMENTS``, it asks for a command, passes its own streams and the signals that it
gets on, and ends as that command does. With ``-P`` before the arguments the command does not look for modules in its
directory; ``-m MODULE`` runs another module than `loom`, and ``-`` the Python that is read from the standard input.

A command ends with who asked for it, and with the process that forks, which ends with the tests, however they do.
"""

import array
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn, TextIO, cast

READY = "ready"
_STREAMS = 3
_GRACE_SECONDS = 10.0
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PACKAGES = (
    "loom_dsl",
    "loom_store",
    "loom_tools",
    "activities",
    "workflows",
    "loom_client",
    "loom_gateway",
    "loom_cli",
)
_NOT_LOADED = re.compile(r"\.(?:__main__|pytest_plugin|migrations.*)$")


_ROOT = Path(__file__).resolve().parents[2]
_open = contextlib.ExitStack()
_at_hand: list[str] = []


def at_hand() -> list[str]:
    """Give the command line that stands for `loom`, and start what forks with the first call."""
    if not _at_hand:
        _at_hand.extend(_open.enter_context(ready_loom(_ROOT)))
    return list(_at_hand)


def let_go() -> None:
    """End what forks, and whatever it forked that has not ended."""
    _open.close()
    _at_hand.clear()


@contextmanager
def ready_loom(root: Path) -> Iterator[list[str]]:
    """Start what forks; yields the command line that stands for `loom`.

    Args:
        root: The sources.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/socket"
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["PYTHONWARNINGS"] = "error::ResourceWarning"
        command = [sys.executable, "-m", "tests.support.ready_loom", place]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, env=environment, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == READY, "what runs commands did not start"
            try:
                yield [sys.executable, "-I", "-S", __file__, place]
            finally:
                assert process.stdin is not None
                process.stdin.close()


def serve(place: str) -> None:
    """Fork for every connection, until the standard input ends."""
    _load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks for the status of those that wait for a command
    for number in _PASSED_ON:
        signal.signal(number, signal.SIG_IGN)  # sent to all that the tests started: they end, and by that this
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen(64)
        print(READY, flush=True)
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _wait_for_command(connection)
            connection.close()


def _load() -> None:
    """Import what commands import when they run."""
    for package in map(importlib.import_module, _PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not _NOT_LOADED.search(module.name):
                importlib.import_module(module.name)
    importlib.import_module("worker")
    from loom_cli.app import build

    build()
    assert len(os.listdir("/proc/self/task")) == 1, "what forks must have one thread"
    gc.freeze()  # what is here stays; each command shares its memory


def _wait_for_command(connection: socket.socket) -> NoReturn:
    """Run the command that is asked for, and tell how it ended."""
    streams = array.array("i")
    first, passed, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(_STREAMS * streams.itemsize))
    assert first, "who asked has gone"
    streams.frombytes(passed[0][2])
    with connection.makefile("rb") as asking:
        asked = json.loads(asking.readline())
    runs, ends = os.pipe()
    command = os.fork()
    if command == 0:
        connection.close()
        _be_command(asked, list(streams))  # and keeps `ends` open
    for open_one in (*streams, ends):
        os.close(open_one)
    _pass_signals_on(connection, runs, command)
    _, status = os.waitpid(command, 0)
    with contextlib.suppress(OSError):
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _pass_signals_on(connection: socket.socket, runs: int, command: int) -> None:
    """Until a command ends; it is ended where there is nobody left whom it concerns."""
    while runs not in (ready := select.select([connection, runs, sys.stdin], [], [])[0]):
        if sys.stdin in ready:  # the tests have ended
            os.kill(command, signal.SIGTERM)
            if not select.select([runs], [], [], _GRACE_SECONDS)[0]:
                os.kill(command, signal.SIGKILL)
            return
        numbers = connection.recv(16)
        for number in numbers or [signal.SIGKILL]:  # who asked was killed
            os.kill(command, number)
        if not numbers:
            return


def _be_command(asked: dict[str, object], streams: list[int]) -> NoReturn:
    """Become what a fresh interpreter would be when it calls `main`."""
    arguments, variables, folder = asked["arguments"], asked["variables"], str(asked["folder"])
    assert isinstance(arguments, list)
    assert isinstance(variables, Mapping)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for number in _PASSED_ON:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.setsid()  # so that it can be killed with what it starts
    sys.stdin, sys.stdout, sys.stderr = (_fresh(sys.stdin, "rb"), _fresh(sys.stdout, "wb"), _fresh(sys.stderr, "wb"))
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    safe = arguments[:1] == ["-P"]
    given = [path for path in str(variables.get("PYTHONPATH", "")).split(os.pathsep) if path]
    sys.path[:1] = [*([] if safe else [folder]), *given]  # what `python -m` puts there
    match arguments[safe:]:
        case ["-m", module, *rest]:
            sys.argv[:] = [module, *rest]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-", *rest]:
            sys.argv[:] = ["-", *rest]
            exec(compile(sys.stdin.read(), "<stdin>", "exec"), {"__name__": "__main__"})
        case rest:
            sys.argv[:] = ["loom", *rest]

            from loom_cli import main

            main()
            raise AssertionError("a command ends its process")
    sys.exit()


def _fresh(stream: TextIO, mode: str) -> io.TextIOWrapper:
    """Open a standard stream again, whose file is another one now; the old one would know that one's position."""
    file = open(stream.fileno(), mode, closefd=False)  # noqa: SIM115 - it stays open to the end
    return io.TextIOWrapper(
        cast(BinaryIO, file), stream.encoding, stream.errors, line_buffering=stream is sys.stderr or file.isatty()
    )


def ask(place: str, arguments: list[str]) -> int:
    """Have a command run with this process's variables, directory and streams.

    Returns:
        Its exit status; the negative number of the signal that ended it.
    """
    asked = {"arguments": arguments, "variables": dict(os.environ), "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        socket.send_fds(connection, [b"."], list(range(_STREAMS)))
        connection.sendall(f"{json.dumps(asked)}\n".encode())
        for number in _PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _: connection.sendall(bytes([number])))
        return int(connection.recv(64))


def _end_as(status: int) -> NoReturn:
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    if sys.flags.isolated:
        _end_as(ask(sys.argv[1], sys.argv[2:]))
    serve(sys.argv[1])
