"""Code is looked through before it runs: mistakes and ways to other programs are found, everyday code is not."""

import pytest

from loom_dsl.permissions.python_code import check_python

REFUSED: dict[str, tuple[str, int]] = {
    "import os": ("os", 1),
    "import os.path as p": ("os", 1),
    "import json, sys": ("sys", 1),
    "from os import path": ("os", 1),
    "from os.path import join": ("os", 1),
    "from subprocess import run as go": ("subprocess", 1),
    "x = 1\nimport subprocess": ("subprocess", 2),
    "import ctypes": ("ctypes", 1),
    "import importlib": ("importlib", 1),
    "eval('1')": ("eval", 1),
    "exec('x = 1')": ("exec", 1),
    "e = eval\ne('1')": ("eval", 1),
    "list(map(eval, ['1']))": ("eval", 1),
    "__import__('os')": ("__import__", 1),
    "open('x')": ("open", 1),
    "with open('x') as f:\n    pass": ("open", 1),
    "import builtins\nbuiltins.open('x')": ("open", 2),
    "from builtins import open as o": ("open", 1),
    "print.__self__.__import__('os')": ("__import__", 1),
    "__builtins__['eval']('1')": ("__builtins__", 1),
    "().__class__.__base__.__subclasses__()": ("__subclasses__", 1),
    "def f():\n    def g():\n        import os": ("os", 3),
    "input()": ("input", 1),
}
FINE = [
    "1 + 1",
    "import json, math, pathlib, re, statistics",
    "import osmosis_like_name",
    "from . import os",
    "opened = open_door = 1; opened",
    "class A:\n    def eval(self): return 1\nA().eval()",
    "import pathlib\npathlib.Path('x').open().read()",
    "import re\nre.compile('x')",
    "evaluate = lambda: 1\nevaluate()",
    "'import os'  # import os",
    "async def f():\n    await g()",
    "'\\d'",
    "",
]


@pytest.mark.parametrize("code", REFUSED)
def test_a_way_out_is_found_with_its_name_and_line(code: str) -> None:
    name, line = REFUSED[code]
    found = check_python(code)
    assert [(finding.kind, finding.name, finding.line) for finding in found] == [("refused", name, line)]
    assert found[0].message.startswith(f"line {line}: ")
    assert "is not allowed" in found[0].message
    assert check_python(code, {name}) == []


@pytest.mark.parametrize("code", FINE)
def test_everyday_code_is_fine(code: str) -> None:
    assert check_python(code) == []


@pytest.mark.parametrize(
    ("code", "line", "words"),
    [
        ("def f(:\n  pass", 1, "invalid syntax"),
        ("x = 1\n  y = 2", 2, "unexpected indent"),
        ("print 'x'", 1, "Missing parentheses"),
        ("x = '", 1, "unterminated string"),
        ("a\0b", 1, "null bytes"),
        ("(" * 300, 1, "too many nested"),
        ("-" * 100_000 + "1", 1, ""),
    ],
)
def test_a_mistake_is_told_with_its_line(code: str, line: int, words: str) -> None:
    (found,) = check_python(code)
    assert (found.kind, found.line, found.name) == ("syntax", line, "")
    assert words in found.message


def test_everything_is_found_in_the_order_of_the_lines() -> None:
    found = check_python("def f():\n    return eval('1')\nimport os\nopen('x')")
    assert [(finding.name, finding.line) for finding in found] == [("eval", 2), ("os", 3), ("open", 4)]
