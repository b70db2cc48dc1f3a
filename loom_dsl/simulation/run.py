"""Running a scenario in memory: every case on a clock of its own, and what came of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from loom_dsl.errors import PlanError, UserError
from loom_dsl.graph.nodes import Recurse
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.state import OWNING, MachineState
from loom_dsl.simulation.coverage import Coverage, Covered, covered
from loom_dsl.simulation.mocks import Cast, MockedCall
from loom_dsl.simulation.names import frame_of
from loom_dsl.simulation.play import CaseContext, Happening, Outside, Play
from loom_dsl.simulation.scenario import Scenario, ScenarioCase, Status

START = 1_700_000_000.0
MAX_STEPS = 200_000


@dataclass(frozen=True, slots=True)
class Played:
    """How a case went.

    Attributes:
        result: What the graph ended with.
        code: Code of the failure, or empty.
        message: Its message.
        duration: Seconds on the clock.
        log: What went on, in order.
        trace: What ran to its end, by branch.
        asked: All work that was wanted, with its arguments.
        told: What observers were told.
        waits: The executions at which the job stands, if it has not ended.
        missing: Nodes that ran without a result in the scenario.
        problems: What took too long, and what came from outside and had no effect.
    """

    case: ScenarioCase
    status: Status
    result: Any
    code: str
    message: str
    duration: float
    log: tuple[Happening, ...]
    trace: dict[str, list[str]]
    asked: tuple[MockedCall, ...]
    told: tuple[dict[str, Any], ...]
    waits: tuple[str, ...]
    missing: tuple[str, ...]
    problems: tuple[str, ...]
    coverage: Coverage = field(repr=False)
    used: frozenset[str] = field(repr=False, default=frozenset())


def play_case(
    plan: Plan, case: ScenarioCase, *, steps_per_run: int | None = None, pick: Callable[[], int] = lambda: 0
) -> Played:
    """Play one case to its end, or until nothing happens any more.

    Args:
        plan: The graph.
        case: What the world is like, complete (`Scenario.whole_cases`).
        steps_per_run: Continue as new after so many activities; the trace is the same.
        pick: Chooses among work that is done at the same moment.

    Raises:
        UserError: The graph is that of an agent's turns, or the scenario's result of some work cannot be computed.
        PlanError: It does not come to an end.
    """
    if any(isinstance(node, Recurse) for node in plan.bodies[plan.root].nodes.values()):
        advice = "test an agent with the fake model (docs/howto/testing.md)"
        raise UserError(f"{plan.root} is the graph of an agent's turns, which scenarios do not play; {advice}")
    start = case.start() or START
    stage = CaseContext(Cast(case), start, now=start)
    root = Play(plan, MachineState(input=case.input), stage, steps_per_run=steps_per_run)
    outside = Outside(case, stage, root)
    for _ in range(MAX_STEPS):
        coming = [one for one in (root.soonest(pick()), outside.soonest()) if one is not None]
        if root.outcome.over or not coming:
            return _played(case, root, outside)
        time, _, _, happen = min(coming, key=lambda one: one[:3])
        stage.now = max(stage.now, time)
        happen()
    raise PlanError(f"the case {case.name!r} takes over {MAX_STEPS:,} steps; a scenario is played to its end")


def _played(case: ScenarioCase, root: Play, outside: Outside) -> Played:
    stage, outcome = root.stage, root.outcome
    trace: dict[str, list[str]] = {}
    for at, verdict in stage.trace:
        name = at.rpartition("/")[2]
        trace.setdefault(frame_of(at), []).append(name if verdict == "done" else f"{name}:{verdict}")
    return Played(
        case=case,
        status=_status(root),
        result=outcome.result,
        code=outcome.failure.code if outcome.failure else "",
        message=outcome.failure.message if outcome.failure else "",
        duration=round(stage.now - stage.start, 3),
        log=tuple(stage.log),
        trace=trace,
        asked=tuple(stage.cast.asked),
        told=tuple(outcome.events),
        waits=() if outcome.over else tuple(_standing(root)),
        missing=tuple(stage.cast.missing),
        problems=(*stage.cast.late, *outside.left()),
        coverage=stage.coverage,
        used=frozenset(stage.cast.used),
    )


def _status(root: Play) -> Status:
    if not root.outcome.over:
        return "waiting"
    if root.outcome.failure is not None:
        return "failed"
    return "aborted" if root.machine.state.abort is not None else "completed"


def _standing(root: Play) -> list[str]:
    """Where the jobs stand: at the innermost nodes."""
    return [
        play.prefix + (play.tool_above(token.at) or token.at)
        for play in root.plays()
        for token in play.machine.state.in_order()
        if token.status != OWNING and token.at not in play.inner
    ]


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A scenario that has been played.

    Attributes:
        cases: How each case went.
        coverage: How much of the graph they used together.
        unused: Entries of `results` and `decisions` that no case used, such as ``results.fix``.
    """

    graph: str
    scenario: str
    cases: tuple[Played, ...]
    coverage: Covered
    unused: tuple[str, ...]


def play_scenario(plan: Plan, scenario: Scenario, *, steps_per_run: int | None = None) -> Rehearsal:
    """Play every case.

    Check it with `loom_dsl.simulation.check.check_scenario` first: here, names that are not there do nothing.

    Raises:
        UserError: It cannot be played; see `play_case`.
        PlanError: A case does not come to an end.
    """
    played = tuple(play_case(plan, case, steps_per_run=steps_per_run) for case in scenario.whole_cases())
    together = Coverage()
    used: set[str] = set()
    known: dict[str, None] = {}
    for one in played:
        together.add(one.coverage)
        used |= one.used
        known |= dict.fromkeys(f"results.{name}" for name in one.case.results)
        known |= dict.fromkeys(f"decisions.{name}" for name in one.case.decisions)
    unused = tuple(name for name in known if name not in used)
    return Rehearsal(plan.root, scenario.name, played, covered(plan, together), unused)
