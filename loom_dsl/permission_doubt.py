"""What a rule that denies or asks cannot judge, so that a person must."""

import re
from collections.abc import Sequence
from typing import Any

from loom_dsl.command_tables import base_name
from loom_dsl.path_shapes import is_open, may_mean
from loom_dsl.permission_rules import COMMAND_TOOLS, Call, Rule, parse_rule
from loom_dsl.python_check import is_harmless

_STEERING = re.compile(
    r"agents\.md|claude\.md|gemini\.md|(?:gnu|bsd)?makefile|.*\.mk|justfile|taskfile\.ya?ml|rakefile|jenkinsfile"
    r"|(?:docker|container)file.*|.*\.dockerfile|(?:docker-)?compose.*\.ya?ml|package\.json|setup\.(?:py|cfg)|pyproject\.toml"
    r"|conftest\.py|sitecustomize\.py|usercustomize\.py|tox\.ini|noxfile\.py|build\.rs|cmakelists\.txt|crontab"
    r"|.*\.(?:code-workspace|service|timer|desktop|pth)"
)
"""Names, in lower case, of files that others run, or that tell agents what to do."""
_READING_PATHS = frozenset({"xargs", "parallel", "cpio", "pax"})
"""Programs that are given paths by what they read."""


def doubt_of(rules: Sequence[str], call: Call) -> tuple[Rule, str] | None:
    """Find the first rule that denies or asks something and cannot be judged for a call, with the reason.

    Args:
        rules: Those that deny or ask. None of them surely means the call.
        call: The call.
    """
    for rule in map(parse_rule, rules):
        if rule.pattern is not None and (reason := _doubt(rule, call)):
            return rule, reason
    return None


def steers(path: str) -> bool:
    """Say whether a file is one that others run, or that tells later agents and tools what to do.

    Those are hidden files too (`.github/workflows/ci.yml`, `.envrc`), but for lists of what to ignore.
    """
    *above, name = path.lower().split("/")
    if any(part.startswith(".") and part not in (".", "..") for part in above):
        return True
    return (name.startswith(".") and not name.endswith("ignore")) or _STEERING.fullmatch(name) is not None


def _doubt(rule: Rule, call: Call) -> str:
    about_paths = rule.tool == "*" and rule.argument is None and rule.domain is None
    if call.names[0] == "python_repl" and "code" in call.arguments:
        judged = about_paths or rule.tool in COMMAND_TOOLS
        return "code of Python may do what it is about" if judged and not _is_harmless(call.arguments["code"]) else ""
    if call.command is None or not call.command_argument:
        return ""
    if (about_paths or (rule.names(call) and rule.about_command(call))) and call.command.hides:
        return call.command.hides
    if about_paths and any(is_open(shape) and may_mean(rule.pattern or "", shape) for shape in call.mentions):
        return "it may touch all that is in the working directory"
    if about_paths and any(base_name(words[0] or "") in _READING_PATHS for words in call.command.commands if words):
        return "what it touches is told by what it reads"
    return ""


def _is_harmless(code: Any) -> bool:
    return isinstance(code, str) and is_harmless(code)
