"""The rules of a policy: `Tool`, `Tool(specifier)`, `*` and `*(specifier)`.

What a specifier is about follows from the tool: a command, the addresses that it asks (`domain:HOST`, or for one method
`POST domain:HOST`), or its paths. `sha256:DIGEST` is about the very arguments of that digest.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pydantic import JsonValue

from loom_dsl.permissions.command_pattern import CommandPattern, command_pattern, covering_command, literal_pattern
from loom_dsl.permissions.domains import DomainPattern
from loom_dsl.permissions.paths import (
    ANY,
    PathPattern,
    escape_pattern,
    is_open,
    is_partly_open,
    may_mean,
    normal_path,
    wildcard,
)
from loom_dsl.permissions.programs import all_commands, in_words, traits_of_command
from loom_dsl.permissions.shell_line import ShellReading, Words
from loom_dsl.text.canonical import canonical_json

COMMAND_TOOLS = frozenset({"execute_bash"})
"""Loom's own tools whose specifiers are commands."""
_RULE = re.compile(r"([A-Za-z_][\w.]*:[A-Za-z_]\w*|\*|mcp__[A-Za-z0-9_*-]+|[A-Za-z0-9_-]+)(?:\((.*)\))?", re.DOTALL)
_DOMAIN = re.compile(r"(?:([A-Za-z]+) )?domain:(.*)", re.DOTALL)
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
"""The methods that a rule about requests may name. One about GET is about HEAD too, which gives less."""
_ARGUMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """What a rule is held against.

    Attributes:
        names: The tool's call name and its reference.
        arguments: The call's arguments.
        paths: Paths that it touches, relative to the working directory; None: the tool has no paths.
        recursive: The paths are directories of which the whole tree is touched.
        command: How its command line is read; None: it has none.
        command_argument: The argument that holds it; empty: the tool runs no commands.
        mentions: Paths that the words of the command could name, as `paths` writes them.
        hosts: Hosts that it would ask, None for an address that cannot be read; None: it asks none.
        method: How it would ask them, in capitals; empty: it is not known.
        digest: Names the arguments by their content.
    """

    names: tuple[str, ...]
    arguments: Mapping[str, JsonValue]
    paths: tuple[str, ...] | None
    recursive: bool
    command: ShellReading | None = None
    command_argument: str = ""
    mentions: tuple[str, ...] = ()
    hosts: tuple[str | None, ...] | None = None
    method: str = ""
    digest: str = ""

    @property
    def is_unreadable(self) -> bool:
        """Whether it has a command line that could not be read."""
        return self.command is not None and self.command.unknown != ""

    @property
    def normal_paths(self) -> list[str | None]:
        """The paths in normal form; None for each that leads out of the working directory."""
        return [normal_path(path) for path in self.paths or ()]


