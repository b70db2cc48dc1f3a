"""Command lines: nothing gets around a rule that allows `echo *`, nor around one that forbids `rm *`."""

from collections.abc import Mapping
from typing import Any

import pytest

from loom_dsl.permissions.command_pattern import CommandPattern, literal_pattern
from loom_dsl.permissions.decide import Verdict, decide
from loom_dsl.permissions.policy import Permissions
from loom_dsl.permissions.remembered import Remembered
from loom_dsl.permissions.shell_line import read_line
from loom_dsl.permissions.traits import traits_of
from loom_dsl.tools.tool import tool
from tests.support.command_lines import HIDDEN_RM, NOT_ECHO, READ_AS_ECHO


@tool
def execute_bash(command: str) -> str:
    """Stand in for the tool: rules look at its name and its argument."""
    return command


def verdict(policy: Mapping[str, object], line: str, **more: Any) -> Verdict:
    call = traits_of(execute_bash, {"command": line}, builtin=True, working_dir="/srv/job")
    return decide(Permissions.model_validate(policy), call, {"command": line}, **more)


NO_RM = {"allow": ["execute_bash"], "deny": ["execute_bash(rm *)"]}


def test_the_table_is_long() -> None:
    assert len({*HIDDEN_RM, *NOT_ECHO}) > 300


@pytest.mark.parametrize("line", HIDDEN_RM + NOT_ECHO)
def test_a_hostile_line_does_not_pass_as_an_echo(line: str) -> None:
    found = verdict({"allow": ["execute_bash(echo *)"]}, line)
    assert found.decision == "ask", found
    asked = verdict({"allow": ["execute_bash(command=echo *)"]}, line)
    assert asked.decision == "ask", asked


@pytest.mark.parametrize("line", READ_AS_ECHO)
def test_a_line_that_runs_nothing_else_passes_as_an_echo(line: str) -> None:
    found = verdict({"allow": ["execute_bash(echo *)"]}, line)
    assert found.decision == "allow", found.reason


@pytest.mark.parametrize("line", HIDDEN_RM)
def test_a_forbidden_command_does_not_run_wherever_it_hides(line: str) -> None:
    found = verdict(NO_RM, line)
    assert (found.decision != "allow", found.rule) == (True, "execute_bash(rm *)"), read_line(line)
    assert verdict({**NO_RM, "mode": "dont_ask"}, line).decision == "deny"


SURE = [
    *("rm x", "\\rm x", "r''m x", "'rm' x", "/bin/rm x", "./rm x", "RM x", "rm\tx", "rm>x", "2>&1 rm x", "rm $X"),
    *("echo a; rm x", "echo a|rm x", "echo a && rm x", "echo a\nrm x", "rm x &", "(rm x)", "{ rm x; }", "! rm x"),
    *("if true; then rm x; fi", "for i in 1; do rm x; done", "while rm x; do break; done", "time rm x", "CI=1 rm x"),
    *("timeout 5 rm x", "timeout -s KILL 5 rm x", "nice -n 5 rm x", "nohup rm x", "env rm x", "env CI=1 nice rm x"),
    *("echo $(rm x)", 'echo "a $(rm x)"', "v=$(rm x)", "cat <(rm x)", "cat <<E\n$(rm x)\nE", "[[ -n $(rm x) ]]"),
    *("A=1 B=true timeout 5 rm x",),
    *("echo x | xargs rm", "xargs -0 -n 1 rm", "find . -exec rm {} \\;", "find . -execdir rm {} +", "command rm x"),
]
"""Each surely runs `rm`, as it is read."""


@pytest.mark.parametrize("line", SURE)
def test_a_command_that_is_surely_forbidden_is_denied(line: str) -> None:
    found = verdict(NO_RM, line)
    assert (found.decision, found.rule) == ("deny", "execute_bash(rm *)"), read_line(line)


