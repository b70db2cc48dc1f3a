"""What a `catch` names is an error code; anything else is told, with what may be meant."""

import ast
from pathlib import Path

import pytest

from loom_cli.project.contracts import Contracts
from loom_cli.project.validate import load_tools
from loom_dsl.graph.checks.structure import CLASSES, CODES, ENGINE_CODES
from loom_dsl.graph.checks.unit import Contract
from loom_dsl.graph.compiler import check_text

ROOT = Path(__file__).parents[2]
GRAPH = """
loom: 1
kind: graph
name: example
graphs:
  part:
    nodes:
      choose: {next: [{if: item, to: no}, {to: yes}]}
      no: {fail: {code: TooMuch}}
      yes: {end: 1}
nodes:
  work: {WORK, catch: {CODE: late}, next: done}
  late: {end: late}
  done: {end: "${nodes.work}"}
"""
CALL = "activity: 'shop:pay'"
MAP = "map: {over: '[1]', do: part}"
WAIT = "event: paid, deadline: never"


def told(work: str, code: str, raises: dict[str, str] | None = None) -> list[str]:
    text = GRAPH.replace("WORK", work).replace("CODE", code)
    found = check_text(text, "g.yaml", contracts=None if raises is None else lambda *_: Contract(raises=raises))
    return [str(finding) for finding in found if finding.code == "L119"]


@pytest.mark.parametrize(
    ("work", "code"),
    [
        (CALL, "any"),
        (CALL, "card_expired"),
        (CALL, "rate_limited"),
        (CALL, "function_failed"),
        (MAP, "TooMuch"),
        (MAP, "max_visits"),
        (WAIT, "cancelled"),
        *((WAIT, code) for code in ("timeout", "expression_error", "deadlock")),
    ],
)
def test_codes_that_may_come_are_not_told(work: str, code: str) -> None:
    assert told(work, code) == []


@pytest.mark.parametrize(
    ("work", "code", "advice"),
    [
        (CALL, "CardExpired", "codes are small letters"),
        (CALL, "ValueError", "an exception without an attribute `code` has the code `function_failed`"),
        (CALL, "ModelRateLimit", "write `rate_limit`, which is the code of `ModelRateLimit`"),
        (CALL, "functionfailed", "did you mean `function_failed`?"),
        (CALL, "Timeout", "did you mean `timeout`?"),
        (CALL, "'*'", "write `any`"),
        (CALL, "TooMuch", "codes are small letters"),
        (MAP, "Toomuch", "did you mean `TooMuch`?"),
        (WAIT, "card_expired", "such as `timeout`"),
        (WAIT, "deadline", "`deadline: {after: 4h, to: NODE}`"),
    ],
)
def test_what_cannot_be_a_code_is_told_with_what_may_be_meant(work: str, code: str, advice: str) -> None:
    (found,) = told(work, code)
    assert found.startswith(f"g.yaml:12:{GRAPH.replace('WORK', work).splitlines()[11].index('CODE') + 1}: L119 warning")
    assert advice in found


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("CardExpired", "write `card_expired`"),
        ("card_expird", "did you mean `card_expired`?"),
        ("Broken", 'such as `code = "broken"`, or catch `function_failed`'),
    ],
)
def test_with_the_modules_the_codes_of_their_errors_are_known(code: str, advice: str) -> None:
    raises = {"CardExpired": "card_expired", "Broken": ""}
    assert told(CALL, "card_expired", raises) == told(CALL, "of_a_module_far_away", raises) == []
    (found,) = told(CALL, code, raises)
    assert advice in found


def test_the_errors_of_a_module_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paying_module.py").write_text(
        "class CardExpired(Exception):\n    code = 'card_expired'\n\nclass Broken(ValueError): pass\n\n"
        "def pay(amount: float) -> str:\n    'Pay.'\n    return ''\n"
    )
    tools, findings = load_tools(["paying_module"])
    contract = Contracts(tools.registry, tools.missing, asked=True).of("activity", "paying_module:pay")
    assert findings == []
    assert contract is not None
    assert contract.raises == {"CardExpired": "card_expired", "Broken": ""}


def test_a_computed_code_may_be_any() -> None:
    text = GRAPH.replace("WORK", MAP).replace("CODE", "Whatever")
    assert check_text(text.replace("code: TooMuch", "code: '${item}'"), "g.yaml") == []


def _literal_codes() -> set[str]:
    """Every code that stands as a text where the engine fails a node or a job."""
    found: set[str] = set()
    for file in (file for folder in ("loom_dsl", "workflows", "activities") for file in ROOT.glob(f"{folder}/**/*.py")):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call):
                continue
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            given = {word.arg: word.value for word in call.keywords}
            code = {
                "fail_node": call.args[1] if len(call.args) > 1 else None,
                "ActivityFailed": given.get("code"),
                "ChildEnded": given.get("code"),
                "ApplicationError": given.get("type"),
                "answered": call.args[1] if len(call.args) > 1 else None,
            }.get(name)
            found |= {code.value} if isinstance(code, ast.Constant) else set()
    return found


def test_the_codes_of_the_engine_are_all_known() -> None:
    written = _literal_codes()
    assert {"max_rounds", "not_run", "internal"} <= written
    # What nobody answered is tried again by the engine, so no node fails with it.
    assert written - {"worker_stopped", "server_away"} <= CODES
    assert not set(ENGINE_CODES) & set(CLASSES.values())
