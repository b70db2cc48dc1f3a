"""Run a command that must not outlive its starter: ``python -I -S guardian.py [--grace=SECONDS] COMMAND...``.

The starter holds the other end of standard input. When that closes, because the starter let go or because it was killed
in whatever way, the command is told to end, and killed when it does not; a signal meanwhile is passed on. A process of
its own does this, and not PR_SET_PDEATHSIG set by the starter, because that signal comes when the *thread* ends that
started the command.

Standard library only.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

GRACE_SECONDS = 10.0
_OPTION = "--grace="
_PR_SET_PDEATHSIG = 1


def _die_with_guardian() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def guard(command: list[str], grace: float = GRACE_SECONDS) -> int:
    """Run `command` until it ends or standard input closes; its exit status, 128 + n when signal n ended it.

    Args:
        command: The command.
        grace: Seconds that it has once it is told to end.
    """
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    try:
        # Safe here: this process has one thread. Descriptors stay open for the lock on the database that is passed on.
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, close_fds=False, preexec_fn=_die_with_guardian)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    while child.poll() is None:
        ready, _, _ = select.select([sys.stdin.fileno(), wake_read], [], [])
        # Nothing is ever written to standard input: readable means closed. Else a signal came: SIGCHLD, or "end".
        if sys.stdin.fileno() in ready or set(os.read(wake_read, 64)) - {signal.SIGCHLD}:
            return _end(child, wake_read, grace)
    return _status(child.returncode)


def _end(child: "subprocess.Popen[bytes]", wake_read: int, grace: float) -> int:
    child.terminate()
    end = time.monotonic() + grace
    while child.poll() is None:
        ready, _, _ = select.select([wake_read], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            child.kill()
            break
        if set(os.read(wake_read, 64)) - {signal.SIGCHLD}:
            child.terminate()
    return _status(child.wait())


def _status(code: int) -> int:
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[0].startswith(_OPTION):
        sys.exit(guard(given[1:], float(given[0].removeprefix(_OPTION))))
    sys.exit(guard(given))
