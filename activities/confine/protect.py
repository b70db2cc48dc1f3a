"""What a command may not touch in its own working directory: what git runs by itself, policies, keys and settings."""

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from activities.confine.git_settings import directory_of, named_by, users_settings
from activities.openat import open_beneath
from activities.path_guard import is_secret
from loom_dsl.errors import PermissionDenied, ToolError
from loom_dsl.policy import PROJECT_POLICY

MOST = 1_000_000
"""Files and directories that are looked at."""
MOST_HIDDEN = 1_000
_MODULES = "modules"
_DECIDE = ("hooks", "config")
"""In a repository: what git runs by itself, and settings, which name programs that it runs."""
_BARE = frozenset({"HEAD", "objects", "refs", "config"})
"""What git takes a directory for a repository by."""
_REDIRECT = ("config.worktree", "commondir")
"""Files that an ordinary repository does not have, and that would let git read hooks and settings elsewhere."""
_PUBLIC = re.compile(rb"CERTIFICATE|TRUSTED CERTIFICATE|X509 CRL|PUBLIC KEY|RSA PUBLIC KEY|DH PARAMETERS")
_BEGINS = re.compile(rb"-----BEGIN ([^-\n]*)-----")
_LARGEST_PEM = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected:
    """Absolute paths.

    Attributes:
        hidden: Files that are neither read nor written.
        kept: What may be read only, with all below.
        held: Directories that may be written in and not be moved: what is kept in them would go along.
        absent: What must not be there afterwards.
        links: Places, relative to the working directory, that would have to be kept and cannot: symbolic links, and the
            directory itself.
    """

    hidden: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


@dataclass(slots=True)
class _Found:
    root: str
    shown: Callable[[str], bool]
    hidden: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    repositories: set[str] = field(default_factory=set)
    left: int = MOST


def protected_in(root: str, shown: Callable[[str], bool] = lambda _: False, most: int = MOST) -> Protected:
    """Look through a working directory.

    Args:
        root: Its real path.
        shown: Whether a file, by its relative path, may be read although it looks like one of keys.
        most: How many files and directories are looked at.

    Raises:
        ToolError: There is more in it than can be looked at.
    """
    found = _Found(root, shown, left=most)
    settings = os.path.join(root, os.path.dirname(PROJECT_POLICY))
    _keep(found, settings)
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        entries = list(_entries(folder))
        if {entry.name for entry in entries} >= _BARE:
            _repository(found, folder, folder)
        for entry in entries:
            found.left -= 1
            if entry.name.lower() == ".git":
                _git(found, entry)
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif _is_hidden(found, entry):
                _hide(found, entry.path)
        if found.left < 0 or len(found.hidden) > MOST_HIDDEN:
            what = f"{most} files" if found.left < 0 else f"{MOST_HIDDEN} files that look like keys"
            raise ToolError(
                f"no command runs here: the working directory {root} holds more than {what}, too many to protect; "
                "use a smaller directory for the job"
            )
    return Protected(
        hidden=tuple(found.hidden),
        kept=tuple(dict.fromkeys(found.kept)),
        held=tuple(dict.fromkeys(found.held)),
        absent=tuple(dict.fromkeys(found.absent)),
        links=tuple(found.links),
    )


def make_missing(root: str, protected: Protected) -> Protected:
    """Make the places in repositories that are to be kept and are not there: what is not there cannot be protected.

    An empty directory of hooks and an empty file of settings mean the same to git as none.

    Returns:
        What is to be protected without the places that this user cannot make: no command of theirs can either.

    Raises:
        PermissionDenied: One cannot be made for another reason.
    """
    kept = []
    for path in protected.kept:
        try:
            if not os.path.lexists(path):
                _make(root, path)
            kept.append(path)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                why = f"{path} cannot be protected: {error.strerror}"
                raise PermissionDenied(f"no command runs here: {why}") from None
    return replace(protected, kept=tuple(kept))


def _make(root: str, path: str) -> None:
    parent, name = os.path.split(os.path.relpath(path, root))
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        folder = open_beneath(top, parent, os.O_RDONLY | os.O_DIRECTORY, follow=False)
    finally:
        os.close(top)
    try:
        with suppress(FileExistsError):
            if name == "hooks":
                os.mkdir(name, dir_fd=folder)
            else:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=folder))
    finally:
        os.close(folder)


