"""Which files tools may never touch, and what a model is told when the file system refuses."""

import contextlib
import errno
import functools
import os
import re
import stat
from collections.abc import Iterator
from typing import NoReturn

from loom_dsl.errors import PermissionDenied, ToolError
from loom_dsl.permissions.deployment import PROJECT_POLICY

ALWAYS_REFUSED = ("/etc", "/sys", "/proc")
"""Never opened, whatever the working directory is; `~/.ssh` too."""
_KEY_FILE = re.compile(
    r".*\.(?:pem|p8|p12|pfx|key|jks|keystore|ppk|kdbx)|id_(?:rsa|dsa|ecdsa|ed25519).*", re.IGNORECASE
)
_SECRET_FILE = re.compile(r".*(?<!example)(?<!sample)(?<!template)\.env|.+\.tfstate(?:\.backup)?")
"""Settings and states that hold secrets whatever they are called, in lower case."""

_CREDENTIALS = frozenset(
    {".netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd", ".vault-token"}
    | {".s3cfg", "credentials.json", ".aws/config", ".kube/config", ".docker/config.json", ".git/credentials"}
    | {".aws/credentials", "gcloud/credentials.db", "gcloud/application_default_credentials.json"}
    | {".cargo/credentials.toml", ".gem/credentials", "gh/hosts.yml"}
)
"""Files in which other programs keep passwords and tokens, by name or by directory and name, in lower case."""


def refuse_system(path: str, absolute: str) -> None:
    """Refuse what lies in a place of the system or of the user's keys.

    Args:
        path: As the model wrote it, for the message.
        absolute: Where it is.

    Raises:
        PermissionDenied: It lies there.
    """
    for place in _refused_places(os.path.expanduser("~/.ssh")):
        if absolute == place or absolute.startswith(f"{place}/"):
            raise PermissionDenied(f"{path!r} lies in {place}, which tools may never touch")


@functools.lru_cache(maxsize=8)
def _refused_places(keys: str) -> tuple[str, ...]:
    return (*ALWAYS_REFUSED, keys, os.path.realpath(keys))


def refuse_protected(path: str, relative: str) -> None:
    """Keep tools from changing what decides about them or unlocks something: repositories, settings and keys.

    Args:
        path: As the model wrote it, for the message.
        relative: Relative to the working directory, in normal form.

    Raises:
        PermissionDenied: The file is one of those.
    """
    parts = relative.split("/")
    if any(part.lower() == ".git" for part in parts):
        raise PermissionDenied(f"{path!r} belongs to the git repository itself, which tools may not write")
    if any(part.lower() == ".ssh" for part in parts) or _KEY_FILE.fullmatch(parts[-1]):
        raise PermissionDenied(f"{path!r} is a key or a certificate, which tools may not write")
    if [part.lower() for part in parts[-2:]] == PROJECT_POLICY.split("/"):
        raise PermissionDenied(f"{path!r} is the project's policy, which tools may not write")
    if parts[-1].lower().startswith(".env") or is_secret(relative):
        raise PermissionDenied(f"{path!r} holds settings and secrets of the environment, which tools may not write")


def refuse_secret(path: str, place: str) -> None:
    """Keep tools from reading what unlocks something: keys, `.env` and the credentials of other programs.

    Args:
        path: As the model wrote it, for the message.
        place: Where it is, relative or absolute.

    Raises:
        PermissionDenied: The file is one of those.
    """
    if is_secret(place):
        raise PermissionDenied(f"{path!r} holds keys or secrets, which tools do not read; ask for what you need")


def is_secret(place: str) -> bool:
    """Say whether a file is one that only holds keys or secrets, by its name."""
    parts = place.lower().split("/")
    name = parts[-1]
    if name.startswith(".env"):
        return not name.endswith((".example", ".sample", ".template", ".dist"))
    return (
        ".ssh" in parts[:-1]
        or (_KEY_FILE.fullmatch(name) is not None and not name.endswith(".pub"))
        or _SECRET_FILE.fullmatch(name) is not None
        or name in _CREDENTIALS
        or "/".join(parts[-2:]) in _CREDENTIALS
    )


def is_directory(path: str, name: str, directory: int) -> bool:
    """Say whether a name in a directory is a directory, not a link to one.

    Raises:
        ToolError: There is nothing of that name.
    """
    with told(path):
        return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)


def writable_mode(path: str, name: str, directory: int) -> int | None:
    """Return the mode of the file that will be replaced, or None when there is none yet.

    Args:
        path: As the model wrote it, for messages.
        name: The file's name in its directory.
        directory: Descriptor of that directory.

    Raises:
        PermissionDenied: It is a symbolic link, or read-only.
        ToolError: It is not a regular file.
    """
    with told(path):
        try:
            mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None
    if stat.S_ISLNK(mode):
        raise PermissionDenied(f"{path!r} is a symbolic link, which is not written through; write to its target")
    if stat.S_ISDIR(mode):
        raise ToolError(f"{path!r} is a directory; give the path of a file")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{path!r} is not a regular file")
    if not mode & 0o222:
        raise PermissionDenied(f"{path!r} is read-only; somebody protected it")
    return stat.S_IMODE(mode) & 0o777


@contextlib.contextmanager
def told(path: str) -> Iterator[None]:
    """Turn an error of the operating system into one that a model is told."""
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:
        tell(path, error)


def tell(path: str, error: OSError | UnicodeEncodeError) -> NoReturn:
    """Raise what a model is told about an error of the operating system.

    Raises:
        PermissionDenied: The path leaves the working directory.
        ToolError: Anything else.
    """
    if isinstance(error, UnicodeEncodeError):
        raise ToolError(f"{path!r} is not a path: it holds characters that a file name cannot have") from error
    if error.errno == errno.EXDEV:
        raise PermissionDenied(
            f"{path!r} leaves the working directory through a symbolic link, which is not followed"
        ) from error
    if error.errno == errno.ELOOP:
        raise PermissionDenied(f"{path!r} goes through a symbolic link that is not followed") from error
    reasons = {
        errno.ENOENT: "there is no such file or directory; use glob to see what is there",
        errno.ENOTDIR: "a part of it is a file, not a directory",
        errno.EACCES: "the operating system does not allow it",
        errno.ENOSPC: "the disk is full",
        errno.ENOTEMPTY: "the directory is not empty; delete what is in it first, file by file",
        errno.ENAMETOOLONG: "the name is too long",
    }
    raise ToolError(f"{path!r}: {reasons.get(error.errno or 0, error.strerror or str(error))}") from error
