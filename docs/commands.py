"""The reference of the command line, read from the commands themselves."""

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from loom_cli.app import build

SHARED = ("address", "namespace", "task_queue", "store")
"""Options that say where everything is. They are described once."""


def commands() -> str:
    """Describe every command: how it is called, what it does, its options."""
    group: Any = typer.main.get_command(build())
    return "\n\n".join(_command(name, command) for name, command in _all(group))


def _all(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Give every command by its name, those of a group under theirs."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _all(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _command(name: str, command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and param.name not in SHARED]
    usage = " ".join(["loom", name, *(_shown(argument) for argument in arguments)])
    about = inspect.cleandoc(command.help or "").split("\n\n")[0].replace("\n", " ")
    lines = [f"### `loom {name}`", "", f"`{usage}`: {about[:1].lower()}{about[1:]}"]
    listed = [*_rows(arguments), *_rows(options)]
    if listed:
        lines += ["", "| | |", "|---|---|", *listed]
    return "\n".join(lines)


def _shown(argument: Any) -> str:
    text = str(argument.metavar or argument.name.upper())
    return text if argument.required or text.startswith("[") else f"[{text}]"


def _rows(params: list[Any]) -> Iterator[str]:
    for param in params:
        named = ", ".join([*param.opts, *param.secondary_opts]) if param.param_type_name == "option" else _shown(param)
        takes = param.param_type_name == "option" and not param.is_flag and not param.count
        value = f" {param.metavar or param.opts[-1].strip('-').upper()}" if takes else ""
        plain = isinstance(param.default, str | int | float) and not isinstance(param.default, bool)
        default = f" Default: `{param.default}`." if plain and param.default != "" and takes else ""
        shown = f"{named}{value}".replace("|", "\\|")
        yield f"| `{shown}` | {(param.help or '').strip()}{default} |"
