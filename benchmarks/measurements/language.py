"""What the language costs without any engine: compiling, stepping the machine, evaluating expressions."""

import itertools
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.measurements.graphs import chain
from benchmarks.report import Table
from loom_dsl.expr.expression import Expression, compile_expression
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.state import MachineState
from loom_dsl.simulation.in_memory import Handler, Simulation

NODES, STEPS, EVALUATIONS = 2_000, 1_000, 1_000
EXPRESSIONS = {
    "a comparison": "result.passed == true and run.visits < 3",
    "a list of 100 items": "[x.name for x in input.items if x.size > 50]",
    "a text": "'a ' + input.name + ' of ' + str(len(input.items))",
}
NAMES: dict[str, Any] = {
    "result": {"passed": True},
    "run": {"visits": 2},
    "input": {"name": "graph", "items": [{"name": f"n{size}", "size": size} for size in range(100)]},
}
_marks = itertools.count()


def measure_language(*, quick: bool) -> Table:
    """Measure on this process alone; each row is the median of some rounds."""
    times = 2 if quick else 9
    table = Table("The language, without an engine", ["", "number", "in all, ms", "each, µs", "a second"])
    compiling = f"compile a graph of {NODES:,} nodes, with every check"
    table.rows.append(_row(compiling, NODES, times, lambda: _compile(NODES)))
    plan = _compile(STEPS)
    table.rows.append(_row("step the machine: a node that runs an activity", STEPS, times, lambda: _play(plan)))
    for what, source in EXPRESSIONS.items():
        expression = compile_expression(source)
        table.rows.append(_row(f"evaluate {what}", EVALUATIONS, times, partial(_evaluate, expression)))
    table.notes.append(
        "The machine's steps are counted in its driver in memory, which also copies every command and result as JSON."
    )
    return table


def _compile(nodes: int) -> Plan:
    """Compile a graph that has not been compiled yet."""
    text = chain(nodes).replace("bench-chain", f"bench-chain-{next(_marks)}")
    return compile_graph(text, "chain.yaml")


def _play(plan: Plan) -> None:
    handlers: dict[str, Handler] = {"loom.function.call": lambda command: 1, "loom.events.flush": lambda command: None}
    outcome = Simulation(plan, MachineState(), handlers).run()
    if outcome.result != 1:
        raise RuntimeError(f"the graph ended with {outcome.result!r}: {outcome.failure}")


def _evaluate(expression: Expression) -> None:
    for _ in range(EVALUATIONS):
        expression.evaluate(NAMES)


def _row(what: str, count: int, times: int, work: Callable[[], object]) -> list[str]:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    seconds = statistics.median(found)
    each = f"{seconds / count * 1e6:.1f}"
    return [what, f"{count:,}", f"{seconds * 1000:.1f}", each, f"{count / seconds:,.0f}"]
