"""The process that watches over one command, and the first process in the command's namespace."""

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import stat
import time
from typing import Any, NoReturn

from loom_tools.sandbox import landlock, namespaces, seccomp, syscalls
from loom_tools.sandbox.order import ResourceLimits, SandboxOrder

# The last steps before the command: from here on nothing of Loom's runs, and nothing can be taken back.


DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def become(order: SandboxOrder, temporary: str, streams: tuple[int, int], *, proc: bool) -> None:
    """Turn this process into the command.

    Args:
        order: What to run.
        temporary: Its temporary directory, as it sees it.
        streams: What it reads, and where it writes.
        proc: /proc shows only its own processes.

    Raises:
        OSError: Something was refused; nothing of the command ran.
    """
    if syscalls.LINUX:
        syscalls.die_with_parent(signal.SIGKILL)
    os.setsid()
    for number, source in enumerate((streams[0], streams[1], streams[1])):
        os.dup2(source, number)
    os.chdir(order.cwd)
    _limit(order.limits, counted_apart=order.namespaces)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    if order.landlock or order.filtered:
        syscalls.forgo_privileges()
        syscalls.drop_capabilities()
    if order.landlock:
        network = order.network or order.namespaces
        files = _files(order, temporary, proc=proc)
        landlock.restrict(files, known=order.landlock, network=network, exact=_within(order))
    if order.filtered:
        syscalls.install_filter(_filter(order))
    home = os.path.join(temporary, "home")
    os.execve(order.argv[0], order.argv, {**order.env, "TMPDIR": temporary, "HOME": home})


def _files(order: SandboxOrder, temporary: str, *, proc: bool) -> list[tuple[str, int]]:
    rules = [(path, landlock.READ) for path in order.read]
    rules += [(path, landlock.DEVICE) for path in DEVICES]
    rules += [(temporary, landlock.ALL)]
    if order.namespaces:
        rules += [("/dev/shm", landlock.ALL)]
    if proc:
        rules += [("/proc", landlock.READ)]
    return rules


def _within(order: SandboxOrder) -> list[tuple[str, int]]:
    """Give rights in the working directory. Where no mounts take rights away, each entry gets its own instead."""
    closed = set(order.closed())
    if not closed:
        return [(order.cwd, landlock.ALL)]
    rules, left_out, kept = [(order.cwd, landlock.READ_DIRECTORY)], closed | set(order.hidden), set(order.kept)
    for folder in closed:
        for entry in os.scandir(folder):
            # What a link leads to has the rights of its own place.
            if not entry.is_symlink() and entry.path not in left_out:
                rules.append((entry.path, landlock.READ if entry.path in kept else landlock.ALL))
    return rules


def _filter(order: SandboxOrder) -> bytes:
    return seccomp.program(
        namespaces=order.namespaces,
        network=order.network,
        truncation=order.landlock >= landlock.TRUNCATES,
        signals=order.namespaces or order.landlock >= landlock.SCOPES,
    )


def _limit(limits: ResourceLimits, *, counted_apart: bool) -> None:
    processes = limits.processes if counted_apart else limits.processes + _others()
    for what, most in (
        (resource.RLIMIT_CPU, limits.cpu),
        (resource.RLIMIT_DATA, limits.memory),
        (resource.RLIMIT_FSIZE, limits.file),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):  # not every system has each of them
            resource.setrlimit(what, (wanted, wanted))


def _others() -> int:
    """Count this user's threads, which the limit of processes counts too."""
    found, user = 0, os.getuid()
    with contextlib.suppress(OSError):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == user:
                    found += len(os.listdir(f"/proc/{name}/task"))
    return found


TICK = 0.1
"""Seconds between two looks at what a command uses."""
_PATIENCE = 10.0
_PAGE = os.sysconf("SC_PAGE_SIZE")


def guard(order: SandboxOrder, line: socket.socket, streams: tuple[int, int]) -> None:
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


def _watched(order: SandboxOrder, line: socket.socket, streams: tuple[int, int], temporary: str) -> dict[str, Any]:
    free = _free(order.cwd, temporary)
    if syscalls.LINUX:
        syscalls.adopt_orphans()
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


def _first_process(order: SandboxOrder, streams: tuple[int, int], temporary: str, report: int) -> NoReturn:
    """Start the command, take up orphans, and end what is left when the command ends."""
    proc = False
    try:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if syscalls.LINUX:
            signal.signal(signal.SIGTERM, _end_all)
            # A namespace ends with its first process; without one, that process has to see to it.
            syscalls.die_with_parent(signal.SIGKILL if order.namespaces else signal.SIGTERM)
            syscalls.adopt_orphans()
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")  # should memory run out, this goes before the worker
            syscalls.be_undumpable()
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


def _start(order: SandboxOrder, temporary: str, streams: tuple[int, int], report: int, *, proc: bool) -> dict[str, Any]:
    reading, writing = os.pipe()
    command = os.fork()
    if command == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            os.close(report)
            become(order, temporary, streams, proc=proc)
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


def _excess(order: SandboxOrder, first: int, lost: int) -> str:
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
    folder = syscalls.open_without_links(root)
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
