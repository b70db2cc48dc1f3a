"""What a worker's settings say about commands: whether they must be confined, and what they may read and know."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast, get_args

from loom_dsl.errors import ConfigurationError, PermissionDenied, ToolUnavailable
from loom_dsl.permissions.paths import PathPattern
from loom_tools.sandbox.order import Means, ResourceLimits, SandboxOrder
from loom_tools.sandbox.protected_files import Protected, make_missing, protected_in

Mode = Literal["required", "best_effort", "off"]
SETTING, READABLE, SHOWN = "LOOM_CONFINEMENT", "LOOM_CONFINEMENT_READ", "LOOM_CONFINEMENT_SHOW"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
_SETTINGS_OF_PROGRAMS = (
    *("alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version"),
    *("fonts", "gai.conf", "group", "host.conf", "hosts", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d"),
    *("ld-musl-x86_64.path", "ld-musl-aarch64.path", "locale.alias", "locale.conf", "localtime", "magic", "mailcap"),
    *("manpath.config", "mime.types", "nsswitch.conf", "os-release", "passwd", "pki/tls/certs", "pki/ca-trust"),
    *("profile", "protocols", "python3", "resolv.conf", "services", "shells", "ssl/certs", "ssl/openssl.cnf"),
    *("terminfo", "timezone", "vim", "wgetrc", "xdg"),
)
"""In /etc. Not the whole of it: a worker of user 0 could read the passwords there."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KEPT = ("LANG", "LANGUAGE", "TZ")
_SAID = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_GLOBAL": "/dev/null",  # HOME is the command's own, so only the command could write settings there
    "GIT_CONFIG_NOSYSTEM": "1",  # git gives up when it may not read the system's file
}


def mode_of(environment: Mapping[str, str]) -> Mode:
    """Read the setting ``LOOM_CONFINEMENT``.

    Raises:
        ConfigurationError: It is none of required, best_effort and off.
    """
    given = environment.get(SETTING, "") or "required"
    if given not in get_args(Mode):
        raise ConfigurationError(f"{SETTING}={given}: give required, best_effort or off")
    return cast("Mode", given)


def lacking(means: Means) -> list[str]:
    """Name what is needed to confine a command and is not there."""
    found = [] if means.landlock else ["Landlock (Linux 5.13, switched on at boot: `lsm=...,landlock`)"]
    return found if means.filters else [*found, "seccomp filters on x86_64 or aarch64"]


def check(mode: Mode, means: Means) -> None:
    """Make sure that a command may run with these means.

    Raises:
        ToolUnavailable: It must be confined, and cannot be.
    """
    missing = lacking(means)
    if mode == "required" and missing:
        raise ToolUnavailable(
            f"commands do not run on this worker: they must be confined, and its machine lacks "
            f"{' and '.join(missing)}; "
            f"whoever runs the worker can look at `loom doctor`, or set {SETTING}=best_effort"
        )


def order_of(
    argv: Sequence[str],
    cwd: Path,
    means: Means,
    environment: Mapping[str, str],
    *,
    cpu: float,
    protected: Sequence[Path] = (),
    limits: ResourceLimits | None = None,
) -> SandboxOrder:
    """Describe a command as the settings want it.

    Args:
        argv: Program and arguments.
        cwd: The working directory.
        means: What the machine offers.
        environment: The worker's.
        cpu: Seconds of processor time.
        protected: What it must not reach, such as the store.
        limits: How much it may use.

    Raises:
        PermissionDenied: The working directory holds what a command must not reach, or what cannot be protected.
        ToolError: It holds too much to look for that.
        ToolUnavailable: The machine cannot confine it, and must.
        ConfigurationError: A setting is wrong.
    """
    mode = mode_of(environment)
    check(mode, means)
    place = os.path.realpath(cwd)
    read = readable(environment)
    if mode != "off":
        _check_place(place, [*protected, *_secret_places(environment)], "the working directory")
        for path in _more(environment):
            _check_place(path, [*protected, *_secret_places(environment)], f"{READABLE} names")
    within = _protected(place, mode, means, environment)
    return SandboxOrder(
        argv=list(argv),
        env={**_kept(environment), **_SAID, "PATH": _path(environment, read)},
        cwd=place,
        scratch=os.path.realpath(environment.get("TMPDIR") or "/tmp"),
        read=read,
        hidden=list(within.hidden),
        kept=list(within.kept),
        held=list(within.held),
        absent=list(within.absent),
        limits=replace(limits or ResourceLimits(), cpu=int(cpu) + 1),
        landlock=0 if mode == "off" else means.landlock,
        filtered=mode != "off" and means.filters,
        namespaces=mode != "off" and means.namespaces,
        network=mode == "off",
    )


