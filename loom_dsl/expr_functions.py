"""The functions of the expression language: name → (fewest, most arguments, body). All are pure."""

from collections.abc import Callable, Mapping
from typing import Any

_KINDS: Mapping[type, str] = {str: "text", list: "a list", dict: "an object"}


def _need(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(_KINDS.get(kind, "a number") for kind in kinds)
        raise TypeError(f"needs {wanted}")
    return value


def _get(target: Any, key: Any, default: Any = None) -> Any:
    if isinstance(target, dict):
        return target.get(key, default) if isinstance(key, str) else default
    if isinstance(target, list) and isinstance(key, int) and -len(target) <= key < len(target):
        return target[key]
    return default


def _has(target: Any, key: Any) -> bool:
    return isinstance(target, dict) and isinstance(key, str) and key in target


def _contains(target: Any, part: Any) -> bool:
    return bool(part in _need(target, str, list, dict))


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, dict)):
        raise TypeError("needs text, a number, true, false or null")
    return str(value)


def _integer(value: Any) -> int:
    return int(_need(value, int, float, str))


def _join(items: Any, separator: Any = ", ") -> str:
    text = str(_need(separator, str)).join(_text(item) for item in _need(items, list))
    if len(text) > 1_000_000:
        raise ValueError("the text becomes too long")
    return text


def _numbers(items: Any) -> list[Any]:
    return [_need(item, int, float) for item in _need(items, list)]


def _extreme(pick: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    return lambda *values: pick(_need(values[0], list) if len(values) == 1 else list(values))


FUNCTIONS: Mapping[str, tuple[int, int, Callable[..., Any]]] = {
    "len": (1, 1, lambda value: len(_need(value, str, list, dict))),
    "any": (1, 1, lambda items: any(_need(items, list))),
    "all": (1, 1, lambda items: all(_need(items, list))),
    "sum": (1, 1, lambda items: sum(_numbers(items))),
    "min": (1, 8, _extreme(min)),
    "max": (1, 8, _extreme(max)),
    "sorted": (1, 1, lambda items: sorted(_need(items, list))),
    "abs": (1, 1, lambda value: abs(_need(value, int, float))),
    "round": (1, 2, lambda value, digits=0: round(_need(value, int, float), min(max(int(digits), -15), 15))),
    "int": (1, 1, _integer),
    "float": (1, 1, lambda value: float(_need(value, int, float, str))),
    "str": (1, 1, _text),
    "bool": (1, 1, bool),
    "get": (2, 3, _get),
    "has": (2, 2, _has),
    "contains": (2, 2, _contains),
    "keys": (1, 1, lambda value: sorted(_need(value, dict))),
    "values": (1, 1, lambda value: [value[key] for key in sorted(_need(value, dict))]),
    "lower": (1, 1, lambda value: _need(value, str).lower()),
    "upper": (1, 1, lambda value: _need(value, str).upper()),
    "strip": (1, 1, lambda value: _need(value, str).strip()),
    "startswith": (2, 2, lambda value, part: _need(value, str).startswith(_need(part, str))),
    "endswith": (2, 2, lambda value, part: _need(value, str).endswith(_need(part, str))),
    "split": (2, 2, lambda value, part: _need(value, str).split(_need(part, str) or " ")),
    "join": (1, 2, _join),
}
