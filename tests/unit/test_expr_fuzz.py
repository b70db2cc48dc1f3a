"""Whatever an expression says, it ends soon and small, touches no object of Python's, and gives JSON or a named error.

A sample runs in `make test`, a million in the nightly lane.
"""

import json
import math
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from loom_dsl.errors import ExpressionError
from loom_dsl.expr.expression import compile_expression
from loom_dsl.expr.template import compile_template
from loom_dsl.expr.values import FUEL, MAX_AT_ONCE, MAX_INTEGER, MAX_STEPS, METER, Meter
from tests.support.hostile_expressions import SEEDS, Writer

SECONDS = 0.05
YARDSTICK = "[x + 1 for x in event if x + 1 > x]"
"""Uses up all its fuel, in a tenth of `SECONDS` on a machine that has nothing else to do."""
BYTES = 10_000_000
SAMPLE, NIGHT, LANES = 1_500, 1_000_000, 20
CHUNK = NIGHT // LANES
OWN = frozenset(
    {"get", "keys", "values", "items", "lower", "upper", "strip", "split", "count", "startswith", "endswith", "replace"}
)
"""What the functions of the language call on dictionaries and texts."""

touched: set[str] = set()


def _watched(name: str) -> bool:
    if name != "__class__" and name not in OWN:  # `isinstance` asks for the class
        touched.add(name)
    return True


class Opaque:
    """An object of Python's, which no value of a job is, and which notes each attribute that somebody asks for."""

    secret = "not to be read"

    def __getattribute__(self, name: str) -> Any:
        _watched(name)
        return object.__getattribute__(self, name)


class WatchedObject(dict[str, Any]):
    def __getattribute__(self, name: str) -> Any:
        _watched(name)
        return super().__getattribute__(name)


class WatchedList(list[Any]):
    def __getattribute__(self, name: str) -> Any:
        _watched(name)
        return super().__getattribute__(name)


class WatchedText(str):
    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        _watched(name)
        return super().__getattribute__(name)


OPAQUE = Opaque()
NAMES: dict[str, Any] = {
    "input": {
        "n": 3,
        "name": "Ada",
        "tags": ["x", "y"],
        "none": None,
        "deep": {"er": {"est": 1.5}},
        "big": "x" * 600_000,
        "wide": "ΐ \U0001f600" * 100_000,
        "rows": [{"n": n % 7, "name": f"row {n}", "x": [n, str(n)]} for n in range(200)],
        "items": {str(n): n for n in range(50)},
    },
    "event": list(range(5_000)),
    "state": {"x": [[[1, 2], [3]], []], "name": "a,b,c"},
    "nodes": {"x": {"n": 1, "tags": [True, False, None]}},
    "item": {"n": 1, "name": "item"},
    "index": 2,
    "result": [1, "a", None, {"x": 1}, [2]],
    "run": {"now": 1_700_000_000.5},
    "agent": OPAQUE,
    "turn": WatchedObject(text=WatchedText("text"), list=WatchedList([1, WatchedText("a")]), n=1),
    METER: Meter(),
}


def names(left: int = FUEL) -> dict[str, Any]:
    """What the expressions may read, and so many steps that each of them has."""
    return {**NAMES, METER: Meter(MAX_AT_ONCE - left)}


def _parts(value: Any) -> Iterator[Any]:
    return iter(value.values()) if isinstance(value, dict) else iter(value) if isinstance(value, list) else iter(())


def _all_ids(value: Any, found: set[int]) -> set[int]:
    found.add(id(value))
    for part in _parts(value):
        if id(part) not in found:
            _all_ids(part, found)
    return found


GIVEN = _all_ids(NAMES, set())


def is_json(value: Any) -> bool:
    """Whether everything in a value is JSON, or one of the names' own values."""
    stack, seen = [value], set(GIVEN)
    while stack:
        part = stack.pop()
        if id(part) in seen:
            continue
        if isinstance(part, (list, dict)):
            seen.add(id(part))  # only these live on while this runs
            if isinstance(part, dict) and not all(isinstance(key, str) for key in part):
                return False
            stack.extend(_parts(part))
        elif isinstance(part, bool) or part is None or isinstance(part, str):
            continue
        elif not (isinstance(part, int) and abs(part) <= MAX_INTEGER) and not (
            isinstance(part, float) and math.isfinite(part)
        ):
            return False
    return True


TYPES: dict[str, Callable[[Any], bool]] = {
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, float),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "list": lambda value: isinstance(value, list),
    "dict": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
    "any": lambda value: True,
}

audited: list[str] = []
_watching: list[int] = []


def _audit(event: str, _: tuple[Any, ...]) -> None:
    # `ast.parse` is told as `compile`, and it is `is_json` that asks for ids.
    if _watching and event not in ("compile", "builtins.id") and threading.get_ident() == _watching[0]:
        audited.append(event)


@pytest.fixture(scope="module")
def audit() -> Callable[..., Any]:
    """Notes what Python's audit events tell: imports, files, processes, code, special attributes."""
    sys.addaudithook(_audit)  # it stays for good

    @contextmanager
    def watching() -> Iterator[None]:
        _watching.append(threading.get_ident())
        try:
            yield
        finally:
            _watching.clear()

    return watching


