"""Loom's expression language: conditions and ``${…}`` mappings, pure and total.

The grammar is a small part of Python's: literals, names from fixed roots, ``a.b`` and ``a["b"]`` as
dictionary keys, slices, ``and or not``, comparisons, ``in``, arithmetic on numbers, ``+`` on text and
lists, ``x if c else y``, list comprehensions of one clause, and the functions of `functions.FUNCTIONS`. There are
no methods, no attributes of Python objects, no assignment. Values are JSON.

An expression is compiled once into closures and evaluated with a budget (`values.Budget`): every step costs one
unit, and what makes or reads a collection costs its size. The budget grows with what the expression reads, so that it
can go through anything that a job holds, up to a bound: a hostile expression ends in a named error in about a second
at most, and in milliseconds where it reads little, instead of holding up a workflow task.
"""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from loom_dsl.errors import ExpressionError
from loom_dsl.expr.compiler import Compiler
from loom_dsl.expr.functions import FUNCTIONS
from loom_dsl.expr.values import WORDS, Budget, Scope, Type, check_volume

# What people write who think in another language, and what to write instead.
#
# Python's parser warns of some texts (on the error stream of the process) instead of refusing them. They are refused
# here before it sees them.


_STRING = re.compile(
    r"""(?P<prefix>(?<!\w)[A-Za-z]{1,2})?(?P<quote>'''|\"\"\"|'|")(?P<body>(?:\\[\s\S]|(?!(?P=quote))[\s\S])*)(?P=quote)?"""
    r"""|\#[^\r\n]*"""
)
_ESCAPE = re.compile(r"\\([0-7]{1,3}|[\s\S])")
_ESCAPES = frozenset("\\'\"abfnrtvxuUN\r\n")
_WORD_OR_NUMBER = re.compile(
    r"[^\W0-9]\w*+|(?:0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+"
    r"|(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9][0-9_]*)?)(?P<stuck>(?=[^\W0-9]))?"
)
_INSTEAD = {
    "&&": "write `and` instead of `&&`",
    "||": "write `or` instead of `||`",
    "!==": "write `!=` instead of `!==`",
    "===": "write `==` instead of `===`",
    "!=": "",
    "!": "write `not` instead of `!`",
    "<>": "write `!=` instead of `<>`",
    "=>": "write `>=` instead of `=>`",
    "=<": "write `<=` instead of `=<`",
    "==": "",
    "<=": "",
    ">=": "",
    ":=": "write `==` to compare; nothing is assigned here",
    "=": "write `==` instead of `=`; nothing is assigned here",
    "?.": "write get(x, 'key') instead of `x?.key`",
    "??": "write `x or y`, or get(x, 'key', y), instead of `??`",
    "?": "write `a if condition else b` instead of `condition ? a : b`",
    "${": "write the expression without `${` and `}`",
    "$.": "write a path from its root on, such as input.x or nodes.a.x, without `$.`",
    "$": "write names without `$`",
    "`": "write text in quotes, such as 'text'",
    "AND": "write `and` instead of `AND`",
    "OR": "write `or` instead of `OR`",
    "NOT": "write `not` instead of `NOT`",
    "IN": "write `in` instead of `IN`",
    "then": "write `a if condition else b` instead of `if condition then a`",
}
_MISTAKE = re.compile("|".join(rf"\b{sign}\b" if sign.isalpha() else re.escape(sign) for sign in _INSTEAD))
_REFERENCE = re.compile(r"\s*(env|secret):")
_WORDS = re.compile(r"(?:[^\W\d]\w*+[ \t]*+)+")
_INFIX = ("contains", "has", "startswith", "endswith")
_GRAMMAR = frozenset({"and", "or", "not", "in", "if", "else", "for", "is", "lambda", "true", "false", "null"})


def refused(text: str) -> tuple[str, int] | None:
    """Give what is wrong in a text that Python's parser would warn of, and at which character (from 0)."""
    if "\\" in text:
        for literal in _STRING.finditer(text):
            if literal["quote"] and "r" not in (literal["prefix"] or "").lower():
                for escape in _ESCAPE.finditer(text, literal.start("body"), literal.end("body")):
                    if not _is_escape(escape[1]):
                        return f"`{escape[0]}` means nothing in a text; write `\\{escape[0]}`", escape.start()
    for found in _WORD_OR_NUMBER.finditer(_without_texts(text)):
        if found["stuck"] is not None:
            return "put a space after the number", found.end()
    return None