@dataclass(frozen=True)
class Rule:
    """One rule, parsed.

    Attributes:
        text: As it was written.
        tool: Name of a tool, or `*` for any.
        argument: Name of the argument whose value `pattern` is about; None: the call's paths.
        pattern: The specifier; None: the rule is about every call of the tool.
    """

    text: str
    tool: str
    argument: str | None = None
    pattern: str | None = None

    def names(self, call: Call) -> bool:
        """Say whether the rule is about this call's tool at all."""
        if self.tool == "*":
            return self.pattern is None or self.argument is not None or self._about_any(call)
        if "*" in self.tool:
            return wildcard(self.tool).fullmatch(call.names[0]) is not None
        return self.tool in call.names

    def _about_any(self, call: Call) -> bool:
        if self.domain is not None:
            return call.hosts is not None
        return call.paths is not None or bool(call.mentions) or call.is_unreadable

    def surely_fits(self, call: Call) -> bool:
        """Say whether everything the call touches is covered: the question of a rule that allows."""
        if not self.names(call) or None in call.normal_paths:
            return False
        if self.pattern is None:
            return True
        if self.arguments:
            return self.arguments == call.digest
        if self.about_command(call):
            return bool(commands_covered([self], call))
        if self.argument is not None:
            return self._fits_argument(call)
        if self.domain is not None:
            if self.methods and call.method not in self.methods:
                return False
            return bool(call.hosts) and all(host is not None and self.domain.covers(host) for host in call.hosts or ())
        paths = [path for path in call.normal_paths if path is not None]
        return self.path is not None and bool(paths) and all(self.path.matches(path) for path in paths)

    def may_fit(self, call: Call) -> bool:
        """Say whether the call is what a rule that denies or asks is about.

        When the call has nothing that the specifier could be held against, the answer is yes: a prohibition that
        cannot be judged holds. What a command line leaves open is another question, of `decide.doubt_of`.
        """
        if not self.names(call):
            return False
        if self.pattern is None:
            return True
        if self.arguments:
            return self.arguments == call.digest
        if self.about_command(call):
            pattern = self.command
            return call.command is None or pattern is None or any(map(pattern.means, commands_of(call.command)))
        if self.argument is not None:
            return self._fits_argument(call)
        if self.domain is not None:
            if self.methods and call.method and call.method not in self.methods:
                return False
            return not call.hosts or any(host is None or self.domain.may_cover(host) for host in call.hosts)
        return self._reaches(call)

    def _reaches(self, call: Call) -> bool:
        if call.is_unreadable:
            return False
        pattern = self.path
        if pattern is None or not (call.paths or call.mentions):
            return True
        reaches = pattern.reaches_below if call.recursive else pattern.matches
        if any(path is None or reaches(path) for path in call.normal_paths):
            return True
        return any(self._is_mentioned(pattern, path) for path in call.mentions if not is_open(path))

    def _is_mentioned(self, pattern: PathPattern, path: str) -> bool:
        if is_partly_open(path):
            return ANY not in path and may_mean(pattern.text, path)
        return pattern.matches(path) or pattern.reaches_below(path)

    def about_command(self, call: Call) -> bool:
        """Say whether the specifier is a command.

        It is, in a rule about a tool that runs commands; only that of any tool (`*(…)`) stays a path.
        """
        if not call.command_argument or (self.tool == "*" and self.argument != call.command_argument):
            return False
        return self.argument in (None, call.command_argument) and self.domain is None

    @property
    def path(self) -> PathPattern | None:
        """The specifier as a pattern of paths; None when it cannot be one."""
        try:
            return PathPattern(self.pattern or "")
        except ValueError:
            return None

    @property
    def domain(self) -> DomainPattern | None:
        """The specifier as a pattern of hosts; None when it is none."""
        found = _DOMAIN.fullmatch(self.pattern) if self.pattern is not None and self.argument is None else None
        return DomainPattern(found[2]) if found else None

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that a rule about hosts is about; empty: any."""
        found = _DOMAIN.fullmatch(self.pattern) if self.pattern is not None and self.argument is None else None
        named = found[1].upper() if found and found[1] else ""
        return () if not named else (named, "HEAD") if named == "GET" else (named,)

    @property
    def arguments(self) -> str:
        """Digest of the only arguments that the rule is about; empty: it is about others too."""
        found = _DIGEST.fullmatch(self.pattern) if self.pattern is not None and self.argument is None else None
        return found[1] if found and self.tool not in COMMAND_TOOLS | {"*"} else ""

    @property
    def command(self) -> CommandPattern | None:
        """The specifier as a pattern of commands; None when it cannot be one."""
        try:
            return command_pattern(self.pattern or "")
        except ValueError:
            return None

    def lets_write(self, path: str) -> bool:
        """Say whether a file may be written by a redirection, as by the tool `write_file`."""
        place = normal_path(path)
        if self.tool != "write_file" or self.argument is not None or self.arguments or place is None:
            return False
        return self.pattern is None or (self.path is not None and self.path.matches(place))

    def _fits_argument(self, call: Call) -> bool:
        if self.argument is None or self.argument not in call.arguments:
            return False
        value = call.arguments[self.argument]
        text = value if isinstance(value, str) else canonical_json(value)
        return wildcard(self.pattern or "").fullmatch(text) is not None


@lru_cache(maxsize=16_384)
def parse_rule(text: str) -> Rule:
    """Read a rule.

    Raises:
        ValueError: Quotes the rule and says how rules are written.
    """
    if not isinstance(text, str) or not (found := _RULE.fullmatch(text.strip())):
        raise ValueError(
            f"{text!r} is not a rule; write a tool's name, Tool(specifier) such as write_file(reports/**), or *"
        )
    name, specifier = found[1], found[2]
    if specifier is None:
        return Rule(text, name)
    if not specifier.strip():
        raise ValueError(f"the rule {text!r} has an empty specifier; write {name} for every call of it")
    if name not in COMMAND_TOOLS and (argument := _ARGUMENT.fullmatch(specifier)):
        return Rule(text, name, argument[1], argument[2])
    try:
        _check_specifier(name, specifier)
    except ValueError as error:
        raise ValueError(f"the rule {text!r} cannot be used: {error}") from error
    return Rule(text, name, None, specifier)


def _check_specifier(tool: str, specifier: str) -> None:
    if tool in COMMAND_TOOLS:
        command_pattern(specifier)
    elif found := _DOMAIN.fullmatch(specifier):
        if found[1] and found[1].upper() not in METHODS:
            raise ValueError(f"{found[1]!r} is not a method; write one of {', '.join(METHODS)}, or leave it out")
        DomainPattern(found[2])
    elif tool == "*" or " " not in specifier:  # with a space it may be the command of a tool of the user's
        PathPattern(specifier)


def commands_of(reading: ShellReading) -> list[Words]:
    """List every command that a line is known to run, also those that another one runs of its words."""
    return [words for command in reading.commands for words in all_commands(command)]


def commands_covered(rules: Sequence[Rule], call: Call) -> str:
    """Name the rules that together cover all that a call's command line runs and writes; empty: they do not."""
    reading = call.command
    if reading is None or reading.unknown:
        return ""
    patterns = _patterns(rules, call)
    found: list[str] = []
    for words in reading.commands:
        covered = covering_command(patterns, words, moved=reading.moves)
        if covered is None:
            return ""
        found += covered
    if not found and patterns and reading.commands:  # all of them are free
        found.append(patterns[0][0])
    for path in reading.writes:
        writing = next((rule.text for rule in rules if rule.lets_write(path)), "")
        if reading.moves or not writing:
            return ""
        found.append(writing)
    return " + ".join(dict.fromkeys(found))


