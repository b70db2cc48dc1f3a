"""The process that watches over one command, and the first process in the command's namespace."""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import stat
import time
from typing import Any, NoReturn

from activities.confine import inside, kernel, namespaces
from activities.confine.order import Order

TICK = 0.1
"""Seconds between two looks at what a command uses."""
_PATIENCE = 10.0
_PAGE = os.sysconf("SC_PAGE_SIZE")


def guard(order: Order, line: socket.socket, streams: tuple[int, int]) -> None:
    """Run a command to its end, and tell over the line how it ended.

    The worker closing its end of the line, also by dying, ends the command and all that it started.
    """
    temporary = os.path.join(order.scratch, f"loom-{os.urandom(8).hex()}")
    try:
        os.mkdir(temporary, 0o700)
        os.mkdir(os.path.join(temporary, "home"))
        told = _watched(order, line, streams, temporary)
    except OSError as error:
        told = {"refused": f"the command could not be confined: {error}"}
    if "status" not in told:
        end_children(None)
    told["removed"] = sorted(os.path.relpath(path, order.cwd) for path in order.absent if _remove(order.cwd, path))
    with contextlib.suppress(OSError):
        line.sendall(json.dumps(told).encode())
        line.shutdown(socket.SHUT_RDWR)
    # What is left takes the kernel longer than all before, and nobody need wait for it.
    end_children(None)
    shutil.rmtree(temporary, onerror=_open_up)


def _watched(order: Order, line: socket.socket, streams: tuple[int, int], temporary: str) -> dict[str, Any]:
    free = _free(order.cwd, temporary)
    if kernel.LINUX:
        kernel.adopt_orphans()
    if order.namespaces:
        namespaces.enter(network=order.network)
    reading, writing = os.pipe()
    first = os.fork()
    if first == 0:
        line.close()
        os.close(reading)
        _first_process(order, streams, temporary, writing)
    os.close(writing)
    for stream in streams:
        os.close(stream)
    report, stopped, known = b"", "", line.fileno()
    while not stopped and report.count(b"\n") < 2:
        ready, _, _ = select.select([known, reading], [], [], TICK)
        if reading in ready:
            part = os.read(reading, 65536)
            report += part
            if not part:
                break
        elif known in ready:
            stopped = "asked"
        else:
            stopped = _excess(order, first, free - _free(order.cwd, temporary))
    number, _, told = report.partition(b"\n")
    if told:
        ended: dict[str, Any] = json.loads(told)
        return ended
    # The number of the command's process group is this namespace's only where there is no other one.
    end_children(int(number) if number and not order.namespaces else None)
    return {"stopped": stopped} if stopped else {"refused": "what watched the command ended before it did"}


def _first_process(order: Order, streams: tuple[int, int], temporary: str, report: int) -> NoReturn:
    """Start the command, take up orphans, and end what is left when the command ends."""
    proc = False
    try:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if kernel.LINUX:
            signal.signal(signal.SIGTERM, _end_all)
            # A namespace ends with its first process; without one, that process has to see to it.
            kernel.die_with_parent(signal.SIGKILL if order.namespaces else signal.SIGTERM)
            kernel.adopt_orphans()
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")  # should memory run out, this goes before the worker
            kernel.be_undumpable()
        seen = temporary
        if order.namespaces:
            proc = namespaces.show_processes(order.limits.processes)
            namespaces.arrange_mounts(writable=order.cwd, temporary=temporary, read=order.read)
            namespaces.protect(held=order.held, kept=order.kept, hidden=order.hidden)
            seen = "/tmp"
        told = _start(order, seen, streams, report, proc=proc)
    except BaseException as error:
        told = {"refused": f"the command could not be confined: {error}"}
        os.write(report, b"\n")
    os.write(report, json.dumps(told).encode() + b"\n")
    os._exit(0)


def _end_all(*_: object) -> NoReturn:
    for child in _children(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
    end_children(None)
    os._exit(1)


def _start(order: Order, temporary: str, streams: tuple[int, int], report: int, *, proc: bool) -> dict[str, Any]:
    reading, writing = os.pipe()
    command = os.fork()
    if command == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            os.close(report)
            inside.become(order, temporary, streams, proc=proc)
        except BaseException as error:
            os.write(writing, f"the command could not be started confined: {error}".encode())
        os._exit(127)
    os.close(writing)
    for stream in streams:
        os.close(stream)
    os.write(report, b"%d\n" % command)
    with open(reading, "rb") as file:
        problem = file.read().decode(errors="replace")
    status = _status_of(command)
    left = _end_rest(command, own_namespace=order.namespaces)
    return {"refused": problem} if problem else {"status": status, "left": left}


def _status_of(command: int) -> int:
    """Wait for the command's end, and reap what else ends meanwhile. The command itself stays, to hold its number."""
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        if ended is None or ended.si_pid == command:
            break
        with contextlib.suppress(ChildProcessError):
            os.waitpid(ended.si_pid, 0)
    return 0 if ended is None else -ended.si_status if ended.si_code != os.CLD_EXITED else ended.si_status


def _end_rest(command: int, *, own_namespace: bool) -> int:
    """End what the command left running, and count it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if own_namespace and os.getpid() == 1:  # anywhere else, -1 is every process of this user
            os.kill(-1, signal.SIGKILL)
        else:
            os.killpg(command, signal.SIGKILL)
    os.waitpid(command, 0)
    return end_children(None)


def end_children(group: int | None = None) -> int:
    """End all descendants, of which those without a parent come to this process; count those that had to be ended."""
    if group is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    ended, until = 0, time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid:
            ended += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            continue
        for child in _children(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.001)
    return ended


def _children(pid: int) -> list[int]:
    try:
        found: list[int] = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
        return found
    except OSError:
        return []


def _excess(order: Order, first: int, lost: int) -> str:
    """Say which limit the command is beyond, or nothing."""
    limits, memory, count, waiting = order.limits, 0, 0, [first]
    while waiting and count <= limits.processes + 2:
        pid = waiting.pop()
        count += 1
        with contextlib.suppress(OSError), open(f"/proc/{pid}/statm") as file:
            memory += int(file.read().split()[1]) * _PAGE
        waiting += _children(pid)
    if memory > limits.memory:
        return "memory"
    if lost > limits.disk:
        return "disk"
    return "processes" if count > limits.processes + 2 else ""


def _remove(root: str, path: str) -> bool:
    """Remove what must not be there; whether something was. A link on the way there was not there before either."""
    folder = kernel.open_without_links(root)
    *above, last = os.path.relpath(path, root).split("/")
    try:
        for name in (*above, last):
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if name is last or stat.S_ISLNK(mode):
                _remove_at(folder, name, mode)
                return True
            inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
    except OSError:
        return False
    finally:
        os.close(folder)
    return False


def _remove_at(folder: int, name: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def _free(*paths: str) -> int:
    """Room on the disks of the paths. Each counts, so that on one disk the loss counts twice at most."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            room = os.statvfs(path)
            found[os.stat(path).st_dev] = room.f_bavail * room.f_frsize
    return sum(found.values())


def _open_up(function: Any, path: str, _: Any) -> None:
    """A command may have closed a directory to its owner, which is to be removed all the same."""
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)
        if not os.path.islink(path) and os.path.isdir(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            function(path)