@pytest.mark.parametrize("line", ["pip install -e '.[test]'", "find . -name '*.pyc' -delete", "echo `date`", "make"])
def test_what_cannot_be_judged_is_asked_and_never_refused_as_if_a_rule_had_covered_it(line: str) -> None:
    found = verdict(NO_RM, line)
    assert found.decision == "ask"
    assert "cannot be judged" in found.reason


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("echo `date`", "a command substitution (`, not $(…))"),
        ("echo ${X@P}", "an expansion ($)"),
        ("echo $(make)", "make can run anything"),
        ("X=$(date)", "it sets X"),
        ("x=$(date) ls", "it sets x"),
        ("[[ $x -eq 1 ]]", "'[['"),
        ("GIT_TRACE=1 git status", "GIT_TRACE=1"),
        ("A=b make", "it sets A"),
        ("echo >&'f$(rm x)'", "expand twice"),
        ("xargs timeout -k <<< '5 5 rm x'", "timeout"),
        ("xargs env -u <<< 'A rm x'", "only running it tells whether"),
        ("set -a", "-a"),
        ("LD_PRELOAD=x ls", "LD_PRELOAD"),
        ("find . -delete", "-delete"),
        ("tar xf a --to-command=x", "--to-command=x"),
        ("make test", "make can run anything"),
        ("echo a > $X", "which file a redirection names"),
        ("case x in x) ls;; esac", "'case'"),
    ],
)
def test_the_question_names_the_word_that_could_not_be_judged(line: str, word: str) -> None:
    assert word in verdict(NO_RM, line).reason


@pytest.mark.parametrize("line", ["npm test", "CI=1 npm test 2>&1 | tail -5", "cd web && npm run build > out.log"])
def test_a_program_that_a_rule_allows_by_name_may_run_anything(line: str) -> None:
    assert verdict(NO_RM, line).decision == "ask"
    assert verdict({**NO_RM, "allow": ["execute_bash", "execute_bash(npm *)"]}, line).decision == "allow"
    assert verdict({**NO_RM, "allow": ["execute_bash", "execute_bash(* *)"]}, line).decision == "ask"


@pytest.mark.parametrize(
    "line",
    [
        *("echo a > ~/.gitconfig; git status", 'cp a "$HOME/.gitconfig" && git status', "cp -r d/. ~; git log"),
        *("cp -r d/. $HOME; git log", "cat c > .git/config; git log", "cp h .git/hooks/pre-commit; git commit -m a"),
        *("mv d/.* .; git status", "git init --template=t", "git config alias.x y", "git -c alias.x=y x"),
    ],
)
def test_settings_and_hooks_of_git_that_a_line_brings_ask(line: str) -> None:
    assert verdict(NO_RM, line).decision == "ask"


def test_what_a_line_writes_and_may_run_asks_even_where_the_program_is_allowed() -> None:
    policy = {**NO_RM, "allow": ["execute_bash", "execute_bash(make *)", "execute_bash(sh *)"]}
    assert verdict(policy, "make test > out.log").decision == "allow"
    for line in ("echo a > Makefile; make", "echo a > s; sh s", "cat > s <<'E'\nrm x\nE\nsh s"):
        assert verdict(policy, line).decision == "ask", line


@pytest.mark.parametrize(
    ("allow", "line", "decision"),
    [
        (["echo *"], "echo a > out.txt", "ask"),
        (["echo *", "write_file"], "echo a > out.txt", "allow"),
        (["echo *", "write_file(out/**)"], "echo a > out/x", "allow"),
        (["echo *", "write_file(out/**)"], "echo a > out/../x", "ask"),
        (["echo *", "write_file(out/**)"], "echo a >> ../x", "ask"),
        (["echo *", "write_file(out/**)"], "cd out && echo a > out/x", "ask"),
        (["echo *"], "echo a > /dev/null 2>&1", "allow"),
        (["npm test"], "cd src && npm test", "allow"),
        (["npm test"], "cd /x && npm test", "ask"),
        (["npm test"], "cd ../x && npm test", "ask"),
        (["./run *"], "./run x", "allow"),
        (["./run *"], "cd x && ./run x", "ask"),
        (["rm build/*"], "cd x && rm build/a", "ask"),
        (["pytest *"], "timeout 60 pytest -q", "allow"),
        (["pytest *"], "timeout 60 npm test", "ask"),
        (["find *"], "find . -name a -exec cat {} +", "ask"),
        (["find *", "cat *"], "find . -name a -exec cat {} +", "allow"),
        (["git diff *", "cat *"], "git diff --name-only | xargs cat", "allow"),
        (["git add *"], "git add *.py", "ask"),
        (["git add *"], "git add ./*.py src/*.py", "allow"),
        (["git add *"], "git add -- *.py", "allow"),
        (["ls *"], "ls *.md", "allow"),
        (["ls *.md"], "ls *.md", "ask"),
        (["wc *"], 'for f in src/*.py; do wc -l "$f"; done', "allow"),
        (["cat *"], "if [ -f x ]; then cat x; fi", "allow"),
        (["cat *"], "if [[ -f x && $CI != 'true' ]]; then cat x; fi", "allow"),
        (["cat *"], "cd src", "allow"),
        (["npm *"], "A_B=1 npm test", "allow"),
        (["npm *"], "A_B=1 PAGER=x npm test", "ask"),
        (["npm *"], "LD_PRELOAD=./x.so npm test", "ask"),
        (["cat *"], "A_B=1 cat x", "ask"),
        (["pytest *"], "PYTHONPATH=src pytest -q", "allow"),
        (["timeout *", "xargs *", "rm *"], "xargs timeout -k <<< '5 5 rm x'", "ask"),
        (["timeout *", "rm *"], "timeout -s KILL$v 5 rm", "ask"),
        (["cat *"], "cd /srv/job/src && cat x", "allow"),
        (["cat *"], "cd /srv/other && cat x", "ask"),
        (["cat src/x"], "cd /srv/job && cat src/x", "ask"),
        (["cat *"], "set -euo pipefail; cat x", "allow"),
        (["cat *"], "echo $(cat x)", "ask"),
        (["cat *", "echo *"], "echo $(cat x)", "allow"),
        (["echo *"], "echo $(cat x)", "ask"),
        (["cat *"], "v=$(cat x)", "allow"),
        (["cat *"], 'v="$(cat x)" && cat "$v"', "allow"),
        (["cat *"], "v=$(id)", "ask"),
        (["diff *", "sort *"], "diff <(sort a) <(sort b)", "allow"),
        (["diff *"], "diff <(sort a) <(sort b)", "ask"),
        (["cat *"], "while IFS= read -r l; do cat $l; done < <(cat x)", "allow"),
        (["cat *"], "cat <<E\n$v ${v} $(cat x)\nE", "allow"),
        (["cat *"], "cat <<E\n$(id)\nE", "ask"),
        (["turbo *"], "turbo build --filter={./web/*}", "allow"),
    ],
)
def test_a_rule_that_allows_covers_the_line_as_it_is_read(allow: list[str], line: str, decision: str) -> None:
    rules = [rule if rule.startswith("write_file") else f"execute_bash({rule})" for rule in allow]
    assert verdict({"allow": rules}, line).decision == decision