def mistake(text: str) -> tuple[str, int] | None:
    """Give what to write instead in a text that does not parse, and at which character (from 0), if that is known."""
    reference = _REFERENCE.match(text)
    if reference:
        return f"a reference such as `${{{reference[1]}:NAME}}` is a whole value, never a part of one", 0
    for found in _MISTAKE.finditer(_without_texts(text)):
        if _INSTEAD[found[0]]:
            return _INSTEAD[found[0]], found.start()
    return None


def unquoted(text: str) -> tuple[str, int] | None:
    """Find words that stand side by side, as only those of a text do: what to write, and at which character."""
    for found in _WORDS.finditer(_without_texts(text)):
        words, start = found[0].split(), found.start()
        if len(words) < 2:
            continue
        if text[start - 1 : start] in (".", '"', ")", "]"):  # the first one belongs to what is before it
            start += len(words[0]) + 1
            words = words[1:]
        if words[0] in _INFIX:
            return f"write {words[0]}(x, y) instead of `x {words[0]} y`", start
        if not _GRAMMAR & set(words):
            return f"write a text in quotes, such as '{' '.join(words)[:60]}'", start
    return None


def _is_escape(character: str) -> bool:
    return int(character, 8) < 0o400 if character[0] in "01234567" else character in _ESCAPES


def _without_texts(text: str) -> str:
    """Blank out texts in quotes and comments; what is left stays in its place."""
    return _STRING.sub(lambda found: '"' * len(found[0]), text)


# The type of an expression's value, as far as its text tells.


_NUMBERS = ("int", "float", "number")


def type_of(node: ast.AST) -> Type:
    """Tell the type of an expression that compiles. Where it has a value at all, the value is of that type."""
    match node:
        case ast.Constant(value=value):
            return _of_value(value)
        case ast.Name(id=name):
            return _of_value(WORDS[name]) if name in WORDS else "any"
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return "bool"
        case ast.UnaryOp(operand=operand):
            found = type_of(operand)
            return found if found in _NUMBERS else "number"
        case ast.BinOp():
            return _of_operator(node)
        case ast.BoolOp(values=values):
            return _either([type_of(value) for value in values])
        case ast.IfExp(body=body, orelse=orelse):
            return _either([type_of(body), type_of(orelse)])
        case _:
            return _of_rest(node)


def _of_rest(node: ast.AST) -> Type:
    match node:
        case ast.List() | ast.ListComp() | ast.GeneratorExp():
            return "list"
        case ast.Dict():
            return "dict"
        case ast.Call(func=ast.Name(id=name)):
            return FUNCTIONS[name].gives
        case ast.Subscript(value=target, slice=ast.Slice()):
            found = type_of(target)
            return found if found in ("str", "list") else "any"
        case ast.Subscript(value=target):
            return "str" if type_of(target) == "str" else "any"
        case _:
            return "any"


def _of_value(value: object) -> Type:
    names: dict[type, Type] = {bool: "bool", int: "int", float: "float", str: "str"}
    return names.get(type(value), "null")


def _of_operator(node: ast.BinOp) -> Type:
    left, right = type_of(node.left), type_of(node.right)
    if isinstance(node.op, ast.Add):
        joined = [kind for kind in (left, right) if kind in ("str", "list")]
        if joined or (left == right == "any"):
            return joined[0] if joined else "any"
    if isinstance(node.op, ast.Div) or "float" in (left, right):
        return "float"
    return "int" if left == right == "int" else "number"


def _either(types: list[Type]) -> Type:
    if len(set(types)) == 1:
        return types[0]
    return "number" if all(kind in _NUMBERS for kind in types) else "any"


