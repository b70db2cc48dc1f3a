"""A graph's job that is about to start: what it is, and how it is written down."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from activities.firing import LONGEST_TASK, origin_of
from loom_client.forking import check_same
from loom_client.submission import Written, write_job
from loom_dsl.fork import ForkPoint
from loom_dsl.plan import Plan
from loom_dsl.untrusted import words_in
from loom_store.marks import Mark
from loom_store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class GraphSubmission:
    """A job of a graph that is about to start.

    Attributes:
        input: Its values, checked and complete.
        steps: For tests: continue as new after so many activities.
        point: The job that it goes on from; None: it begins at its start.
        marks: What is known of that job and holds for this one.
    """

    job: str
    session: str
    plan: Plan
    input: Mapping[str, Any]
    workdir: str
    steps: int | None
    point: ForkPoint | None = None
    marks: tuple[tuple[Mark, str], ...] = ()


def write_graph_down(tx: Transaction, start: GraphSubmission, namespace: str, task_queue: str) -> Written:
    """Write the job and its plan, all or nothing."""
    task = json.dumps(start.input, ensure_ascii=False)[:LONGEST_TASK] if start.input else ""
    check_same(tx, start.job, start.point)
    words = {"agent": "graph", "plan": "graph's content", "task": "input"}
    write_job(tx, start, name=start.plan.root, task=task, place=(namespace, task_queue), words=words)
    tx.mark(start.job, "words", tx.put_blob(words_in(start.input).encode("utf-8", "replace")))
    for kind, value in start.marks:
        tx.mark(start.job, kind, value)
    return Written(0, origin_of(tx, start.job))