ORDINARY = [
    ("echo *", "echo"),
    ("echo *", "echo hello world"),
    ("echo *", "echo 'a; rm -rf /' \"b | c\" d'e'f"),
    ("echo *", "echo a && echo b || echo c | echo d; echo e;"),
    ("echo *", "echo données naïve 日本語"),
    ("echo *", "echo a=b x@y.z 50% HEAD~1 a:b,c +x ^y"),
    ("git status", "git status"),
    ("git status *", "git status --short -b"),
    ("git log *", "git log --oneline -10 HEAD~3..main"),
    ("git diff *", "git diff --stat main -- src/a.py"),
    ("git commit *", "git commit -m 'add: a thing'"),
    ("npm run *", "npm run test:unit -- --watch=false"),
    ("npm run test:*", "npm run test:unit"),
    ("npm test", "npm test"),
    ("grep *", "grep -rn 'TODO.*x' src"),
    ("find *", "find . -name '*.py' -type f"),
    ("sed *", "sed -n 1,20p file.txt"),
    ("sed *", "sed 's/a/b/g' file.txt"),
    ("awk *", "awk -F, '{print $1}' file.csv"),
    ("tar *", "tar -tzf a.tar.gz"),
    ("curl *", "curl -sS https://example.com/x"),
    ("pytest *", "pytest -q tests/unit"),
    ("python *", "python scripts/build.py --fast"),
    ("python -m pytest *", "python -m pytest -q"),
    ("sort *", "sort -u -k2 file"),
    ("rg *", "rg -n word src"),
    ("* --version", "node --version"),
    ("sed -i *", "sed -i s/a/b/ file"),
    ("timeout 60 npm test", "timeout 60 npm test"),
    ("make", "make"),
    ("cat *", "cat 'a file.txt'"),
    ("sed *", "sed -n -e p f"),
    ("make *", "make -E x:"),
    ("node *", "node --import x y"),
    ("node *", "node --require=x y"),
    ("php *", "php -d auto_prepend_file=x y"),
    ("go *", "go vet -vettool=x"),
    ("go *", "go build -ldflags=-extld=x"),
    ("go *", "go env -w A=b"),
    ("pytest *", "pytest --basetemp=/x"),
    ("bundle *", "bundle exec x"),
    ("apt-get *", "apt-get -o x=y update"),
    ("xvfb-run *", "xvfb-run x"),
    ("python *", "python -c 1"),
    ("perl *", "perl -e 1"),
    ("node *", "node -e 1"),
    ("sudo *", "sudo x"),
    ("bash *", "bash x.sh"),
    ("make *", "make SHELL=x"),
    ("make *", "make --eval=x"),
    ("npm *", "npm exec x"),
    ("npm run *", "npm run x --script-shell=y"),
]


