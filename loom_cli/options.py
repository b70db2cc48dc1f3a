"""Options that several commands share, and the settings that follow from them."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from loom_client.user import user_name

if TYPE_CHECKING:
    from loom_client.settings import Settings


Address = Annotated[str | None, typer.Option(help="Temporal server, HOST:PORT (LOOM_ADDRESS).", metavar="HOST:PORT")]
Namespace = Annotated[str | None, typer.Option(help="Temporal namespace (LOOM_NAMESPACE).", metavar="NAME")]
TaskQueue = Annotated[str | None, typer.Option(help="Queue that workers serve (LOOM_TASK_QUEUE).", metavar="NAME")]
StorePath = Annotated[
    str | None, typer.Option("--store", help="The store's file, or postgresql://… (LOOM_STORE).", metavar="PLACE")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
By = Annotated[str, typer.Option(help="Who decides; your user name by default.", metavar="NAME")]
Sign = Annotated[
    Path | None,
    typer.Option(
        "--sign",
        help="Sign with this private key of `loom key` (LOOM_SIGNING_KEY).",
        metavar="KEYFILE",
        envvar="LOOM_SIGNING_KEY",
    ),
]
Keys = Annotated[
    Path | None,
    typer.Option(
        "--approver-keys",
        help="Public keys of those who sign decisions (LOOM_APPROVER_KEYS).",
        metavar="FILE",
        envvar="LOOM_APPROVER_KEYS",
    ),
]
Tools = Annotated[
    list[str] | None, typer.Option(help="Python module with your own tools; may be repeated.", metavar="MODULE")
]
Values = Annotated[
    list[str] | None,
    typer.Option("--input", help="A value of a graph's input; may be repeated.", metavar="NAME=VALUE"),
]
InputFile = Annotated[Path | None, typer.Option(help="File with a graph's input, as YAML or JSON.", metavar="FILE")]
Workdir = Annotated[Path | None, typer.Option(help="Directory that file tools are confined to.")]
States = Annotated[bool, typer.Option("--states", help="Show every change of state.")]
Mode = Annotated[
    Literal["plan", "default", "accept_edits", "dont_ask"] | None,
    typer.Option(help="In place of the file's mode: plan only reads, dont_ask refuses what would ask."),
]
JobName = Annotated[str, typer.Argument(help="The job's id.", metavar="JOB")]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """What the options of a command say of where the server and the store are; None: nothing.

    Attributes:
        address: The Temporal server.
        namespace: Its namespace.
        task_queue: The queue that workers serve.
        store: The store's file.
    """

    address: str | None = None
    namespace: str | None = None
    task_queue: str | None = None
    store: str | None = None

    def settings(self) -> "Settings":
        """Give the settings: these first, then the environment, then the defaults.

        Raises:
            ConfigurationError: A variable of the environment is not what it should be.
        """
        from loom_client.settings import Settings
        from loom_store.server.settings import read_settings

        return read_settings(Settings, **asdict(self))


_CONNECTION = {"address": Address, "namespace": Namespace, "task_queue": TaskQueue, "store": StorePath}


def connection_options(*names: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a command the options that say where the server and the store are; it takes them as `connection`.

    Args:
        names: Which of them; without any, all. They stand in the command's help where it has `connection`.
    """
    options = {name: _CONNECTION[name] for name in names or _CONNECTION}

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(command)
        def run(*args: Any, **given: Any) -> R:
            said = {name: given.pop(name) for name in options if name in given}
            return command(*args, connection=ConnectionOptions(**said), **given)

        kind, parameters = inspect.Parameter.KEYWORD_ONLY, []
        for name, parameter in inspect.signature(command).parameters.items():
            if name == "connection":
                parameters += [inspect.Parameter(one, kind, default=None, annotation=options[one]) for one in options]
            else:
                parameters.append(parameter.replace(kind=kind))
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        own = {name: option for name, option in command.__annotations__.items() if name != "connection"}
        run.__annotations__ = {**own, **options}
        return run

    return decorate


def named_by(flag: str, file: Path | None, environment: Mapping[str, str] = os.environ) -> str:
    """Give how a file was named, so that messages say where to correct it: the flag, or the variable beside it.

    Args:
        flag: The option, which has a variable of the same name, such as ``--webhooks``.
        file: Its value.
        environment: The variables; by default those of this process.
    """
    variable = f"LOOM_{flag.removeprefix('--').replace('-', '_').upper()}"
    given = environment.get(variable)
    return variable if given and Path(given) == file else flag


def who(by: str, sign: Path | None) -> dict[str, Any]:
    """Give the fields that say who decides: the person of the key, or of the option, or the user.

    Raises:
        UserError: The key is none, or somebody else's.
    """
    from loom_client.signing import SigningKey
    from loom_dsl.errors import UserError

    if sign is None:
        return {"by": by or user_name()}
    key = SigningKey.load(sign)
    if by not in ("", key.by):
        raise UserError(f"--by {by}: the key {sign} is that of {key.by}")
    return {"by": key.by, "sign": key}


def new_names(given: list[str] | None) -> dict[str, str]:
    """Read what `--map` says.

    Raises:
        UserError: One of them is not OLD=NEW.
    """
    return dict(_renamed(one) for one in given or ())


def _renamed(given: str) -> tuple[str, str]:
    from loom_dsl.errors import UserError

    old, separator, new = given.partition("=")
    if not separator or not old.strip() or not new.strip():
        raise UserError(f"--map {given!r}: write the old node, =, and the new one, such as ask=approve")
    return old.strip(), new.strip()
