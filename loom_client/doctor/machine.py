"""The machine: Python, the packages, the Temporal CLI, the disk, the kernel."""

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import loom_client
from loom_client.doctor.check import Check, Status
from loom_dsl.errors import ConfigurationError

LITTLE_ROOM, NO_ROOM = 1_000_000_000, 50_000_000
"""Bytes of free disk below which Loom warns, or cannot work."""


def python() -> Check:
    """Which Python this is; one that is too old cannot even import Loom."""
    return Check(Status.OK, "Python", f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})")


def package(name: str) -> Check:
    """Find out, without importing it, whether an import name means Loom's package."""
    home = Path(str(loom_client.__file__)).resolve().parent.parent
    spec = importlib.util.find_spec(name)
    what = f"package `{name}`"
    if spec is None or not spec.origin:
        return Check(Status.FAIL, what, "it is not there", "install Loom again: pip install --force-reinstall loom-dsl")
    place = Path(spec.origin).resolve()
    if place not in (home / name / "__init__.py", home / f"{name}.py"):
        fix = "install Loom into an environment of its own, or start it from another directory"
        return Check(Status.FAIL, what, f"{place} is found first, which is not Loom's", fix)
    return Check(Status.OK, what, "Loom's own")


def temporal_cli(env: Mapping[str, str], *, needed: bool) -> Check:
    """Where the Temporal CLI is; nothing is fetched. It is needed when no server runs."""
    from loom_client.temporal_binary import find_temporal

    try:
        return Check(Status.OK, "Temporal CLI", str(find_temporal(env, sources=())))
    except ConfigurationError as error:
        if env.get("TEMPORAL_CLI"):
            return Check(Status.FAIL, "Temporal CLI", error.message, "set TEMPORAL_CLI to a Temporal CLI, or unset it")
        fix = "`loom dev` gets it by itself; or install it: https://docs.temporal.io/cli/setup-cli"
        found = "not on PATH and not in Loom's cache; only `loom dev` needs it"
        return Check(Status.WARN if needed else Status.OK, "Temporal CLI", found, fix)


def room(path: Path) -> Check:
    """How much the disk has left where the store is."""
    place = next(folder for folder in path.parents if folder.exists())
    free = shutil.disk_usage(place).free
    status = Status.FAIL if free < NO_ROOM else Status.WARN if free < LITTLE_ROOM else Status.OK
    fix = "" if status is Status.OK else "make room, for example with `loom prune --compact`"
    return Check(status, "disk", f"{free / 1e9:.1f} GB free at {place}", fix)


def openat2() -> Check:
    """How file tools are kept inside the working directory."""
    from activities.openat import native_support

    if native_support():
        return Check(Status.OK, "openat2", "file tools are confined by the kernel")
    return Check(Status.OK, "openat2", "not on this system: file tools follow no symbolic links instead")
