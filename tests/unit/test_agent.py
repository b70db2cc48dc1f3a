from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from loom_dsl.agent.definition import Agent, Limits, call_name, load_agent, tool_reference
from loom_dsl.approvals.policy import ApprovalPolicy
from loom_dsl.errors import DocumentError, ToolDeclarationError
from loom_dsl.permissions.policy import Permissions
from loom_dsl.tools.tool import tool

TEXT = """\
loom: 1
kind: agent
name: researcher
model: ${env:OPENAI_MODEL}
instructions: Values such as a ${env:NAME} in prose stay as they are.
tools: [glob, read_file, "my_tools:lookup"]
permissions: {allow: [glob], ask: ["write_file(reports/**)"], deny: [execute_bash], default: ask}
limits: {max_iterations: 20, max_tool_calls: 200, max_run_duration: 1h30m, max_cost_usd: 1.50}
parameters: {temperature: 0.2, user: "${env:WHO}"}
approvals: {expires: 24h, on_expiry: halt}
recurse: adaptive
"""
ENVIRONMENT = {"OPENAI_MODEL": "gpt-4.1-mini", "WHO": "sam"}
SMALLEST = "loom: 1\nkind: agent\nname: a\nmodel: m\n"


def look_up(word: str) -> str:
    """Look a word up."""
    return word


class Shelf:
    def find(self) -> str:
        """Find."""
        return ""


