"""Arithmetic for models."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.errors import ToolError
from loom_tools.builtin.calculator import calculator


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * -4", "-20"),
        ("7 / 2", "3.5"),
        ("6 / 2", "3"),
        ("7 // 2 + 7 % 2", "4"),
        ("2 ** 10", "1024"),
        ("2 ** -1", "0.5"),
        ("0.1 + 0.2", "0.3"),
        ("1e3", "1000"),
        ("1_000 * 2", "2000"),
        ("sqrt(2) ** 2", "2"),
        ("log(8, 2)", "3"),
        ("round(3.14159, 2)", "3.14"),
        ("max(1, 2, 3) - min(4, 5)", "-1"),
        ("factorial(20)", "2432902008176640000"),
        ("sin(pi / 2)", "1"),
        ("gcd(12, 18)", "6"),
        ("123456789012345678901234567890 + 1", "123456789012345678901234567891"),
        (" \n1+1 ", "2"),
        ("cbrt(27)", "3"),
    ],
)
def test_an_expression_has_a_value(expression: str, result: str) -> None:
    assert calculator(expression=expression) == result


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "empty"),
        ("2 +", "not an arithmetic expression"),
        ("2 ^ 3", r"write \*\*"),
        ("1,000 + 1", "comma"),
        ("1 / 0", "division by zero"),
        ("5 % 0", "division by zero"),
        ("x + 1", "'x' is not known"),
        ("foo(1)", "no function 'foo'"),
        ("sqrt(-1)", "cannot be computed"),
        ("(-8) ** 0.5", "not a real number"),
        ("sqrt(1, 2)", "takes 1 arguments, got 2"),
        ("max(*[1])", "plain arguments|takes"),
        ("round(1, ndigits=2)", "plain arguments"),
        ("9 ** 9 ** 9", "too many digits"),
        ("10.0 ** 400", "too large"),
        ("1e308 * 10", "not a number"),
        ("factorial(100000)", "0 to 1000"),
        ("factorial(2.5)", "whole numbers"),
        ("round(1, -9999999999)", "places from -300 to 300"),
        ("'a' * 3", "not arithmetic"),
        ("True + 1", "not arithmetic"),
        ("[1][0]", "not arithmetic"),
        ("1 if 2 else 3", "not arithmetic"),
        ("(lambda: 1)()", "no function"),
        ("__import__('os').system('true')", "no function"),
        ("(1).__class__", "not arithmetic"),
        ("1 < 2", "not arithmetic"),
        ("1" * 1001, "at most 1000"),
        ("-" * 999 + "1", "nested|not an arithmetic"),
        ("(" * 400 + "1" + ")" * 400, "not an arithmetic|nested"),
        ("1\0", "not an arithmetic|cannot be computed"),
        ("\ud800", "not an arithmetic|cannot be computed"),
        ("1j * 1j", "not arithmetic"),
    ],
)
def test_what_is_not_arithmetic_is_told(expression: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        calculator(expression=expression)


@pytest.mark.parametrize("expression", ["*".join(["9**4000"] * 60), "(9**4000)**4000", "factorial(1000)*" * 50 + "1"])
def test_large_numbers_are_refused_before_they_are_computed(expression: str) -> None:
    with pytest.raises(ToolError, match="too many digits"):
        calculator(expression=expression)


@given(st.text(alphabet="0123456789.+-*/%() ,esqrtminpi", max_size=40))
def test_any_text_gives_a_number_or_a_message(expression: str) -> None:
    try:
        result = calculator(expression=expression)
    except ToolError:
        return
    float(int(result, 0) if "x" in result else result)


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9), st.sampled_from("+-*"))
def test_whole_numbers_are_exact(left: int, right: int, sign: str) -> None:
    exact = {"+": left + right, "-": left - right, "*": left * right}[sign]
    assert calculator(expression=f"{left} {sign} ({right})") == str(exact)
