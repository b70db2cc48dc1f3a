"""Rules that a decision lets be remembered, so that later calls that they cover are not asked about."""

from loom_dsl.agent.turn import MAX_TURN_STATE
from loom_dsl.errors import PlanError
from loom_dsl.machine.kinds.approvals import is_own_question
from loom_dsl.machine.payloads import size_of
from loom_dsl.machine.records import ApprovalRecord
from loom_dsl.machine.state import Token
from loom_dsl.machine.tokens.core import Core


def rules_of(machine: Core, token: Token) -> list[str]:
    """The rules that a decision may remember: only those of a question that Loom itself asks.

    What a question of a user's graph says may have been computed from what was read outside, and who answers it is
    asked about something else.
    """
    rules = token.kept(ApprovalRecord).request.get("rules") if is_own_question(machine, token) else None
    return [str(rule) for rule in rules] if isinstance(rules, list) else []


def remember(machine: Core, rules: list[str]) -> None:
    """Let later calls of this job run that rules of a request cover, or tell why they will be asked about."""
    state, problem = machine.state, ""
    if not rules:
        problem = "the request names no rule to remember"
    elif state.turn is not None:
        try:
            state.turn = state.turn.remember(rules)
        except PlanError as error:
            problem = error.message
    else:  # a graph without turns keeps them beside its tokens
        known = list(dict.fromkeys([*state.remembered, *rules]))
        if size_of(known) <= MAX_TURN_STATE:
            state.remembered = known
        else:
            problem = "there are too many rules already"
    if problem:
        machine.emit("warning", code="not_remembered", message=problem)
