"""The policy files of a deployment and of a project: where they are, and what they say."""

from collections.abc import Mapping
from pathlib import Path

from loom_dsl.errors import ConfigurationError, DocumentError, LoomError, PermissionDenied, ToolError
from loom_dsl.permissions.deployment import PROJECT_POLICY, Policy, read_policy
from loom_tools.workspace.workspace import Workspace

POLICY_VARIABLE = "LOOM_POLICY"
"""Names the deployment's policy file, in the worker's environment."""
MAX_POLICY = 256 * 1024


def deployment_policy(environment: Mapping[str, str], named: str = POLICY_VARIABLE) -> Policy | None:
    """Read the deployment's policy.

    Args:
        environment: Says where it is.
        named: How its operator named it: a flag or a variable.

    Raises:
        ConfigurationError: There is no such file, or it is not a policy: a worker must not work without it.
    """
    name = environment.get(POLICY_VARIABLE, "").strip()
    if not name:
        return None
    try:
        return read_policy(Path(name).expanduser().read_bytes(), name)[0]
    except OSError as error:
        raise ConfigurationError(f"the policy {name} ({named}) cannot be read: {error.strerror}") from None
    except DocumentError as error:
        raise ConfigurationError(f"the policy {name} ({named}) cannot be used: {error.message}") from None


def project_policy(workdir: Path) -> Policy | None:
    """Read the policy of the project in a working directory.

    Raises:
        PermissionDenied: There is one that cannot be used, so that nothing may run.
    """
    text = project_text(workdir)
    return None if text is None else read_policy_file(text)


def project_text(workdir: Path) -> bytes | None:
    """Give the text of a project's policy file; None: it has none."""
    with Workspace(workdir) as workspace:
        try:
            if not workspace.exists(PROJECT_POLICY):
                return None
            with workspace.open_read(PROJECT_POLICY) as file:
                return file.read(MAX_POLICY)
        except (ToolError, OSError) as error:
            raise unusable(error) from None


def read_policy_file(text: bytes) -> Policy:
    """Read a policy's document."""
    try:
        return read_policy(text, PROJECT_POLICY)[0]
    except DocumentError as error:
        raise unusable(error) from None


def unusable(error: Exception) -> PermissionDenied:
    """Make the refusal of everything, for a policy that cannot be used."""
    what = error.message if isinstance(error, LoomError) else str(error)
    return PermissionDenied(f"the project's policy cannot be used, so nothing may run: {what}")
