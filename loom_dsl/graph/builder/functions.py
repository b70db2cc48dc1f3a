"""The functions of Loom's expressions, for use in Python. A name that Python has itself ends with `_`.

any_(collect(call.name == "rm", each=call, of=R.calls))      any([call.name == 'rm' for call in result.calls])
"""

import keyword
from collections.abc import Callable
from typing import Protocol

from loom_dsl.errors import ExpressionError
from loom_dsl.expr.expression import ROOTS
from loom_dsl.graph.builder.expressions import COMPARE, OR, TERNARY, Expr, Value, operand

_WORDS = frozenset({"true", "false", "null"})
One = Callable[[Value], Expr]
Two = Callable[[Value, Value], Expr]
Three = Callable[[Value, Value, Value], Expr]


class OneOrTwo(Protocol):
    """Takes an argument and, if it is given, another one."""

    def __call__(self, first: Value, second: Value = ..., /) -> Expr:
        """Write a call."""
        ...


class TwoOrThree(Protocol):
    """Takes two arguments and, if it is given, another one."""

    def __call__(self, first: Value, second: Value, third: Value = ..., /) -> Expr:
        """Write a call."""
        ...


class Several(Protocol):
    """Takes as many arguments as there are."""

    def __call__(self, *values: Value) -> Expr:
        """Write a call."""
        ...


class Written:
    """Writes calls of a function of the language.

    Args:
        name: Its name there.
        about: What it gives.
    """

    def __init__(self, name: str, about: str) -> None:
        self._name, self.__doc__ = name, about

    def __call__(self, *arguments: Value) -> Expr:
        """Write a call with these arguments."""
        return Expr(f"{self._name}({', '.join(operand(argument) for argument in arguments)})")


len_: One = Written("len", "Length of a text, a list or an object.")
any_: One = Written("any", "Whether one of the items counts as true.")
all_: One = Written("all", "Whether every item counts as true.")
sum_: One = Written("sum", "Sum of a list of numbers.")
min_: Several = Written("min", "Least item of one list, or least of up to eight values.")
max_: Several = Written("max", "Greatest item of one list, or greatest of up to eight values.")
sorted_: OneOrTwo = Written("sorted", "The items of a list in ascending order; objects by the value of a key.")
reversed_: One = Written("reversed", "The items of a list, the last one first.")
unique: One = Written("unique", "The items of a list without those that are equal to an earlier one.")
flatten: One = Written("flatten", "One list of the items of the lists in a list.")
first: OneOrTwo = Written("first", "First item of a list, or the default when it is empty.")
last: OneOrTwo = Written("last", "Last item of a list, or the default when it is empty.")
range_: Several = Written(
    "range", "Whole numbers from 0, or from the first end, up to the last one, which is not among them."
)
abs_: One = Written("abs", "Distance from zero.")
round_: OneOrTwo = Written("round", "Nearest whole number, or number with so many digits after the point.")
floor: One = Written("floor", "Greatest whole number that is not above a number.")
ceil: One = Written("ceil", "Least whole number that is not below a number.")
int_: One = Written("int", "Whole number from a number or a text.")
float_: One = Written("float", "Number from a number or a text.")
str_: One = Written("str", "Text from a number, true, false or null.")
bool_: One = Written("bool", "Whether a value counts as true.")
get: TwoOrThree = Written(
    "get", "Value of a key or an index (or a list of them, one inside the other), or the default where there is none."
)
has: Two = Written("has", "Whether there is a key or an index, or a list of them, one inside the other.")
contains: Two = Written("contains", "Whether a list has an item, an object a key, a text a part.")
keys: One = Written("keys", "Keys of an object, sorted.")
values: One = Written("values", "Values of an object, in the order of its sorted keys.")
items: One = Written(
    "items", "Keys of an object, each with its value: a list of lists of two, in the order of the sorted keys."
)
merge: Several = Written("merge", "One object of up to eight; of two values of a key, the later one.")
lower: One = Written("lower", "Text in lower case.")
upper: One = Written("upper", "Text in upper case.")
strip: One = Written("strip", "Text without space around it.")
startswith: Two = Written("startswith", "Whether a text begins with another.")
endswith: Two = Written("endswith", "Whether a text ends with another.")
replace: Three = Written("replace", "Text with one part replaced by another, wherever it is.")
split: OneOrTwo = Written("split", "Parts of a text between the separators; without one, its words.")
join: OneOrTwo = Written("join", "Items of a list as one text, with a separator, or `, `, between them.")
to_json: One = Written("to_json", "Any value as the text of it in JSON.")
from_json: One = Written("from_json", "Value that a text in JSON has.")
duration: One = Written("duration", "Seconds of a duration such as ``5m``.")


def in_(part: Value, target: Value) -> Expr:
    """Whether a list has an item, an object a key, a text a part: ``part in target``.

    Args:
        part: The item, the key or the part.
        target: The list, the object or the text.

    Returns:
        An expression that is true or false.

    Raises:
        ExpressionError: One of them is no JSON value.
    """
    return Expr(f"{operand(part, COMPARE + 1)} in {operand(target, COMPARE + 1)}", COMPARE)


def not_in(part: Value, target: Value) -> Expr:
    """The opposite of `in_`.

    Args:
        part: The item, the key or the part.
        target: The list, the object or the text.

    Returns:
        An expression that is true or false.

    Raises:
        ExpressionError: One of them is no JSON value.
    """
    return Expr(f"{operand(part, COMPARE + 1)} not in {operand(target, COMPARE + 1)}", COMPARE)


def if_(condition: Value, yes: Value, no: Value) -> Expr:
    """One value or another: ``yes if condition else no``.

    Args:
        condition: What decides.
        yes: The value where it holds.
        no: The value where it does not.

    Returns:
        An expression that is one of the two; the other is not computed.

    Raises:
        ExpressionError: One of them is no JSON value.
    """
    return Expr(f"{operand(yes, OR)} if {operand(condition, OR)} else {operand(no)}", TERNARY)


def name(text: str) -> Expr:
    """Give a name for the items that `collect` goes through.

    Args:
        text: Letters, digits and `_`, such as ``call``.

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

    Returns:
        An expression that is the new list, in the order of the old one.

    Raises:
        ExpressionError: One of them is no JSON value.
    """
    condition = "" if where is True else f" if {operand(where, OR)}"
    return Expr(f"[{operand(value)} for {operand(each)} in {operand(of, OR)}{condition}]")
