"""What a repository's settings name: other settings, directories of hooks, and programs that git runs by itself."""

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

LARGEST = 1 << 20
"""Bytes of a file of settings; git's own are a few thousand."""
MOST_FILES = 100
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
    while waiting and len(seen) < MOST_FILES:
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
            return opened.read(LARGEST).decode("utf-8", "surrogateescape")
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
