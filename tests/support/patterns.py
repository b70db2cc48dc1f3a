"""The examples of the control-flow patterns: what is sent to each, and what must come of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loom_dsl.graph.compiler import compile_graph
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import RunActivity
from loom_dsl.machine.state import MachineState
from loom_dsl.simulation.in_memory import Simulation, Work
from tests.support.simulated import JOB, SYSTEM, check_state

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "patterns"
WATCH = "steps:watch"


@dataclass(frozen=True)
class Send:
    """Something from outside, once nothing else moves.

    Attributes:
        name: The event's name; of an abort, ``abort``.
        data: Its data; of an abort, the reason.
        seen: What has run until then, where that is the point of the pattern.
        verdict: What the sender is told.
    """

    name: str
    data: Any = None
    seen: str | None = None
    verdict: str = "recorded"

    def signal(self, number: int) -> tuple[str, dict[str, Any]]:
        """The signal's name and payload."""
        if self.name == "abort":
            return "loom.control", {"op": "abort", "reason": self.data, "id": f"abort-{number}"}
        return "loom.event", {"name": self.name, "data": self.data, "id": f"event-{number}"}


@dataclass(frozen=True)
class Scenario:
    """One run of a pattern.

    Attributes:
        trace: What ran to its end, in whatever order: ``node#visit`` with its frame before it.
    """

    trace: str
    result: Any = None
    input: dict[str, Any] = field(default_factory=dict)
    sends: tuple[Send, ...] = ()


def plan_of(name: str) -> Plan:
    """The plan of an example."""
    path = FOLDER / f"{name}.yaml"
    return compile_graph(path.read_text(encoding="utf-8"), path.name)


