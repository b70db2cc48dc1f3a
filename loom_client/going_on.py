"""How to go on with what a job did, when the job itself does not."""

from collections.abc import Mapping
from typing import Any

from loom_client.doubt import LOST
from loom_client.forking import finished_turns
from loom_client.graph_job import is_graph
from loom_dsl.errors import LoomError
from loom_store.transaction import Transaction


class JobLost(LoomError):
    """The server does not know the job any more: its database was lost, or is another one."""

    code = "job_lost"


def lost_line(tx: Transaction, row: Mapping[str, Any]) -> str:
    """Say in a line that a job was lost, and how to go on."""
    if is_graph(tx, row):
        return f"lost on the server, which does not know it any more; start its graph {row['agent']} anew"
    turn = finished_turns(tx, row["job"])
    return f"lost on the server, which does not know it any more; `loom fork {row['job']} --turn {turn}` goes on"


def check_known(tx: Transaction, job: str) -> None:
    """Refuse to wait for a job that was lost.

    Raises:
        JobLost: It was; says how to go on.
    """
    row = tx.job(job)
    if row is not None and row["status"] == LOST:
        raise JobLost(f"job {job} is {lost_line(tx, row)}")
