"""Arguments that an approver has edited, held against the tool's schema before they are sent.

The worker keeps the schema with the request, so whoever decides needs none of its tools. It is a service to people:
what the job takes is validated by the worker again, which knows more than a schema says.
"""

import json
from collections.abc import Mapping
from typing import Any

from loom_dsl.abridgement import abridge
from loom_dsl.canonical import canonical_json
from loom_dsl.errors import BlobMissing, DecisionRefused
from loom_dsl.tool_arguments import misfits
from loom_store.store import Store
from loom_store.transaction import Transaction

MOST_SHOWN = 5


def problem_with(schema: str, arguments: Mapping[str, Any]) -> str:
    """Say what does not fit, or nothing; nothing also where it cannot be told.

    Args:
        schema: The tool's JSON schema as text; empty where none is known.
        arguments: What somebody has written in place of the tool's arguments.
    """
    if not schema:
        return ""
    try:
        found = misfits(json.loads(schema), json.loads(canonical_json(dict(arguments))))
    except (ValueError, TypeError, RecursionError):  # no JSON: the job says so
        return ""
    return abridge(found, MOST_SHOWN, between="; ", rest="; and ")


async def check_edit(store: Store, approval: str, arguments: Mapping[str, Any]) -> None:
    """Hold edited arguments against the schema of the tool that is asked about, if the store has it.

    Raises:
        DecisionRefused: They do not fit; says at which argument. Nothing was sent, so the question stays open.
    """
    tool, schema = await store.read(lambda tx: _asked(tx, approval))
    if problem := problem_with(schema, arguments):
        raise DecisionRefused(f"the arguments do not fit the tool {tool}, and nothing was decided: {problem}")


def _asked(tx: Transaction, approval: str) -> tuple[str, str]:
    row = tx.approval(approval)
    if row is None or row["status"] != "pending" or not row["details"].get("schema"):
        return "", ""
    try:
        return row["tool"], tx.get_blob(row["details"]["schema"]).decode()
    except BlobMissing:
        return "", ""
