"""What an approver allowed for calls to come: a rule, and the questions that the approval answered."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loom_dsl.permissions.rules import Call, Rule, commands_covered, parse_rule

OWN = "agent"
"""Names the agent's own rules and defaults among those that ask."""
UNTRUSTED = "untrusted"
"""Names the check of calls after something untrusted was read among those that ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A rule of an approval that is to count again.

    Attributes:
        rule: What it covers, as permissions write it.
        arguments: Digest of the arguments that were approved.
        asked_by: Who had asked, as `Verdict.asked_by` names them. It answers nobody else's question.
    """

    rule: str
    arguments: str = ""
    asked_by: frozenset[str] = frozenset({OWN})


def answered(asker: str, call: Call, remembered: Iterable[Remembered]) -> str:
    """Name the rules by which a question about a call is answered already; empty: it is not.

    After something untrusted was read, only the very arguments that were approved are: what was read may have chosen
    all that a rule leaves open.
    """
    rules = [
        item.rule
        for item in remembered
        if asker in item.asked_by and (asker != UNTRUSTED or item.arguments == call.digest)
    ]
    return covering(rules, call)


def covering(rules: Sequence[str], call: Call) -> str:
    """Name the rule that covers a call, or the rules that cover each of its commands; empty: it is not covered."""
    parsed = [parse_rule(rule) for rule in rules]
    if whole := next((rule for rule in parsed if rule.surely_fits(call)), None):
        return whole.text
    return commands_covered(parsed, call)


def in_words(rules: Iterable[str]) -> str:
    """Say for people what would be remembered, such as `write_file(a.md), and order with these very arguments`."""
    return ", and ".join(_one(parse_rule(rule)) for rule in rules)


def _one(rule: Rule) -> str:
    if rule.arguments:
        return f"{rule.tool} with these very arguments"
    also = " (HEAD too)" if "HEAD" in rule.methods[1:] else ""
    return rule.text + also