def findings(text: str, env: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        load_agent(text, "a.yaml", ENVIRONMENT if env is None else env)
    return [str(found) for found in caught.value.diagnostics]


def test_a_document_and_python_give_the_same_agent() -> None:
    written = Agent(
        name="researcher",
        model="gpt-4.1-mini",
        instructions="Values such as a ${env:NAME} in prose stay as they are.",
        tools=["glob", "read_file", "my_tools:lookup"],
        permissions=Permissions(allow=["glob"], ask=["write_file(reports/**)"], deny=["execute_bash"], default="ask"),
        limits=Limits(max_iterations=20, max_tool_calls=200, max_run_duration=timedelta(minutes=90), max_cost_usd=1.5),
        parameters={"temperature": 0.2, "user": "sam"},
        approvals=ApprovalPolicy(expires="24h", on_expiry="halt"),
        recurse="adaptive",
    )

    read = load_agent(TEXT, "a.yaml", ENVIRONMENT)

    assert read == written
    assert read.digest == written.digest
    assert (read.limits.max_run_duration, read.approvals.expires) == (5400.0, 86400.0)


def test_the_plan_data_has_all_defaults_and_reads_back_as_the_same_agent() -> None:
    agent = load_agent(SMALLEST, "a.yaml", {})
    data = agent.to_plan_data()

    assert (data["loom"], data["kind"], data["recurse"]) == (1, "agent", "per_turn")
    assert data["limits"] == {
        "max_iterations": 50,
        "max_tool_calls": None,
        "max_tool_rounds": None,
        "max_run_duration": None,
        "max_cost_usd": None,
        "max_context_tokens": 200_000,
        "calls": {},
        "max_concurrency": 10,
    }
    assert data["approvals"] == {
        "expires": "never", "on_expiry": "deny", "remind": None, "escalate": [], "approvers": [], "quorum": 1,
        "four_eyes": False, "signed": None,
    }  # fmt: skip
    assert Agent.from_plan_data(data) == agent
    assert Agent.from_plan_data(load_agent(TEXT, "a.yaml", ENVIRONMENT).to_plan_data()).digest != agent.digest


def test_the_order_of_fields_does_not_change_the_digest_but_a_value_does() -> None:
    reordered = "model: m\nname: a\nkind: agent\nloom: 1\n"

    assert load_agent(reordered, "b.yaml", {}).digest == load_agent(SMALLEST, "a.yaml", {}).digest
    assert load_agent(SMALLEST + "recurse: history\n", "a.yaml", {}).digest != load_agent(SMALLEST, "a.yaml", {}).digest


def test_permissions_are_also_a_flat_map() -> None:
    agent = load_agent(SMALLEST + "permissions: {glob: allow, 'write_file(a/**)': ask, default: deny}\n", "a.yaml", {})

    assert agent.permissions == Permissions(allow=["glob"], ask=["write_file(a/**)"], default="deny")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("instructions:", "instrctions:", "a.yaml:5:1: L002 unknown field `instrctions`; did you mean `instructions`?"),
        ("max_iterations", "max_iteration", "a.yaml:8:10: L002 unknown field `max_iteration`; did you mean `max_iter"),
        ("name: researcher", "name: Research Er", "a.yaml:3:7: L004 `name`: 'Research Er' is not a name"),
        ("name: researcher\n", "", "a.yaml:1:1: L003 missing field `name`"),
        ("1h30m", "90", "a.yaml:8:69: L004 `limits.max_run_duration`: 90 has no unit; write a duration such as 90s"),
        ("1h30m", "soon", "a.yaml:8:69: L004 `limits.max_run_duration`: 'soon' is not a duration"),
        ("1h30m", "0s", "a.yaml:8:69: L004 `limits.max_run_duration`: '0s' must be at least 1ms"),
        ("20,", "'20',", "a.yaml:8:26: L004 `limits.max_iterations`: should be a whole number, not '20'"),
        ("20,", "0,", "a.yaml:8:26: L004 `limits.max_iterations`: should be greater than or equal to 1, not 0"),
        ("20,", "true,", "a.yaml:8:26: L004 `limits.max_iterations`: should be a whole number, not True"),
        *(
            (
                "max_iterations: 20",
                f"compress_at: {bad}",
                f"a.yaml:8:23: L004 `limits.compress_at`: {shown} is not a share",
            )
            for bad, shown in [
                ("92", "92"),
                ("0", "0"),
                ("false", "False"),
                ("x", "'x'"),
                ("-0.5", "-0.5"),
                (".nan", "'.nan'"),
            ]
        ),
        ("glob, read_file", "glob, glob", "a.yaml:6:8: L004 `tools`: 'glob' and 'glob' are both called 'glob'"),
        (
            "read_file,",
            "other:lookup,",
            "a.yaml:6:8: L004 `tools`: 'other:lookup' and 'my_tools:lookup' are both called",
        ),
        ("read_file,", "read file,", "a.yaml:6:8: L004 `tools`: 'read file' is not a tool"),
        ("[glob, read_file", "[7, read_file", "a.yaml:6:9: L004 `tools[0]`: should be text, not 7"),
        ("write_file(reports/**)", "write_file(", "a.yaml:7:35: L004 `permissions.ask`: 'write_file(' is not a rule"),
        (
            "default: ask",
            "default: maybe",
            "a.yaml:7:94: L004 `permissions.default`: should be 'allow', 'ask' or 'deny'",
        ),
        ("temperature: 0.2", "stream: false", "a.yaml:9:13: L004 `parameters`: stream cannot be set here"),
        ("24h", "tomorrow", "a.yaml:10:22: L004 `approvals.expires`: 'tomorrow' is not a duration"),
        ("halt", "stop", "a.yaml:10:38: L004 `approvals.on_expiry`: should be 'deny', 'allow', 'halt' or 'escalate',"),
        ("recurse: adaptive", "recurse: never", "a.yaml:11:10: L004 `recurse`: should be 'per_turn', 'adaptive' or"),
        ("kind: agent", "kind: graph", "a.yaml:2:7: L006 unknown kind 'graph'"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_the_way_out(old: str, new: str, expected: str) -> None:
    assert findings(TEXT.replace(old, new, 1))[0].startswith(expected)


@pytest.mark.parametrize("env", [{}, {"OPENAI_MODEL": ""}])
def test_an_environment_variable_that_is_not_set_is_named(env: dict[str, str]) -> None:
    assert findings(TEXT, env) == [
        "a.yaml:4:8: L008 the environment variable OPENAI_MODEL is not set (set OPENAI_MODEL, or write the value here)",
        "a.yaml:9:38: L008 the environment variable WHO is not set (set WHO, or write the value here)",
    ]


def test_an_environment_reference_must_be_the_whole_value() -> None:
    text = SMALLEST.replace("model: m", "model: openai:${env:X}")

    assert findings(text, {"X": "gpt"})[0].startswith("a.yaml:4:8: L008 `${env:NAME}` must be the whole value")


def test_a_message_quotes_the_document_and_not_the_resolved_value() -> None:
    text = SMALLEST + 'limits: {max_iterations: "${env:COUNT}"}\n'

    assert "s3cret" not in findings(text, {"COUNT": "s3cret"})[0]
    assert "${env:COUNT}" in findings(text, {"COUNT": "s3cret"})[0]


def test_a_variable_that_is_not_set_hides_no_other_mistake() -> None:
    codes = [found.split()[1] for found in findings(TEXT.replace("recurse", "recurs"), {"WHO": "sam"})]

    assert codes == ["L008", "L002"]


def test_a_document_without_a_model_says_how_to_configure_one() -> None:
    assert "no model is configured" in findings("loom: 1\nkind: agent\nname: a\n")[0]
    assert load_agent("loom: 1\nkind: agent\nname: a\n", "a.yaml", {}, {"model": "gpt-x"}).model == "gpt-x"


def test_an_override_needs_no_variable() -> None:
    assert load_agent(TEXT, "a.yaml", {"WHO": "sam"}, {"model": "other"}).model == "other"


def test_functions_become_references_by_which_a_worker_finds_them() -> None:
    agent = Agent(name="a", model="m", tools=["glob", look_up])

    assert agent.tools == ("glob", f"{__name__}:look_up")
    assert call_name(agent.tools[1]) == "look_up"
    assert tool_reference(tool(look_up)) == f"{__name__}:look_up"


def nested() -> Any:
    def inner() -> str:
        """Inner."""
        return ""

    return inner


@pytest.mark.parametrize(
    ("function", "reason"),
    [(lambda: "", "a lambda"), (nested(), "top level"), (Shelf.find, "top level"), (Shelf().find, "top level")],
)
def test_a_function_that_no_worker_could_import_is_refused(function: Any, reason: str) -> None:
    with pytest.raises(ToolDeclarationError, match=reason):
        Agent(name="a", model="m", tools=[function])


def test_an_agent_does_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Agent(name="a", model="m").model = "n"  # type: ignore[misc]


@pytest.mark.parametrize("parameters", [{"temperature": float("nan")}, {"model": "x"}, {"messages": []}])
def test_parameters_are_json_and_leave_loom_its_own(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Agent(name="a", model="m", parameters=parameters)
