"""The process in which users' code runs apart: ``python -P start.py DESCRIPTOR PARENT``. The descriptor is its line.

Until it knows the worker's path, only the standard library.
"""

import ctypes
import faulthandler
import json
import os
import signal
import socket
import sys

_PR_SET_PDEATHSIG = 1


def _end_with(parent: int) -> None:
    """Have the system kill this process when the worker is gone; where it cannot, the line tells of it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Be that process."""
    _end_with(int(sys.argv[2]))
    # Who ends all processes of a service tells the worker, too, which says when this one is to end. A handler, and not
    # SIG_IGN, which what this process starts would inherit.
    signal.signal(signal.SIGTERM, lambda *_: None)
    faulthandler.enable(all_threads=False)  # the last lines of a crash say where it was
    line = socket.socket(fileno=int(sys.argv[1]))
    stream = line.makefile("rb")
    sys.path[:] = json.loads(stream.readline())
    sys.argv[1:] = []
    from loom_tools.isolation.child import serve

    serve(line, stream)


if __name__ == "__main__":
    main()