def names() -> list[str]:
    """The examples, in order."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def call(command: RunActivity) -> Any:
    """Do what `examples/patterns/steps.py` does."""
    assert command.arguments["function"] == "steps:work"
    return command.arguments["with"].get("item")


class InMemory(Simulation):
    """Runs an example. What watches goes on until somebody cancels it, and time passes only after all is sent."""

    def __init__(self, name: str, scenario: Scenario, steps: int | None, pick: Callable[[], int] = lambda: 0) -> None:
        self.scenario, self.pick = scenario, pick
        self.together: list[set[str]] = []
        self.tokens: list[list[str]] = []
        handlers = {**SYSTEM, "loom.function.call": call}
        state = MachineState(input=scenario.input)
        super().__init__(plan_of(name), state, handlers, job=JOB, steps_per_run=steps)

    def play(self) -> None:
        """Send everything, and go on to the end."""
        for number, send in enumerate(self.scenario.sends):
            self.settle()
            self.tokens.append([token.at for token in self.machine.state.in_order()])
            assert send.seen is None or self.trace() == sorted(send.seen.split())
            name, payload = send.signal(number)
            slot = f"u{number}"
            self.signal(name, payload, answer_to=slot)
            if self.outcome.answers[slot] == "retry":  # what watches holds up the end of this run
                self.signal(name, payload)
            else:
                assert self.outcome.answers[slot] == send.verdict
        self.settle()
        while not self.outcome.over and self.timers:
            self.let_time_pass()
            self.settle()

    def settle(self) -> None:
        """Run activities until only those are left that watch."""
        for _ in range(10_000):
            check_state(self.machine.state)
            ready = [index for index, work in enumerate(self.work) if not is_watch(work)]
            if not ready or self.outcome.over:
                return
            self.together.append({work.at for work in self.work if not work.at.startswith("~")})
            self.step(ready[self.pick() % len(ready)])
        raise AssertionError("the example does not come to rest")

    def let_time_pass(self) -> None:
        """Jump to the next deadline, whoever watches."""
        watching, self.work = self.work, []
        self.step()
        self.work = watching + self.work

    def trace(self) -> list[str]:
        """What has run to its end."""
        return traced((at.partition("/")[2], verdict) for at, verdict in self.outcome.trace)


def traced(ended: Any) -> list[str]:
    """A trace as scenarios write it."""
    return sorted(at if verdict == "done" else f"{at}:{verdict}" for at, verdict in ended)


def is_watch(work: Work) -> bool:
    """Whether it goes on until somebody cancels it."""
    return isinstance(work, RunActivity) and work.arguments.get("function") == WATCH


SCENARIOS: dict[str, Scenario] = {
    "01-sequence": Scenario("picked#1 packed#1", "box, packed"),
    "02-parallel-split": Scenario("paid#1 billed#1 shipped#1"),
    "03-synchronization": Scenario("billed#1 shipped#1", {"billed": "bill", "shipped": "parcel"}),
    "04-exclusive-choice": Scenario("director#1", "by the director", {"amount": 500}),
    "05-simple-merge": Scenario("clerk#1 filed#1", "filed by the clerk", {"amount": 5}),
    "06-multi-choice": Scenario("fire_brigade#1 ambulance#1", None, {"fire": True, "injured": True}),
    "07-structured-synchronizing-merge": Scenario(
        "fire_brigade#1 ambulance#1 reported#1",
        {"fire_brigade": "fire is out", "ambulance": "at the hospital"},
        {"fire": True, "injured": True},
    ),
    "08-multi-merge": Scenario("walls#1 roof#1 checked#1 checked#2"),
    "09-structured-discriminator": Scenario(
        "clinic#1 treated#1",
        {"clinic": "treatment"},
        sends=(Send("specialist.answered", seen="clinic#1 treated#1"),),
    ),
    "10-arbitrary-cycles": Scenario(
        "reviewed#1 written#1 reviewed#2 written#2 reviewed#3 polished#1 reviewed#4 polished#2 reviewed#5",
        4,
        {"draft": True},
    ),
    "11-implicit-termination": Scenario(
        "invoiced#1 prepared#1 delivered#1",
        sends=(Send("payment", seen="invoiced#1 prepared#1 delivered#1"),),
    ),
    "12-instances-without-synchronization": Scenario(
        "fined#1[0]/told#1 fined#1[1]/told#1 closed#1", "case closed", {"people": ["Ada", "Ben"]}
    ),
    "13-instances-known-when-designed": Scenario(
        "signatures#1[0]/signed#1 signatures#1[1]/signed#1 signatures#1[2]/signed#1",
        ["signature 1", "signature 2", "signature 3"],
    ),
    "14-instances-known-at-run-time": Scenario(
        "examined#1 treatment#1[0]/treated#1 treatment#1[1]/treated#1",
        ["cough treated", "fever treated"],
        {"symptoms": ["cough", "fever"]},
    ),
    "15-instances-not-known-before": Scenario(
        "witnesses#1[0]/visited#1 witnesses#1[1]/visited#1 witnesses#1[2]/visited#1",
        ["witness one", "witness two", "witness three"],
        sends=(
            Send("witness.named", "two", seen="witnesses#1[0]/visited#1"),
            Send("witness.named", "three", seen="witnesses#1[0]/visited#1 witnesses#1[1]/visited#1"),
            Send("witnesses.known"),
        ),
    ),
    "16-deferred-choice": Scenario("farewell#1", "farewell", sends=(Send("offer.refused", seen=""),)),
    "17-interleaved-parallel-routing": Scenario("blood_taken#1 blood_explained#1 eyes_tested#1"),
    "18-milestone": Scenario(
        "booked#1 refused#1",
        sends=(Send("sale.opened", seen=""), Send("sale.closed", seen="booked#1"), Send("seat.wanted")),
    ),
    "19-cancel-task": Scenario("told#1", "the search is off", sends=(Send("found.elsewhere", seen=""),)),
    "20-cancel-case": Scenario("refunded#1", "refunded: lost", sends=(Send("abort", "lost"),)),
    "21-structured-loop": Scenario(
        "attempts#1[0]/tried#1 attempts#1[1]/tried#1 attempts#1[2]/tried#1", "attempts: 3"
    ),
    "22-recursion": Scenario(
        "smaller#1[0]/smaller#1[0]/smallest#1 smaller#1[0]/multiplied#1 multiplied#1", 6, {"number": 3}
    ),
    "23-transient-trigger": Scenario(
        "answered#1",
        "in time",
        sends=(Send("alarm", "too early", verdict="unknown"), Send("guard.began"), Send("alarm", "in time", seen="")),
    ),
    "24-persistent-trigger": Scenario(
        "answered#1", "early", sends=(Send("alarm", "early", seen=""), Send("guard.began", seen=""))
    ),
    "25-cancel-region": Scenario("asked#1 closed#1", "closed", sends=(Send("claim.withdrawn", seen="asked#1"),)),
    "26-cancel-instances": Scenario(
        "games#1[0]/short#1 games#1[2]/short#1 slept#1", "good night", sends=(Send("time.for.bed"),)
    ),
    "27-complete-instances": Scenario(
        "race#1[0]/short#1 race#1[2]/short#1 ranked#1",
        ["fast", None, "quick", None],
        sends=(Send("road.opens", seen="race#1[0]/short#1 race#1[2]/short#1"),),
    ),
    "28-blocking-discriminator": Scenario(
        "front#1 front#2 opened#1 opened#2",
        sends=(
            Send("back.checked", seen="front#1 front#2 opened#1"),
            Send("back.checked", seen="front#1 front#2 opened#1 opened#2"),
        ),
    ),
    "29-cancelling-discriminator": Scenario("near#1 used#1", {"near": "found near"}),
    "30-structured-partial-join": Scenario(
        "ada#1 ben#1 decided#1",
        {"ada": "yes", "ben": "yes"},
        sends=(Send("cleo.voted", seen="ada#1 ben#1 decided#1"),),
    ),
    "31-blocking-partial-join": Scenario(
        "ada#1 ada#2 ben#1 ben#2 decided#1 decided#2",
        sends=(
            Send("cleo.voted", seen="ada#1 ada#2 ben#1 ben#2 decided#1"),
            Send("cleo.voted", seen="ada#1 ada#2 ben#1 ben#2 decided#1 decided#2"),
        ),
    ),
    "32-cancelling-partial-join": Scenario("ada#1 ben#1 chosen#1", {"ada": "an offer", "ben": "an offer"}),
    "33-generalized-and-join": Scenario(
        "picked#1 picked#2 sent#1 sent#2",
        sends=(
            Send("label.printed", seen="picked#1 picked#2"),
            Send("label.printed", seen="picked#1 picked#2 sent#1"),
        ),
    ),
    "34-static-partial-join-for-instances": Scenario(
        "verdicts#1[0]/given#1 verdicts#1[1]/given#1 decided#1",
        ["judge 1", "judge 2", None],
        sends=(Send("judge.came", seen="verdicts#1[0]/given#1 verdicts#1[1]/given#1 decided#1"),),
    ),
    "35-cancelling-partial-join-for-instances": Scenario(
        "searches#1[1]/short#1 searches#1[2]/short#1 decided#1", [None, "south", "west"]
    ),
    "36-dynamic-partial-join-for-instances": Scenario(
        "offers#1[0]/priced#1 offers#1[1]/priced#1 chosen#1",
        [900, 400],
        sends=(Send("offer.made", 400, seen="offers#1[0]/priced#1"),),
    ),
    "37-local-synchronizing-merge": Scenario(
        "booked#1 insured#1 by_post#1 sent#1", None, {"express": True, "insured": True}
    ),
    "38-general-synchronizing-merge": Scenario(
        "measured#1 measured#2 measured#3 measured#4 drawn#1 built#1",
        ["drawn", "measured"],
        sends=(
            Send("permission", {"granted": False, "appeal": True}, seen="measured#1 measured#2 measured#3 drawn#1"),
        ),
    ),
    "39-critical-section": Scenario("debit#1[0]/read#1 debit#1[0]/written#1 credit#1[0]/read#1 credit#1[0]/written#1"),
    "40-interleaved-routing": Scenario("fuelled#1 cleaned#1 loaded#1"),
    "41-thread-merge": Scenario("checked#1 checked#2 checked#3 stored#1", ["checked", "checked", "checked"]),
    "42-thread-split": Scenario("written#1 printed#1 printed#2", None, {"copies": 2}),
    "43-explicit-termination": Scenario("", "the gardener", sends=(Send("confession", "the gardener", seen=""),)),
}  # fmt: skip
