"""The deployment's policy: whether it can be used, and what its roles are worth."""

from collections.abc import Iterator, Mapping

from loom_client.doctor.check import Check, Status

_HOW = "docs/howto/approvals.md#signed-decisions"


def policy(env: Mapping[str, str]) -> Iterator[Check]:
    """Look at the policy that the environment names; else say nothing."""
    from activities.policy_layers import POLICY_VARIABLE, deployment_policy
    from loom_dsl.errors import ConfigurationError
    from loom_dsl.risk import Risk

    try:
        found = deployment_policy(env)
    except ConfigurationError as error:
        yield Check(Status.FAIL, "policy", error.message, f"correct it, or unset {POLICY_VARIABLE}")
        return
    if found is None:
        return
    what = f"policy {env[POLICY_VARIABLE].strip()}"
    if not found.roles or found.signed is Risk.LOW:
        yield Check(Status.OK, what, "it can be used")
        return
    below = f" below the risk {found.signed}" if found.signed else ""
    told = f"its roles go by the name that a sender gives: who reaches the Temporal server decides{below} as anybody"
    fix = (
        f"write `signed: low` and give workers the approvers' keys ({_HOW}), or let only workers and the gateway there"
    )
    yield Check(Status.WARN, what, told, fix)
