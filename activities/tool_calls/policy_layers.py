"""The policies around an agent's: the deployment's file, the project's file, and the agent's own function."""

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from activities.record.activity_call import MAX_REMEMBERED, ActivityCall, Run, remember
from activities.record.job_store import JobFacts
from loom_dsl.errors import (
    LoomError,
    MissingTools,
    StepDied,
)
from loom_dsl.permissions.decide import PolicyLayer, Verdict
from loom_dsl.permissions.deployment import Policy
from loom_dsl.permissions.function import PermissionRequest, answer_of, denied_by_error, strictest
from loom_dsl.permissions.roles import Roles
from loom_dsl.permissions.traits import ToolTraits
from loom_dsl.text.canonical import digest
from loom_dsl.tools.risk import Risk, lowest
from loom_dsl.tools.tool import Arguments
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_tools.policy_files import (
    deployment_policy,
    project_policy,
    project_text,
    read_policy_file,
)
from loom_tools.registry import ToolRegistry
from loom_tools.running import ANSWER_SECONDS, ask, describe, run_function, runs_apart
from loom_tools.user_code import Code, Raised


class PolicyLayers:
    """What has a say about calls besides the agent's own rules."""

    def __init__(self, registry: ToolRegistry, environment: Mapping[str, str], most: int = MAX_REMEMBERED) -> None:
        self._most = most
        self._registry = registry
        self._deployment = deployment_policy(environment)
        self._learnt: OrderedDict[Run, Mapping[str, Policy]] = OrderedDict()
        """By run at the server: what the project's policy has said since the job began, by the digest of its text. Each
        run asks the store again, as another worker may have learnt more."""

    @property
    def trusted(self) -> Sequence[str]:
        """The tools whose results the deployment trusts."""
        return self._deployment.trust if self._deployment else []

    @property
    def roles(self) -> Roles:
        """The deployment's roles; none: anybody may decide."""
        return self._deployment.roles if self._deployment else {}

    def around(self, run: Run, workdir: Path) -> Sequence[PolicyLayer]:
        """Give the policies around an agent's, as they were learnt last.

        Raises:
            PermissionDenied: The project's policy cannot be used.
        """
        deployment = [self._deployment.layer(deployment=True)] if self._deployment else []
        return [*deployment, *(policy.layer(deployment=False) for policy in self._projects(run, workdir))]

    def signed(self, run: Run, workdir: Path) -> Risk | None:
        """Give the risk from which on approvals need a signature, as the policies around an agent's say it.

        Raises:
            PermissionDenied: The project's policy cannot be used.
        """
        deployment = self._deployment.signed if self._deployment else None
        return lowest([deployment, *(policy.signed for policy in self._projects(run, workdir))])

    async def learn(self, store: Store, call: ActivityCall, workdir: Path) -> None:
        """Read what the project's policy says now, and keep it for the job.

        What it said before goes on counting, whatever worker read it: what is changed while a job runs, by itself or
        by anybody, never widens what the job may do. The jobs below a job begin with what it knows.

        Raises:
            PermissionDenied: It cannot be used.
        """
        text = project_text(workdir)
        known = self._learnt.get(call.latest)
        if known is None:
            kept = await store.read(lambda tx: {name: tx.get_blob(name) for name in tx.marks(call.job, "policy")})
            known = {name: read_policy_file(old) for name, old in kept.items()}
        if text is not None and digest(text) not in known:
            found = read_policy_file(text)
            name = await store.write(lambda tx: _kept(tx, call.job, text))
            known = {**known, name: found}
        # Another call of the run may have learnt something else while this one waited for the store.
        remember(self._learnt, call.latest, {**self._learnt.pop(call.latest, {}), **known}, self._most)

    def _projects(self, run: Run, workdir: Path) -> tuple[Policy, ...]:
        if run in self._learnt:
            return tuple(self._learnt[run].values())
        found = project_policy(workdir)
        return () if found is None else (found,)

    async def answer(
        self, call: ActivityCall, facts: JobFacts, traits: ToolTraits, arguments: Arguments
    ) -> Verdict | None:
        """Ask the agent's own function, and those of the jobs above. The strictest counts; whatever goes wrong denies.

        Raises:
            MissingTools: This worker does not list its module; another one may.
        """
        permissions = facts.agent.permissions
        named = {policy.function for policy in (permissions, *permissions.within)} - {None}
        request = PermissionRequest.of(traits, arguments, agent=facts.agent.name, job=call.job)
        said = [await ask_function(self._registry, name, request) for name in sorted(filter(None, named))]
        return strictest(said)


def _kept(tx: Transaction, job: str, text: bytes) -> str:
    name = tx.put_blob(text)
    tx.mark(job, "policy", name)
    return name


async def ask_function(registry: ToolRegistry, reference: str, request: PermissionRequest) -> Verdict | None:
    """Ask a user's function about a call. Whatever goes wrong in it denies.

    Raises:
        MissingTools: Its module is not listed here.
    """
    try:
        given = await _asked(registry.function(reference), request, Code((reference,)).given(request))
    except (MissingTools, StepDied):
        raise
    except LoomError as error:
        return denied_by_error(reference, request.tool, f"is not there: {error.message}")
    except Raised as raised:
        return denied_by_error(reference, request.tool, f"failed: {describe(raised.error)}")
    except TimeoutError:
        return denied_by_error(reference, request.tool, "gave no answer in time")
    return answer_of(reference, request.tool, given)


async def _asked(function: Callable[..., Any], request: PermissionRequest, code: Code) -> object:
    if not inspect.iscoroutinefunction(function):
        return await ask(function, request, code=code)
    async with asyncio.timeout(None if runs_apart(code) else ANSWER_SECONDS):
        return await run_function(partial(function, request), {}, is_async=True, code=code, seconds=ANSWER_SECONDS)
