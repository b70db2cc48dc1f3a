"""``loom policy``: what would be decided, and where the rule is written."""

import json
from pathlib import Path

import pytest

from loom_cli.app import run

AGENT = """\
loom: 1
kind: agent
name: dev
model: any
tools: [read_file, write_file, network_request, execute_bash]
permissions:
  allow:
    - "write_file(reports/**)"
    - "execute_bash(git status)"
    - "execute_bash(git log *)"
    - "network_request(domain:api.example.com)"
  deny:
    - "execute_bash(git push *)"
"""
POLICY = """\
loom: 1
kind: policy
permissions:
  deny: ["write_file(reports/secret*)"]
  ask: ["execute_bash(curl *)"]
"""
CASES = """\
loom: 1
kind: policy-test
agent: agent.yaml
policy: policy.yaml
cases:
  "execute_bash(git status)": allow
  "execute_bash(git status | git log -3)": {decision: allow, rule: "execute_bash(git status) + execute_bash(git log *)"}
  "execute_bash(sudo git push)": {decision: deny, rule: "execute_bash(git push *)", layer: agent}
  "write_file(reports/a.md)": allow
  "write_file(reports/secret.md)": {decision: deny, layer: deployment}
  "network_request(https://api.example.com/x)": allow
  "network_request(https://other.org/x)": ask
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("agent.yaml", AGENT), ("policy.yaml", POLICY), ("cases.yaml", CASES)):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("call", "more", "expected"),
    [
        ("execute_bash(git push --force)", [], ("deny", "agent", "execute_bash(git push *)", "agent.yaml", 13)),
        ("execute_bash(git log -3)", [], ("allow", "agent", "execute_bash(git log *)", "agent.yaml", 10)),
        ("execute_bash(git log > x)", [], ("ask", "built-in", "built-in tools that write", "", 0)),
        (
            "execute_bash(curl x)",
            ["--policy", "policy.yaml"],
            ("ask", "deployment", "execute_bash(curl *)", "policy.yaml", 5),
        ),
        (
            'write_file({"path": "reports/a", "content": ""})',
            [],
            ("allow", "agent", "write_file(reports/**)", "agent.yaml", 8),
        ),
        ("write_file(../x)", [], ("deny", "built-in", "write_file: inside the working directory", "", 0)),
        ("write_file(x)", ["--mode", "plan"], ("deny", "mode", "mode: plan", "agent.yaml", 0)),
        ("write_file(x)", ["--mode", "accept_edits"], ("allow", "mode", "mode: accept_edits", "agent.yaml", 0)),
        ("glob(x)", [], ("deny", "built-in", "tools", "", 0)),
        ("mcp__git__status", [], ("ask", "built-in", "tools of your own", "", 0)),
    ],
)
def test_a_decision_is_explained_with_its_place(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    call: str,
    more: list[str],
    expected: tuple[str, str, str, str, int],
) -> None:
    assert run(["policy", "explain", "agent.yaml", call, "--json", *more]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["decision"], found["layer"], found["rule"], found["file"], found["line"]) == expected


def test_a_decision_is_told_in_words(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / ".loom").mkdir()
    (place / ".loom" / "policy.yaml").write_text("loom: 1\nkind: policy\npermissions:\n  ask: [write_file]\n")
    assert run(["policy", "explain", "agent.yaml", "write_file(reports/a)"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("ask: write_file must be approved: the rule 'write_file' of the project's")
    assert told[1:] == [
        "rule   write_file",
        f"layer  project ({place.resolve()}/.loom/policy.yaml:4)",
        "then   it waits until somebody answers",
        "keeps  write_file(reports/a)",
    ]


@pytest.mark.parametrize(
    ("call", "then", "keeps"),
    [
        ("execute_bash(curl x)", "refused (the agent's `on_expiry: allow` does not count: the deployment's", "curl x)"),
        ("execute_bash(ls)", "if nobody answers within 5m, it runs", "execute_bash(ls)"),
        ("execute_bash(ls > x)", "it runs", "nothing: it cannot be remembered"),
        ("network_request(POST domain:other.org)", "it runs", "network_request(POST domain:other.org)"),
        ("network_request(https://other.org/x)", "it runs", "network_request(GET domain:other.org) (HEAD too)"),
    ],
)
def test_what_happens_when_nobody_answers_is_told_and_what_would_be_remembered(
    place: Path, capsys: pytest.CaptureFixture[str], call: str, then: str, keeps: str
) -> None:
    (place / "hasty.yaml").write_text(AGENT + "approvals: {expires: 5m, on_expiry: allow}\n")
    asked = ["policy", "explain", "hasty.yaml", call, "--policy", "policy.yaml"]
    assert run(asked) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[3].startswith("then   if nobody answers within 5m, ")
    assert then in told[3]
    assert keeps in told[4]
    assert run([*asked, "--json"]) == 0
    assert then in json.loads(capsys.readouterr().out)["unanswered"]


def test_a_table_of_cases_is_decided(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "test", "cases.yaml"]) == 0
    assert capsys.readouterr().out == "7 of 7 cases are decided as expected\n"
    (place / "cases.yaml").write_text(CASES + '  "execute_bash(rm x)": allow\n')
    assert run(["policy", "test", "cases.yaml"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "cases.yaml:13: execute_bash(rm x): decision is 'ask', not 'allow'"
    assert told[-1] == "7 of 8 cases are decided as expected"
    assert run(["policy", "test", "cases.yaml", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["wrong"], found["cases"][7]["ok"], found["cases"][7]["case_line"]) == (1, False, 13)


@pytest.mark.parametrize(
    ("files", "argv", "words"),
    [
        ({}, ["explain", "none.yaml", "x"], "none.yaml"),
        ({}, ["explain", "agent.yaml", "write file"], "is not a call"),
        ({}, ["explain", "agent.yaml", "x", "--policy", "none.yaml"], "cannot be read"),
        ({"policy.yaml": "loom: 1\nkind: policy\nrules: []\n"}, ["test", "cases.yaml"], "policy.yaml:3"),
        (
            {"cases.yaml": "loom: 1\nkind: policy-test\nagent: agent.yaml\ncases: {x: maybe}\n"},
            ["test", "cases.yaml"],
            ":4:",
        ),
        ({"cases.yaml": "loom: 1\nkind: policy-test\nagent: agent.yaml\ncases: {}\n"}, ["test", "cases.yaml"], "cases"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    place: Path, capsys: pytest.CaptureFixture[str], files: dict[str, str], argv: list[str], words: str
) -> None:
    for name, text in files.items():
        (place / name).write_text(text)
    assert run(["policy", *argv]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert "Traceback" not in told
