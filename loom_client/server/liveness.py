"""Which jobs only the server can tell of. Apart from what asks it: most lists need no server, and are quick."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

STARTING_SECONDS = 60.0
"""How long a job that is written down may take to appear on the server."""
LOST = "lost"
"""Status of a job that the server does not know any more, though the store does not know of its end."""


def in_doubt(row: Mapping[str, Any]) -> bool:
    """Whether the store has a job as running for longer than its start takes, or as lost."""
    return row["status"] == LOST or (row["ended_at"] is None and not is_starting(row))


def is_starting(row: Mapping[str, Any]) -> bool:
    """Whether a job was written down just now, so that the server may not know it yet."""
    return time.time() - datetime.fromisoformat(row["created_at"]).timestamp() < STARTING_SECONDS
