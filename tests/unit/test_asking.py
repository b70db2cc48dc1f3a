"""Whose question a call is, and what may answer it in place of a person: all who ask, and all ways to silence them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from loom_dsl.approvals.policy import ApprovalPolicy
from loom_dsl.errors import ExpressionError
from loom_dsl.permissions.combine import approvals_for, strengthened, unanswered
from loom_dsl.permissions.decide import PolicyLayer, Verdict, decide, layers_around
from loom_dsl.permissions.function import answer_of
from loom_dsl.permissions.policy import Permissions
from loom_dsl.permissions.remembered import Remembered, in_words
from loom_dsl.permissions.rules import rule_for
from loom_dsl.permissions.traits import ToolTraits

ORDER = ToolTraits(name="order", read_only=False, builtin=False)
WRITE = ToolTraits(name="write_file", read_only=False, builtin=True, paths=("a.md",))
ASK, ALLOW = Permissions(ask=["*"]), Permissions(allow=["*"])
SILENT = ApprovalPolicy.model_validate({"expires": "1s", "on_expiry": "allow"})
FUNCTION = answer_of("mine:rules", "order", "ask")


@dataclass(frozen=True)
class Asking:
    """One way in which a call comes to ask.

    Attributes:
        permissions: The agent's.
        layers: The policies of the deployment and the project.
        more: What else `decide` is given.
    """

    permissions: Permissions = ALLOW
    layers: tuple[PolicyLayer, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)

    def judged(self, traits: ToolTraits = ORDER, arguments: dict[str, Any] | None = None, **more: Any) -> Verdict:
        given = {"item": "loom", "count": 1} if arguments is None else arguments
        return decide(self.permissions, traits, given, layers=self.layers, **{**self.more, **more})

    def approvals(self, own: ApprovalPolicy, **more: Any) -> ApprovalPolicy:
        return approvals_for(self.judged(), own, layers_around(self.permissions, self.layers), **more)


def above(asking: ApprovalPolicy | None = None, inner: Permissions = ALLOW, outer: Permissions = ASK) -> Permissions:
    return inner.below(outer, asking)


OTHERS = {
    "deployment": Asking(layers=(PolicyLayer("deployment", ASK),)),
    "deployment's default": Asking(layers=(PolicyLayer("deployment", Permissions(default="ask")),)),
    "project": Asking(layers=(PolicyLayer("project", ASK),)),
    "parent": Asking(above()),
    "parent of an agent that is switched off": Asking(above(inner=Permissions(enabled=False))),
    "parent's function": Asking(above(outer=Permissions(function="mine:rules")), more={"answer": FUNCTION}),
    "untrusted content": Asking(more={"untrusted": "a page was read"}),
    "deployment, and the agent": Asking(ASK, (PolicyLayer("deployment", ASK),)),
    "project, and the agent": Asking(ASK, (PolicyLayer("project", ASK),)),
    "parent with the agent's own words": Asking(above(inner=ASK)),
    "untrusted content, and the agent": Asking(ASK, more={"untrusted": "a page was read"}),
    "both functions": Asking(
        above(inner=Permissions(function="mine:rules"), outer=Permissions(function="mine:rules")),
        more={"answer": FUNCTION},
    ),
}
OWN = {
    "the agent's rule": Asking(ASK),
    "the agent's default": Asking(Permissions(default="ask")),
    "the agent's function": Asking(Permissions(function="mine:rules"), more={"answer": FUNCTION}),
    "a tool of one's own": Asking(Permissions()),
}
ALL = {**OTHERS, **OWN}
UNDER = {name: frozenset(asking.judged().asked_by) for name, asking in ALL.items()}
ELSE = frozenset({"deployment", "project", "agent", "parent:other", "untrusted"})
"""All that could ask; of a question it answers all but what is asked here."""


def kept(asking: Asking, asked_by: frozenset[str], traits: ToolTraits = ORDER, **arguments: Any) -> list[Remembered]:
    call = traits.call(arguments or {"item": "loom", "count": 1})
    return [Remembered(rule=rule, arguments=call.digest, asked_by=asked_by) for rule in rule_for(call)]


Way = Callable[[str, Asking], str]
"""Tries to silence the question of a source; gives what is decided then: allow, ask, deny or halt."""


def by_expiry(name: str, asking: Asking) -> str:
    return asking.approvals(SILENT).on_expiry


def by_being_halted(name: str, asking: Asking) -> str:
    """Picked up again, it is asked anew: nothing that halts ever allows."""
    return asking.approvals(ApprovalPolicy.model_validate({"expires": "1s", "on_expiry": "halt"})).on_expiry


def by_mode(mode: str) -> Way:
    def tried(name: str, asking: Asking) -> str:
        changed = Asking(asking.permissions.model_copy(update={"mode": mode}), asking.layers, asking.more)
        return changed.judged(WRITE, {"path": "a.md"}).decision

    return tried


def by_the_same_call(name: str, asking: Asking) -> str:
    return asking.judged(remembered=kept(asking, UNDER[name])).decision


def by_other_arguments(name: str, asking: Asking) -> str:
    return asking.judged(remembered=kept(asking, UNDER[name], item="loom", count=2)).decision


def by_another_ask(name: str, asking: Asking) -> str:
    return asking.judged(remembered=kept(asking, ELSE - UNDER[name])).decision


def by_other_content_of_a_path(name: str, asking: Asking) -> str:
    remembered = kept(asking, frozenset(asking.judged(WRITE).asked_by), WRITE, path="a.md", content="one")
    return asking.judged(WRITE, {"path": "a.md", "content": "two"}, remembered=remembered).decision


def by_being_allowed(name: str, asking: Asking) -> str:
    more = {**asking.more, "answer": asking.more.get("answer") or answer_of("mine:rules", "order", "allow")}
    changed = asking.permissions.model_copy(update={"allow": ["*", "order"]})
    return Asking(changed, asking.layers, more).judged().decision


def by_being_switched_off(name: str, asking: Asking) -> str:
    changed = asking.permissions.model_copy(update={"enabled": False})
    return Asking(changed, asking.layers, asking.more).judged().decision


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(
    ("way", "decision"),
    [
        (by_expiry, "deny"),
        (by_being_halted, "halt"),
        (by_mode("accept_edits"), "ask"),
        (by_mode("dont_ask"), "deny"),
        (by_the_same_call, "allow"),
        (by_other_arguments, "ask"),
        (by_another_ask, "ask"),
        (by_being_allowed, "ask"),
    ],
)
def test_what_others_ask_is_answered_by_a_person_alone(name: str, way: Way, decision: str) -> None:
    """The same call runs again only when its approval answered the very ones who ask, and was to be remembered."""
    assert OTHERS[name].judged().decision == "ask"
    assert way(name, OTHERS[name]) == decision


@pytest.mark.parametrize("name", [name for name in OTHERS if "untrusted" not in name])
def test_not_even_an_agent_that_is_switched_off_runs_what_a_layer_around_asks(name: str) -> None:
    assert by_being_switched_off(name, OTHERS[name]) == "ask"


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(
    ("way", "decision"),
    [
        (by_expiry, "allow"),
        (by_being_halted, "halt"),
        (by_mode("dont_ask"), "deny"),
        (by_the_same_call, "allow"),
        (by_other_arguments, "ask"),
        (by_another_ask, "ask"),
    ],
)
def test_what_an_agent_asks_by_itself_is_answered_as_it_says(name: str, way: Way, decision: str) -> None:
    assert OWN[name].judged().asked_by == ("agent",)
    assert way(name, OWN[name]) == decision


@pytest.mark.parametrize("name", ALL)
def test_a_path_is_remembered_with_any_content_but_not_after_untrusted_content(name: str) -> None:
    asked = ALL[name].judged(WRITE).decision == "ask"
    expected = "ask" if "untrusted" in name else "allow"
    assert asked
    assert by_other_content_of_a_path(name, ALL[name]) == expected


@pytest.mark.parametrize("name", ALL)
def test_who_must_answer_with_a_name_is_never_stood_in_for_by_silence(name: str) -> None:
    assert ALL[name].approvals(SILENT, named=True).on_expiry == "deny"


PARENT = ApprovalPolicy.model_validate({"expires": "1h", "on_expiry": "halt", "quorum": 2, "four_eyes": True})


@pytest.mark.parametrize(
    ("asking", "own", "expected"),
    [
        (PARENT, SILENT, {"expires": "1h", "on_expiry": "halt", "quorum": 2, "four_eyes": True}),
        ({"quorum": 2}, SILENT, {"expires": "1s", "quorum": 2}),
        ({"expires": "1h", "on_expiry": "allow"}, {}, {"expires": "1h", "on_expiry": "allow"}),
        ({"approvers": ["ann"]}, {"approvers": ["eve"]}, {"approvers": ["ann"]}),
        ({"approvers": ["ann", "bob"]}, {"approvers": ["Ann"]}, {"approvers": ["Ann"]}),
        ({"approvers": ["ann", "bob"], "quorum": 2}, {"approvers": ["ann"]},
         {"approvers": ["ann", "bob"], "quorum": 2}),
        ({"approvers": ["ann"]}, {"expires": "1s", "on_expiry": "escalate", "escalate": [{"to": ["eve"]}]},
         {"approvers": ["ann"], "expires": "1s"}),
        ({"signed": "high"}, {"signed": "low"}, {"signed": "low"}),
        ({"signed": "low", "quorum": 3}, SILENT, {"signed": "low", "quorum": 3, "expires": "1s"}),
    ],
)  # fmt: skip
def test_a_job_above_is_asked_as_it_says_and_nothing_of_that_is_lowered(
    asking: Any, own: Any, expected: dict[str, Any]
) -> None:
    source = Asking(above(ApprovalPolicy.model_validate(asking)))
    found = source.approvals(ApprovalPolicy.model_validate(own))
    assert found.model_dump(mode="json", exclude_defaults=True) == ApprovalPolicy.model_validate(expected).model_dump(
        mode="json", exclude_defaults=True
    )


@pytest.mark.parametrize(
    ("outer", "inner", "expires"),
    [("1h", "1s", 3600.0), ("1s", "1h", 3600.0), (None, "1s", None), ("1s", None, None)],
)
def test_silence_counts_at_the_latest_of_the_times_of_all_who_ask(
    outer: str | None, inner: str | None, expires: float | None
) -> None:
    policies = [ApprovalPolicy.model_validate({"expires": time, "on_expiry": "allow"}) for time in (outer, inner)]
    found = Asking(above(policies[0], inner=ASK)).approvals(policies[1])
    assert (found.on_expiry, found.expires) == ("allow", expires)


def test_of_several_above_one_that_does_not_say_so_is_enough_for_a_refusal() -> None:
    yes = ApprovalPolicy.model_validate({"expires": "1s", "on_expiry": "allow"})
    family = ALLOW.below(Permissions(ask=["order"]).below(ASK, yes), ApprovalPolicy())
    assert Asking(family).approvals(yes).on_expiry == "deny"
    family = ALLOW.below(Permissions(ask=["order"]).below(ASK, yes), yes)
    assert Asking(family).approvals(yes).on_expiry == "allow"


def test_where_nobody_could_decide_that_is_said() -> None:
    grandparent = Permissions(ask=["order"]).below(ASK, ApprovalPolicy(approvers=("ann", "bob"), quorum=2))
    family = ALLOW.below(grandparent, ApprovalPolicy(approvers=("eve",)))
    assert Asking(family).approvals(ApprovalPolicy()).approvers == ("ann", "bob")
    step = {"escalate": [{"after": "1h", "to": ["eve"]}], "approvers": ["ann"], "quorum": 2}
    wrong = ALLOW.below(
        Permissions(ask=["order"]).below(ASK, ApprovalPolicy(expires="1h")), ApprovalPolicy.model_validate(step)
    )
    with pytest.raises(ExpressionError, match="quorum"):
        Asking(wrong).approvals(ApprovalPolicy())


@pytest.mark.parametrize(
    ("name", "own", "words"),
    [
        ("the agent's rule", {}, ""),
        ("the agent's rule", SILENT, "if nobody answers within 1s, it runs"),
        (
            "deployment",
            SILENT,
            "within 1s, it is refused (the agent's `on_expiry: allow` does not count: the deployment",
        ),
        ("parent", SILENT, "a job above asks)"),
        ("untrusted content, and the agent", SILENT, "the check after untrusted content asks)"),
        ("project", {"expires": "2h", "on_expiry": "halt"}, "within 2h, the job pauses until somebody decides"),
    ],
)
def test_a_request_says_what_happens_when_nobody_answers(name: str, own: Any, words: str) -> None:
    policy = ApprovalPolicy.model_validate(own)
    said = unanswered(ALL[name].approvals(policy), policy, ALL[name].judged())
    assert words in said
    assert bool(words) is bool(said)


def test_a_plan_made_before_asks_and_expires_as_a_refusal() -> None:
    before = Permissions.model_validate({"allow": ["*"], "within": [{"ask": ["*"]}]})
    assert Asking(before).approvals(SILENT).on_expiry == "deny"


def test_what_would_be_remembered_is_said_in_words() -> None:
    same = f"order(sha256:{'0' * 64})"
    rules = ["write_file(a.md)", same, "network_request(GET domain:a.org)", "network_request(POST domain:a.org)"]
    said = in_words(rules)
    assert said.startswith("write_file(a.md), and order with these very arguments, and network_request(GET")
    assert said.count("HEAD") == 1


@pytest.mark.parametrize("inner", [{}, {"expires": "1s"}, {"expires": "1s", "on_expiry": "allow"}])
@pytest.mark.parametrize("outer", [{}, {"expires": "1h", "on_expiry": "allow"}])
def test_of_two_policies_at_once_neither_lets_silence_allow(inner: dict[str, Any], outer: dict[str, Any]) -> None:
    found = strengthened(ApprovalPolicy.model_validate(inner), ApprovalPolicy.model_validate(outer))
    assert found.on_expiry == "deny"
