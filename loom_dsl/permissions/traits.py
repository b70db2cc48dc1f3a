"""What a policy looks at in a tool and one call of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import JsonValue

from loom_dsl.errors import LoomError
from loom_dsl.permissions.domains import host_of
from loom_dsl.permissions.paths import ANY, PART, is_partly_open, normal_path, shapes_in
from loom_dsl.permissions.programs import base_name, traits_of_command
from loom_dsl.permissions.rules import Call, commands_of
from loom_dsl.permissions.shell_line import GIVEN_FILE, ShellReading, Words, is_told_later, read_line
from loom_dsl.text.canonical import canonical_json, digest
from loom_dsl.tools.risk import Risk
from loom_dsl.tools.tool import Tool

COMMAND_ARGUMENTS = {"execute_bash": "command"}
"""The arguments of Loom's own tools that hold a command line."""
ADDRESS_ARGUMENTS = {"network_request": "url"}
"""The arguments of Loom's own tools that hold an address."""
METHOD_ARGUMENTS = {"network_request": "method"}
"""The arguments of Loom's own tools that say how an address is asked; without it, GET."""

_SAYING = frozenset({"echo", "printf", "exit", "return", "[", "test", ":", "true", "false", "sleep"})
"""Programs that open none of the files that their words may name."""
_LISTING = frozenset({"basename", "df", "du", "find", "jq", "ls", "realpath", "stat"})
"""Programs that open no file for being given a place like `.` or `*`; what find runs is a command of its own."""
MAX_BASES, MAX_BELOW, MAX_BELOW_LENGTH = 6, 100, 400
"""Directories that a line goes to, paths in each of which links are followed, and characters of one."""


@dataclass(frozen=True, kw_only=True)
class ToolTraits:
    """What a policy looks at in a tool and one call of it.

    Attributes:
        name: What the model calls it.
        read_only: It changes nothing.
        builtin: It is one of Loom's own.
        risk: How much it can do.
        paths: What this call touches, relative to the working directory; several spellings of one place (as written,
            and with symbolic links followed) may be given. None: the tool has no paths.
        recursive: The paths are directories of which the whole tree is touched.
        reference: `module:function`, when that is how the agent names it.
        command: How its command line is read; None: it has none.
        command_argument: The argument that holds it; empty: the tool runs no commands.
        mentions: Paths that the words of the command could name, as `paths` writes them.
        hosts: Hosts that it would ask, None for an address that cannot be read; None: it asks none.
        method: How it would ask them, in capitals; empty: it is not known.
        address: The address that it would ask; empty: none.
        declared: The arguments that hold its paths, its command and its address.
        parameters: JSON schema of its arguments.
        digest: Names the arguments by their content, as approvals do; empty: as they are.
    """

    name: str
    read_only: bool
    builtin: bool
    risk: Risk = Risk.MEDIUM
    paths: tuple[str, ...] | None = None
    recursive: bool = False
    reference: str = ""
    command: ShellReading | None = None
    command_argument: str = ""
    mentions: tuple[str, ...] = ()
    hosts: tuple[str | None, ...] | None = None
    method: str = ""
    address: str = ""
    declared: frozenset[str] = frozenset()
    parameters: Mapping[str, JsonValue] = field(default_factory=dict, repr=False, compare=False)
    digest: str = ""

    def call(self, arguments: Mapping[str, Any]) -> Call:
        """Give what rules are held against.

        Args:
            arguments: The call's validated arguments.
        """
        names = tuple(filter(None, (self.name, self.reference)))
        return Call(
            names,
            arguments,
            self.paths,
            self.recursive,
            self.command,
            self.command_argument,
            self.mentions,
            self.hosts,
            self.method,
            self.digest or digest(canonical_json(dict(arguments))),
        )


