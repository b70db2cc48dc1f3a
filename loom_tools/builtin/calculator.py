"""Arithmetic, without running anybody's code."""

import ast
import math
import operator
from collections.abc import Callable

from loom_dsl.errors import ToolError
from loom_dsl.tools.tool import tool

Number = int | float
_MAX_EXPRESSION = 1000
_MAX_BITS = 16_000
"""Whole numbers have at most this many bits, about 4,800 digits; what could be larger is not computed."""
_MAX_FACTORIAL = 1000
_MAX_PLACES = 300


def _check_bits(bits: float) -> None:
    if bits > _MAX_BITS:
        raise ToolError("the result has too many digits; use floating point numbers, such as 2.0 ** 100")


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0:
        _check_bits(base.bit_length() * exponent)
    result = base**exponent
    if isinstance(result, complex):
        raise ToolError(f"{base} ** {exponent} is not a real number")
    return float(result) if isinstance(result, float) else int(result)


def _multiply(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    return left * right


def _factorial(number: Number) -> Number:
    if not isinstance(number, int) or not 0 <= number <= _MAX_FACTORIAL:
        raise ToolError(f"factorial takes whole numbers from 0 to {_MAX_FACTORIAL}")
    return math.factorial(number)


def _round(number: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > _MAX_PLACES:
        raise ToolError(f"round takes a whole number of places from -{_MAX_PLACES} to {_MAX_PLACES}")
    return round(number, digits)


_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _multiply,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_UNARY: dict[type[ast.unaryop], Callable[[Number], Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}
_FUNCTIONS: dict[str, tuple[Callable[..., Number], int, int]] = {
    **{name: (getattr(math, name), 1, 1) for name in ("sqrt", "cbrt", "exp", "log2", "log10", "floor", "ceil")},
    **{name: (getattr(math, name), 1, 1) for name in ("sin", "cos", "tan", "asin", "acos", "atan")},
    **{name: (getattr(math, name), 1, 1) for name in ("sinh", "cosh", "tanh", "degrees", "radians")},
    "log": (math.log, 1, 2),
    "atan2": (math.atan2, 2, 2),
    "hypot": (math.hypot, 2, 2),
    "gcd": (math.gcd, 2, 2),
    "abs": (abs, 1, 1),
    "round": (_round, 1, 2),
    "min": (min, 2, 50),
    "max": (max, 2, 50),
    "factorial": (_factorial, 1, 1),
}
"""Each function with the fewest and the most arguments that it takes."""


@tool(read_only=True, quick=True, timeout=10, summarise=lambda arguments: f"compute {arguments.get('expression')}")
def calculator(expression: str) -> str:
    """Compute an arithmetic expression and return the number.

    Operators: + - * / // % ** and parentheses. Constants: pi, e, tau. Functions: sqrt, cbrt, exp, log(x, base), log2,
    log10, sin, cos, tan, asin, acos, atan, atan2, sinh, cosh, tanh, degrees, radians, hypot, gcd, abs, floor, ceil,
    round, min, max, factorial.

    Args:
        expression: For example (3 + 4) * 2 ** 0.5
    """
    text = expression.strip()
    if not text:
        raise ToolError("the expression is empty; give one such as (3 + 4) * 2")
    if len(text) > _MAX_EXPRESSION:
        raise ToolError(f"the expression has {len(text)} characters; give at most {_MAX_EXPRESSION}")
    try:
        return _write(_evaluate(ast.parse(text, mode="eval").body))
    except SyntaxError as error:
        place = f" at character {error.offset}" if error.offset else ""
        raise ToolError(f"this is not an arithmetic expression: {error.msg}{place}") from error
    except ZeroDivisionError as error:
        raise ToolError("division by zero") from error
    except OverflowError as error:
        raise ToolError("a number is too large") from error
    except (ValueError, TypeError) as error:
        raise ToolError(f"the expression cannot be computed: {error}") from error
    except (RecursionError, MemoryError) as error:
        raise ToolError("the expression is nested too deeply; compute it in parts") from error


def _evaluate(node: ast.expr) -> Number:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_evaluate(node.operand))
    if isinstance(node, ast.Name):
        if node.id in _CONSTANTS:
            return _CONSTANTS[node.id]
        raise ToolError(f"{node.id!r} is not known; constants are {', '.join(_CONSTANTS)}")
    if isinstance(node, ast.Call):
        return _call(node)
    raise ToolError(_not_supported(node))


def _call(node: ast.Call) -> Number:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in _FUNCTIONS:
        raise ToolError(f"there is no function {ast.unparse(node.func)[:40]!r}; there are {', '.join(_FUNCTIONS)}")
    function, fewest, most = _FUNCTIONS[name]
    if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
        raise ToolError(f"{name} takes plain arguments only")
    if not fewest <= len(node.args) <= most:
        expected = str(fewest) if fewest == most else f"{fewest} to {most}"
        raise ToolError(f"{name} takes {expected} arguments, got {len(node.args)}")
    return function(*map(_evaluate, node.args))


def _not_supported(node: ast.expr) -> str:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
        return "^ is not a power here; write ** for a power"
    if isinstance(node, ast.Tuple):
        return "a comma is not part of a number; write 1000, not 1,000"
    return f"{ast.unparse(node)[:60]!r} is not arithmetic; numbers, + - * / // % **, parentheses and functions are"


def _write(value: Number) -> str:
    """Write a number as people would: without the noise of binary fractions, and exactly when it is whole."""
    if isinstance(value, int):
        _check_bits(value.bit_length())
        return str(int(value)) if value.bit_length() < 13_000 else hex(value)
    if not math.isfinite(value):
        raise ToolError(f"the result is {value}, which is not a number")
    return format(value, ".15g")
