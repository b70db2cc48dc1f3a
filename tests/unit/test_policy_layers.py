"""Policies around an agent's own: layers, modes, the agent's function, hosts and MCP tools."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from activities.record.activity_call import ActivityCall
from activities.tool_calls.policy_layers import PolicyLayers, ask_function
from loom_dsl.errors import ConfigurationError, MissingTools, PermissionDenied
from loom_dsl.permissions.combine import narrowed, widenings
from loom_dsl.permissions.decide import PolicyLayer, Verdict, decide
from loom_dsl.permissions.deployment import read_policy
from loom_dsl.permissions.function import PermissionRequest, answer_of
from loom_dsl.permissions.policy import Permissions
from loom_dsl.permissions.remembered import Remembered
from loom_dsl.permissions.rules import Call as JudgedCall
from loom_dsl.permissions.rules import parse_rule, rule_for
from loom_dsl.permissions.traits import ToolTraits
from loom_dsl.tools.risk import Risk
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_tools.policy_files import POLICY_VARIABLE, deployment_policy, project_policy
from loom_tools.registry import ToolRegistry
from tests.support.waiting import eventually


def write(path: str = "r/a", **more: Any) -> ToolTraits:
    return ToolTraits(name="write_file", read_only=False, builtin=True, paths=(path,), **more)


READ = ToolTraits(name="read_file", read_only=True, builtin=True, paths=("r/a",))


def decided(
    agent: dict[str, Any],
    *,
    deployment: dict[str, Any] | None = None,
    project: dict[str, Any] | None = None,
    traits: ToolTraits | None = None,
    **more: Any,
) -> tuple[str, str, str]:
    layers = [PolicyLayer("deployment", Permissions.model_validate(deployment))] if deployment is not None else []
    layers += [PolicyLayer("project", Permissions.model_validate(project))] if project is not None else []
    found = decide(Permissions.model_validate(agent), traits or write(), {}, layers=layers, **more)
    return found.decision, found.layer, found.rule


ALLOW = {"allow": ["write_file"]}


@pytest.mark.parametrize(
    ("agent", "around", "expected"),
    [
        (ALLOW, {}, ("allow", "agent", "write_file")),
        (ALLOW, {"deployment": {"deny": ["write_file(r/**)"]}}, ("deny", "deployment", "write_file(r/**)")),
        (ALLOW, {"project": {"deny": ["write_file(r/**)"]}}, ("deny", "project", "write_file(r/**)")),
        (ALLOW, {"deployment": {"ask": ["write_file"]}}, ("ask", "deployment", "write_file")),
        (ALLOW, {"project": {"ask": ["*"]}}, ("ask", "project", "*")),
        (ALLOW, {"deployment": {"default": "deny"}}, ("deny", "deployment", "default: deny")),
        (ALLOW, {"deployment": {"default": "ask"}}, ("ask", "deployment", "default: ask")),
        (ALLOW, {"deployment": {"default": "deny", "allow": ["*"]}}, ("allow", "agent", "write_file")),
        (ALLOW, {"deployment": {"default": "deny", "ask": ["*"]}}, ("ask", "deployment", "*")),
        (ALLOW, {"project": {"default": "deny", "allow": ["write_file(s/**)"]}}, ("deny", "project", "default: deny")),
        ({}, {"deployment": ALLOW}, ("allow", "deployment", "write_file")),
        ({}, {"project": ALLOW}, ("ask", "built-in", "built-in tools that write")),
        ({"ask": ["*"]}, {"deployment": ALLOW}, ("ask", "agent", "*")),
        ({"deny": ["*"]}, {"deployment": ALLOW}, ("deny", "agent", "*")),
        ({"default": "deny"}, {"deployment": ALLOW}, ("deny", "default", "default: deny")),
        ({"enabled": False}, {"deployment": {"deny": ["*"]}}, ("deny", "deployment", "*")),
        ({"enabled": False}, {"project": {"ask": ["*"]}}, ("ask", "project", "*")),
        ({"enabled": False}, {"project": {"mode": "plan"}}, ("deny", "mode", "mode: plan")),
        ({"enabled": False}, {"deployment": {}}, ("allow", "switched off", "enabled: false")),
        ({"mode": "plan", **ALLOW}, {}, ("deny", "mode", "mode: plan")),
        (ALLOW, {"deployment": {"mode": "plan"}}, ("deny", "mode", "mode: plan")),
        ({"mode": "accept_edits"}, {}, ("allow", "mode", "mode: accept_edits")),
        ({"mode": "accept_edits", "ask": ["write_file"]}, {}, ("ask", "agent", "write_file")),
        ({"mode": "accept_edits", "default": "deny"}, {}, ("deny", "default", "default: deny")),
        ({"mode": "accept_edits"}, {"deployment": {"ask": ["*"]}}, ("ask", "deployment", "*")),
        ({"mode": "accept_edits"}, {"project": {"mode": "plan"}}, ("deny", "mode", "mode: plan")),
        ({"mode": "dont_ask"}, {}, ("deny", "built-in", "built-in tools that write")),
        ({"mode": "dont_ask", "ask": ["*"]}, {}, ("deny", "agent", "*")),
        ({"mode": "dont_ask", **ALLOW}, {}, ("allow", "agent", "write_file")),
        (
            {"mode": "accept_edits"},
            {"deployment": {"mode": "dont_ask"}},
            ("deny", "built-in", "built-in tools that write"),
        ),
    ],
)
def test_a_layer_only_narrows_what_is_below_it(
    agent: dict[str, Any], around: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    assert decided(agent, **around) == expected


def test_reading_goes_on_in_the_mode_plan() -> None:
    assert decided({"mode": "plan"}, traits=READ)[0] == "allow"


@pytest.mark.parametrize(
    "traits",
    [
        write("../x"),
        write(risk=Risk.HIGH),
        write(recursive=True),
        ToolTraits(name="network_request", read_only=False, builtin=True),
        ToolTraits(name="mine", read_only=False, builtin=False, paths=("a",)),
        ToolTraits(name="execute_bash", read_only=False, builtin=True, paths=("a",), command_argument="command"),
    ],
)
def test_accept_edits_is_about_edits_inside_the_working_directory(traits: ToolTraits) -> None:
    assert decided({"mode": "accept_edits"}, traits=traits)[0] != "allow"


@pytest.mark.parametrize("layer", ["deployment", "project", "agent"])
def test_what_was_remembered_answers_no_deny(layer: str) -> None:
    remembered = [Remembered(rule="write_file(r/a)", asked_by=frozenset({"deployment", "project", "agent"}))]
    denied: dict[str, Any] = {"deployment": {}, "project": {}, "agent": {}, layer: {"deny": ["*"]}}
    assert decided(denied.pop("agent"), remembered=remembered, **denied)[0] == "deny"
    if layer != "agent":
        strict: dict[str, Any] = {layer: {"default": "deny"}}
        assert decided({}, remembered=remembered, **strict)[0] == "deny"


def says(decision: str) -> Verdict:
    return Verdict.model_validate({"decision": decision, "rule": "m:f", "layer": "function", "reason": "it says so"})


@pytest.mark.parametrize(
    ("agent", "around", "answer", "decision"),
    [
        (ALLOW, {}, "deny", "deny"),
        (ALLOW, {}, "ask", "ask"),
        ({}, {}, "allow", "allow"),
        ({"ask": ["*"]}, {}, "allow", "allow"),
        ({"deny": ["*"]}, {}, "allow", "deny"),
        ({}, {"deployment": {"deny": ["*"]}}, "allow", "deny"),
        ({}, {"deployment": {"ask": ["*"]}}, "allow", "ask"),
        ({}, {"project": {"default": "ask"}}, "allow", "ask"),
        ({"mode": "plan"}, {}, "allow", "deny"),
        ({"mode": "dont_ask"}, {}, "ask", "deny"),
        ({"enabled": False}, {}, "deny", "deny"),
    ],
)
def test_a_function_may_deny_ask_and_allow_what_nothing_denies(
    agent: dict[str, Any], around: dict[str, Any], answer: str, decision: str
) -> None:
    assert decided(agent, answer=says(answer), **around)[0] == decision


@pytest.mark.parametrize(
    ("given", "decision"),
    [
        ("allow", "allow"),
        ("ask", "ask"),
        (("deny", "too late"), "deny"),
        (True, "deny"),
        ("yes", "deny"),
        (["allow"], "deny"),
    ],
)
def test_the_answer_of_a_function_is_a_decision_or_it_denies(given: object, decision: str) -> None:
    found = answer_of("m:f", "write_file", given)
    assert found is not None
    assert (found.decision, found.layer, found.rule) == (decision, "function", "m:f")
    assert answer_of("m:f", "write_file", None) is None


async def test_a_function_that_fails_denies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_policy_module.py").write_text(
        "def late(call):\n    return ('deny', 'at night') if call.paths == ('r/a',) else None\n"
        "def broken(call):\n    raise ValueError('no')\n"
        "async def slow(call):\n    return 'allow'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry = ToolRegistry.load(modules=["my_policy_module"])
    request = PermissionRequest.of(write(), {}, agent="a", job="j")

    async def asked(name: str) -> Verdict | None:
        return await ask_function(registry, f"my_policy_module:{name}", request)

    late, broken, slow, missing = [await asked(name) for name in ("late", "broken", "slow", "missing")]
    assert late is not None
    assert (late.decision, late.reason) == ("deny", "write_file is not allowed: at night")
    assert broken is not None
    assert (broken.decision, "ValueError" in broken.reason) == ("deny", True)
    assert missing is not None
    assert missing.decision == "deny"
    assert slow is not None
    assert slow.decision == "allow"
    with pytest.raises(MissingTools):
        await ask_function(registry, "other:f", request)


def host(*hosts: str | None) -> ToolTraits:
    return ToolTraits(name="network_request", read_only=False, builtin=True, risk=Risk.HIGH, hosts=hosts)


@pytest.mark.parametrize(
    ("rule", "asked", "allowed", "denied"),
    [
        ("domain:api.example.com", "api.example.com", True, True),
        ("domain:API.example.com.", "api.example.com", True, True),
        ("domain:example.com", "api.example.com", False, True),
        ("domain:*.example.com", "api.example.com", True, True),
        ("domain:*.example.com", "example.com", False, True),
        ("domain:*.example.com", "badexample.com", False, False),
        ("domain:example.com", "example.com.evil.org", False, False),
        ("domain:*", "any.org", True, True),
        ("domain:example.com", None, False, True),
    ],
)
def test_a_rule_about_a_domain(rule: str, asked: str | None, allowed: bool, denied: bool) -> None:
    text = f"network_request({rule})"
    assert (decided({"allow": [text]}, traits=host(asked))[0] == "allow") is allowed
    assert (decided({"deny": [text]}, traits=host(asked))[0] == "deny") is denied


def test_a_rule_about_mcp_tools() -> None:
    tool = ToolTraits(name="mcp__git__status", read_only=True, builtin=False)
    assert decided({"allow": ["mcp__git__*"]}, traits=tool)[2] == "mcp__git__*"
    assert decided({"allow": ["mcp__*"], "deny": ["mcp__git__*"]}, traits=tool)[0] == "deny"
    assert decided({"allow": ["mcp__gitlab__*", "mcp__git"]}, traits=tool)[0] == "ask"


def request(method: str, host: str | None = "a.org") -> JudgedCall:
    traits = ToolTraits(name="network_request", read_only=False, builtin=True, hosts=(host,), method=method)
    return traits.call({"url": f"https://{host}/", "method": method})


@pytest.mark.parametrize(
    ("asked", "covered", "not_covered"),
    [
        ("GET", ["GET", "HEAD"], ["OPTIONS", "POST", "PUT", "PATCH", "DELETE", ""]),
        ("HEAD", ["HEAD"], ["GET", "POST", ""]),
        ("POST", ["POST"], ["GET", "HEAD", "PUT", "DELETE", ""]),
    ],
)
def test_what_is_remembered_of_a_request_is_its_method_and_its_host(
    asked: str, covered: list[str], not_covered: list[str]
) -> None:
    (text,) = rule_for(request(asked))
    assert text == f"network_request({asked} domain:a.org)"
    rule = parse_rule(text)
    assert [m for m in covered + not_covered if rule.surely_fits(request(m))] == covered
    assert not rule.surely_fits(request(asked, "b.org"))
    assert rule.may_fit(request("")), "as a rule that denies it holds where the method is not known"
    assert not rule.may_fit(request("PATCH"))


def test_a_request_that_cannot_be_read_is_not_remembered() -> None:
    assert rule_for(request("GET", None)) == []
    with pytest.raises(ValueError, match="not a method"):
        parse_rule("network_request(FETCH domain:a.org)")


POLICY = "loom: 1\nkind: policy\npermissions: {deny: [delete_file]}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: agent", "kind"),
        ("loom: 1\nkind: policy\npermissions: {enabled: false}\n", "enabled: false"),
        ("loom: 1\nkind: policy\npermissions: {function: 'a:b'}\n", "function"),
        ("loom: 1\nkind: policy\npermissions: {mode: accept_edits}\n", "accept_edits"),
        ("loom: 1\nkind: policy\npermissions: {deny: ['x(']}\n", "is not a rule"),
        ("loom: 1\nkind: policy\nrules: []\n", "rules"),
    ],
)
def test_a_policy_that_cannot_be_used_stops_everything(tmp_path: Path, text: str, words: str) -> None:
    place = tmp_path / ".loom" / "policy.yaml"
    place.parent.mkdir()
    place.write_text(text)
    with pytest.raises(ConfigurationError, match=words):
        deployment_policy({POLICY_VARIABLE: str(place)})
    with pytest.raises(PermissionDenied, match=words):
        project_policy(tmp_path)


def test_policies_are_found(tmp_path: Path) -> None:
    assert deployment_policy({}) is None
    assert project_policy(tmp_path) is None
    (tmp_path / ".loom").mkdir()
    (tmp_path / ".loom" / "policy.yaml").write_text(POLICY)
    found = project_policy(tmp_path)
    assert found is not None
    assert found == read_policy(POLICY, "x")[0]
    with pytest.raises(ConfigurationError, match="cannot be read"):
        deployment_policy({POLICY_VARIABLE: str(tmp_path / "none.yaml")})


def test_a_written_policy_widens_neither_the_mode_nor_who_decides() -> None:
    outer = Permissions(allow=["*"], mode="dont_ask", function="m:f")
    told = list(widenings(Permissions(mode="accept_edits", function="n:g"), outer))
    assert [text for text in told if "accept_edits" in text or "n:g" in text] == told
    assert len(told) == 2
    assert list(widenings(Permissions(mode="plan"), outer)) == []
    both = narrowed(Permissions(), outer, inherit=False)
    assert (both.mode, both.function) == ("dont_ask", "m:f")
    assert narrowed(Permissions(mode="plan"), outer, inherit=False).mode == "plan"


async def test_a_project_that_changes_its_policy_only_adds_to_it(tmp_path: Path) -> None:
    file = tmp_path / ".loom" / "policy.yaml"
    file.parent.mkdir()
    with Store.open(tmp_path / "loom.db") as store:

        async def denied(layers: PolicyLayers, run: str, job: str = "j") -> list[list[str]]:
            await layers.learn(store, ActivityCall(job, 0, "a#1", "", {}, [], latest=(job, run)), tmp_path)
            return [layer.permissions.deny for layer in layers.around((job, run), tmp_path)]

        one, other = PolicyLayers(ToolRegistry.load(), {}), PolicyLayers(ToolRegistry.load(), {})
        file.write_text(POLICY)
        assert await denied(one, "turn 1") == [["delete_file"]]
        file.unlink()
        assert await denied(one, "turn 1") == [["delete_file"]]
        assert await denied(other, "turn 2") == [["delete_file"]], "another worker, or this one started anew, knows it"
        file.write_text(POLICY.replace("delete_file", "glob"))
        assert await denied(one, "turn 1") == [["delete_file"], ["glob"]], "what is narrower counts at once"
        assert await denied(other, "turn 3") == [["delete_file"], ["glob"]]
        assert await denied(other, "turn 1", "another job") == [["glob"]]
        file.write_text("kind: nonsense")
        with pytest.raises(PermissionDenied, match="so nothing may run"):
            await denied(one, "turn 1")


class Together(Store):
    """Gives what is read when two have read."""

    read_by = 0

    async def read(self, work: Callable[[Transaction], Any]) -> Any:
        found = await super().read(work)
        self.read_by += 1
        await eventually(lambda: self.read_by >= 2)
        return found


async def test_a_project_that_changes_its_policy_between_two_first_calls_only_adds_to_it(tmp_path: Path) -> None:
    file = tmp_path / ".loom" / "policy.yaml"
    file.parent.mkdir()
    layers, calls = PolicyLayers(ToolRegistry.load(), {}), []
    with Together.open(tmp_path / "loom.db") as store:
        for denied in ("delete_file", "glob"):
            file.write_text(POLICY.replace("delete_file", denied))
            call = ActivityCall("j", 0, "a#1", "", {}, [], latest=("j", "turn 1"))
            calls.append(asyncio.create_task(layers.learn(store, call, tmp_path)))
            await asyncio.sleep(0)
        await asyncio.gather(*calls)
    found = [layer.permissions.deny for layer in layers.around(("j", "turn 1"), tmp_path)]
    assert sorted(found) == [["delete_file"], ["glob"]]


@pytest.mark.parametrize(
    ("deployment", "project", "expected"),
    [
        ("", "", None),
        ("signed: high", "", "high"),
        ("", "signed: medium", "medium"),
        ("signed: high", "signed: low", "low"),
        ("signed: low", "signed: high", "low"),
    ],
)
def test_the_strictest_policy_says_from_which_risk_on_decisions_are_signed(
    tmp_path: Path, deployment: str, project: str, expected: str | None
) -> None:
    policy, own = tmp_path / "policy.yaml", tmp_path / ".loom" / "policy.yaml"
    own.parent.mkdir()
    policy.write_text(f"loom: 1\nkind: policy\n{deployment}\n")
    own.write_text(f"loom: 1\nkind: policy\n{project}\n")
    layers = PolicyLayers(ToolRegistry.load(), {POLICY_VARIABLE: str(policy)})
    assert layers.signed(("job", "run"), tmp_path) == expected


async def test_what_was_learnt_just_now_is_not_what_is_forgotten_for_other_runs(tmp_path: Path) -> None:
    file = tmp_path / ".loom" / "policy.yaml"
    file.parent.mkdir()
    file.write_text(POLICY)
    layers = PolicyLayers(ToolRegistry.load(), {}, most=2)
    with Store.open(tmp_path / "loom.db") as store:
        for run in ("long", "other", "long", "third"):
            await layers.learn(store, ActivityCall("j", 0, "a#1", "", {}, [], latest=("j", run)), tmp_path)
    file.unlink()
    assert [layer.permissions.deny for layer in layers.around(("j", "long"), tmp_path)] == [["delete_file"]]