def traits_of(
    tool: Tool,
    arguments: Mapping[str, Any],
    *,
    builtin: bool,
    working_dir: str | None = None,
    real_path: Callable[[str], str] | None = None,
    reference: str = "",
) -> ToolTraits:
    """Describe a call of a tool to `decide`.

    Args:
        tool: The tool.
        arguments: Its validated arguments.
        builtin: It is one of Loom's own.
        working_dir: Absolute paths below it are made relative.
        real_path: Follows symbolic links, so that a link does not lead around a rule; a place it gives is added.
        reference: `module:function`, when that is how the agent names it.
    """
    paths = _paths(tool, arguments, working_dir) if tool.path_arguments else None
    if paths is not None and real_path is not None:
        paths += [real_path(path) for path in list(paths) if normal_path(path) is not None]
    argument = tool.command_argument or (COMMAND_ARGUMENTS.get(tool.name, "") if builtin else "")
    line = arguments.get(argument) if argument else None
    command = _from_inside(read_line(line), working_dir) if isinstance(line, str) else None
    address = tool.address_argument or (ADDRESS_ARGUMENTS.get(tool.name, "") if builtin else "")
    return ToolTraits(
        name=tool.name,
        read_only=tool.read_only,
        builtin=builtin,
        risk=tool.risk,
        paths=None if paths is None else tuple(dict.fromkeys(paths)),
        recursive=tool.recursive,
        reference=reference,
        command=command,
        command_argument=argument,
        mentions=_mentioned(command, working_dir, real_path),
        hosts=(host_of(arguments.get(address)),) if address else None,
        method=_method(tool, arguments) if builtin else "",
        address=str(arguments.get(address) or "") if address else "",
        declared=frozenset(filter(None, (*tool.path_arguments, argument, address))),
        parameters=tool.parameters,
    )


def _from_inside(reading: ShellReading, working_dir: str | None) -> ShellReading:
    """Write a directory inside that a line goes to by its full path as one from the working directory."""
    if working_dir is None or not reading.moves:
        return reading
    commands = tuple(
        ("cd", normal_path(words[1], working_dir) or words[1])
        if words[0] == "cd" and len(words) == 2 and words[1].startswith("/") and not is_told_later(words[1])
        else words
        for words in reading.commands
    )
    return replace(reading, commands=commands)


def _method(tool: Tool, arguments: Mapping[str, Any]) -> str:
    argument = METHOD_ARGUMENTS.get(tool.name)
    return str(arguments.get(argument) or "GET").upper() if argument else ""


def _mentioned(
    command: ShellReading | None, working_dir: str | None, real_path: Callable[[str], str] | None
) -> tuple[str, ...]:
    """List the paths inside the working directory that the words of a command could name."""
    if command is None:
        return ()
    commands = commands_of(command)
    named = {word for words in commands for word in _told(words) if word and word != GIVEN_FILE}
    named |= {word for word in (*command.loops, *command.reads, *command.writes) if word}
    entered = _entered(commands)
    said = {word for words in commands if not _enters(words) for word in words[1:]}
    elsewhere = any(map(_enters, commands)) or "-C" in named
    only = frozenset(word for word in entered if word not in said)
    inside = set(shapes_in(named, working_dir, elsewhere=elsewhere, entered=only))
    if real_path is not None:
        known = sorted(path for path in inside if not is_partly_open(path))
        short = [path for path in known if len(path) < MAX_BELOW_LENGTH][:MAX_BELOW]
        below = [normal_path(f"{place}/{path}") for place in _bases(entered[:MAX_BASES]) for path in short]
        inside |= {place for place in (_followed(real_path, path) for path in [*known, *below] if path) if place}
    return tuple(sorted(inside))


def _told(words: Words) -> Words:
    """The words of a command that may name paths: of one that only says them, those that are told."""
    if words[0] == ".":
        return words[1:]
    if base_name(words[0]) in _LISTING and not traits_of_command(words).anything:
        return tuple(word for word in words if word not in (".", PART, f"./{ANY}"))
    if base_name(words[0]) not in _SAYING:
        return words
    return tuple(word for word in words if word != "." and not is_told_later(word))


def _enters(words: Words) -> bool:
    return base_name(words[0]) in ("cd", "pushd")


def _entered(commands: list[Words]) -> list[str]:
    """List the directories that a line goes to, in their order, as far as they are told."""
    places = [words[1:] for words in commands if _enters(words)]
    places += [words[at + 1 :][:1] for words in commands for at, word in enumerate(words) if word == "-C"]
    return list(dict.fromkeys(word for place in places for word in place if word and not word.startswith("-")))


def _bases(entered: list[str]) -> list[str]:
    """Give the directories from which a path may begin: each that is gone to, and one after the other."""
    after = ["/".join(entered[: number + 1]) for number in range(len(entered))]
    return [place for place in dict.fromkeys([*entered, *after]) if len(place) < MAX_BELOW_LENGTH]


def _followed(real_path: Callable[[str], str], path: str) -> str | None:
    try:
        return real_path(path)
    except LoomError:
        return None


def _paths(tool: Tool, arguments: Mapping[str, Any], working_dir: str | None) -> list[str]:
    """List the paths that a call names; one that leads out stays as it is, so that it is refused by name."""
    values = [arguments.get(name) for name in tool.path_arguments]
    named = [item for value in values for item in (value if isinstance(value, list) else [value])]
    found = [(item, normal_path(item, working_dir)) for item in named if isinstance(item, str)]
    return [item if normal is None else normal for item, normal in found]
