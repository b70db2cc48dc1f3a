"""Tools and hooks that kill their own worker at a point of the stage `execute`, each point once.

The file `kill` of the job's directory names the points, a line each, in the order in which they are reached. Effects
are written to a file that Loom knows nothing of (`tests.support.external.LEDGER`).
"""

import os
import signal
from pathlib import Path
from typing import Any

from pydantic import BaseModel, model_serializer

from loom_dsl.tools.context import Reconciliation, ToolContext
from loom_dsl.tools.hooks import HookAnswer, HookCall
from loom_dsl.tools.tool import tool
from tests.support.external import LEDGER, lines

KILL = "kill"


def reached(folder: Path, point: str) -> None:
    """End this process as SIGKILL does, if this is the next point at which it is to end."""
    left = lines(folder, KILL)
    if left[:1] == [point]:
        (folder / KILL).write_text("".join(f"{line}\n" for line in left[1:]))
        os.kill(os.getpid(), signal.SIGKILL)


class Receipt(BaseModel):
    """What a tool returns: written down after the tool has returned, and before that is settled."""

    folder: Path
    text: str

    @model_serializer
    def written(self) -> dict[str, str]:
        """Give it as JSON."""
        reached(self.folder, "before it is settled")
        return {"done": self.text}


def before(call: HookCall) -> HookAnswer | None:
    """Stand before the stage, so before the intent."""
    reached(call.working_dir, "before the intent")
    return None


def after(call: HookCall) -> HookAnswer | None:
    """Stand after the stage, where the effect is settled and the server knows nothing of it."""
    reached(call.working_dir, "after it is settled")
    return None


def _act(text: str, context: ToolContext) -> Receipt:
    reached(context.working_dir, "before the effect")
    with (context.working_dir / LEDGER).open("a") as ledger:
        ledger.write(f"{context.idempotency_key} {text}\n")
    reached(context.working_dir, "after the effect")
    return Receipt(folder=context.working_dir, text=text)


def _is_done(context: ToolContext) -> bool:
    return any(line.startswith(f"{context.idempotency_key} ") for line in lines(context.working_dir))


def _find(arguments: dict[str, Any], context: ToolContext) -> Reconciliation:
    reached(context.working_dir, "while it is reconciled")
    happened = _is_done(context)
    return Reconciliation(outcome="happened" if happened else "not_happened", result={"done": arguments["text"]})


@tool
def send(text: str, context: ToolContext) -> Receipt:
    """Send a letter: twice would be two letters."""
    return _act(text, context)


@tool(reconcile=_find)
def register(text: str, context: ToolContext) -> Receipt:
    """Register something at an office that can be asked afterwards."""
    return _act(text, context)


@tool(idempotent=True)
def put(text: str, context: ToolContext) -> Receipt:
    """Put a text where the key says whether it is there already."""
    return Receipt(folder=context.working_dir, text=text) if _is_done(context) else _act(text, context)
