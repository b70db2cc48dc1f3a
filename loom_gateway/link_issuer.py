"""Links that a worker puts into the messages of webhooks; the gateway takes them like those that it made itself."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from loom_client.settings import Settings
from loom_dsl.approvals.policy import is_among
from loom_dsl.errors import ConfigurationError
from loom_dsl.permissions.roles import Roles, may_decide
from loom_gateway.links import signed_links
from loom_gateway.server import key_of, roles_of

LINK_SECONDS = 24 * 3600.0
"""How long such a link counts: a message may be tried for hours, and read on the next day."""


def link_maker(
    settings: Settings, environment: Mapping[str, str]
) -> Callable[[Mapping[str, Any], str], dict[str, str]]:
    """Give what makes links for a person who may decide; others get none.

    Args:
        settings: The gateway's key and address.
        environment: Names the deployment's policy.

    Raises:
        ConfigurationError: The key or the address of the gateway is missing, or the deployment has no roles.
    """
    key, url = key_of(settings), settings.gateway_url.rstrip("/")
    if not key or not url:
        missing = "LOOM_GATEWAY_URL" if key else "LOOM_GATEWAY_KEY"
        raise ConfigurationError(f"the webhooks' `links` need the gateway: set {missing}, as the gateway has it")
    roles = roles_of(environment, "the webhooks' `links` need")

    def make(row: Mapping[str, Any], person: str) -> dict[str, str]:
        if row["details"].get("signed") or not _may(roles, row, person):  # a link signs nothing
            return {}
        return signed_links(key, url, row, person, time.time() + LINK_SECONDS)

    return make


def _may(roles: Roles, row: Mapping[str, Any], person: str) -> bool:
    named = row["policy"].get("approvers")
    asked = [*named, *(who for step in row["policy"].get("escalate", ()) for who in step["to"])] if named else []
    return may_decide(roles, person, str(row["details"].get("risk", ""))) and (not asked or is_among(person, asked))
