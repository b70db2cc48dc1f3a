"""The functions of the expression language. All are pure, and what they do is paid for with fuel."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from loom_dsl.errors import ExpressionError
from loom_dsl.expr.values import MAX_TEXT, Scope, Type, built, contained, form_of, kind_of, number, weight
from loom_dsl.fields import parse_duration
from loom_dsl.text.canonical import canonical_json, read_json

_KINDS: Mapping[type, str] = {str: "text", list: "a list", dict: "an object"}


class Function(NamedTuple):
    """One function of the language.

    Attributes:
        fewest: Fewest arguments.
        most: Most arguments.
        gives: Type of its value.
        body: What computes it. What looks at its arguments once is paid for by who calls it.
        scoped: Whether `body` takes the scope first, because it does more than that and pays the rest itself.
        small: Whether it does not look at the whole of its arguments, so that nothing is to be paid for their size.
    """

    fewest: int
    most: int
    gives: Type
    body: Callable[..., Any]
    scoped: bool = False
    small: bool = False


def _need(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(dict.fromkeys(_KINDS.get(kind, "a number") for kind in kinds))
        raise TypeError(f"needs {wanted}, not {kind_of(value)}")
    return value


# -- keys and items ----------------------------------------------------------------------------------

_ABSENT = object()


def _found(target: Any, key: Any) -> Any:
    """The value of a key or an index, or of a list of them, one inside the other; `_ABSENT` when there is none."""
    for part in key if isinstance(key, list) else [key]:
        if isinstance(target, dict) and isinstance(part, str):
            target = target.get(part, _ABSENT)
        elif isinstance(target, list) and isinstance(part, int) and not isinstance(part, bool):
            target = target[part] if -len(target) <= part < len(target) else _ABSENT
        else:
            return _ABSENT
    return target


def _get(target: Any, key: Any, default: Any = None) -> Any:
    found = _found(target, key)
    return default if found is _ABSENT else found


def _end(index: int) -> Callable[..., Any]:
    def end(items: Any, default: Any = None) -> Any:
        return items[index] if _need(items, list) else default

    return end


def _items(scope: Scope, value: Any) -> list[list[Any]]:
    scope.burn(3 * len(_need(value, dict)))
    return [[key, value[key]] for key in sorted(_need(value, dict))]


def _merge(scope: Scope, *values: Any) -> dict[str, Any]:
    scope.burn(2 * sum(len(_need(value, dict)) for value in values))
    return {key: item for value in values for key, item in _need(value, dict).items()}


# -- text ----------------------------------------------------------------------------------------------

_SPACES = " \t\n\v\f\r\x1c\x1d\x1e\x1f"
ALL_SPACES = f"{_SPACES}\x85\xa0\u1680{''.join(map(chr, range(0x2000, 0x200B)))}\u2028\u2029\u202f\u205f\u3000"
"""What stands between words: all that Python takes for space."""


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if not isinstance(value, (int, float, str)):
        raise TypeError(f"needs text, a number, true, false or null, not {kind_of(value)}; to_json() writes anything")
    return str(value)


def _cased(change: Callable[[str], str]) -> Callable[[Scope, Any], str]:
    def cased(scope: Scope, value: Any) -> str:
        scope.burn(built(3 * len(_need(value, str))))  # one letter can become three
        return change(value)

    return cased


def _split(scope: Scope, value: Any, part: Any = None) -> list[str]:
    if part is None:
        scope.burn(1 + built(len(_need(value, str))))
        scope.burn(2 * sum(map(value.count, _SPACES if value.isascii() else ALL_SPACES)))
        return list(value.split())
    separator = _need(part, str) or " "
    scope.burn(2 * _need(value, str).count(separator) + built(len(value)))
    return list(value.split(separator))


def _join(scope: Scope, items: Any, separator: Any = ", ") -> str:
    between = str(_need(separator, str))
    texts = [_text(item) for item in _need(items, list)]
    _pay_for_text(scope, sum(len(text) for text in texts) + len(between) * len(texts))
    return between.join(texts)


def _replace(scope: Scope, value: Any, old: Any, new: Any) -> str:
    if not _need(old, str):
        raise ValueError("needs a text to look for")
    count = _need(value, str).count(old)
    scope.burn(count)
    _pay_for_text(scope, len(value) + count * len(_need(new, str)))
    return str(value.replace(old, new))


def _pay_for_text(scope: Scope, length: int) -> None:
    if length > MAX_TEXT:
        raise ValueError("the text becomes too long")
    scope.burn(built(length))


def _strip(scope: Scope, value: Any) -> str:
    scope.burn(built(len(_need(value, str))))
    return str(value.strip())


def _to_json(scope: Scope, value: Any) -> str:
    scope.burn_deep(value, value)
    text = canonical_json(value)
    _pay_for_text(scope, len(text))
    return text


def _from_json(scope: Scope, text: Any) -> Any:
    # Each value but the first comes after one of these.
    scope.burn(5 + 3 * sum(_need(text, str).count(sign) for sign in ",[{") + built(len(text)))
    try:
        return read_json(text, parse_int=_read_number(int), parse_float=_read_number(float), parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise ValueError(f"the text is not JSON: {error.msg} at character {error.pos + 1}") from None


def _read_number(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return number(kind(text))
        except (ValueError, ExpressionError):  # Python reads no whole number of over 4,300 digits
            raise ValueError("a number is out of range") from None

    return read


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


# -- numbers -------------------------------------------------------------------------------------------


def _convert(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        try:
            return kind(_need(value, int, float, str))
        except (ValueError, OverflowError):
            raise ValueError(f"{kind_of(value)} that is not a number") from None

    return convert


def _round(scope: Scope, value: Any, digits: Any = None) -> Any:
    if digits is None:
        return round(_need(value, int, float))
    scope.burn(10)  # of large numbers it computes hundreds of digits
    return round(_need(value, int, float), min(max(_need(digits, int), -15), 15))


def _sum(items: Any) -> Any:
    return sum(_need(item, int, float) for item in _need(items, list))


def _range(scope: Scope, first: Any, last: Any = None) -> list[int]:
    begin, end = (0, _need(first, int)) if last is None else (_need(first, int), _need(last, int))
    scope.burn(max(end - begin, 0))
    return list(range(begin, end))


def _duration(scope: Scope, text: Any) -> float:
    if len(_need(text, str)) > 64:
        raise ValueError("the text is too long for a duration")
    scope.burn(2 + len(text) // 2)
    seconds = parse_duration(text)
    return int(seconds) if seconds.is_integer() else seconds


# -- lists ---------------------------------------------------------------------------------------------


def _extreme(pick: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def extreme(scope: Scope, *values: Any) -> Any:
        scope.burn_deep(*values)
        found = _need(values[0], list) if len(values) == 1 else list(values)
        if not found:
            raise ValueError("the list is empty")
        return _comparing(lambda: pick(found))

    return extreme


def _sorted(scope: Scope, items: Any, key: Any = None) -> list[Any]:
    scope.burn_deep(items)
    if key is None:
        return list(_comparing(lambda: sorted(_need(items, list))))
    name = _need(key, str)
    if not all(isinstance(item, dict) and name in item for item in _need(items, list)):
        raise ValueError(f"an item has no {name[:60]!r}")
    return list(_comparing(lambda: sorted(items, key=lambda item: item[name])))


def _comparing(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except TypeError as error:
        if str(error).startswith("needs"):
            raise
        raise TypeError("needs values that can be compared: only numbers, only texts, or only lists of such") from None


def _unique(scope: Scope, items: Any) -> list[Any]:
    scope.burn_deep(_need(items, list), items)
    first: dict[str, Any] = {}
    for item in items:
        first.setdefault(form_of(item), item)
    return list(first.values())


def _flatten(scope: Scope, items: Any) -> list[Any]:
    scope.burn(sum(weight(item) for item in _need(items, list) if isinstance(item, list)))
    return [part for item in items for part in (item if isinstance(item, list) else [item])]


FUNCTIONS: Mapping[str, Function] = {
    "len": Function(1, 1, "int", lambda value: len(_need(value, str, list, dict)), small=True),
    "get": Function(2, 3, "any", _get, small=True),
    "has": Function(2, 2, "bool", lambda target, key: _found(target, key) is not _ABSENT, small=True),
    "contains": Function(2, 2, "bool", lambda scope, target, part: contained(scope, part, target), True),
    "keys": Function(1, 1, "list", lambda value: sorted(_need(value, dict))),
    "values": Function(1, 1, "list", lambda value: [value[key] for key in sorted(_need(value, dict))]),
    "items": Function(1, 1, "list", _items, True),
    "merge": Function(1, 8, "dict", _merge, True),
    "any": Function(1, 1, "bool", lambda items: any(_need(items, list))),
    "all": Function(1, 1, "bool", lambda items: all(_need(items, list))),
    "first": Function(1, 2, "any", _end(0), small=True),
    "last": Function(1, 2, "any", _end(-1), small=True),
    "sorted": Function(1, 2, "list", _sorted, True),
    "reversed": Function(1, 1, "list", lambda items: _need(items, list)[::-1]),
    "unique": Function(1, 1, "list", _unique, True),
    "flatten": Function(1, 1, "list", _flatten, True),
    "range": Function(1, 2, "list", _range, True),
    "min": Function(1, 8, "any", _extreme(min), True),
    "max": Function(1, 8, "any", _extreme(max), True),
    "sum": Function(1, 1, "number", _sum),
    "abs": Function(1, 1, "number", lambda value: abs(_need(value, int, float))),
    "round": Function(1, 2, "number", _round, True),
    "floor": Function(1, 1, "int", lambda value: math.floor(_need(value, int, float))),
    "ceil": Function(1, 1, "int", lambda value: math.ceil(_need(value, int, float))),
    "lower": Function(1, 1, "str", _cased(str.lower), True),
    "upper": Function(1, 1, "str", _cased(str.upper), True),
    "strip": Function(1, 1, "str", _strip, True),
    "startswith": Function(2, 2, "bool", lambda value, part: _need(value, str).startswith(_need(part, str))),
    "endswith": Function(2, 2, "bool", lambda value, part: _need(value, str).endswith(_need(part, str))),
    "replace": Function(3, 3, "str", _replace, True),
    "split": Function(1, 2, "list", _split, True),
    "join": Function(1, 2, "str", _join, True),
    "int": Function(1, 1, "int", _convert(int)),
    "float": Function(1, 1, "float", _convert(float)),
    "str": Function(1, 1, "str", _text),
    "bool": Function(1, 1, "bool", bool),
    "to_json": Function(1, 1, "str", _to_json, True),
    "from_json": Function(1, 1, "any", _from_json, True),
    "duration": Function(1, 1, "number", _duration, True),
}
