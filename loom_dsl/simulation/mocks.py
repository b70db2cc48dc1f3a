"""Who stands in for the world in a scenario: what work gives, and the stages of a tool's call."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loom_dsl.errors import ExpressionError, UserError
from loom_dsl.expr.template import compile_template
from loom_dsl.fields import format_duration
from loom_dsl.machine.commands import RunActivity, StartChild
from loom_dsl.simulation.names import aliases, work_name
from loom_dsl.simulation.scenario import ANSWER_ROOTS, MockedDecision, MockedResult, ScenarioCase
from loom_dsl.tools.result import refusal

STAGES = "loom.tool."
EXECUTE, FORMAT = "loom.tool.execute", "loom.tool.format"
_LONG = 86400.0 * 365


@dataclass(frozen=True, slots=True)
class MockAnswer:
    """What one piece of work comes to.

    Attributes:
        after: Seconds.
        code: Code of the failure, or empty.
    """

    after: float = 0.0
    result: Any = None
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class MockedCall:
    """One piece of work that the graph wanted.

    Attributes:
        at: Its execution.
        work: What it runs.
    """

    at: str
    work: str
    arguments: Any


@dataclass(slots=True)
class Cast:
    """Answers for the world.

    Attributes:
        asked: All work that was wanted, in the order in which it began.
        missing: Nodes whose work has no result in the scenario, so that it was null.
        late: What took longer than its attempts may take, in words.
        used: The entries of `results` and `decisions` that were used.
    """

    case: ScenarioCase
    asked: list[MockedCall] = field(default_factory=list)
    missing: dict[str, None] = field(default_factory=dict)
    late: dict[str, None] = field(default_factory=dict)
    used: dict[str, None] = field(default_factory=dict)
    _count: Counter[str] = field(default_factory=Counter)

    def answer(self, at: str, command: RunActivity | StartChild) -> MockAnswer:
        """Say what a command comes to, and write down that it was wanted."""
        work, arguments = work_name(command), _given(command)
        if command.at.startswith("~"):  # what takes something back is known by what it runs only
            return self.give("", work, arguments)
        self.asked.append(MockedCall(at, work, arguments))
        answer = self.give(at, work, arguments)
        within = limited(answer, command)
        if within is not answer and isinstance(command, RunActivity):
            times = f"takes {format_duration(answer.after)}, and its timeout is {format_duration(command.timeout)}"
            self.late[f"`{aliases(at)[-1]}` {times}"] = None
        return within

    def tool(self, at: str, item: Mapping[str, Any], arguments: Any) -> MockAnswer:
        """Say what a tool's call comes to."""
        self.asked.append(MockedCall(at, str(item["name"]), arguments))
        return self.give(at, str(item["name"]), arguments)

    def mocks(self, at: str, work: str) -> bool:
        """Whether the scenario has a result for this work."""
        return any(name in self.case.results for name in (*aliases(at), work))

    def decision(self, at: str) -> MockedDecision | None:
        """Say what is decided about the next question that this node asks."""
        for name in aliases(at):
            if name in self.case.decisions:
                self.used[f"decisions.{name}"] = None
                given = self.case.decisions[name]
                return given[self._next(f"decisions.{name}", len(given))]
        return None

    def asks(self, at: str) -> bool:
        """Whether a tool at this node asks a human."""
        return any(name in self.case.decisions for name in aliases(at))

    def _next(self, entry: str, most: int) -> int:
        self._count[entry] += 1
        return min(self._count[entry], most) - 1

    def give(self, at: str, work: str, arguments: Any) -> MockAnswer:
        """Say what work comes to; without a place, what takes something back."""
        for name in (*(aliases(at) if at else ()), work):
            if name not in self.case.results:
                continue
            self.used[f"results.{name}"] = None
            given = self.case.results[name]
            number = self._count[f"results.{name}"]
            return _evaluated(name, given[self._next(f"results.{name}", len(given))], arguments, number)
        if at:
            self.missing[aliases(at)[-1]] = None
        return MockAnswer()


def _evaluated(name: str, given: MockedResult, arguments: Any, number: int) -> MockAnswer:
    if given.error is not None:
        return MockAnswer(given.takes, None, given.error.code, given.error.message)
    names = {"input": arguments, "index": number}
    try:
        return MockAnswer(given.takes, compile_template(given.result, ANSWER_ROOTS).evaluate(names))
    except ExpressionError as error:
        raise UserError(f"the scenario's result of `{name}`: {error.message}") from None


def _given(command: RunActivity | StartChild) -> Any:
    arguments = command.arguments
    return arguments["with"] if isinstance(command, RunActivity) and "function" in arguments else arguments


def limited(answer: MockAnswer, command: RunActivity | StartChild) -> MockAnswer:
    """Let work that takes longer than an attempt may take fail after all attempts, as it does on a server."""
    if isinstance(command, StartChild) or answer.after <= command.timeout:
        return answer
    attempts, initial, backoff, longest = command.retry
    pauses = sum(min(initial * backoff**number, longest) for number in range(attempts - 1))
    return MockAnswer(attempts * command.timeout + pauses, None, "timeout", "no result in time")


def stage_result(activity: str, arguments: Mapping[str, Any], answer: MockAnswer, asks: bool) -> Any:
    """What a stage of the pipeline of a tool's node gives, when the call comes to `answer`."""
    match activity:
        case "loom.tool.prepare":
            return {"quick": False, "timeout": _LONG}
        case "loom.tool.validate":
            return {"ok": True, "arguments": arguments["edited"] or arguments["call"]["arguments"]}
        case "loom.tool.authorize":
            request = {"tool": arguments["call"]["name"], "arguments": arguments["arguments"]}
            asking = asks and not arguments["approved"]
            policy = {"expires": None, "on_expiry": "deny"}
            return {"decision": "ask", "request": request, "policy": policy} if asking else {"decision": "allow"}
        case "loom.tool.execute":
            return {"ok": True, "output": answer.result}
        case "loom.tool.format":
            return _told(arguments["outcome"])
        case "loom.tool.output":
            return arguments["output"]
        case _:
            return {"ok": True}


def _told(outcome: Mapping[str, Any]) -> dict[str, Any]:
    if "choice" in outcome:
        message = refusal(outcome)
        return {"ok": False, "code": message.code, "message": message.content}
    if outcome.get("ok"):
        return {"ok": True, "output": outcome["output"]}
    return {"ok": False, "code": outcome["code"], "message": outcome["message"]}
