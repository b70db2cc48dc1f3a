"""What `loom policy explain` says about Loom's file tools is what happens when they run."""

import contextlib
import json
from pathlib import Path

import pytest

from loom_cli.project.policy import PolicyView
from loom_dsl.errors import PermissionDenied
from loom_tools.workspace.workspace import Workspace

AGENT = {
    "loom": 1,
    "kind": "agent",
    "name": "files",
    "model": "m",
    "tools": ["read_file", "write_file", "delete_file", "glob"],
    "permissions": {"allow": ["*"]},
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with links, and an agent's file beside it."""
    (tmp_path / "agent.yaml").write_text(json.dumps(AGENT))
    (work := tmp_path / "work").mkdir()
    (work / "a.txt").write_text("a")
    (work / ".env").write_text("A=b")
    for name, target in {"out": "/usr", "inside": "a.txt", "hidden": ".env", "loop": "loop", "new": "b.txt"}.items():
        (work / name).symlink_to(target)
    return tmp_path


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        ("read_file(.env)", "protected place"),
        ("read_file(hidden)", "protected place"),
        ("read_file(keys/x.pem)", "protected place"),
        ("read_file(out/share)", "inside the working directory"),
        ("read_file(loop)", "inside the working directory"),
        ("write_file(.git/hooks/pre-commit)", "protected place"),
        ("write_file(.env.example)", "protected place"),
        ("write_file(inside)", "no symbolic links"),
        ("write_file(new)", "no symbolic links"),
        ("delete_file(.loom/policy.yaml)", "protected place"),
    ],
)
async def test_what_is_refused_when_it_runs_is_denied(place: Path, call: str, rule: str) -> None:
    found = (await PolicyView(place / "agent.yaml", workdir=place / "work").explain(call)).verdict
    assert (found.decision, found.rule, found.layer) == ("deny", rule, "built-in")
    assert "no rule can allow it" in found.reason
    path = call.partition("(")[2].rstrip(")")
    with Workspace(place / "work") as workspace, contextlib.ExitStack() as opened:
        opening = workspace.open_read if call.startswith("read_file") else workspace.open_write
        with pytest.raises(PermissionDenied):
            opened.enter_context(opening(path))


@pytest.mark.parametrize("call", ["read_file(inside)", "read_file(.env.example)", "write_file(b.txt)", "glob(**/.env)"])
async def test_what_runs_is_allowed(place: Path, call: str) -> None:
    found = (await PolicyView(place / "agent.yaml", workdir=place / "work").explain(call)).verdict
    assert found.decision == "allow", found


@pytest.mark.parametrize(
    "line",
    [
        *("cat lane/key", "cat coming", "echo x > coming", "echo x > a/coming", "cat chain"),
        *("cd a/b && cat s/key", "cd a && cat b/s/key", "cd a; cd b; cat s/key", "pushd a/b; cat s/key"),
        *("env -C a/b cat s/key", "git -C a/b show s/key", "tar -C a -cf x b/s", "cd a; echo x > coming"),
    ],
)
async def test_a_link_leads_no_command_around_a_rule_about_paths(tmp_path: Path, line: str) -> None:
    policy = {"allow": ["execute_bash"], "deny": ["*(secrets/**)"]}
    (tmp_path / "agent.yaml").write_text(json.dumps({**AGENT, "tools": ["execute_bash"], "permissions": policy}))
    (work := tmp_path / "work").mkdir()
    (work / "secrets").mkdir()
    (work / "a" / "b").mkdir(parents=True)
    links = {"lane": "secrets", "coming": "secrets/new", "chain": "coming", "a/coming": "../secrets/new"}
    for name, target in {**links, "a/b/s": "../../secrets"}.items():
        (work / name).symlink_to(target)
    view = PolicyView(tmp_path / "agent.yaml", workdir=work)
    assert (await view.explain(f"execute_bash({line})")).verdict.decision == "deny"
    assert (await view.explain("execute_bash(cd a && cat b/other)")).verdict.decision == "allow"
