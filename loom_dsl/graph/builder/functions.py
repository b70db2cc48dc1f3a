"""The functions of Loom's expressions, for use in Python. A name that Python has itself ends with `_`.

any_(collect(call.name == "rm", each=call, of=R.calls))      any([call.name == 'rm' for call in result.calls])
"""

import keyword

from loom_dsl.errors import ExpressionError
from loom_dsl.expr.expression import ROOTS
from loom_dsl.graph.builder.expressions import COMPARE, OR, TERNARY, Expr, Value, operand

_WORDS = frozenset({"true", "false", "null"})


def _call(name: str, *arguments: Value) -> Expr:
    return Expr(f"{name}({', '.join(operand(argument) for argument in arguments)})")


def len_(value: Value) -> Expr:
    """Length of a text, a list or an object."""
    return _call("len", value)


def any_(items: Value) -> Expr:
    """Whether one of the items counts as true."""
    return _call("any", items)


def all_(items: Value) -> Expr:
    """Whether every item counts as true."""
    return _call("all", items)


def sum_(numbers: Value) -> Expr:
    """Sum of a list of numbers."""
    return _call("sum", numbers)


def min_(*values: Value) -> Expr:
    """Least item of one list, or least of up to eight values."""
    return _call("min", *values)


def max_(*values: Value) -> Expr:
    """Greatest item of one list, or greatest of up to eight values."""
    return _call("max", *values)


def sorted_(items: Value, key: Value = None) -> Expr:
    """The items of a list in ascending order; objects by the value of a key."""
    return _call("sorted", items) if key is None else _call("sorted", items, key)


def reversed_(items: Value) -> Expr:
    """The items of a list, the last one first."""
    return _call("reversed", items)


def unique(items: Value) -> Expr:
    """The items of a list without those that are equal to an earlier one."""
    return _call("unique", items)


def flatten(items: Value) -> Expr:
    """One list of the items of the lists in a list."""
    return _call("flatten", items)


def first(items: Value, default: Value = None) -> Expr:
    """First item of a list, or the default when it is empty."""
    return _call("first", items) if default is None else _call("first", items, default)


def last(items: Value, default: Value = None) -> Expr:
    """Last item of a list, or the default when it is empty."""
    return _call("last", items) if default is None else _call("last", items, default)


def range_(*ends: Value) -> Expr:
    """Whole numbers from 0, or from the first end, up to the last one, which is not among them."""
    return _call("range", *ends)


def abs_(number: Value) -> Expr:
    """Distance from zero."""
    return _call("abs", number)


def round_(number: Value, digits: Value = None) -> Expr:
    """Nearest whole number, or number with so many digits after the point."""
    return _call("round", number) if digits is None else _call("round", number, digits)


def floor(number: Value) -> Expr:
    """Greatest whole number that is not above a number."""
    return _call("floor", number)


def ceil(number: Value) -> Expr:
    """Least whole number that is not below a number."""
    return _call("ceil", number)


def int_(value: Value) -> Expr:
    """Whole number from a number or a text."""
    return _call("int", value)


def float_(value: Value) -> Expr:
    """Number from a number or a text."""
    return _call("float", value)


def str_(value: Value) -> Expr:
    """Text from a number, true, false or null."""
    return _call("str", value)


def bool_(value: Value) -> Expr:
    """Whether a value counts as true."""
    return _call("bool", value)


def get(target: Value, key: Value, default: Value = None) -> Expr:
    """Value of a key or an index (or a list of them, one inside the other), or the default where there is none."""
    return _call("get", target, key) if default is None else _call("get", target, key, default)


def has(target: Value, key: Value) -> Expr:
    """Whether there is a key or an index, or a list of them, one inside the other."""
    return _call("has", target, key)


def contains(target: Value, part: Value) -> Expr:
    """Whether a list has an item, an object a key, a text a part."""
    return _call("contains", target, part)


def keys(target: Value) -> Expr:
    """Keys of an object, sorted."""
    return _call("keys", target)


def values(target: Value) -> Expr:
    """Values of an object, in the order of its sorted keys."""
    return _call("values", target)


def items(target: Value) -> Expr:
    """Keys of an object, each with its value: a list of lists of two, in the order of the sorted keys."""
    return _call("items", target)


def merge(*targets: Value) -> Expr:
    """One object of up to eight; of two values of a key, the later one."""
    return _call("merge", *targets)


def lower(text: Value) -> Expr:
    """Text in lower case."""
    return _call("lower", text)


def upper(text: Value) -> Expr:
    """Text in upper case."""
    return _call("upper", text)


def strip(text: Value) -> Expr:
    """Text without space around it."""
    return _call("strip", text)


def startswith(text: Value, part: Value) -> Expr:
    """Whether a text begins with another."""
    return _call("startswith", text, part)


def endswith(text: Value, part: Value) -> Expr:
    """Whether a text ends with another."""
    return _call("endswith", text, part)


def replace(text: Value, old: Value, new: Value) -> Expr:
    """Text with one part replaced by another, wherever it is."""
    return _call("replace", text, old, new)


def split(text: Value, separator: Value = None) -> Expr:
    """Parts of a text between the separators; without one, its words."""
    return _call("split", text) if separator is None else _call("split", text, separator)


def join(items: Value, separator: Value = ", ") -> Expr:
    """Items of a list as one text."""
    return _call("join", items, separator)


def to_json(value: Value) -> Expr:
    """Any value as the text of it in JSON."""
    return _call("to_json", value)


def from_json(text: Value) -> Expr:
    """Value that a text in JSON has."""
    return _call("from_json", text)


def duration(text: Value) -> Expr:
    """Seconds of a duration such as ``5m``."""
    return _call("duration", text)


def in_(part: Value, target: Value) -> Expr:
    """Whether a list has an item, an object a key, a text a part: ``part in target``."""
    return Expr(f"{operand(part, COMPARE + 1)} in {operand(target, COMPARE + 1)}", COMPARE)


def not_in(part: Value, target: Value) -> Expr:
    """The opposite of `in_`."""
    return Expr(f"{operand(part, COMPARE + 1)} not in {operand(target, COMPARE + 1)}", COMPARE)


def if_(condition: Value, yes: Value, no: Value) -> Expr:
    """One value or another: ``yes if condition else no``."""
    return Expr(f"{operand(yes, OR)} if {operand(condition, OR)} else {operand(no)}", TERNARY)


def name(text: str) -> Expr:
    """Give a name for the items that `collect` goes through.

    Raises:
        ExpressionError: It is no name, or has a meaning already.
    """
    taken = text in ROOTS or text in _WORDS or keyword.iskeyword(text)
    if taken or not (text.isidentifier() and text.isascii()):
        why = "means something else" if taken else "is not a name of letters, digits and `_`"
        raise ExpressionError(f"{text!r} {why}; choose another one")
    return Expr(text)


def collect(value: Value, *, each: Expr, of: Value, where: Value = True) -> Expr:
    """A list made of another one, item by item: ``[value for each in of if where]``.

    Args:
        value: What becomes of an item.
        each: The item's name, from `name`.
        of: The list.
        where: Condition for an item to be taken.
    """
    condition = "" if where is True else f" if {operand(where, OR)}"
    return Expr(f"[{operand(value)} for {operand(each)} in {operand(of, OR)}{condition}]")
