"""What a rule cannot judge in a command line is denied or asked, never let through: paths, code, unknown programs."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.permissions.paths import ANY, PART, PathPattern, may_mean
from loom_dsl.permissions.shell_line import read_line
from tests.support.doubtful_lines import BY_NAME, ELSEWHERE, HIDING, PERHAPS_TOUCHING, RUNNING_RM, SHOWING, TOUCHING
from tests.unit.test_command_rules import verdict

NO_SECRETS = {"allow": ["execute_bash"], "deny": ["*(secrets/**)"]}
NO_RM = {"allow": ["execute_bash"], "deny": ["execute_bash(rm *)"]}


@pytest.mark.parametrize("line", TOUCHING)
def test_a_path_that_is_denied_is_found_however_a_line_writes_it(line: str) -> None:
    found = verdict(NO_SECRETS, line)
    assert (found.decision, found.rule) == ("deny", "*(secrets/**)")
    assert verdict({"allow": ["execute_bash"], "ask": ["*(secrets/**)"]}, line).decision == "ask"


@pytest.mark.parametrize("line", PERHAPS_TOUCHING)
def test_a_line_that_may_touch_anything_asks_where_a_path_is_denied(line: str) -> None:
    assert verdict(NO_SECRETS, line).decision in ("ask", "deny")
    assert verdict({"allow": ["execute_bash"], "ask": ["*(secrets/**)"]}, line).decision == "ask"
    assert verdict({**NO_SECRETS, "mode": "dont_ask"}, line).decision == "deny"
    assert verdict({"allow": ["execute_bash"]}, line).decision == "allow", "no rule is about paths"


@pytest.mark.parametrize("line", ELSEWHERE)
def test_a_line_that_touches_other_paths_runs(line: str) -> None:
    found = verdict(NO_SECRETS, line)
    assert found.decision == "allow", found.reason


@pytest.mark.parametrize("line", RUNNING_RM)
def test_a_command_that_is_denied_does_not_run_behind_programs_that_nobody_knows(line: str) -> None:
    assert verdict(NO_RM, line).decision in ("ask", "deny")
    assert verdict({**NO_RM, "mode": "dont_ask"}, line).decision == "deny"


@pytest.mark.parametrize("line", HIDING)
def test_what_a_rule_about_commands_cannot_read_asks(line: str) -> None:
    asking = {"allow": ["execute_bash"], "ask": ["execute_bash(rm *)"]}
    assert verdict(NO_RM, line).decision in ("ask", "deny")
    assert verdict(asking, line).decision == "ask"
    assert verdict({**NO_RM, "mode": "dont_ask"}, line).decision == "deny"
    assert verdict({"allow": ["execute_bash"], "within": [NO_RM]}, line).decision in ("ask", "deny")
    assert verdict({"allow": ["execute_bash"], "deny": ["write_file"]}, line).decision == "allow", "no such rule"


@pytest.mark.parametrize("line", SHOWING)
def test_an_ordinary_line_runs_where_another_command_is_denied(line: str) -> None:
    found = verdict(NO_RM, line)
    assert found.decision == "allow", found.reason


@pytest.mark.parametrize("line", BY_NAME)
def test_a_program_that_can_run_anything_asks_until_a_rule_names_it(line: str) -> None:
    assert verdict(NO_RM, line).decision == "ask"
    names = [f"execute_bash({words[0]} *)" for words in read_line(line).commands]
    assert verdict({**NO_RM, "allow": ["execute_bash", *names]}, line).decision == "allow"


def test_the_question_says_which_rule_cannot_be_judged_and_why() -> None:
    found = verdict(NO_RM, "python3 -c 'x'")
    assert (found.rule, found.layer) == ("execute_bash(rm *)", "agent")
    assert found.reason.endswith(
        "the rule 'execute_bash(rm *)' cannot be judged, for python3 can run anything that it is told to"
    )


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("uniq *", "uniq a b"),
        ("uniq *", "uniq -c a b"),
        ("xxd *", "xxd a b"),
        ("shuf *", "shuf -o x a"),
        ("tar *", "tar cIf ./evil o f"),
        ("git clone *", "git clone -u ./evil . c"),
        ("git archive *", "git archive -o x HEAD"),
        ("git *", "git a-command-of-someone"),
        ("bfs *", "bfs . -exec x"),
    ],
)
def test_an_option_that_runs_or_writes_must_be_written_in_the_rule(pattern: str, line: str) -> None:
    assert verdict({"allow": [f"execute_bash({pattern})"]}, line).decision == "ask"
    policy: Mapping[str, object] = {"allow": [f"execute_bash({line})"]}
    assert verdict(policy, line).decision == "allow", "a rule for the very line covers it"


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("uniq *", "uniq -c a"),
        ("sqlite3 *", "sqlite3 x.db 'select 1'"),
        ("ruff *", "ruff check --no-cache --output-format=github src"),
        ("pytest *", "pytest --import-mode=importlib -q"),
        ("npm run *", "npm run build -- --no-config"),
    ],
)
def test_an_option_that_only_looks_so_is_covered(pattern: str, line: str) -> None:
    assert verdict({"allow": [f"execute_bash({pattern})"]}, line).decision == "allow"


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("sqlite3 *", "sqlite3 x.db '.shell id'"),
        ("sqlite3 *", "sqlite3 x.db \"select writefile('f', 1)\""),
        ("pylint *", "pylint --init-hook=x f"),
        ("ag *", "ag --pager x f"),
        ("bat *", "bat --pager=x f"),
        ("gcc *", "gcc -wrapper sh,-s ."),
        ("cmake *", "cmake -E rm x"),
        ("cmake *", "cmake -P x"),
        ("go vet *", "go vet -vettool=./x"),
        ("svn *", "svn diff --diff-cmd=x"),
        ("ruff *", "ruff check --output-file x"),
        ("eslint *", "eslint --rulesdir x ."),
        ("prettier *", "prettier --plugin=./x f"),
        ("tsc *", "tsc --outDir x"),
        ("a-tool-that-nobody-knows *", "a-tool-that-nobody-knows --post-exec x"),
        ("a-tool-that-nobody-knows *", "a-tool-that-nobody-knows --config=x"),
        ("ssh-agent *", "ssh-agent x"),
    ],
)
def test_a_rule_for_a_program_that_can_run_anything_covers_its_options_too(pattern: str, line: str) -> None:
    assert verdict({"allow": [f"execute_bash({pattern})"]}, line).decision == "allow"
    assert verdict(NO_RM, line).decision == "ask"


@pytest.mark.parametrize(
    ("text", "harmless"),
    [("CI=1", True), ("LC_ALL=C", True), ("X=1", True), ("X=a", False), ("PAGER=cat", False), ("GIT_X=", False)],
)
def test_few_variables_are_harmless(text: str, harmless: bool) -> None:
    assert (read_line(f"{text} ls").unknown == "") is harmless


PARTS = st.sampled_from(["a", "b", "ab", "key.pem"])
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
PATTERNS = st.lists(st.sampled_from(["a", "*", "**", "?", "*b", "[ab]", "{a,key}*", "*.pem"]), min_size=1, max_size=4)


@given(PATTERNS.map("/".join), PATHS, st.data())
def test_a_shape_may_mean_what_any_of_its_texts_means(pattern: str, path: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(path)))
    end = data.draw(st.integers(start, len(path)))
    compiled = PathPattern(pattern)
    for wild in (ANY, *([] if "/" in path[start:end] else [PART])):
        shape = path[:start] + wild + path[end:]
        assert may_mean(pattern, shape) or not (compiled.matches(path) or compiled.reaches_below(path))


@pytest.mark.parametrize(
    ("pattern", "shape", "fits"),
    [
        ("secrets/**", f"{PART}.py", False),
        ("secrets/**", f"src/{PART}", False),
        ("secrets/**", f"src/{ANY}", False),
        ("secrets/**", f"{ANY}/key", True),
        ("secrets/**", f"s{PART}", True),
        ("secrets/**", f"secretsfoo{PART}", False),
        ("a/*.pem", f"a/{PART}.py", False),
        ("**/x", f"{PART}/y/x", True),
        ("a/**/b/c", f"a/{ANY}", True),
    ],
)
def test_a_shape_that_cannot_be_a_path_of_a_rule_is_told_apart(pattern: str, shape: str, fits: bool) -> None:
    assert may_mean(pattern, shape) is fits
