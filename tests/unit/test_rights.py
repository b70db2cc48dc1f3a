"""What the command line refuses by the roles of the policy that its environment names."""

from pathlib import Path

import pytest

from loom_cli.app import run
from loom_cli.opening import check_right, check_start
from loom_dsl.errors import ConfigurationError, UserError

POLICY = """
loom: 1
kind: policy
roles:
  lead: {who: ann, start: "*", abort: true, pause: true, inject: true}
  helper: {who: carl, start: calm}
"""


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    monkeypatch.setenv("LOOM_POLICY", str(path))
    return path


@pytest.mark.parametrize(
    ("command", "right"),
    [
        (["pause", "job-1"], "pause"),
        (["resume", "job-1"], "pause"),
        (["abort", "job-1"], "abort"),
        (["inject", "job-1", "hello"], "inject"),
    ],
)
def test_who_has_no_role_with_the_right_is_refused_before_anything_is_looked_up(
    policy: Path, capsys: pytest.CaptureFixture[str], command: list[str], right: str
) -> None:
    assert run([*command, "--by", "carl"]) == 2
    assert capsys.readouterr().err == (
        f"error: carl has no role with `{right}: true`; the deployment's policy (LOOM_POLICY) says who may\n"
    )
    check_right("ann", "abort")


def test_who_sits_here_starts_what_a_role_allows(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "carl")
    check_start("calm")
    with pytest.raises(UserError, match="carl has no role that starts writer"):
        check_start("writer")


def test_a_policy_without_roles_refuses_nobody_and_one_that_cannot_be_read_everybody(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy.write_text("loom: 1\nkind: policy\n")
    check_start("writer")
    check_right("carl", "abort")
    policy.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        check_start("calm")
    monkeypatch.delenv("LOOM_POLICY")
    check_start("writer")
