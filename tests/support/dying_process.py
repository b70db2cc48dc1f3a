"""A process that begins steps as a worker does, and then waits to be killed.

Run as ``python -m tests.support.dying_process STORE JSON``, it is that process.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import insert

from activities.lifecycle.process_identity import this_process
from loom_store.store import Store
from loom_store.tables import workers
from loom_store.transaction import Transaction

_ROOT = Path(__file__).resolve().parents[2]


def seen(tx: Transaction, process: str, age: float, ago: float = 0.0, stopped: bool = False) -> None:
    """Write down a worker as workers do.

    Args:
        tx: The transaction.
        process: Names it.
        age: Seconds for which it had run when it was last there.
        ago: Seconds since then.
        stopped: Whether it stopped in good order.
    """
    last = round((time.time() - ago) * 1000)
    times = {"started_at": last - round(age * 1000), "seen_at": last, "stopped_at": last if stopped else None}
    tx._execute(insert(workers), {"process": process, "about": "{}", **times})


async def process_with(store: Path, keys: Sequence[str], age: float | None) -> "subprocess.Popen[bytes]":
    """Start such a process, and wait until it has begun its steps.

    Args:
        store: The store.
        keys: Of the steps, of jobs that the store knows.
        age: Seconds for which it says that it has run; None: it does not say.
    """
    given = json.dumps({"keys": list(keys), "age": age})
    command = [sys.executable, "-m", "tests.support.dying_process", str(store), given]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, cwd=_ROOT)  # noqa: ASYNC220
    assert process.stdout is not None
    await asyncio.to_thread(process.stdout.readline)
    return process


def killed(process: "subprocess.Popen[bytes]") -> None:
    """Kill it as the system does."""
    process.kill()
    process.communicate()


def main() -> None:
    """Be that process."""
    given = json.loads(sys.argv[2])

    def begin(tx: Transaction) -> None:
        if given["age"] is not None:
            seen(tx, this_process(), given["age"])
        for key in given["keys"]:
            tx.begin_step(key.partition("/")[0], key, this_process())

    with Store.open(sys.argv[1]) as store:
        store.note(begin).result()
        print("begun", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
