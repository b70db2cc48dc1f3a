"""Where the demo happens: Loom's checkout, and a directory in it that git does not look at."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import loom_client
from loom_dsl.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Checkout:
    """Files of the demo.

    Attributes:
        checkout: Loom's own source code, where the agent works.
        folder: Where the demo keeps its files; they stay until the next demo.
    """

    checkout: Path
    folder: Path

    @property
    def examples(self) -> Path:
        """The agent, its tool and its script."""
        return self.checkout / "examples"

    @property
    def report(self) -> Path:
        """What the agent is to write."""
        return self.folder / "report.md"

    @property
    def board(self) -> Path:
        """Where the example's tool posts its notes."""
        return self.checkout / ".loom" / "board.txt"

    def short(self, path: Path) -> str:
        """A path as a reader at the checkout's top types it."""
        return str(path.relative_to(self.checkout))


@contextlib.contextmanager
def claimed() -> Iterator[Checkout]:
    """Take the demo's directory and empty it.

    Raises:
        ConfigurationError: This is no checkout, another demo runs in it, or it cannot be written.
    """
    checkout = Path(str(loom_client.__file__)).resolve().parent.parent
    missing = [name for name in ("examples/researcher.yaml", "README.md") if not (checkout / name).exists()]
    if missing:
        raise ConfigurationError(
            f"The demo shows an agent at work on Loom's source code, and {checkout} is not a checkout of it "
            f"({missing[0]} is not there). Clone Loom's repository and run `make demo` in it."
        )
    place = Checkout(checkout, checkout / ".loom" / "demo")
    try:
        place.folder.parent.mkdir(exist_ok=True)
        lock = os.open(place.folder.parent / "demo.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError(f"{place.folder.parent} cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(place.folder, ignore_errors=True)
        place.folder.mkdir()
        place.board.unlink(missing_ok=True)
        yield place
    except BlockingIOError:
        raise ConfigurationError(f"Another demo is running in {checkout}. Wait until it has ended.") from None
    finally:
        os.close(lock)