@dataclass
class Figures:
    """What a run of the fuzzer saw; `longest` is in seconds, `largest` in bytes, each with the text."""

    tried: int = 0
    compiled: int = 0
    valued: int = 0
    longest: tuple[float, str] = (0.0, "")
    largest: tuple[int, str] = (0, "")


def evaluated(source: str, figures: Figures) -> None:
    """Compile and evaluate one text, alone and as a hole; anything but a value or an `ExpressionError` comes out."""
    try:
        expression = compile_expression(source)
        figures.compiled += 1
        value = expression.evaluate(names())
    except ExpressionError as error:
        column = 1 if error.column is None else error.column
        # Its text at most twice, and names or values cut short.
        if not (0 < len(error.message) < 2 * len(source) + 1_000 and 1 <= column <= len(source) + 2):
            raise AssertionError(f"{source!r} is refused at column {column} with {error.message!r:.900}") from error
        return
    figures.valued += 1
    assert is_json(value), f"{source!r} gives {value!r:.200}"
    assert value is OPAQUE or TYPES[expression.type](value), (
        f"{source!r} is told to give {expression.type}: {value!r:.200}"
    )


def filled(source: str) -> None:
    """Compile and fill a text with a hole."""
    try:
        value = compile_template(f"a ${{{source}}} b").evaluate(names())
    except ExpressionError:
        return
    assert isinstance(value, str)


def seconds_of(source: str) -> float:
    """The least time of five, without anything that watches memory."""
    tracemalloc.stop()
    try:
        return min(_once(source) for _ in range(5))
    finally:
        tracemalloc.start()


def _once(source: str) -> float:
    began = time.process_time()
    evaluated(source, Figures())
    return time.process_time() - began


def fuzz(seed: int, count: int) -> Figures:
    """Try so many texts.

    Raises:
        AssertionError: One of them takes too long or too much memory, or gives what is not JSON.
    """
    figures, writer = Figures(), Writer(Random(seed))
    tracemalloc.start()
    try:
        for number in range(count):
            source = writer.write() if number >= len(SEEDS) else SEEDS[number]
            tracemalloc.reset_peak()
            before, began = tracemalloc.get_traced_memory()[0], time.process_time()
            evaluated(source, figures)
            took = time.process_time() - began
            used = tracemalloc.get_traced_memory()[1] - before
            figures.tried += 1
            if took > figures.longest[0]:  # by itself, by what watches memory, or by whatever else this machine does
                took = seconds_of(source)
            figures.longest = max(figures.longest, (took, source))
            figures.largest = max(figures.largest, (used, source))
            assert took < SECONDS or took < 10 * seconds_of(YARDSTICK), (
                f"seed {seed}, text {number}: {took * 1000:.0f} ms for {source!r}"
            )
            assert used < BYTES, f"seed {seed}, text {number}: {used:,} bytes for {source!r}"
            if number % 10 == 0:
                filled(source)
    finally:
        tracemalloc.stop()
    return figures


@pytest.mark.parametrize(
    ("seed", "count"),
    [
        pytest.param(0, SAMPLE, id="sample"),
        *(
            pytest.param(lane, CHUNK, id=f"lane {lane}", marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])
            for lane in range(1, LANES + 1)
        ),
    ],
)
def test_no_expression_takes_long_or_much_or_reaches_a_python_object(
    seed: int, count: int, audit: Callable[..., Any]
) -> None:
    touched.clear()
    audited.clear()
    with audit():
        figures = fuzz(seed, count)
    print(figures)  # pytest shows it with -rP
    assert touched == set()
    assert audited == []
    assert figures.tried == count
    assert figures.compiled > count / 5, "most texts are refused at once; the generator tests little"
    assert figures.valued > count / 20, "hardly any expression has a value; the generator tests little"


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(source, marks=[pytest.mark.nightly] * (source.count(" for ") > 2))
        for source in SEEDS
        if "event" in source or "input" in source
    ],
)
def test_with_every_step_that_an_expression_may_have_it_takes_no_more_and_stays_small(source: str) -> None:
    given = names(MAX_STEPS)
    tracemalloc.start()
    try:
        with suppress(ExpressionError):
            compile_expression(source).evaluate(given)
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert given[METER].used <= MAX_AT_ONCE
    assert used < 10 * BYTES


def test_the_traps_notice_what_they_are_there_for(audit: Callable[..., Any]) -> None:
    touched.clear()
    audited.clear()
    with audit():
        assert OPAQUE.secret
        assert NAMES["turn"].__class__ is WatchedObject
        NAMES["turn"].pop("nothing", None)
        compile("1", "x", "eval")
        exec("1")
    assert touched == {"secret", "pop"}
    assert "exec" in audited
    assert not is_json(Opaque())
    assert not is_json([float("nan")])
    assert not is_json({1: 2})
    json.dumps(NAMES["input"])
