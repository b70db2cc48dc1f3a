"""What `temporal-dev.yml` says about the development server: ports, database, dynamic configuration."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Self

from loom_dsl.documents.document import load_yaml
from loom_dsl.errors import ConfigurationError

DEV_FILE = "temporal-dev.yml"
_COMMAND = ["server", "start-dev"]
_DYNAMIC_CONFIG = "--dynamic-config-value="


def dev_file_text() -> tuple[str, str]:
    """Text and name of the dev file that belongs to this installation, wherever it is called from.

    Raises:
        ConfigurationError: The installation is damaged.
    """
    packaged = resources.files("loom_cli") / DEV_FILE
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8"), str(packaged)
    # An editable install has no copy in the package: the file lies beside it.
    checkout = Path(__file__).resolve().parents[2] / DEV_FILE
    if checkout.is_file():
        return checkout.read_text(encoding="utf-8"), str(checkout)
    raise ConfigurationError(f"{DEV_FILE} is missing from the installation of Loom. Install it again.")


@dataclass(frozen=True, kw_only=True)
class DevServerSettings:
    """The command of the service `temporal` in the dev file.

    Attributes:
        port: The gRPC port, for workers and clients.
        http_port: The port of the HTTP API.
        ui_port: The port of Temporal's web console.
        dynamic_config: Settings of the server, each `KEY=VALUE` with a JSON value.
        other: Its other arguments, as they are written.
    """

    port: int
    http_port: int
    ui_port: int
    dynamic_config: tuple[str, ...]
    other: tuple[str, ...]

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """Read a dev file.

        Args:
            path: The file; the one that belongs to this installation by default.

        Raises:
            DocumentError: It is not YAML.
            ConfigurationError: It cannot be read, or its `temporal` service is not what Loom can run.
        """
        if path is None:
            text, name = dev_file_text()
        else:
            try:
                text, name = path.read_text(encoding="utf-8"), str(path)
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"{path} cannot be read: {error}") from error
        return cls._from_data(load_yaml(text, name).data, name)

    @classmethod
    def _from_data(cls, data: Any, name: str) -> Self:
        try:
            command = [str(item) for item in data["services"]["temporal"]["command"]]
        except (KeyError, TypeError):
            raise ConfigurationError(f"{name}: services.temporal.command must be a list of arguments.") from None
        if command[:2] != _COMMAND:
            raise ConfigurationError(f"{name}: services.temporal.command must begin with `server`, `start-dev`.")
        arguments = command[2:]
        for argument in arguments:
            if not argument.startswith("--") or "=" not in argument:
                raise ConfigurationError(f"{name}: services.temporal.command: write `{argument}` as `--name=value`.")
        return cls(
            port=_port(arguments, "--port", name),
            http_port=_port(arguments, "--http-port", name),
            ui_port=_port(arguments, "--ui-port", name),
            dynamic_config=tuple(a.removeprefix(_DYNAMIC_CONFIG) for a in arguments if a.startswith(_DYNAMIC_CONFIG)),
            other=tuple(a for a in arguments if not a.startswith(_DYNAMIC_CONFIG)),
        )

    def arguments(self, *appended: str, stock: bool = False) -> list[str]:
        """Arguments of the Temporal CLI.

        Args:
            appended: Arguments that come last, and so win over the file's.
            stock: Leave the dynamic configuration out, to see how a server behaves that nobody tuned.
        """
        tuned = [] if stock else [_DYNAMIC_CONFIG + setting for setting in self.dynamic_config]
        return [*_COMMAND, *self.other, *tuned, *appended]


def _port(arguments: Sequence[str], flag: str, name: str) -> int:
    values = [argument.partition("=")[2] for argument in arguments if argument.startswith(f"{flag}=")]
    if not values or not values[-1].isdigit() or not 0 < int(values[-1]) < 65536:
        raise ConfigurationError(f"{name}: services.temporal.command needs `{flag}=` with a port from 1 to 65535.")
    return int(values[-1])
