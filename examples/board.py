"""A tool whose effect must happen once: it posts a note, and then waits for a slow receipt.

The board is the file ``.loom/board.txt`` below the working directory. A worker may be killed between posting and the
receipt. Then the next worker asks `find_note` whether the note is there, and posts it only if it is not.
"""

import time
from pathlib import Path

from loom_dsl import Arguments, Reconciliation, ToolContext, tool

RECEIPT_SECONDS = 4.0


def board(working_dir: Path) -> Path:
    """Where the notes are."""
    return working_dir / ".loom" / "board.txt"


def find_note(arguments: Arguments, context: ToolContext) -> Reconciliation:
    """Whether this very call has posted its note."""
    file = board(context.working_dir)
    notes = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    if any(note.startswith(f"{context.idempotency_key} ") for note in notes):
        return Reconciliation(outcome="happened", result="posted; found on the board after a worker was lost")
    return Reconciliation(outcome="not_happened")


@tool(reconcile=find_note, timeout=60, summarise=lambda arguments: f"post {arguments.get('text')!r}")
def post_note(text: str, context: ToolContext) -> str:
    """Post a note on the team's board. Posted is posted: twice would be two notes.

    Args:
        text: What the note says, in one line.
    """
    file = board(context.working_dir)
    file.parent.mkdir(exist_ok=True)
    with file.open("a", encoding="utf-8") as notes:
        notes.write(f"{context.idempotency_key} {' '.join(text.split())}\n")
    context.progress(f"posted; the receipt takes {RECEIPT_SECONDS:.0f} s")
    end = time.monotonic() + RECEIPT_SECONDS
    while time.monotonic() < end and not context.cancelled():
        time.sleep(0.05)
    return "posted, and the receipt has come"
