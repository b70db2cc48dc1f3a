"""Options that several commands share, and the settings that follow from them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from loom_client.settings import Settings

Address = Annotated[str | None, typer.Option(help="Temporal server, HOST:PORT (LOOM_ADDRESS).", metavar="HOST:PORT")]
Namespace = Annotated[str | None, typer.Option(help="Temporal namespace (LOOM_NAMESPACE).", metavar="NAME")]
TaskQueue = Annotated[str | None, typer.Option(help="Queue that workers serve (LOOM_TASK_QUEUE).", metavar="NAME")]
StorePath = Annotated[str | None, typer.Option("--store", help="The store's file (LOOM_STORE).", metavar="FILE")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
By = Annotated[str, typer.Option(help="Who decides; your user name by default.", metavar="NAME")]
Tools = Annotated[
    list[str] | None, typer.Option(help="Python module with your own tools; may be repeated.", metavar="MODULE")
]
JobName = Annotated[str, typer.Argument(help="The job's id.", metavar="JOB")]


def settings_of(
    address: str | None = None,
    namespace: str | None = None,
    task_queue: str | None = None,
    store: str | None = None,
) -> "Settings":
    """Give the settings: flags first, then the environment, then the defaults.

    Raises:
        ConfigurationError: A variable of the environment is not what it should be.
    """
    from pydantic import ValidationError

    from loom_client.settings import Settings
    from loom_dsl.errors import ConfigurationError

    given = {"address": address, "namespace": namespace, "task_queue": task_queue, "store": store}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        settings = Settings().model_copy(update=chosen)
    except ValidationError as error:
        names = ", ".join(f"LOOM_{str(found['loc'][0]).upper()}" for found in error.errors())
        raise ConfigurationError(f"the environment's {names} cannot be used: {error.errors()[0]['msg']}") from None
    host, colon, port = settings.address.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 65_536):
        raise ConfigurationError(f"{settings.address!r} is not an address; write HOST:PORT, such as 127.0.0.1:7233")
    return settings


def user_name() -> str:
    """Give the name of who runs the command."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        return "somebody"
