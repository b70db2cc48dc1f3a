"""The last steps before the command: from here on nothing of Loom's runs, and nothing can be taken back."""

import contextlib
import os
import resource
import signal

from activities.confine import kernel, landlock, seccomp
from activities.confine.order import Limits, Order

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def become(order: Order, temporary: str, streams: tuple[int, int], *, proc: bool) -> None:
    """Turn this process into the command.

    Args:
        order: What to run.
        temporary: Its temporary directory, as it sees it.
        streams: What it reads, and where it writes.
        proc: /proc shows only its own processes.

    Raises:
        OSError: Something was refused; nothing of the command ran.
    """
    if kernel.LINUX:
        kernel.die_with_parent(signal.SIGKILL)
    os.setsid()
    for number, source in enumerate((streams[0], streams[1], streams[1])):
        os.dup2(source, number)
    os.chdir(order.cwd)
    _limit(order.limits, counted_apart=order.namespaces)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    if order.landlock or order.filtered:
        kernel.forgo_privileges()
        kernel.drop_capabilities()
    if order.landlock:
        network = order.network or order.namespaces
        files = _files(order, temporary, proc=proc)
        landlock.restrict(files, known=order.landlock, network=network, exact=_within(order))
    if order.filtered:
        kernel.install_filter(_filter(order))
    home = os.path.join(temporary, "home")
    os.execve(order.argv[0], order.argv, {**order.env, "TMPDIR": temporary, "HOME": home})


def _files(order: Order, temporary: str, *, proc: bool) -> list[tuple[str, int]]:
    rules = [(path, landlock.READ) for path in order.read]
    rules += [(path, landlock.DEVICE) for path in DEVICES]
    rules += [(temporary, landlock.ALL)]
    if order.namespaces:
        rules += [("/dev/shm", landlock.ALL)]
    if proc:
        rules += [("/proc", landlock.READ)]
    return rules


def _within(order: Order) -> list[tuple[str, int]]:
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


def _filter(order: Order) -> bytes:
    return seccomp.program(
        namespaces=order.namespaces,
        network=order.network,
        truncation=order.landlock >= landlock.TRUNCATES,
        signals=order.namespaces or order.landlock >= landlock.SCOPES,
    )


def _limit(limits: Limits, *, counted_apart: bool) -> None:
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
