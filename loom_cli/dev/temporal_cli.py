"""Find the Temporal CLI, or get it: ``python -m loom_cli.dev.temporal_cli`` prints its path."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from loom_cli.dev.progress import POLL_SECONDS, Progress, run_shown
from loom_dsl.errors import ConfigurationError

# Two ways to get the Temporal CLI where it is not installed: the SDK's download, and a build from source.


VERSION = "v1.5.1"
"""The newest release that `go install` can build: later ones carry a replace directive."""

STALL_SECONDS = 15.0
BUILD_SECONDS = 1800.0

# The SDK downloads only on the way to starting a server, and keeps the file: so start one, once, and end it. It ends by
# os._exit, as the SDK's native threads sometimes abort an interpreter that ends in good order.
_DOWNLOAD = """
import asyncio, os, sys
from temporalio.testing import WorkflowEnvironment
async def main():
    folder, version = sys.argv[1:]
    server = await WorkflowEnvironment.start_local(download_dest_dir=folder, dev_server_download_version=version)
    await server.shutdown()
try:
    asyncio.run(main())
except Exception as error:
    print(error, flush=True)
    os._exit(1)
os._exit(0)
"""


def download_with_sdk(
    folder: Path, env: Mapping[str, str], *, stall: float = STALL_SECONDS, stream: TextIO | None = None
) -> tuple[Path | None, str]:
    """Let the SDK download the Temporal CLI.

    Args:
        folder: An empty directory to download into.
        env: Environment, for proxies.
        stall: Seconds without a new byte after which to give up.
        stream: Where progress goes.

    Returns:
        The binary, or None and why there is none.
    """
    state = {"size": -1, "since": time.monotonic()}

    def size() -> int:
        return sum(file.stat().st_size for file in folder.iterdir() if file.exists())

    def give_up() -> str | None:
        now, got = time.monotonic(), size()
        if got != state["size"]:
            state.update(size=got, since=now)
        return f"no byte came for {stall:.0f} s" if now - state["since"] > stall else None

    status, output = run_shown(
        [sys.executable, "-c", _DOWNLOAD, str(folder), VERSION],
        f"Downloading the Temporal CLI {VERSION}",
        env=env,
        give_up=give_up,
        detail=lambda: f"{size() / 2**20:.0f} MiB",
        stream=stream,
    )
    if status:
        return None, _reason(output)
    found = [file for file in folder.iterdir() if file.is_file() and os.access(file, os.X_OK)]
    return (found[0], "") if found else (None, "the SDK started a server but left no binary behind")


def build_with_go(folder: Path, env: Mapping[str, str], *, stream: TextIO | None = None) -> tuple[Path | None, str]:
    """Build the Temporal CLI with `go install`: about two minutes on two cores, once.

    Args:
        folder: An empty directory for the binary.
        env: Environment; PATH says where `go` is, GOPROXY and its kin are obeyed.
        stream: Where progress goes.

    Returns:
        The binary, or None and why there is none.
    """
    go = shutil.which("go", path=env.get("PATH"))
    if go is None:
        return None, "`go` is not on PATH"
    started = time.monotonic()
    status, output = run_shown(
        [go, "install", f"github.com/temporalio/cli/cmd/temporal@{VERSION}"],
        f"Building the Temporal CLI {VERSION} with `go install` (once, some two minutes)",
        # Flags meant for the user's own modules (such as -mod=vendor) would break the build; so would a missing gcc.
        env={**env, "GOBIN": str(folder), "GOFLAGS": "", "CGO_ENABLED": "0"},
        cwd=folder,
        give_up=lambda: "took over half an hour" if time.monotonic() - started > BUILD_SECONDS else None,
        stream=stream,
    )
    binary = folder / "temporal"
    if status or not binary.is_file():
        return None, f"`go install` failed: {_reason(output)}"
    return binary, ""


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:400] if lines else "it ended without a message"


Source = Callable[[Path, Mapping[str, str]], tuple[Path | None, str]]
"""Gets the binary into an empty directory; answers None and the reason when it cannot."""

# What the dev server is started with; an older CLI lacks some of it.
_FLAGS_NEEDED = ("--http-port", "--db-filename", "--dynamic-config-value", "--headless")


def temporal_cache(env: Mapping[str, str] = os.environ) -> Path:
    """Where Loom keeps the Temporal CLI that it got itself."""
    home = env.get("XDG_CACHE_HOME") or Path(env.get("HOME") or Path.home(), ".cache")
    return Path(home, "loom", f"temporal-cli-{VERSION}")


def why_unfit(binary: Path) -> str | None:
    """Say why a file cannot serve as the Temporal CLI; None when it can.

    Args:
        binary: Path of the program. It is run with ``server start-dev --help``.
    """
    try:
        help_text = subprocess.run(
            [binary, "server", "start-dev", "--help"],
            capture_output=True, text=True, errors="replace", timeout=20, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return "there is no such file"
    except subprocess.TimeoutExpired:
        return "it did not answer within 20 s"
    except OSError as error:
        return f"it does not run ({error.strerror})"
    if help_text.returncode:
        return f"`server start-dev --help` ended with status {help_text.returncode}"
    missing = [flag for flag in _FLAGS_NEEDED if flag not in help_text.stdout]
    return f"it is too old: `server start-dev` does not know {', '.join(missing)}" if missing else None


def find_temporal(
    env: Mapping[str, str] = os.environ,
    *,
    sources: Sequence[Source] | None = None,
    stream: TextIO | None = None,
) -> Path:
    """Find the Temporal CLI, getting it if need be.

    In this order: ``$TEMPORAL_CLI``; ``temporal`` on PATH; Loom's cache; the SDK's download; ``go install``.

    Args:
        env: Environment to look in.
        sources: Ways to get what is not there, tried in order; empty to only look. The two of design by default.
        stream: Where progress goes; standard error by default.

    Raises:
        ConfigurationError: There is none and none can be got, or ``$TEMPORAL_CLI`` is not one.
    """
    named = env.get("TEMPORAL_CLI")
    if named:
        reason = why_unfit(Path(named).expanduser())
        if reason:
            raise ConfigurationError(f"TEMPORAL_CLI names {named}, but {reason}. Correct it or unset it.")
        return Path(named).expanduser().absolute()
    tried: list[str] = []
    on_path = shutil.which("temporal", path=env.get("PATH"))
    if on_path:
        reason = why_unfit(Path(on_path))
        if reason is None:
            return Path(on_path).absolute()
        tried.append(f"{on_path}: {reason}")
    cached = temporal_cache(env) / "temporal"
    if cached.exists() and why_unfit(cached) is None:
        return cached
    if sources is None:
        sources = [_showing(download_with_sdk, stream), _showing(build_with_go, stream)]
    return _obtain(cached, env, sources, tried, stream)


def _showing(source: Callable[..., tuple[Path | None, str]], stream: TextIO | None) -> Source:
    return lambda folder, env: source(folder, env, stream=stream)


def _obtain(
    cached: Path, env: Mapping[str, str], sources: Sequence[Source], tried: list[str], stream: TextIO | None
) -> Path:
    folder = cached.parent
    if not sources:
        raise ConfigurationError(_advice(tried))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder / "lock", stream):
            # Another process may have got it while this one waited.
            if cached.exists() and why_unfit(cached) is None:
                return cached
            for remains in folder.glob("getting-*"):
                shutil.rmtree(remains, ignore_errors=True)
            for source in sources:
                reason = _get(source, cached, env)
                if reason is None:
                    return cached
                tried.append(reason)
    except OSError as error:
        raise ConfigurationError(
            f"The cache directory {folder} cannot be written ({error.strerror}). "
            "Set XDG_CACHE_HOME to a directory of yours, or TEMPORAL_CLI to a Temporal CLI."
        ) from error
    raise ConfigurationError(_advice(tried))


def _get(source: Source, cached: Path, env: Mapping[str, str]) -> str | None:
    """Get the binary into a directory beside the cached one and move it there whole; a text says why not."""
    with tempfile.TemporaryDirectory(dir=cached.parent, prefix="getting-", ignore_cleanup_errors=True) as staging:
        binary, reason = source(Path(staging), env)
        if binary is None:
            return reason
        unfit = why_unfit(binary)
        if unfit:
            return f"{binary.name}: {unfit}"
        os.replace(binary, cached)
    return None


@contextmanager
def _alone(lock: Path, stream: TextIO | None) -> Iterator[None]:
    """Hold the lock that keeps two processes from building at once; it goes with its process."""
    progress = Progress("Waiting for another process that is getting the Temporal CLI", stream)
    with lock.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                progress.tick()
                time.sleep(POLL_SECONDS)
        progress.done()
        yield


def _advice(tried: Sequence[str]) -> str:
    found = "".join(f"\n  - {reason}" for reason in tried)
    return "\n".join(
        (
            f"The Temporal CLI is needed and is not here{':' if found else '.'}{found}",
            "Install it (https://docs.temporal.io/cli/setup-cli) so that `temporal` is on PATH, or set TEMPORAL_CLI to",
            "its path. Where only a Go module proxy can be reached, install Go 1.24 or newer: Loom builds it then.",
        )
    )


def main() -> int:
    """Print the path of the Temporal CLI; status 2 and advice when there is none."""
    try:
        print(find_temporal())
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
