"""The secrets that a worker may lend to tools, and the hosts that each may be sent to."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from loom_dsl.errors import ConfigurationError, PermissionDenied
from loom_dsl.text.redaction import SHORTEST_KNOWN

_OPTION = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:@(?P<hosts>[^@\s]+))?")
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class AllowedSecret:
    """What `--secret NAME@HOST,…` says.

    Attributes:
        name: Of the environment variable.
        hosts: Where `network_request` may send it: a host, or host:port. None: nowhere; the user's own tools get it.
    """

    name: str
    hosts: tuple[str, ...] = ()


def parse_secret(text: str) -> AllowedSecret:
    """Read the value of an option `--secret`.

    Raises:
        ConfigurationError: It is not a name, perhaps with hosts.
    """
    found = _OPTION.fullmatch(text)
    hosts = tuple(found["hosts"].lower().split(",")) if found and found["hosts"] else ()
    if not found or not all(_HOST.fullmatch(host) for host in hosts):
        raise ConfigurationError(f"--secret {text}: write NAME, or NAME@HOST such as GITHUB_TOKEN@api.github.com")
    return AllowedSecret(found["name"], hosts)


@dataclass(frozen=True, slots=True)
class AllowedSecrets:
    """The secrets of a worker that tools may have, by name.

    Attributes:
        values: What they are.
        hosts: Where each may be sent.
    """

    values: Mapping[str, str]
    hosts: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, options: Iterable[str], environment: Mapping[str, str]) -> "AllowedSecrets":
        """Look the named variables up; one that is not set is left out.

        Raises:
            ConfigurationError: An option cannot be read, or a value is too short to be masked.
        """
        hosts: dict[str, tuple[str, ...]] = {}
        for secret in map(parse_secret, options):
            hosts[secret.name] = hosts.get(secret.name, ()) + secret.hosts
        values = {name: environment[name] for name in hosts if environment.get(name)}
        if short := [name for name, value in values.items() if len(value) < SHORTEST_KNOWN]:
            raise ConfigurationError(
                f"--secret {', '.join(short)}: a value of under {SHORTEST_KNOWN} characters cannot be masked, because "
                "it would occur by chance; give a longer one, or leave the option out"
            )
        return cls(values, hosts)

    def value(self, name: str, host: str | None = None) -> str:
        """Give a secret to a tool.

        Args:
            name: The secret's name.
            host: Where it is going to be sent, as host:port in lower case; None: nowhere, a tool of the user's asks.

        Raises:
            PermissionDenied: There is none of that name, or it may not be sent there.
        """
        if name not in self.values:
            known = ", ".join(sorted(self.values)) or "none"
            raise PermissionDenied(
                f"this worker lends no secret {name[:64]!r}; it lends: {known}. "
                "Who runs it can lend a variable of its environment: --secret NAME"
            )
        if host is not None and not {host, host.removesuffix(":443")} & set(self.hosts[name]):
            raise PermissionDenied(
                f"the secret {name} may not be sent to {host}; who runs the worker can allow it: --secret {name}@{host}"
            )
        return self.values[name]


NO_SECRETS = AllowedSecrets({}, {})