def uncovered(rules: Sequence[Rule], call: Call) -> str:
    """Say what of a call's command line no rule covers; empty: it has none."""
    reading = call.command
    if reading is None or not call.command_argument:
        return ""
    if reading.unknown:
        return f"the line cannot be read: {reading.unknown}"
    patterns = _patterns(rules, call)
    for words in commands_of(reading):
        if covering_command(patterns, words, moved=reading.moves) is None:
            wanting = [word for word in traits_of_command(words).named if word in words]
            return f"no rule covers `{in_words(words)}`" + (
                f"; one must name {in_words(wanting[:1])}" if wanting else ""
            )
    paths = [path for path in reading.writes if reading.moves or not any(rule.lets_write(path) for rule in rules)]
    return f"it writes {paths[0]}, and no rule write_file({paths[0]}) allows that" if paths else ""


def _patterns(rules: Sequence[Rule], call: Call) -> list[tuple[str, CommandPattern]]:
    named = [rule for rule in rules if rule.pattern is not None and rule.names(call) and rule.about_command(call)]
    return [(rule.text, pattern) for rule in named if (pattern := rule.command) is not None]


def rule_for(call: Call) -> list[str]:
    """Write the rules that allow a call like this one again: for its very paths or commands, or its method and hosts.

    Returns:
        The rules. A call that has none of these is named by its very arguments; of one for which no rule could cover
        just this call there are none.
    """
    tool = call.names[0]
    if call.command_argument:
        reading = call.command
        parts = () if reading is None or (reading.moves and len(reading.commands) > 1) else reading.literal
        patterns = [literal_pattern(part) for part in parts]
        return [] if None in patterns else [f"{tool}({pattern})" for pattern in dict.fromkeys(patterns)]
    if call.hosts is not None:
        method = f"{call.method} " if call.method else ""
        return [] if None in call.hosts else [f"{tool}({method}domain:{host})" for host in dict.fromkeys(call.hosts)]
    if call.paths is None:
        return [f"{tool}(sha256:{call.digest})"] if call.digest else []
    escaped = [escape_pattern(path) for path in dict.fromkeys(call.normal_paths) if path is not None]
    return [f"{tool}({'./' if _is_taken(path) else ''}{path})" for path in escaped]


def _is_taken(path: str) -> bool:
    """Whether a path, as a specifier, would say something else."""
    return path.isspace() or any(form.fullmatch(path) for form in (_ARGUMENT, _DIGEST, _DOMAIN))
