"""What a node, an item of a map and a round of a loop cost."""

import secrets
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.measurements.weight import history_of
from benchmarks.report import Table, aim
from benchmarks.stand.contestants import HandWritten, LoomSide, Stand
from loom_dsl.graph.compiler import compile_graph

WINDOW, CHAIN = 50, 50
MAP = """
loom: 1
kind: graph
name: bench-map
input: {items: list}
nodes:
  each: {map: {over: input.items, do: one, window: 50}, next: done}
  done: {end: null}
graphs:
  one:
    nodes:
      work: {activity: "benchmarks.stand.tools:item", with: {number: "${item}"}, next: done}
      done: {end: "${result}"}
"""
PURE = MAP.replace(
    '{activity: "benchmarks.stand.tools:item", with: {number: "${item}"}, next: done}', "{set: {}, next: done}"
)
LOOP = """
loom: 1
kind: graph
name: bench-loop
input: {last: int}
nodes:
  loop: {loop: {do: one, until: index >= input.last, max: 1000000}, next: done}
  done: {end: null}
graphs:
  one:
    nodes:
      work: {set: {}, next: done}
      done: {end: null}
"""


def chain(count: int) -> str:
    """Write a graph of so many nodes one after the other, each an activity of 10 ms."""
    work = '{activity: "benchmarks.stand.tools:pause", with: {number: %d}, next: n%d}'
    nodes = [f"  n{number}: {work % (number, number + 1)}" for number in range(count)]
    end = f'  n{count}: {{end: "${{result}}"}}'
    return "\n".join(["loom: 1", "kind: graph", "name: bench-chain", "nodes:", *nodes, end, ""])


async def measure_nodes(stand: Stand, *, quick: bool) -> Table:
    """Measure nodes in a row, against a hand-written workflow with the same activities in the same minutes."""
    count = 20 if quick else CHAIN
    table = Table("Graphs: nodes of 10 ms in a row", ["", "nodes", "ms each", "to hand-written", "aim"])
    other, side = await stand.hand_written(), await stand.loom("nodes")
    text = chain(count)
    pairs = []
    for round_ in range(3 if quick else 12):
        runs = [_timed(lambda: _chain(other, count)), _timed(lambda: _graph(side, text, {}))]
        if round_ % 2:  # who goes first must not matter
            ours, theirs = await runs[1], await runs[0]
        else:
            theirs, ours = await runs[0], await runs[1]
        pairs.append((theirs, ours))
    kept = pairs[1:]  # the first fills caches
    theirs, ours = (statistics.median(pair[i] for pair in kept) for i in (0, 1))
    ratio = statistics.median(ours / theirs for theirs, ours in kept)
    table.rows.append(["hand-written workflow", f"{count}", f"{theirs * 1000 / count:.1f}", "1.00", ""])
    table.rows.append(["graph", f"{count}", f"{ours * 1000 / count:.1f}", f"{ratio:.2f}", aim(ratio, 1.1)])
    return table


async def measure_graphs(stand: Stand, *, full: bool, quick: bool = False) -> Table:
    """Measure items and rounds, the items with an activity against a hand-written fan-out in the same minutes."""
    table = Table("Graphs: items and rounds", ["", "number", "ms each", "to hand-written", "bytes of history each"])
    other, side = await stand.hand_written(), await stand.loom("graphs")
    ratios, own = [], []
    for _ in range(1 if quick else 3):
        theirs = await _timed(lambda: _fan_out(other, 500))
        ours = await _timed(lambda: _graph(side, MAP, {"items": list(range(500))}))
        ratios.append(ours / theirs)
        own.append((theirs, ours))
    theirs, ours = (statistics.median(pair[i] for pair in own) for i in (0, 1))
    table.rows.append(["hand-written fan-out, an activity each", "500", f"{theirs * 2:.1f}", "1.00", ""])
    size = await _bytes(side, MAP, {"items": list(range(500))}) / 500
    ratio = f"{statistics.median(ratios):.2f}"
    table.rows.append(["map, a function each", "500", f"{ours * 2:.1f}", ratio, f"{size:.0f}"])
    for name, text, count, given in (
        ("map in child jobs, nothing each", PURE, 20_000 if full else 1_200 if quick else 5_000, "items"),
        ("loop, nothing each", LOOP, 100_000 if full else 2_000 if quick else 20_000, "last"),
    ):
        value: Any = list(range(count)) if given == "items" else count - 1
        seconds = await _timed(lambda text=text, given=given, value=value: _graph(side, text, {given: value}))  # type: ignore[misc]
        table.rows.append([name, f"{count}", f"{seconds * 1000 / count:.2f}", "", ""])
    table.notes.append(f"At most {WINDOW} items with an activity at once. History: of the parent's runs.")
    return table


async def _timed(work: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def _fan_out(other: HandWritten, count: int) -> None:
    name = f"map-{secrets.token_hex(5)}"
    await other.client.execute_workflow("bench.map", args=[count, WINDOW], id=name, task_queue="loop")


async def _chain(other: HandWritten, count: int) -> None:
    name = f"chain-{secrets.token_hex(5)}"
    await other.client.execute_workflow("bench.chain", args=[count], id=name, task_queue="loop")


async def _graph(side: LoomSide, text: str, given: dict[str, Any]) -> str:
    job = await side.loom.start_graph(compile_graph(text, "bench.yaml"), input=given, workdir="/")
    result = await job.result()
    if result.status != "completed":
        raise RuntimeError(f"the graph ended as {result.status}: {result.error}")
    return job.id


async def _bytes(side: LoomSide, text: str, given: dict[str, Any]) -> int:
    job = await _graph(side, text, given)
    return sum(await history_of(side.loom.client, job))
