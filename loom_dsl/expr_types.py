"""The type of an expression's value, as far as its text tells."""

import ast

from loom_dsl.expr_functions import FUNCTIONS
from loom_dsl.expr_values import WORDS, Type

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
