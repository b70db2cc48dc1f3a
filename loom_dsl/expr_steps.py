"""What compiled expressions do: closures that read keys, items and slices, and go through lists."""

from collections.abc import Callable, Sequence
from typing import Any

from loom_dsl.errors import ExpressionError
from loom_dsl.expr_values import Scope, built, kind_of, shown_key

Step = Callable[[Scope], Any]
_INSTEAD = {"length": "len(…)", "size": "len(…)", "first": "first(…)", "last": "last(…)"}
"""What people write as keys of lists and texts, and the function that does it."""


def key_of(target: Step, key: str, column: int) -> Step:
    """Read ``target.key``."""

    def read(scope: Scope) -> Any:
        scope.burn(1)
        value = target(scope)
        if not isinstance(value, dict):
            hint = f"; write {_INSTEAD[key]}" if key in _INSTEAD and isinstance(value, (str, list)) else ""
            raise ExpressionError(f"cannot read `.{key}` of {kind_of(value)}{hint}", column)
        if key not in value:
            raise ExpressionError(f"there is no `{key}`; use has() or get() when it may be absent", column)
        return value[key]

    return read


def item_of(target: Step, key_step: Step, column: int) -> Step:
    """Read ``target[key]``."""

    def read(scope: Scope) -> Any:
        scope.burn(1)
        value, key = target(scope), key_step(scope)
        if not isinstance(value, (dict, list, str)):
            raise ExpressionError(f"cannot index {kind_of(value)}", column)
        wanted = str if isinstance(value, dict) else int
        if not isinstance(key, wanted) or isinstance(key, bool):
            raise ExpressionError(f"cannot index {kind_of(value)} with {kind_of(key)}", column)
        try:
            return value[key]  # type: ignore[index]
        except (KeyError, IndexError):
            raise ExpressionError(f"there is no [{shown_key(key)}] in {kind_of(value)}", column) from None

    return read


def slice_of(target: Step, first: Step | None, last: Step | None, column: int) -> Step:
    """Read ``target[first:last]``."""

    def read(scope: Scope) -> Any:
        value = target(scope)
        ends = [end(scope) if end else None for end in (first, last)]
        if not isinstance(value, (list, str)) or not all(
            e is None or (isinstance(e, int) and not isinstance(e, bool)) for e in ends
        ):
            raise ExpressionError(f"cannot slice {kind_of(value)}", column)
        length = len(range(*slice(*ends).indices(len(value))))
        scope.burn(1 + (built(length) if isinstance(value, str) else length))
        return value[ends[0] : ends[1]]

    return read


def each_of(over: Step, names: Sequence[str], tests: Sequence[Step], value: Step, column: int) -> Step:
    """Make a list: ``[value for names in over if tests]``."""

    def build(scope: Scope) -> list[Any]:
        items = over(scope)
        if not isinstance(items, list):
            hint = "; write keys(…), values(…) or items(…)" if isinstance(items, dict) else ""
            raise ExpressionError(f"cannot go through {kind_of(items)}{hint}", column)
        inner = Scope(scope.names, scope.budget, scope.fuel)
        kept = []
        for item in items:
            inner.fuel = scope.fuel
            inner.burn(1 + len(tests))
            inner.names.update(_named(names, item, column))
            if all(test(inner) for test in tests):
                kept.append(value(inner))
            scope.fuel = inner.fuel
        return kept

    return build


def _named(names: Sequence[str], item: Any, column: int) -> dict[str, Any]:
    if len(names) == 1:
        return {names[0]: item}
    if not isinstance(item, list) or len(item) != len(names):
        found = f"a list of {len(item)}" if isinstance(item, list) else kind_of(item)
        raise ExpressionError(f"cannot give {found} the {len(names)} names {', '.join(names)}", column)
    return dict(zip(names, item, strict=True))
