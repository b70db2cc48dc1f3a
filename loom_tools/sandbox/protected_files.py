"""What a command may not touch in its own working directory: what git runs by itself, policies, keys and settings."""

import errno
import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from loom_dsl.errors import PermissionDenied, ToolError
from loom_dsl.permissions.deployment import PROJECT_POLICY
from loom_tools.workspace.openat import open_beneath
from loom_tools.workspace.protected import is_secret

# What a repository's settings name: other settings, directories of hooks, and programs that git runs by itself.


MAX_SETTINGS = 1 << 20
"""Bytes of a file of settings; git's own are a few thousand."""
MAX_FILES = 100
_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_ENTRY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?", re.DOTALL)
_PROGRAM = re.compile(
    r"core\.(?:fsmonitor|sshcommand|pager|editor|gitproxy|askpass|alternaterefscommand)|"
    r"filter\..*\.(?:clean|smudge|process)|diff\.external|diff\..*\.(?:command|textconv)|merge\..*\.driver|"
    r"alias\..*|pager\..*|credential\.(?:.*\.)?helper|gpg\.(?:.*\.)?program|gpg\..*\.defaultkeycommand|"
    r"sequence\.editor|(?:difftool|mergetool|browser|man|trailer)\..*\.(?:cmd|path|command)|"
    r"remote\..*\.(?:uploadpack|receivepack|vcs)|interactive\.difffilter|uploadpack\.packobjectshook|"
    r"submodule\..*\.update|sendemail\..*|web\.browser",
    re.DOTALL,
)
"""Settings whose values are run: `diff.external` as much as `alias.st`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What settings name: absolute paths, whether they are there or not.

    Attributes:
        settings: Further files of settings.
        hooks: Directories of hooks.
        programs: Files that are run, and are there.
        worktree: Where the repository's files are, if the settings say so; else empty.
    """

    settings: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    worktree: str = ""


def named_by(files: list[str], top: str) -> Named:
    """Read files of settings, and those that they include, whatever the conditions.

    Args:
        files: Absolute paths; one that cannot be read names nothing.
        top: The directory of the repository's files: what is relative is relative to it.
    """
    waiting, seen, more = list(files), set[str](), list[str]()
    hooks, programs, worktree = list[str](), list[str](), ""
    while waiting and len(seen) < MAX_FILES:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for name, value in read_settings(file):
            if name == "include.path" or (name.startswith("includeif.") and name.endswith(".path")):
                found = _place(value, os.path.dirname(file))
                more.append(found)
                waiting.append(found)
            elif name in ("core.hookspath", "init.templatedir"):
                hooks.append(_place(value, top))
            elif name == "core.worktree":
                worktree = _place(value, os.path.dirname(file))
            elif _PROGRAM.fullmatch(name):
                words = [_place(word, top) for word in _words(value)]
                programs += [path for path in words if os.path.isfile(path) and _is_run(name, path)]
    return Named(settings=tuple(more), hooks=tuple(hooks), programs=tuple(programs), worktree=worktree)


def users_settings() -> list[str]:
    """Name the files of settings that hold for every repository of whoever runs this."""
    own = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return ["/etc/gitconfig", os.path.join(own, "git", "config"), os.path.expanduser("~/.gitconfig")]


def directory_of(file: str) -> str:
    """Give the repository's directory that a file `.git` names; empty: it names none."""
    text = _text(file)
    if not text.startswith("gitdir:"):
        return ""
    return _place(text.removeprefix("gitdir:").strip(), os.path.dirname(file))


def _is_run(name: str, path: str) -> bool:
    """Whether a file that a setting names is a program: an alias may name any other file too."""
    return not name.startswith("alias.") or os.access(path, os.X_OK) or _text(path).startswith("#!")


def _place(text: str, base: str) -> str:
    return os.path.normpath(os.path.join(base, os.path.expanduser(text)))


def _words(value: str) -> list[str]:
    try:
        return shlex.split(value.removeprefix("!"), comments=False)
    except ValueError:
        return value.removeprefix("!").split()


def _text(file: str) -> str:
    try:
        with open(file, "rb") as opened:
            return opened.read(MAX_SETTINGS).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return ""


def read_settings(file: str) -> Iterator[tuple[str, str]]:
    """Give names, of which section and key are in small letters, and values."""
    section = ""
    for line in re.sub(r"\\\r?\n", "", _text(file).removeprefix("\ufeff")).split("\n"):
        rest = line.strip()
        while found := _SECTION.match(rest):
            below = "" if found[2] is None else "." + re.sub(r"\\(.)", r"\1", found[2])
            section = found[1].lower() + below
            rest = rest[found.end() :].strip()
        entry = _ENTRY.fullmatch(rest)
        if section and entry:
            yield f"{section}.{entry[1].lower()}", _value(entry[2] or "")


def _value(text: str) -> str:
    """Take quotes, escapes and a comment away."""
    out, quoted, position = "", False, 0
    while position < len(text):
        letter = text[position]
        if letter == "\\" and position + 1 < len(text):
            position += 1
            out += {"n": "\n", "t": "\t", "b": "\b"}.get(text[position], text[position])
        elif letter == '"':
            quoted = not quoted
        elif letter in "#;" and not quoted:
            break
        else:
            out += letter
        position += 1
    return out.strip()


MAX_ENTRIES = 1_000_000
"""Files and directories that are looked at."""
MAX_HIDDEN = 1_000
_MODULES = "modules"
_DECIDE = ("hooks", "config")
"""In a repository: what git runs by itself, and settings, which name programs that it runs."""
_BARE = frozenset({"HEAD", "objects", "refs", "config"})
"""What git takes a directory for a repository by."""
_REDIRECT = ("config.worktree", "commondir")
"""Files that an ordinary repository does not have, and that would let git read hooks and settings elsewhere."""
_PUBLIC = re.compile(rb"CERTIFICATE|TRUSTED CERTIFICATE|X509 CRL|PUBLIC KEY|RSA PUBLIC KEY|DH PARAMETERS")
_BEGINS = re.compile(rb"-----BEGIN ([^-\n]*)-----")
_MAX_PEM = 4 << 20


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
    left: int = MAX_ENTRIES


def protected_in(root: str, shown: Callable[[str], bool] = lambda _: False, most: int = MAX_ENTRIES) -> Protected:
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
        if found.left < 0 or len(found.hidden) > MAX_HIDDEN:
            what = f"{most} files" if found.left < 0 else f"{MAX_HIDDEN} files that look like keys"
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
            text = file.read(_MAX_PEM + 1)
    except OSError:
        return False
    parts = _BEGINS.findall(text)
    return bool(parts) and len(text) <= _MAX_PEM and all(_PUBLIC.fullmatch(part) for part in parts)