MAX_SOURCE = 2_000
MAX_SHOWN = 200
"""Characters of an expression that a message quotes."""
ROOTS = frozenset({"input", "state", "nodes", "result", "item", "index", "event", "turn", "limits", "agent", "run"})
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression.

    Attributes:
        source: The text.
        references: Each path read from a root, such as ``("nodes", "model", "calls")``.
        type: The type of every value that it can have, as far as its text tells.
        builds: Whether its value can be larger than what it reads.
        reads: The references without those on the way to another one: the budget grows with what is there.
    """

    source: str
    references: tuple[tuple[str, ...], ...]
    step: Callable[[Scope], JsonValue]
    type: Type = "any"
    builds: bool = False
    reads: tuple[tuple[str, ...], ...] = ()

    def evaluate(self, names: Mapping[str, object]) -> JsonValue:
        """Give the value for these names.

        Raises:
            ExpressionError: A key is missing, a type does not fit, or the work is too much.
        """
        budget = Budget(names, self.reads)
        scope = Scope(names, budget)
        try:
            value: JsonValue = self.step(scope)
            return check_volume(scope, value) if self.builds else value
        except ExpressionError as error:
            raise ExpressionError(f"{error.message} in `{self.source}`", error.column) from None
        except RecursionError:
            raise ExpressionError(f"the values are nested too deeply in `{self.source}`") from None
        finally:
            budget.settle(max(scope.fuel, 0))


def compile_expression(source: str, roots: frozenset[str] = ROOTS) -> Expression:
    """Compile the text of an expression.

    Raises:
        ExpressionError: The text is not an expression of the language; the column says where.
    """
    if len(source) > MAX_SOURCE:
        raise ExpressionError(f"the expression is {len(source)} characters long; the limit is {MAX_SOURCE}")
    text = source.strip()
    if not text:
        raise ExpressionError("the expression is empty", 1)
    places = _Places(source, text)
    tree = _parsed(text, places)
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            node.col_offset = places.of_bytes(node.lineno, node.col_offset) - 1
    compiler = Compiler(roots)
    step = compiler.compile(tree.body, 0)
    references, reads = (tuple(dict.fromkeys(paths)) for paths in (compiler.references, compiler.reads))
    return Expression(text, references, step, type_of(tree.body), compiler.builds, reads)


def _parsed(text: str, places: "_Places") -> ast.Expression:
    wrong = refused(text)
    if wrong is not None:
        raise ExpressionError(wrong[0], places.at(wrong[1]))
    try:
        return ast.parse(text, mode="eval")
    except SyntaxError as error:
        wrong = mistake(text) or (unquoted(text) if error.msg.startswith("invalid syntax") else None)
        if wrong is not None:
            raise ExpressionError(f"`{_cut(text)}` is not an expression: {wrong[0]}", places.at(wrong[1])) from None
        column = places.of(error.lineno or 1, max((error.offset or 1) - 1, 0))
        column = min(column, places.at(len(text)))  # Python counts bytes in some messages
        message = error.msg
        if message.startswith("unterminated string") and "\n" in text:
            message = (
                "a text in quotes ends at the end of its line; in a double-quoted text of YAML write `\\\\n` for `\\n`"
            )
        raise ExpressionError(f"`{_cut(text)}` is not an expression: {message}", column) from None
    except (ValueError, RecursionError, MemoryError):
        raise ExpressionError("the expression is nested too deeply or holds a character that it cannot") from None


def _cut(text: str) -> str:
    text = text.replace("\n", "⏎")
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


class _Places:
    """Columns as authors count them: characters from the start of the source, from 1."""

    def __init__(self, source: str, text: str) -> None:
        self.before = source.index(text)
        self.lines = _LINE_END.split(text)
        ends = [0, *(match.end() for match in _LINE_END.finditer(text))]
        self.starts = [self.before + end for end in ends]

    def at(self, position: int) -> int:
        return self.before + position + 1

    def of(self, line: int, characters: int) -> int:
        return self.starts[min(line, len(self.starts)) - 1] + characters + 1

    def of_bytes(self, line: int, offset: int) -> int:
        text = self.lines[min(line, len(self.lines)) - 1]
        return self.of(line, len(text.encode("utf-8")[:offset].decode("utf-8", "replace")))
