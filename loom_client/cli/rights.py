"""Who sits here may do what, where the environment names the deployment's policy and it has roles.

The names are what people say of themselves, so this keeps from mistakes; the gateway's tokens keep out others.
"""

import os
from typing import TYPE_CHECKING

from loom_client.user import user_name

if TYPE_CHECKING:
    from loom_dsl.roles import Right, Roles


def check_start(what: str) -> None:
    """Refuse to start a job of this agent or graph for whom no role allows it.

    Raises:
        UserError: None does.
    """
    from loom_dsl.errors import UserError
    from loom_dsl.roles import may_start

    roles, by = _roles(), user_name()
    if roles and not may_start(roles, by, what):
        raise UserError(f"{by} has no role that starts {what}; the deployment's policy (LOOM_POLICY) says who")


def check_right(by: str, right: "Right") -> None:
    """Refuse what no role allows a person.

    Raises:
        UserError: None does.
    """
    from loom_dsl.errors import UserError
    from loom_dsl.roles import may

    roles = _roles()
    if roles and not may(roles, by, right):
        raise UserError(f"{by} has no role with `{right}: true`; the deployment's policy (LOOM_POLICY) says who may")


def _roles() -> "Roles":
    if not os.environ.get("LOOM_POLICY", "").strip():
        return {}
    from activities.policy_layers import deployment_policy

    policy = deployment_policy(os.environ)
    return policy.roles if policy else {}