@pytest.mark.parametrize(("pattern", "line"), ORDINARY)
def test_an_ordinary_line_is_covered(pattern: str, line: str) -> None:
    found = verdict({"allow": [f"execute_bash({pattern})"]}, line)
    assert found.decision == "allow", (found, read_line(line))


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("find *", "find . -delete"),
        ("find *", "find . -fprintf f x"),
        ("sed *", "sed -i s/a/b/ f"),
        ("sed *", "sed --in-pl=x s/a/b/ f"),
        ("sed *", "sed -ni s/a/b/ f"),
        ("sed *", "sed 's/a/id/e' f"),
        ("sed *", "sed '1e id' f"),
        ("sed *", "sed 'w /tmp/x' f"),
        ("awk *", "awk 'BEGIN{system(1)}'"),
        ("awk *", "awk '{print > 1}'"),
        ("awk *", "awk -f x"),
        ("git *", "git --exec-path=x status"),
        ("git *", "git -c a=b status"),
        ("git *", "git -C /x status"),
        ("git *", "git config alias.x y"),
        ("git *", "git diff --output=x"),
        ("git *", "git diff --outp=x"),
        ("git *", "git grep -O x"),
        ("git *", "git clone ext::sh x"),
        ("git *", "git fetch --upload-pack=x y"),
        ("git *", "git diff --ext-diff"),
        ("tar *", "tar xf a --checkpoint-action=exec=x"),
        ("tar *", "tar xf a --checkpoint-act=exec=x"),
        ("tar *", "tar xf a --to-c=x"),
        ("tar *", "tar cIf x a"),
        ("tar *", "tar Ixz a"),
        ("tar *", "tar xPf a"),
        ("tar *", "tar cf a -T x"),
        ("tar *", "tar cf a --files-from=x"),
        ("tar *", "tar -xf a -C /x"),
        ("git *", "git clone -ux y"),
        ("curl *", "curl -H @f a"),
        ("curl *", "curl -w @f a"),
        ("curl *", "curl -sS file:///etc/passwd"),
        ("curl *", "curl --connect-to a:80:b:1 a"),
        ("curl *", "curl --variable x@f a"),
        ("rg *", "rg --pre x y"),
        ("rg *", "rg --pre=x y"),
        ("sort *", "sort --compress-program=x f"),
        ("sort *", "sort -o f g"),
        ("curl *", "curl -o f https://a"),
        ("curl *", "curl --config f"),
        ("curl *", "curl -sSo f https://a"),
        ("wget *", "wget -O f https://a"),
        ("rsync *", "rsync -e x a b"),
        ("python3 *", "python3.11 -c 1"),
        ("printf *", "printf -v PATH x"),
        ("cd *", "cd /x"),
        ("env *", "env A=b x"),
        ("xargs *", "xargs x"),
        ("git push", "git push --force"),
        ("git status", "git status; git push"),
        ("npm run test:*", "npm run tests"),
        ("npm run *", "npm runx"),
        ("echo *", "echos"),
    ],
)
def test_a_dangerous_option_or_another_command_asks(pattern: str, line: str) -> None:
    assert verdict({"allow": [f"execute_bash({pattern})"]}, line).decision == "ask"


@pytest.mark.parametrize(
    ("pattern", "line", "denied"),
    [
        ("git push --force", "git push --force origin main", True),
        ("git push --force", "git -C x push origin --force", True),
        ("git push --force", "git push --forc", True),
        ("git push --force", "git push", False),
        ("git push --force", "git push --force-with-lease", False),
        ("git push *", "git $X", False),
        ("git push *", "git -C $X push", True),
        ("git push *", "git log $X", False),
        ("git push --force", "git push $X", False),
        ("rm *", "echo $X", False),
        ("git push", "git commit -m push", False),
        ("git push", "git log push", False),
        ("rm -rf", "rm -r -f x", True),
        ("rm -rf", "rm -fr x", True),
        ("rm -rf", "rm -r x", False),
        ("rm *", "git commit -m 'rm x'", False),
        ("rm *", "echo rm x", False),
        ("rm *", "grep -rn 'rm x' src", False),
        ("rm *", "npm run build", False),
        ("rm *", "PAGER=cat GIT_PAGER=less git log", False),
        ("rm *", "NODE_ENV=test PYTHONPATH=src A='b c' npm test", False),
        ("rm *", "python -c 'print(1)'", False),
        ("rm *", "cat > f <<'E'\nhow to rm x\nE", False),
        ("rm *", "cat > f <<E\n$(date) and ${HOME}\nE", False),
        ("rm *", "[ -n 'a b' ] && [[ $x == 'y' ]]", False),
        ("rm *", "grep foo$ f; echo a$'b'", False),
        ("rm *", "python3 - <<E\nprint('farm')\nE", False),
        ("rm *", "ls -la; cat x | grep y", False),
        ("* --force", "x y --force", True),
    ],
)
def test_a_rule_that_forbids_looks_at_other_spellings(pattern: str, line: str, denied: bool) -> None:
    found = verdict({"allow": ["execute_bash"], "deny": [f"execute_bash({pattern})"]}, line)
    assert (found.decision == "deny") is denied


