"""A small process without threads or secrets, from which a worker's commands are forked. Run as a program."""

import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from dataclasses import asdict

from loom_tools.sandbox import landlock, namespaces, seccomp, syscalls
from loom_tools.sandbox.order import Means, SandboxOrder
from loom_tools.sandbox.seccomp import NUMBERS
from loom_tools.sandbox.supervisor import guard

_USUAL = {"namespaces": True, "network": False, "truncation": True, "signals": True}


def means() -> Means:
    """Find out what this machine offers, by trying it in a child."""
    if not syscalls.LINUX or syscalls.MACHINE not in NUMBERS:
        return Means()
    seccomp.program(**_USUAL)  # written once, before the forks
    filters = _works(_try_filter)
    namespaces_there = _works(_try_namespaces)
    proc = namespaces_there and _works(_try_proc)
    return Means(landlock=landlock.version(), filters=filters, namespaces=namespaces_there, proc=proc)


def serve(line: socket.socket) -> None:
    """Fork a guard for each order until the worker is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    line.sendall(json.dumps(asdict(means())).encode())
    gc.disable()  # a collection in a fork would copy the whole memory
    gc.freeze()
    # Guards are not waited for: their lines say when they are done.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        knock, handed, _, _ = socket.recv_fds(line, 1, 4)
        if not knock:
            return
        for number in handed:
            os.set_inheritable(number, False)
        if os.fork() == 0:
            line.close()
            _guarded(handed)
        for number in handed:
            os.close(number)


def _guarded(handed: list[int]) -> None:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with open(handed[0], "rb") as file:
            order = SandboxOrder.load(file.read())
        line = socket.socket(fileno=handed[1])
        line.sendall(b" ")  # from here on it may be that the command ran
        guard(order, line, (handed[2], handed[3]))
        code = 0
    finally:
        os._exit(code)


def _works(attempt: Callable[[], None]) -> bool:
    """Try something in a child."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            attempt()
            code = 0
        except OSError:
            pass
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def _try_filter() -> None:
    syscalls.forgo_privileges()
    syscalls.install_filter(seccomp.program(**_USUAL))


def _try_namespaces() -> None:
    namespaces.enter(network=False)
    _require(_works(_try_mounts))


def _try_mounts() -> None:
    namespaces.show_processes(1000)
    namespaces.arrange_mounts(writable="/usr", temporary="/usr", read=[])


def _try_proc() -> None:
    namespaces.enter(network=False)
    _require(_works(lambda: _require(namespaces.show_processes(1000))))


def _require(works: bool) -> None:
    if not works:
        raise OSError


if __name__ == "__main__":
    serve(socket.socket(fileno=0))
