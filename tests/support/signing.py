"""Keys for tests, and the workers' file of their public halves."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loom_client.signing import SigningKey
from loom_dsl.approvals.decision import Decision
from loom_dsl.approvals.signature import ApproverKey
from loom_dsl.machine.commands import RunActivity
from loom_tools.approver_keys import judged


def key_of(by: str, number: int = 0) -> SigningKey:
    """A person's key, always the same one of a number."""
    return SigningKey(by, bytes([number]) * 16 + by.encode().ljust(16, b".")[:16])


def public_key(key: SigningKey, **fields: Any) -> ApproverKey:
    """The public half, as the workers have it."""
    return ApproverKey.model_validate({**json.loads(key.entry()), **fields})


def write_keys(path: Path, *keys: ApproverKey) -> None:
    """Write the workers' file."""
    lines = [key.model_dump_json(exclude_defaults=True) for key in keys]
    path.write_text("".join(line + "\n" for line in lines))
    path.chmod(0o644)


def verifier(keys: Mapping[str, ApproverKey], job: str) -> Any:
    """What the activity does, in memory: the signatures are real."""

    def verify(command: RunActivity) -> dict[str, str]:
        given = command.arguments
        decision = Decision.model_validate(given["decision"])
        verdict, why = judged(
            keys, decision, job=job, tool=given["tool"], requester=given["requester"], moment=given["came"]
        )
        return {"verdict": verdict, "message": why}

    return verify