@pytest.mark.parametrize(
    "line",
    [
        *("echo push | xargs git", "xargs git < f", "xargs git -C x < f", "xargs nice git < f", "xargs -n1 -P4 git"),
        *("xargs -I% git % < f", "xargs -I % git % < f", "xargs -0I % git %", "xargs --replace=% git %"),
        *("xargs -i git {}", "xargs -I% % x", "xargs -a cat {} x", "parallel git ::: push", "parallel -a f git"),
        *("parallel git {} ::: push", "fd -x git", "find . -exec git {} ';'", "find . -exec git '{}' +"),
        *("find . -exec {} x ';'", "find . -exec echo {} ';' -exec git {} ';'", "find . -exec cat {} $X git push ';'"),
    ],
)
def test_what_a_command_adds_to_another_one_may_be_what_a_rule_forbids(line: str) -> None:
    policy = {"allow": ["execute_bash"], "deny": ["execute_bash(git push *)"]}
    assert verdict(policy, line).decision == "ask"
    assert verdict({**policy, "mode": "dont_ask"}, line).decision == "deny"


def test_each_command_of_a_line_may_be_covered_by_a_rule_of_its_own() -> None:
    policy = {"allow": ["execute_bash(git status)", "execute_bash(grep *)"]}
    found = verdict(policy, "git status | grep modified")
    assert (found.decision, found.rule) == ("allow", "execute_bash(git status) + execute_bash(grep *)")
    assert verdict(policy, "git status | wc -l").decision == "ask"


def test_the_reason_says_what_cannot_be_read() -> None:
    found = verdict({"allow": ["execute_bash(echo *)"]}, "echo ${X@P}")
    assert "it holds an expansion ($)" in found.reason
    unnamed = verdict({"allow": ["execute_bash(find *)"]}, "find . -delete")
    assert unnamed.reason.endswith("no rule covers `find . -delete`; one must name -delete")
    other = verdict({"allow": ["execute_bash(go build *)"], "default": "deny"}, "go test -short")
    assert other.reason.endswith("no rule covers `go test -short`")
    written = verdict({"allow": ["execute_bash(echo *)"]}, "echo a > out.txt")
    assert written.reason.endswith("it writes out.txt, and no rule write_file(out.txt) allows that")


def test_a_path_that_no_tool_may_touch_is_not_touched_by_a_command_either() -> None:
    policy = {"allow": ["execute_bash"], "deny": ["*(secrets/**)"]}
    for line in (
        "cat secrets/key",
        "ls secrets",
        "cat ./a/../secrets/key",
        "cat < secrets/key",
        "tar cf x.tar secrets",
    ):
        assert verdict(policy, line).decision == "deny", line
    assert verdict(policy, "cat src/main.py").decision == "allow"
    assert verdict(policy, 'bash -c "$X"').decision == "ask", "what cannot be read may touch it"
    assert verdict(policy, "dd if=/srv/job/secrets/key").decision == "deny"


def test_a_remembered_command_covers_itself_alone() -> None:
    line = "git log -n 'a b'"
    pattern = literal_pattern(("git", "log", "-n", "a b"))
    assert pattern == "git log -n 'a b'"
    remembered = [Remembered(rule=f"execute_bash({pattern})")]
    assert verdict({}, line, remembered=remembered).layer == "remembered"
    assert verdict({}, f"{line} x", remembered=remembered).decision == "ask"
    assert verdict({"deny": ["execute_bash(git log)"]}, line, remembered=remembered).decision == "deny"
    assert literal_pattern(("ls", "*")) is None


@pytest.mark.parametrize("pattern", ["", "echo 'a", "'"])
def test_a_pattern_that_is_no_command_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"names no command|do not match"):
        CommandPattern(pattern)
