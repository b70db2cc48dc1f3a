"""Time per turn, side by side."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.report import Table, aim
from benchmarks.stand.contestants import Contestant, LoomJobs, Stand
from benchmarks.stand.race import Times, race
from benchmarks.stand.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A job and who does it.

    Attributes:
        title: Says what the job is.
        workload: The job.
        rounds: How often each does it.
        who: Names of contestants, as `enter` knows them.
        aims: What each one's ratio to (b) is to be at most.
        at_once: Jobs at the same time; the table then shows turns per second.
        stock: Whether the server is a stock one.
    """

    title: str
    workload: Workload
    rounds: int
    who: Sequence[str]
    aims: Mapping[str, float] = field(default_factory=dict)
    at_once: int = 1
    stock: bool = False

    @property
    def workloads(self) -> list[Workload]:
        """Every workload that the model must know."""
        return [*warm_up(), self.workload, _remote(self.workload)]


def warm_up() -> list[Workload]:
    """Give the workload that is done once before anything is measured."""
    return [Workload(turns=2), Workload(turns=2, tool="fetch")]


ALL = ("a", "b", "remote", "local", "adaptive", "local-sandboxed", "adaptive-sandboxed")
LANES: dict[str, Lane] = {
    "turns": Lane(
        title="10 turns, model at 0 ms",
        workload=Workload(turns=10),
        rounds=7,
        who=ALL,
        aims={"remote": 1.5, "local": 1.2, "adaptive": 0.9},
    ),
    "long": Lane(
        title="100 turns, model at 0 ms, results of 5 KB",
        workload=Workload(turns=100, size=5_000),
        rounds=3,
        who=("a", "b", "local", "adaptive"),
        aims={"local": 0.8, "adaptive": 0.5},
    ),
    "slow": Lane(
        title="10 turns, model at 200 ms",
        workload=Workload(turns=10, delay=200),
        rounds=5,
        who=("a", "b", "local", "adaptive"),
        aims={"local": 1.08, "adaptive": 1.0},
    ),
    "seconds": Lane(
        title="4 turns, model at 1,500 ms",
        workload=Workload(turns=4, delay=1500),
        rounds=3,
        who=("a", "b", "local", "adaptive"),
        aims={"local": 1.02, "adaptive": 1.02},
    ),
    "seconds-stock": Lane(
        title="4 turns, model at 1,500 ms, stock server",
        workload=Workload(turns=4, delay=1500),
        rounds=3,
        who=("a", "b", "local", "adaptive"),
        aims={"local": 1.02, "adaptive": 1.02},
        stock=True,
    ),
    "turns-stock": Lane(
        title="10 turns, model at 0 ms, stock server",
        workload=Workload(turns=10),
        rounds=3,
        who=("a", "b", "local", "adaptive"),
        stock=True,
    ),
    "jobs": Lane(
        title="20 jobs at once, 10 turns each, model at 0 ms",
        workload=Workload(turns=10),
        rounds=3,
        who=("a", "b", "local", "adaptive"),
        aims={"local": 1.0, "adaptive": 1.3},
        at_once=20,
    ),
}


async def enter(stand: Stand, who: Sequence[str]) -> dict[str, Contestant]:
    """Start the workers that the contestants need."""
    found: dict[str, Contestant] = {}
    if "a" in who:
        found["a"] = stand.loop()
    if "b" in who:
        found["b"] = await stand.hand_written()
    side = await stand.loom("loom")
    makers = {
        "remote": lambda: LoomJobs(side, "per_turn", remote=True),
        "local": lambda: LoomJobs(side, "per_turn"),
        "adaptive": lambda: LoomJobs(side, "adaptive"),
    }
    found |= {name: makers[name]() for name in who if name in makers}
    if any(name.endswith("-sandboxed") for name in who):
        boxed = await stand.loom("boxed", sandboxed=True)
        found["local-sandboxed"] = LoomJobs(boxed, "per_turn", note="sandboxed")
        found["adaptive-sandboxed"] = LoomJobs(boxed, "adaptive", note="sandboxed")
    return {name: found[name] for name in who}


async def run_lane(stand: Stand, lane: Lane, contestants: Mapping[str, Contestant], *, quick: bool = False) -> Table:
    """Run one lane and give its table."""
    entered = [contestants[name] for name in lane.who]
    server = stand.server_pid
    await race(entered, warm_up()[0], 1, server=server)
    times = await race(entered, lane.workload, 2 if quick else lane.rounds, server=server, at_once=lane.at_once)
    by_key = {name: times[contestants[name].name] for name in lane.who}
    rows = [_row(lane, key, contestants[key].name, by_key) for key in lane.who]
    unit = "turns/s" if lane.at_once > 1 else "ms/turn"
    columns = ["", unit, "to (b)", "min-max", "to (a)", "CPU ms/turn", "CPU to (b)", "aim to (b)"]
    return Table(lane.title, columns, rows)


def _row(lane: Lane, key: str, name: str, times: Mapping[str, Times]) -> list[str]:
    mine, turns = times[key], lane.workload.turns * lane.at_once
    many = lane.at_once > 1

    def held(other: str) -> list[float]:
        ratios = mine.ratios(times[other])
        # Turns per second: more is better, so the ratio is turned over.
        return [1 / ratio for ratio in ratios] if many else ratios

    to_b, to_a = held("b"), statistics.median(held("a"))
    ratio = statistics.median(to_b)
    speed = f"{turns / mine.median:.1f}" if many else f"{mine.median / turns * 1000:.1f}"
    wanted = aim(ratio, lane.aims[key], least=many) if key in lane.aims else ""
    cpu, least = statistics.median(mine.cpu), statistics.median(times["b"].cpu)
    spent = [f"{cpu / turns * 1000:.0f}", f"{cpu / least:.2f}"]
    return [name, speed, f"{ratio:.2f}", f"{min(to_b):.2f}-{max(to_b):.2f}", f"{to_a:.2f}", *spent, wanted]


def _remote(workload: Workload) -> Workload:
    return Workload(turns=workload.turns, size=workload.size, delay=workload.delay, tool="fetch", width=workload.width)