def _entries(path: str) -> Iterator[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(path) as found:  # what cannot be read here, a command cannot read either
        yield from found


def _keep(found: _Found, path: str, *, always: bool = False) -> None:
    if os.path.islink(path):
        found.links.append(os.path.relpath(path, found.root))
    elif always or os.path.lexists(path):
        found.kept.append(path)


def _hold(found: _Found, path: str) -> None:
    """Let a directory stay where it is, and so those above it: in its place another could be put."""
    while path != found.root:
        found.held.append(path)
        path = os.path.dirname(path)


def _hide(found: _Found, path: str) -> None:
    """Hide a file. Where its directory's name says what it is, no later command must find that under another."""
    found.hidden.append(path)
    if is_secret(os.path.basename(path)):
        return
    among_keys = ".ssh" in path[len(found.root) :].lower().split("/")
    named = False
    while not named:
        path = os.path.dirname(path)
        found.held.append(path)
        named = not among_keys or os.path.basename(path).lower() == ".ssh"


def _git(found: _Found, entry: os.DirEntry[str]) -> None:
    """A repository; where it is a file, that says where the repository is."""
    top = os.path.dirname(entry.path)
    _hold(found, top)
    if entry.is_dir(follow_symlinks=False):
        return _repository(found, entry.path, top)
    _keep(found, entry.path)
    place = directory_of(entry.path)
    if not _is_within(found, place) or not os.path.isdir(place):
        return None
    if os.path.realpath(place) != place:
        return found.links.append(os.path.relpath(place, found.root))
    common = os.path.join(place, "commondir")
    if not os.path.isfile(common):
        return _repository(found, place, top)
    # A worktree: what decides lies in the repository, and is read anew for its directory.
    with suppress(OSError, ValueError), open(common) as file:
        shared = os.path.normpath(os.path.join(place, file.read(4096).strip()))
        return _named(found, [os.path.join(shared, "config"), os.path.join(place, "config.worktree")], top)


def _repository(found: _Found, path: str, top: str = "") -> None:
    """A repository's own directory.

    Args:
        found: What was found so far.
        path: The directory.
        top: That of its files; empty: as its settings say.
    """
    if path in found.repositories:
        return
    found.repositories.add(path)
    _hold(found, path)
    for name in _DECIDE:
        _keep(found, os.path.join(path, name), always=True)
    for name in (*_REDIRECT, "worktrees"):
        place = os.path.join(path, name)
        if os.path.lexists(place):
            _keep(found, place)
        elif name in _REDIRECT:
            found.absent.append(place)
    credentials = os.path.join(path, "credentials")
    if os.path.isfile(credentials) and not os.path.islink(credentials):
        found.hidden.append(credentials)
    settings = [os.path.join(path, "config"), os.path.join(path, "config.worktree")]
    _named(found, settings, top or named_by(settings, path).worktree or path)
    _modules(found, os.path.join(path, _MODULES))


def _named(found: _Found, settings: list[str], top: str) -> None:
    """What settings name: those of the repository, which are kept, and those of whoever runs git here."""
    named = named_by([*settings, *users_settings()], top)
    for place in (*named.settings, *named.hooks, *named.programs):
        _keep_named(found, place)


def _keep_named(found: _Found, place: str) -> None:
    if not _is_within(found, place):
        return
    parent = os.path.dirname(place)
    if place == found.root or os.path.realpath(parent) != parent:
        found.links.append(os.path.relpath(place, found.root))
    elif os.path.lexists(place):
        _keep(found, place)
        _hold(found, parent)
    else:
        found.absent.append(place)
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        _hold(found, parent)


def _is_within(found: _Found, place: str) -> bool:
    return bool(place) and (place == found.root or place.startswith(found.root.rstrip("/") + "/"))


def _modules(found: _Found, modules: str) -> None:
    """The repositories of modules, which lie in the one above them."""
    if os.path.islink(modules):
        _keep(found, modules)
    waiting = [modules] if os.path.isdir(modules) and not os.path.islink(modules) else []
    while waiting:  # a module's name may have parts
        _hold(found, waiting[-1])
        for entry in _entries(waiting.pop()):
            if entry.is_symlink():
                found.links.append(os.path.relpath(entry.path, found.root))
            elif os.path.lexists(os.path.join(entry.path, "HEAD")):
                _repository(found, entry.path)
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)


def _is_hidden(found: _Found, entry: os.DirEntry[str]) -> bool:
    relative = entry.path[len(found.root.rstrip("/")) + 1 :]
    if not is_secret(relative) or not entry.is_file(follow_symlinks=False) or found.shown(relative):
        return False
    return not (entry.name.lower().endswith(".pem") and _is_public(entry.path))


def _is_public(path: str) -> bool:
    """Whether a file holds certificates and the like only: a list of those is in many packages."""
    try:
        with open(path, "rb") as file:
            text = file.read(_LARGEST_PEM + 1)
    except OSError:
        return False
    parts = _BEGINS.findall(text)
    return bool(parts) and len(text) <= _LARGEST_PEM and all(_PUBLIC.fullmatch(part) for part in parts)
