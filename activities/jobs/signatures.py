"""Verifies signed decisions, where the public keys are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from temporalio import activity

from activities.observe.events import received_at
from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobStore
from loom_dsl.approvals.decision import Decision
from loom_dsl.approvals.signature import TOO_LATE, VERIFIED, mark_of
from loom_dsl.errors import ConfigurationError
from loom_dsl.text.canonical import canonical_json, digest
from loom_tools.approver_keys import KEYS_VARIABLE, NO_LIBRARY, ApproverKeys, Verdict, has_library, judged
from loom_tools.policy_files import deployment_policy

_CANNOT = "this worker cannot verify signatures: "


class Signed:
    """The activity ``loom.approval.verify``."""

    def __init__(self, jobs: JobStore, keys: ApproverKeys | None) -> None:
        self._jobs, self._keys = jobs, keys

    @activity.defn(name="loom.approval.verify")
    async def verify(self, envelope: dict[str, Any]) -> dict[str, str]:
        """Say whether a decision's signature holds, and keep it in mind. What cannot be found out does not hold.

        Raises:
            WrongStore: The job is not one of this worker's; another one has its keys.
        """
        call = ActivityCall.of(envelope)
        await self._jobs.conversation(call.job)
        came = call.arguments["came"]
        verdict, why = self._judged(call, came)
        name = call.arguments["signal"]
        if verdict in TOO_LATE and name:
            # The workflow saw it only now; perhaps no worker was up when it came.
            sent = await received_at(call.job, name, digest(canonical_json(call.arguments["decision"])))
            if sent is not None:
                verdict, why = self._judged(call, min(sent, came))
        if verdict == VERIFIED:
            held = mark_of(Decision.model_validate(call.arguments["decision"]))
            await self._jobs.store.write(lambda tx: tx.mark(call.job, "signed", held))
        return {"verdict": verdict, "message": why}

    def _judged(self, call: ActivityCall, moment: float) -> Verdict:
        keys, given = self._keys, call.arguments
        if keys is None:
            return "unverifiable", f"{_CANNOT}it was started without `--approver-keys`"
        if not has_library():
            return "unverifiable", _CANNOT + NO_LIBRARY
        try:
            known = keys.read()
        except ConfigurationError as error:
            activity.logger.error("%s", error.message)
            return "unverifiable", f"{_CANNOT}its file of approver keys cannot be used; its log says why"
        decision = Decision.model_validate(given["decision"])
        return judged(known, decision, job=call.job, tool=given["tool"], requester=given["requester"], moment=moment)


def keys_of(path: Path | None, environment: Mapping[str, str], named: str = KEYS_VARIABLE) -> ApproverKeys | None:
    """Give a worker's keys, which are read once to see whether they can be.

    Args:
        path: Their file.
        environment: Says where the deployment's policy is.
        named: How the file was named: a flag or a variable.

    Raises:
        ConfigurationError: They cannot, the library is missing, or there are none and the deployment's policy wants
            signatures.
    """
    if path is None:
        policy = deployment_policy(environment)
        if policy is not None and policy.signed is not None:
            raise ConfigurationError(
                f"the deployment's policy says `signed`, so this worker needs the approvers' public keys: "
                f"`loom worker --approver-keys FILE` or {KEYS_VARIABLE}"
            )
        return None
    if not has_library():
        raise ConfigurationError(NO_LIBRARY)
    keys = ApproverKeys(path.expanduser().absolute(), named)
    keys.read()
    return keys
