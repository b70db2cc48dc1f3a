"""Rules about commands and paths where the call is code of Python, and files that steer others."""

import pytest

from loom_dsl.permissions.decide import Verdict, decide, steers
from loom_dsl.permissions.policy import Permissions
from loom_dsl.permissions.python_code import is_harmless
from loom_dsl.permissions.traits import traits_of
from loom_dsl.tools.risk import Risk
from loom_dsl.tools.tool import tool

HARMLESS = [
    "1 + 1",
    "import math\nmath.sqrt(2)",
    "import json\njson.loads('[1]')",
    "from datetime import datetime\ndatetime.now()",
    "import random\nrandom.random()",
    "import re\nre.compile('x').match('y')",
    "def f(a, *b):\n    return sum(b, a)\nprint(f(1, 2))",
    "[x * 2 for x in range(3)].copy()",
    "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    print(error)",
]
NOT_HARMLESS = [
    "import pathlib\npathlib.Path('secrets/key').read_text()",
    "import shutil",
    "import numpy",
    "open('secrets/key')",
    "().__class__",
    "getattr(1, 'real')",
    "name_of_nothing",
    "import json\njson.codecs.open('secrets/key')",
    "from json import codecs",
    "import random\nrandom._os.system('rm x')",
    "import statistics\nstatistics.sys.modules",
    "import fractions\nfractions.operator.attrgetter('x')",
    "from re import *",
    "from . import a",
    "import json as open\nopen('x')",
    "exec('1')",
    "1 +",
]


@pytest.mark.parametrize("code", HARMLESS)
def test_code_that_only_computes_is_told(code: str) -> None:
    assert is_harmless(code)


@pytest.mark.parametrize("code", NOT_HARMLESS)
def test_code_that_may_reach_further_is_told(code: str) -> None:
    assert not is_harmless(code)


@tool(risk=Risk.HIGH)
def python_repl(code: str) -> str:
    """Stand in for the tool: rules look at its name and its argument."""
    return code


@tool(path_arguments=("path",))
def write_file(path: str) -> str:
    """Stand in for the tool: rules look at its name and its path."""
    return path


def repl(policy: dict[str, object], code: str) -> Verdict:
    arguments = {"code": code}
    call = traits_of(python_repl, arguments, builtin=True, working_dir="/srv/job")
    return decide(Permissions.model_validate(policy), call, arguments)


@pytest.mark.parametrize("rule", ["*(secrets/**)", "execute_bash(rm *)"])
def test_code_asks_where_a_rule_about_paths_or_commands_cannot_be_judged(rule: str) -> None:
    for which in ("deny", "ask"):
        policy: dict[str, object] = {"allow": ["python_repl"], which: [rule]}
        found = repl(policy, "import pathlib\npathlib.Path('secrets/key').unlink()")
        assert (found.decision, found.rule) == ("ask", rule)
        assert repl(policy, "1 + 1").decision == "allow"
        assert repl({**policy, "mode": "dont_ask"}, "import pathlib").decision == "deny"
    assert repl({"allow": ["python_repl"], "within": [{"deny": [rule]}]}, "import pathlib").decision == "ask"


def test_code_runs_where_no_rule_is_about_what_it_could_do() -> None:
    policy: dict[str, object] = {"allow": ["python_repl"], "deny": ["write_file(secrets/**)", "*(domain:example.com)"]}
    assert repl(policy, "import pathlib").decision == "allow"


@pytest.mark.parametrize(
    ("path", "asks"),
    [
        ("AGENTS.md", True),
        ("docs/Agents.md", True),
        ("CLAUDE.md", True),
        (".github/workflows/ci.yml", True),
        (".vscode/tasks.json", True),
        (".claude/settings.json", True),
        (".envrc", True),
        (".pre-commit-config.yaml", True),
        ("Makefile", True),
        ("build/rules.mk", True),
        ("web/package.json", True),
        ("Dockerfile.dev", True),
        ("tests/conftest.py", True),
        ("pyproject.toml", True),
        (".gitignore", False),
        ("web/.dockerignore", False),
        (".github/a.ignore", True),
        ("src/main.py", False),
        ("README.md", False),
        ("docs/agents.txt", False),
        ("reports/a.b", False),
    ],
)
def test_accept_edits_asks_about_files_that_others_run_or_obey(path: str, asks: bool) -> None:
    assert steers(path) is asks
    arguments = {"path": path}
    call = traits_of(write_file, arguments, builtin=True, working_dir="/srv/job")
    found = decide(Permissions(mode="accept_edits"), call, arguments)
    assert found.decision == ("ask" if asks else "allow"), found
    allowed = Permissions(mode="accept_edits", allow=["write_file(**)"])
    assert decide(allowed, call, arguments).decision == "allow", "a rule that is written covers it"
