"""Two ways to get the Temporal CLI where it is not installed: the SDK's download, and a build from source."""

import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from loom_client.progress import run_shown

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
