"""The functions of the expression language: name → (fewest, most arguments, body). All are pure.

The bodies of those in `SCOPED` take the scope first, because what they do costs more than the size of what they get.
"""

from collections.abc import Callable, Mapping
from typing import Any

from loom_dsl.expr_values import MAX_TEXT, Scope, contained, kind_of

_KINDS: Mapping[type, str] = {str: "text", list: "a list", dict: "an object"}


def _need(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(dict.fromkeys(_KINDS.get(kind, "a number") for kind in kinds))
        raise TypeError(f"needs {wanted}")
    return value


def _get(target: Any, key: Any, default: Any = None) -> Any:
    if isinstance(target, dict):
        return target.get(key, default) if isinstance(key, str) else default
    if isinstance(target, list) and isinstance(key, int) and not isinstance(key, bool):
        return target[key] if -len(target) <= key < len(target) else default
    return default


def _has(target: Any, key: Any) -> bool:
    return isinstance(target, dict) and isinstance(key, str) and key in target


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, dict)):
        raise TypeError("needs text, a number, true, false or null")
    return str(value)


def _convert(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        try:
            return kind(_need(value, int, float, str))
        except (ValueError, OverflowError):
            raise ValueError(f"{kind_of(value)} that is not a number") from None

    return convert


def _round(value: Any, digits: Any = 0) -> Any:
    return round(_need(value, int, float), min(max(_need(digits, int), -15), 15))


def _split(scope: Scope, value: Any, part: Any) -> list[str]:
    separator = _need(part, str) or " "
    scope.burn(_need(value, str).count(separator))
    return list(value.split(separator))


def _join(scope: Scope, items: Any, separator: Any = ", ") -> str:
    between = str(_need(separator, str))
    texts = [_text(item) for item in _need(items, list)]
    length = sum(len(text) for text in texts) + len(between) * len(texts)
    if length > MAX_TEXT:
        raise ValueError("the text becomes too long")
    scope.burn(length // 64)
    return between.join(texts)


def _numbers(items: Any) -> list[Any]:
    return [_need(item, int, float) for item in _need(items, list)]


def _extreme(pick: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def extreme(scope: Scope, *values: Any) -> Any:
        scope.burn_deep(*values)
        return pick(_need(values[0], list) if len(values) == 1 else list(values))

    return extreme


def _sorted(scope: Scope, items: Any) -> list[Any]:
    scope.burn_deep(items)
    return sorted(_need(items, list))


FUNCTIONS: Mapping[str, tuple[int, int, Callable[..., Any]]] = {
    "len": (1, 1, lambda value: len(_need(value, str, list, dict))),
    "any": (1, 1, lambda items: any(_need(items, list))),
    "all": (1, 1, lambda items: all(_need(items, list))),
    "sum": (1, 1, lambda items: sum(_numbers(items))),
    "min": (1, 8, _extreme(min)),
    "max": (1, 8, _extreme(max)),
    "sorted": (1, 1, _sorted),
    "abs": (1, 1, lambda value: abs(_need(value, int, float))),
    "round": (1, 2, _round),
    "int": (1, 1, _convert(int)),
    "float": (1, 1, _convert(float)),
    "str": (1, 1, _text),
    "bool": (1, 1, bool),
    "get": (2, 3, _get),
    "has": (2, 2, _has),
    "contains": (2, 2, lambda scope, target, part: contained(scope, part, target)),
    "keys": (1, 1, lambda value: sorted(_need(value, dict))),
    "values": (1, 1, lambda value: [value[key] for key in sorted(_need(value, dict))]),
    "lower": (1, 1, lambda value: _need(value, str).lower()),
    "upper": (1, 1, lambda value: _need(value, str).upper()),
    "strip": (1, 1, lambda value: _need(value, str).strip()),
    "startswith": (2, 2, lambda value, part: _need(value, str).startswith(_need(part, str))),
    "endswith": (2, 2, lambda value, part: _need(value, str).endswith(_need(part, str))),
    "split": (2, 2, _split),
    "join": (1, 2, _join),
}
SCOPED = frozenset({"min", "max", "sorted", "contains", "split", "join"})
