"""The rules of a policy: `Tool`, `Tool(specifier)`, `*` and `*(specifier)`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from loom_dsl.canonical import canonical_json
from loom_dsl.paths import PathPattern, escape_pattern, normal_path

_RULE = re.compile(r"(\*|[A-Za-z_][\w.]*:[A-Za-z_]\w*|[A-Za-z0-9_-]+)(?:\((.*)\))?", re.DOTALL)
_ARGUMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """What a rule is held against.

    Attributes:
        names: The tool's call name and its reference.
        arguments: The call's arguments.
        paths: Paths that it touches, relative to the working directory; None: the tool has no paths.
        recursive: The paths are directories of which the whole tree is touched.
    """

    names: tuple[str, ...]
    arguments: Mapping[str, Any]
    paths: tuple[str, ...] | None
    recursive: bool

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
            return self.pattern is None or self.argument is not None or call.paths is not None
        return self.tool in call.names

    def surely_fits(self, call: Call) -> bool:
        """Say whether everything the call touches is covered: the question of a rule that allows."""
        if not self.names(call) or None in call.normal_paths:
            return False
        if self.pattern is None:
            return True
        if self.argument is not None:
            return self._fits_argument(call)
        pattern = PathPattern(self.pattern)
        paths = [path for path in call.normal_paths if path is not None]
        return bool(paths) and all(pattern.matches(path) for path in paths)

    def may_fit(self, call: Call) -> bool:
        """Say whether anything the call touches could be covered: the question of a rule that denies or asks.

        When the call has nothing that the specifier could be held against, the answer is yes: a prohibition that
        cannot be judged holds.
        """
        if not self.names(call):
            return False
        if self.pattern is None:
            return True
        if self.argument is not None:
            return self._fits_argument(call)
        if not call.paths:
            return True
        pattern = PathPattern(self.pattern)
        reaches = pattern.reaches_below if call.recursive else pattern.matches
        return any(path is None or reaches(path) for path in call.normal_paths)

    def _fits_argument(self, call: Call) -> bool:
        if self.argument is None or self.argument not in call.arguments:
            return False
        value = call.arguments[self.argument]
        text = value if isinstance(value, str) else canonical_json(value)
        return _wildcard(self.pattern or "").fullmatch(text) is not None


@lru_cache(maxsize=1024)
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
    if argument := _ARGUMENT.fullmatch(specifier):
        return Rule(text, name, argument[1], argument[2])
    try:
        PathPattern(specifier)
    except ValueError as error:
        raise ValueError(f"the rule {text!r} cannot be used: {error}") from error
    return Rule(text, name, None, specifier)


def rule_for(tool: str, paths: tuple[str, ...] | None) -> list[str]:
    """Write the rules that allow a call like this one again: for its very paths, or for the tool when it has none.

    Args:
        tool: The call name.
        paths: What the call touches, as in `Call`.
    """
    if paths is None:
        return [tool]
    normal = [normal_path(path) for path in paths]
    escaped = [escape_pattern(path) for path in dict.fromkeys(normal) if path is not None]
    return [f"{tool}({'./' if _ARGUMENT.fullmatch(path) or path.isspace() else ''}{path})" for path in escaped]


@lru_cache(maxsize=1024)
def _wildcard(pattern: str) -> re.Pattern[str]:
    """Translate a pattern over any text: `*` stands for anything, also for `/` and for nothing."""
    pieces = [re.escape(piece) for piece in pattern.split("*")]
    source = pieces[0]
    for piece in pieces[1:-1]:
        source += f"(?>.*?{piece})" if piece else ""
    if len(pieces) > 1:
        source += f".*{pieces[-1]}"
    return re.compile(source, re.DOTALL)