def _protected(place: str, mode: Mode, means: Means, environment: Mapping[str, str]) -> Protected:
    """What a command may not touch in its working directory.

    Without namespaces that costs the making of files beside it, which is too much for somebody who asks for what can
    be had only.
    """
    if mode == "off" or (mode == "best_effort" and not means.namespaces):
        return Protected()
    found = protected_in(place, _shown(environment))
    if found.links and mode == "required":
        first = found.links[0]
        what = "a symbolic link" if first != "." else "where git looks for hooks"
        why = f"{first} is {what}, and what git or a policy reads there could not be protected"
        raise PermissionDenied(f"no command runs here: {why}; put the directory or file itself there")
    return make_missing(place, found) if means.namespaces else found


def _shown(environment: Mapping[str, str]) -> Callable[[str], bool]:
    """Which files of the working directory may be read although their names are those of keys.

    Raises:
        ConfigurationError: A pattern is none.
    """
    try:
        patterns = [PathPattern(text) for text in environment.get(SHOWN, "").split(":") if text]
    except ValueError as error:
        raise ConfigurationError(f"{SHOWN}: {error}") from None
    return lambda path: any(pattern.matches(path) for pattern in patterns)


def readable(environment: Mapping[str, str]) -> list[str]:
    """List what every command may read: the system's programs, the worker's Python, and what the setting adds."""
    found = [*_SYSTEM, *(f"/etc/{name}" for name in _SETTINGS_OF_PROGRAMS)]
    found += [os.path.realpath(prefix) for prefix in (sys.base_prefix, sys.prefix)]
    return list(dict.fromkeys([*found, *_more(environment)]))


def _more(environment: Mapping[str, str]) -> list[str]:
    return [os.path.realpath(path) for path in environment.get(READABLE, "").split(":") if path]


def _secret_places(environment: Mapping[str, str]) -> list[Path]:
    home = Path(environment.get("HOME") or os.path.expanduser("~"))
    own = [home, home / ".ssh"] if home != Path("/") else []
    return [*own, Path("/etc"), Path("/proc"), Path("/usr"), Path("/var/lib"), Path("/run")]


def _check_place(place: str, secret: Sequence[Path], what: str) -> None:
    for path in secret:
        if os.path.realpath(path) == place or os.path.realpath(path).startswith(place.rstrip("/") + "/"):
            raise PermissionDenied(
                f"no command runs here: {what} {place} holds {path}, which commands must not reach; "
                "use a directory of its own for the job"
            )


def _kept(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name in _KEPT or name.startswith("LC_")}


def _path(environment: Mapping[str, str], read: Sequence[str]) -> str:
    """Where programs are looked for: where the worker does, as far as a command may read it."""
    own = [part for part in environment.get("PATH", "").split(":") if _is_below_any(os.path.realpath(part), read)]
    return ":".join(dict.fromkeys([*own, *_PATH.split(":")]))


def _is_below_any(path: str, above: Sequence[str]) -> bool:
    return any(path == place or path.startswith(place + "/") for place in above)
