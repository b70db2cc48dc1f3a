"""What comes to the jobs of a case from outside, and when: decisions, events, steering."""

from dataclasses import dataclass, field
from typing import Any

from loom_dsl.machine_approvals import digest_of
from loom_dsl.machine_signed import must_be_signed
from loom_dsl.machine_state import WAITING
from loom_dsl.scenario import MockedDecision, ScenarioCase, SentEvent, Steered
from loom_dsl.scenario_names import aliases
from loom_dsl.scenario_play import OUTSIDE, Play, Soonest, Stage
from loom_dsl.signature import stand_in

DELIVERED = frozenset({"recorded", "unconfirmed"})


@dataclass(slots=True)
class _Planned:
    """Something that is to come, once its time is known."""

    what: SentEvent | Steered
    number: int
    time: float | None = None


@dataclass(slots=True)
class Outside:
    """Everything that is yet to come.

    Attributes:
        problems: What did not have the effect that it was to have.
    """

    case: ScenarioCase
    stage: Stage
    root: Play
    problems: list[str] = field(default_factory=list)
    _planned: list[_Planned] = field(default_factory=list)
    _decisions: list[tuple[float, int, Play, str, str, MockedDecision]] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)
    _count: int = 0

    def __post_init__(self) -> None:
        every: list[SentEvent | Steered] = [*self.case.events, *self.case.steering]
        for number, what in enumerate(every):
            time = self.stage.start + what.after if what.when is None else None
            self._planned.append(_Planned(what, number, time))

    def soonest(self) -> Soonest | None:
        """What comes next, if anything is on its way."""
        self._look()
        found: list[Soonest] = [
            (plan.time, OUTSIDE, plan.number, lambda plan=plan: self._send(plan))  # type: ignore[misc]
            for plan in self._planned
            if plan.time is not None
        ]
        found += [
            (entry[0], OUTSIDE, entry[1], lambda entry=entry: self._decide(*entry))  # type: ignore[misc]
            for entry in self._decisions
        ]
        return min(found, key=lambda one: one[:3]) if found else None

    def left(self) -> list[str]:
        """What has not come when a case is over."""
        never = [plan.what for plan in self._planned if plan.time is None]
        return [
            *self.problems,
            *(f"{_name(what)}: `{what.when}` was not entered, so it was not sent" for what in never),
        ]

    def _look(self) -> None:
        """Find out about times that depend on what the jobs do."""
        for plan in self._planned:
            if plan.time is None and plan.what.when in self.stage.coverage.first:
                plan.time = self.stage.coverage.first[plan.what.when] + plan.what.after
        if not self.case.decisions:
            return
        for play in self.root.plays():
            for token in play.machine.state.in_order():
                if token.status == WAITING and token.data["id"] not in self._seen:
                    self._seen.add(token.data["id"])
                    at = play.prefix + (play.tool_above(token.at) or token.at)
                    decision = self.stage.cast.decision(at)
                    if decision is not None and decision.choice is not None:
                        self._count += 1
                        time = token.data["since"] + decision.after
                        number = len(self._planned) + self._count
                        self._decisions.append((time, number, play, at, token.data["id"], decision))

    def _decide(self, time: float, number: int, play: Play, at: str, name: str, decision: MockedDecision) -> None:
        self._decisions = [entry for entry in self._decisions if entry[1] != number]
        payload: dict[str, Any] = {"approval_id": name, "choice": decision.choice, "by": decision.by}
        payload["message"] = decision.message
        if decision.edited_arguments is not None:
            payload["edited_arguments"] = decision.edited_arguments
        token = next((token for token in play.machine.state.in_order() if token.data.get("id") == name), None)
        if token is not None and must_be_signed(play.machine, token):
            payload |= {"digest": digest_of(token.data["request"]), "signature": stand_in(play.job, f"{name}/{number}")}
        self.stage.note(at, f"{decision.choice} by {decision.by}")
        self._deliver(play, "loom.decision", payload, f"the decision of `{at}`")

    def _send(self, plan: _Planned) -> None:
        self._planned.remove(plan)
        what, number = plan.what, f"scenario-{plan.number}"
        self.stage.note("", _name(what))
        if isinstance(what, SentEvent):
            payload: dict[str, Any] = {"name": what.name, "key": what.key, "data": what.data, "id": number}
            self._deliver(self._where(what.when), "loom.event", payload, _name(what))
        else:
            payload = {"op": what.op, "reason": what.reason, "by": "scenario", "id": number}
            self._deliver(self.root, "loom.control", payload, _name(what))

    def _where(self, when: str | None) -> Play:
        """The job that an event is for: that of the node which it waited for, if that is still there."""
        for play in self.root.plays():
            names = (aliases(play.prefix + token.at) for token in play.machine.state.tokens.values())
            if when is not None and any(when in known for known in names):
                return play
        return self.root

    def _deliver(self, play: Play, signal: str, payload: dict[str, Any], name: str) -> None:
        if play.outcome.over:
            self.problems.append(f"{name}: the job had ended")
            return
        self._count += 1
        slot = f"outside-{self._count}"
        play.signal(signal, payload, answer_to=slot)
        verdict = play.outcome.answers[slot]
        if verdict == "retry":  # between two runs only a signal is kept
            play.signal(signal, payload)
        elif verdict not in DELIVERED:
            self.problems.append(f"{name}: {verdict.replace('_', ' ')}")


def _name(what: SentEvent | Steered) -> str:
    return f"event {what.name}" if isinstance(what, SentEvent) else what.op
