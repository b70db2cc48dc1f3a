"""How a job that failed goes on: the command that does, where it would help."""

from collections.abc import Mapping
from typing import Any

from loom_client.job import is_graph
from loom_client.server.liveness import LOST
from loom_client.start.forking import finished_turns, read_fork
from loom_client.start.graph_fork import why_not
from loom_dsl.errors import LoomError
from loom_dsl.graph.plan import Plan
from loom_dsl.text.abridgement import abridge
from loom_store.store import Store
from loom_store.transaction import Transaction

MAX_NAMED = 3
LIMITS = frozenset({
    "max_iterations", "max_tool_calls", "max_tool_rounds", "max_cost", "max_cost_usd", "max_run_duration",
    "limit_reached",
})  # fmt: skip
"""Codes of failures after which a fork has the same limit once more."""
HOPELESS = frozenset({"job_exists", "invalid_document", "graph_refused", "invalid_input"})
"""Codes of failures that have nothing to do with where the job stood."""


class JobLost(LoomError):
    """The server does not know the job any more: its database was lost, or is another one."""

    code = "job_lost"


def lost_line(tx: Transaction, row: Mapping[str, Any]) -> str:
    """Say in a line that a job was lost, and how to go on."""
    if is_graph(tx, row):
        return f"lost on the server, which does not know it any more; start its graph {row['agent']} anew"
    turn = finished_turns(tx, row)
    return f"lost on the server, which does not know it any more; `loom fork {row['job']} --turn {turn}` goes on"


def check_known(tx: Transaction, job: str) -> None:
    """Refuse to wait for a job that was lost.

    Raises:
        JobLost: It was; says how to go on.
    """
    row = tx.job(job)
    if row is not None and row["status"] == LOST:
        raise JobLost(f"job {job} is {lost_line(tx, row)}")


def how_to_go_on(tx: Transaction, row: Mapping[str, Any]) -> str:
    """Say by which command a failed job goes on, and what that does; empty where none would help.

    Args:
        tx: A transaction on the store.
        row: The job's row.
    """
    if row["status"] != "failed":
        return ""
    plan = Plan.load(tx.get_blob(row["plan"]).decode())
    code = ((row["result"] or {}).get("error") or {}).get("code", "")
    if code in HOPELESS:
        return ""
    try:
        return _of_agent(tx, row, code) if plan.agent else _of_graph(tx, row, plan)
    except LoomError:
        return ""  # a hint must not keep anybody from the end that it is told beside


async def going_on(store: Store, job: str) -> str:
    """Do as `how_to_go_on` for a job by its id; empty for one that the store does not know."""

    def look(tx: Transaction) -> str:
        row = tx.job(job)
        return how_to_go_on(tx, row) if row is not None else ""

    return await store.read(look)


def _of_agent(tx: Transaction, row: Mapping[str, Any], code: str) -> str:
    job = row["job"]
    turns = finished_turns(tx, row)
    if turns < 1:
        return ""
    fork = read_fork(tx, job, turns)
    if turns <= (fork.point.earlier.turn if fork.point.earlier else 0):
        return ""  # it finished no turn of its own: the job that it was forked from says more
    task = ' "WHAT TO DO NEXT"' if fork.finished else ""
    more = f", with a limit of its own ({code}) as large as this one's was" if code in LIMITS else ""
    return f"`loom fork {job}{task} --turn {turns}` goes on from its last finished turn{more}"


def _of_graph(tx: Transaction, row: Mapping[str, Any], plan: Plan) -> str:
    problem, again = why_not(tx, row, plan)
    if problem:
        return ""
    named = abridge(again, MAX_NAMED, "`{}`".format)
    return f"`loom fork {row['job']}` goes on at {named or 'its end'}; what was finished is not done again"
