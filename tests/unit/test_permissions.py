"""Policies: rules, layers, and the laws that no combination of rules may break."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from loom_dsl.permissions.decide import Verdict, decide, explain
from loom_dsl.permissions.policy import Permissions
from loom_dsl.permissions.remembered import Remembered
from loom_dsl.permissions.rules import parse_rule, rule_for
from loom_dsl.permissions.traits import ToolTraits, traits_of
from loom_dsl.tools.risk import Risk
from loom_dsl.tools.tool import tool

KNOWN = {"read_file": True, "glob": True, "grep": True, "calculator": True, "write_file": False, "edit_file": False}
WITHOUT_PATHS = {"calculator"}


def traits(name: str, *paths: str, **more: Any) -> ToolTraits:
    builtin = name in KNOWN
    touched = paths if paths or (builtin and name not in WITHOUT_PATHS) else None
    return ToolTraits(
        name=name,
        read_only=KNOWN.get(name, False),
        builtin=builtin,
        paths=touched,
        recursive=name in ("glob", "grep"),
        **more,
    )


def verdict(policy: dict[str, Any], name: str, *paths: str, **more: Any) -> Verdict:
    arguments = more.pop("arguments", {})
    decide_options = {key: more.pop(key) for key in ("remembered",) if key in more}
    return decide(Permissions.model_validate(policy), traits(name, *paths, **more), arguments, **decide_options)


@pytest.mark.parametrize(
    ("policy", "name", "path", "decision", "layer", "rule"),
    [
        ({}, "read_file", "a", "allow", "built-in", "built-in tools that read"),
        ({}, "write_file", "a", "ask", "built-in", "built-in tools that write"),
        ({}, "read_file", "../a", "deny", "built-in", "read_file: inside the working directory"),
        ({}, "read_file", "/etc/passwd", "deny", "built-in", "read_file: inside the working directory"),
        ({"allow": ["*"]}, "write_file", "../a", "deny", "built-in", "write_file: inside the working directory"),
        ({"allow": ["*"]}, "write_file", "a", "allow", "agent", "*"),
        ({"allow": ["write_file"]}, "write_file", "a", "allow", "agent", "write_file"),
        ({"allow": ["write_file(r/**)"]}, "write_file", "r/x/y", "allow", "agent", "write_file(r/**)"),
        ({"allow": ["write_file(r/**)"]}, "write_file", "r/../s", "ask", "built-in", "built-in tools that write"),
        ({"allow": ["write_file(r/**)"]}, "write_file", "s", "ask", "built-in", "built-in tools that write"),
        ({"deny": ["write_file(r/**)"]}, "write_file", "x/../r/a", "deny", "agent", "write_file(r/**)"),
        ({"deny": ["read_file(**/*.pem)"]}, "read_file", "k.pem", "deny", "agent", "read_file(**/*.pem)"),
        ({"ask": ["read_file"], "allow": ["*"]}, "read_file", "a", "ask", "agent", "read_file"),
        ({"deny": ["*"], "allow": ["read_file"]}, "read_file", "a", "deny", "agent", "*"),
        ({"allow": ["grep(src/**)"]}, "grep", "src", "allow", "agent", "grep(src/**)"),
        ({"deny": ["grep(secrets/**)"]}, "grep", ".", "deny", "agent", "grep(secrets/**)"),
        ({"deny": ["grep(secrets/**)"]}, "grep", "src", "allow", "built-in", "built-in tools that read"),
        ({"deny": ["read_file(secrets/**)"]}, "read_file", ".", "allow", "built-in", "built-in tools that read"),
        ({"deny": ["*(secrets/**)"]}, "read_file", "secrets/k", "deny", "agent", "*(secrets/**)"),
        ({"default": "deny"}, "read_file", "a", "deny", "default", "default: deny"),
        ({"default": "ask"}, "read_file", "a", "allow", "built-in", "built-in tools that read"),
        ({"default": "allow"}, "write_file", "a", "ask", "built-in", "built-in tools that write"),
        ({"enabled": False, "deny": ["*"]}, "write_file", "a", "allow", "switched off", "enabled: false"),
    ],
)
def test_a_call_on_a_path_is_decided(
    policy: dict[str, Any], name: str, path: str, decision: str, layer: str, rule: str
) -> None:
    found = verdict(policy, name, path)
    assert (found.decision, found.layer, found.rule) == (decision, layer, rule)
    assert name in explain(found) or repr(path) in explain(found)
    assert found.decision in explain(found)


@pytest.mark.parametrize(
    ("policy", "name", "more", "decision", "layer"),
    [
        ({}, "lookup", {}, "ask", "built-in"),
        ({"default": "ask"}, "lookup", {}, "ask", "built-in"),
        ({"default": "allow"}, "lookup", {}, "ask", "built-in"),
        ({"default": "deny"}, "lookup", {}, "deny", "default"),
        ({"deny": ["*(secrets/**)"]}, "calculator", {}, "allow", "built-in"),
        ({"allow": ["my_tools:lookup"]}, "lookup", {"reference": "my_tools:lookup"}, "allow", "agent"),
        ({"allow": ["my_tools:lookup"]}, "lookup", {"reference": "other:lookup"}, "ask", "built-in"),
        ({"allow": ["lookup(x/**)"]}, "lookup", {}, "ask", "built-in"),
        ({"deny": ["lookup(x/**)"]}, "lookup", {}, "deny", "agent"),
        ({"allow": ["get(url=https://a.b/*)"]}, "get", {"arguments": {"url": "https://a.b/c/d"}}, "allow", "agent"),
        ({"allow": ["get(url=https://a.b/*)"]}, "get", {"arguments": {"url": "https://a.bad/c"}}, "ask", "built-in"),
        ({"deny": ["get(n=5)"]}, "get", {"arguments": {"n": 5}}, "deny", "agent"),
        ({"allow": ["get(n=*)"]}, "get", {}, "ask", "built-in"),
    ],
)
def test_a_call_without_paths_is_decided(
    policy: dict[str, Any], name: str, more: dict[str, Any], decision: str, layer: str
) -> None:
    found = verdict(policy, name, **more)
    assert (found.decision, found.layer) == (decision, layer)


def test_a_remembered_approval_answers_an_ask_but_not_a_deny() -> None:
    remembered = [Remembered(rule="write_file(reports/x.md)")]
    policy = {"ask": ["write_file"]}
    assert verdict(policy, "write_file", "reports/x.md", remembered=remembered).layer == "remembered"
    assert verdict(policy, "write_file", "reports/y.md", remembered=remembered).decision == "ask"
    policy = {"deny": ["write_file(reports/**)"]}
    assert verdict(policy, "write_file", "reports/x.md", remembered=remembered).decision == "deny"


def test_the_first_rule_that_fits_is_the_one_that_is_named() -> None:
    assert verdict({"deny": ["read_file(b/**)", "read_file(a/**)", "*"]}, "read_file", "a/x").rule == "read_file(a/**)"


def test_a_link_that_leads_elsewhere_is_held_against_the_rules_too() -> None:
    @tool(read_only=True, path_arguments=("path",))
    def peek(path: str) -> str:
        return path

    def real(path: str) -> str:
        return path.replace("pub/", "secrets/")

    call = traits_of(peek, {"path": "/w/pub/x"}, builtin=True, working_dir="/w", real_path=real)
    assert call.paths == ("pub/x", "secrets/x")
    denied = decide(Permissions(deny=["peek(secrets/**)"]), call, {})
    assert denied.decision == "deny"
    only_pub = decide(Permissions(allow=["peek(pub/**)"], default="deny"), call, {})
    assert only_pub.decision == "deny"


def test_traits_keep_a_path_that_leaves_so_that_it_is_refused() -> None:
    @tool(read_only=True, path_arguments=("paths",))
    def peek(paths: list[str]) -> str:
        return ""

    call = traits_of(peek, {"paths": ["a/../b", "/etc/x"]}, builtin=True, working_dir="/w")
    assert call.paths == ("b", "/etc/x")
    found = decide(Permissions(allow=["*"]), call, {})
    assert (found.decision, "'/etc/x' is outside" in found.reason) == ("deny", True)


def test_a_flat_map_says_the_same_as_lists() -> None:
    flat = Permissions.model_validate({"read_file": "allow", "write_file(r/**)": "ask", "rm": "deny", "default": "ask"})
    assert flat == Permissions(allow=["read_file"], ask=["write_file(r/**)"], deny=["rm"], default="ask")


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"allow": ["write_file("]}, "'write_file\\(' is not a rule"),
        ({"allow": [""]}, "'' is not a rule"),
        ({"deny": ["a b"]}, "'a b' is not a rule"),
        ({"deny": ["write_*"]}, "'write_\\*' is not a rule"),
        ({"ask": ["write_file()"]}, "'write_file\\(\\)' has an empty specifier"),
        ({"ask": ["write_file(/etc/**)"]}, "write_file\\(/etc/\\*\\*\\).*absolute"),
        ({"ask": ["write_file(../x)"]}, "write_file\\(../x\\).*climbs"),
        ({"read_file": "yes"}, "'read_file' is 'yes'; write allow, ask or deny"),
        ({"read_file": "allow", "deny": ["x"]}, "not both"),
        ({"alow": ["read_file"]}, "alow"),
        ({"default": "maybe"}, "default"),
        ({"enabled": "no"}, "enabled"),
    ],
)
def test_a_malformed_policy_is_refused_with_the_rule(policy: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Permissions.model_validate(policy)


RULES = ["*", *KNOWN, *(f"{name}({glob})" for name in KNOWN for glob in ("**", "a/**", "*.md", "a/b")), "*(a/**)"]
PATHS = st.sampled_from(["a", "a/b", "a/../b.md", "x.md", ".", "../a", "/a", "a/b/../../..", "~/.ssh/id_rsa"])
RULE_LISTS = st.lists(st.sampled_from(RULES), max_size=4)
POLICIES = st.builds(
    Permissions,
    allow=RULE_LISTS,
    ask=RULE_LISTS,
    deny=RULE_LISTS,
    default=st.sampled_from(["allow", "ask", "deny", None]),
)


@given(POLICIES, st.sampled_from(sorted(KNOWN)), PATHS, RULE_LISTS)
def test_deny_always_wins_and_nothing_outside_is_ever_allowed(
    policy: Permissions, name: str, path: str, remembered: list[str]
) -> None:
    call = traits(name) if name in WITHOUT_PATHS else traits(name, path)
    found = decide(policy, call, {}, [Remembered(rule=rule) for rule in remembered])
    denied_alone = decide(Permissions(deny=policy.deny, default="allow"), call, {}).decision == "deny"
    if denied_alone:
        assert found.decision == "deny"
    if call.paths and path.startswith(("..", "/", "~", "a/b/../../..")):
        assert found.decision == "deny"


@given(POLICIES, st.sampled_from(sorted(KNOWN)), PATHS)
def test_one_more_deny_rule_never_allows_more(policy: Permissions, name: str, path: str) -> None:
    order = {"deny": 0, "ask": 1, "allow": 2}
    stricter = policy.model_copy(update={"deny": [*policy.deny, "*(a/**)"]})
    call = traits(name) if name in WITHOUT_PATHS else traits(name, path)
    assert order[decide(stricter, call, {}).decision] <= order[decide(policy, call, {}).decision]


@given(st.lists(st.text(alphabet="ab*?[]{},!=. ", min_size=1, max_size=5), min_size=1, max_size=3))
def test_a_rule_written_for_a_call_allows_that_call_and_no_neighbour(parts: list[str]) -> None:
    path = str(Path(*parts))
    rules = rule_for(traits("write_file", path).call({}))
    policy, remembered = Permissions(ask=["*"]), [Remembered(rule=rule) for rule in rules]
    inside = verdict(policy.model_dump(), "write_file", path, remembered=remembered)
    neighbour = verdict(policy.model_dump(), "write_file", path + "z", remembered=remembered)
    assert neighbour.decision == "ask" or ".." in path
    assert inside.decision == ("allow" if rules else "deny")


def test_a_rule_for_a_call_without_paths_names_its_very_arguments() -> None:
    call = traits("lookup").call({"word": "loom"})
    (rule,) = rule_for(call)
    assert rule == f"lookup(sha256:{call.digest})"
    assert parse_rule(rule).surely_fits(call)
    other = traits("lookup").call({"word": "gold"})
    assert not parse_rule(rule).surely_fits(other)
    assert not parse_rule(rule).may_fit(other)
    masked = traits("lookup", digest=call.digest).call({"word": "as the store has it"})
    assert parse_rule(rule).surely_fits(masked)


@pytest.mark.parametrize("path", ["a=b", "sha256:" + "0" * 64, "domain:a.org", "GET domain:a.org"])
def test_a_path_that_would_say_something_else_is_still_a_path(path: str) -> None:
    (text,) = rule_for(traits("write_file", path).call({}))
    rule = parse_rule(text)
    assert (rule.argument, rule.arguments, rule.domain) == (None, "", None)
    assert rule.surely_fits(traits("write_file", path).call({}))
    assert not rule.surely_fits(traits("write_file", path + "z").call({}))


def test_the_risk_is_part_of_the_reason() -> None:
    assert "risk high" in verdict({}, "deploy", risk=Risk.HIGH).reason


def test_a_long_policy_is_read_once_and_not_for_every_call() -> None:
    policy = Permissions(
        deny=[f"read_file(kept-{number}/**)" for number in range(2_000)], ask=[f"t{number}" for number in range(2_000)]
    )
    assert decide(policy, traits("read_file", "a"), {}).decision == "allow"
    before = parse_rule.cache_info().misses
    assert decide(policy, traits("read_file", "b"), {}).decision == "allow"
    assert parse_rule.cache_info().misses == before
