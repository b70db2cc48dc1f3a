"""Code runs as in a REPL, in a process of its own, and only when it passes the check."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_dsl.errors import LoomError, PermissionDenied, ToolTimeout, ToolUnavailable, ToolValidationError
from loom_dsl.tools.context import ToolContext
from loom_tools.builtin.commands import check_code, execute_bash, python_repl
from loom_tools.running import check_call
from loom_tools.sandbox.run import LAUNCHER
from loom_tools.sandbox.settings import lacking


@pytest.fixture(scope="module", autouse=True)
def launcher() -> Iterator[None]:
    if lacking(LAUNCHER.means()):
        pytest.skip("this machine cannot confine commands")
    yield
    LAUNCHER.close()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("1 + 1", "2\n[exit status 0]"),
        ("x = 3\nx * 'ab'", "'ababab'\n[exit status 0]"),
        ("print('a')\nNone", "a\n[exit status 0]"),
        ("x = 1", "[exit status 0]"),
        ("'ä€😀'", "'ä€😀'\n[exit status 0]"),
        ("raise SystemExit(4)", "[exit status 4]"),
        ("class A:\n    x: int = 1\nA().x", "1\n[exit status 0]"),
        (
            "import pathlib\npathlib.Path('a.txt').write_text('b')\npathlib.Path('a.txt').read_text()",
            "'b'\n[exit status 0]",
        ),
    ],
)
def test_code_runs_as_in_a_repl(context: ToolContext, code: str, told: str) -> None:
    assert python_repl(context, code) == told


def test_a_failure_shows_the_codes_own_lines(context: ToolContext) -> None:
    told = python_repl(context, "def half(x):\n    return x / 0\n\nprint('before')\nhalf(1)")
    assert told.startswith(
        'before\nTraceback (most recent call last):\n  File "<code>", line 5, in <module>\n    half(1)\n'
    )
    assert "    return x / 0\n" in told
    assert told.endswith("ZeroDivisionError: division by zero\n[exit status 1]")


def test_nothing_is_kept_between_calls(context: ToolContext) -> None:
    python_repl(context, "kept = 1")
    assert "NameError: name 'kept' is not defined" in python_repl(context, "kept")


def test_a_setting_of_the_worker_lets_names_pass(monkeypatch: pytest.MonkeyPatch, context: ToolContext) -> None:
    with pytest.raises(PermissionDenied, match="line 1: importing 'os' is not allowed"):
        check_code("import os, sys")
    monkeypatch.setenv("LOOM_PYTHON_ALLOW", "os, sys")
    check_code("import os, sys")
    assert (
        python_repl(context, "import os\nos.path.basename(os.getcwd())")
        == f"{context.working_dir.name!r}\n[exit status 0]"
    )


async def test_the_check_is_that_of_the_tool_before_anybody_is_asked() -> None:
    assert python_repl.check is not None
    await check_call(python_repl.check, {"code": "1 + 1"})
    with pytest.raises(ToolValidationError, match="line 1: invalid syntax"):
        await check_call(python_repl.check, {"code": "1 +"})


async def test_a_check_that_fails_itself_refuses_the_call() -> None:
    def careless(arguments: dict[str, object]) -> None:
        raise LookupError("not thought of")

    with pytest.raises(PermissionDenied, match="LookupError: not thought of"):
        await check_call(careless, {})


@pytest.mark.parametrize(
    "run", [lambda c: execute_bash(c, "sleep 9", timeout=0.3), lambda c: python_repl(c, "1", timeout=0)]
)
def test_time_runs_out(context: ToolContext, run: object) -> None:
    with pytest.raises(ToolTimeout, match=r"did not end within 0.* s and was stopped\. It had written nothing"):
        run(context)  # type: ignore[operator]


def test_where_commands_must_be_confined_and_cannot_the_tools_are_not_available(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOOM_CONFINEMENT", "sometimes")
    for tool in (execute_bash, python_repl):
        assert tool.is_available is not None
        with pytest.raises(LoomError, match="give required, best_effort or off"):
            tool.is_available()
    monkeypatch.delenv("LOOM_CONFINEMENT")
    monkeypatch.setenv("HOME", str(tmp_path / "work"))
    (tmp_path / "work").mkdir()
    with pytest.raises((PermissionDenied, ToolUnavailable), match="no command runs here"):
        execute_bash(ToolContext(working_dir=tmp_path), "true")
