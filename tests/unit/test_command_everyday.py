"""An ordinary day's lines run without a question where a careful team has said what may run."""

import pytest

from tests.support import lines_of_others
from tests.support.everyday_lines import EVERYDAY, NEEDLESS, POLICY, READING_ALL
from tests.unit.test_command_rules import verdict

ASKED = {*READING_ALL, *(line for lines in NEEDLESS.values() for line in lines)}


@pytest.mark.parametrize("line", EVERYDAY)
def test_an_everyday_line_asks_only_where_the_table_says_why(line: str) -> None:
    found = verdict(POLICY, line)
    assert found.decision == ("ask" if line in ASKED else "allow"), found.reason


def test_few_of_them_ask_needlessly() -> None:
    assert len(set(EVERYDAY)) > 300
    assert set(EVERYDAY) >= ASKED
    assert len(ASKED) - len(READING_ALL) < len(EVERYDAY) * 0.05


def test_few_lines_of_others_ask_and_none_is_refused() -> None:
    decided = [verdict(lines_of_others.POLICY, line).decision for line in lines_of_others.LINES]
    assert len(decided) == 500
    assert decided.count("deny") == 0
    assert decided.count("ask") <= 42


NARROW = {
    "allow": [
        *("execute_bash(go test *)", "execute_bash(go build *)", "execute_bash(make *)", "execute_bash(pytest *)"),
        *("execute_bash(python -m pytest *)", "execute_bash(npm run *)", "execute_bash(cargo test *)"),
        *("execute_bash(gcc *)", "execute_bash(grep *)", "execute_bash(rg *)", "execute_bash(ls *)"),
        *("execute_bash(sort *)", "execute_bash(ruff *)", "execute_bash(find *)", "execute_bash(tar *)"),
        *("execute_bash(curl *)", "execute_bash(git *)", "execute_bash(pip install *)", "execute_bash(sed *)"),
    ],
    "deny": ["execute_bash(rm *)"],
}
LIKE_OPTIONS = r"""
go test -short ./...
go test -run TestX -v ./pkg
go test -count=1 -race ./...
go build -o bin/app ./cmd/app
make -C sub
make -C sub test
make -j4 -k
make -o x test
make -B --output-sync
pytest -p no:cacheprovider
pytest -p no:cacheprovider -x tests/unit
pytest -o addopts=
pytest -k "a or b" -o log_cli=true
pytest --co -q
python -m pytest -p no:randomly -x
npm run test -- --watch=false -o
npm run build --omit=dev
cargo test --no-run --offline
gcc -o a a.c
gcc -O2 -c a.c -o a.o
grep -o foo a.txt
grep -rno foo src
grep -e -o a.txt
rg -o foo src
rg --only-matching foo
ls -o
ls -l --color=no
sort -u in.txt
sort -k 2 -n -r in.txt
ruff check --output-format concise
ruff check --no-cache src
find . -type f -o -type d
find . -name '*.py' -not -name '*_o.py'
tar -tf x.tgz
tar -xOf x.tgz file
curl -s http://localhost:8000
git log --oneline -5
git status --short
git diff --no-color -- src
pip install --no-deps -r requirements.txt
pip install -e '.[test]'
sed -n -e 1p a.txt
""".strip().splitlines()


@pytest.mark.parametrize("line", LIKE_OPTIONS)
def test_an_option_that_only_looks_like_another_one_asks_for_nothing(line: str) -> None:
    found = verdict(NARROW, line)
    assert found.decision == "allow", found.reason


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("sort -o out.txt in.txt", "-o"),
        ("sort --output=out.txt in.txt", "--output"),
        ("curl -s -o x http://localhost:8000", "-o"),
        ("tar -C build -xzf x.tgz", "-C"),
        ("git -C sub status", "-C"),
        ("find . -name '*.pyc' -delete", "-delete"),
        ("go vet -short ./...", "go can run anything"),
        ("npm exec thing", "npm can run anything"),
    ],
)
def test_a_question_names_the_word_for_which_it_is_asked(line: str, word: str) -> None:
    found = verdict(NARROW, line)
    assert found.decision == "ask"
    assert word in found.reason
