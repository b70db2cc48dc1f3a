"""What a scenario expected and what came of it: the differences, as sentences and as JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loom_dsl.fields import format_duration
from loom_dsl.simulation.names import aliases
from loom_dsl.simulation.run import Played, Rehearsal
from loom_dsl.simulation.scenario import Expected, ExpectedEvent

MAX_SHOWN = 80
MAX_DIFFERENCES = 5
"""Differences that are told of one value."""


def differences(played: Played) -> list[str]:
    """Say in what a case went another way than it was to; empty when it did not."""
    expect = played.case.expect
    found = [*_ending(played, expect)]
    if "result" in expect.model_fields_set and played.status != "failed":
        found += _values("result", expect.result, played.result)
    for name, count in expect.visits.items():
        happened = played.coverage.names[name]
        if happened != count:
            found.append(f"visits of `{name}`: expected {count}, got {happened}")
    found += [line for name, given in expect.arguments.items() for line in _arguments(played, name, given)]
    found += _events(expect.events, played.told)
    for branch, entries in expect.trace.items():
        found += _list(f"trace of {branch}", list(entries), played.trace.get(branch, []))
    if expect.waits is not None:
        found += _waits(expect.waits, played.waits)
    if expect.duration is not None and abs(expect.duration - played.duration) > 0.0005:
        found.append(f"duration: expected {format_duration(expect.duration)}, got {format_duration(played.duration)}")
    return found


def hints(played: Played) -> list[str]:
    """Say what may be the reason when a case went another way: what it has no result for, what had no effect."""
    found = [f"`{name}` has no result in the scenario, so it was null" for name in played.missing]
    return [*found, *played.problems]


def _ending(played: Played, expect: Expected) -> Iterator[str]:
    got = f"{played.status} ({played.code}: {played.message})" if played.code else played.status
    got += f" at {', '.join(played.waits)}" if played.waits else ""
    if expect.failure is not None:
        if played.code != expect.failure.code:
            yield f"failure: expected {expect.failure.code}, got {got}"
        elif expect.failure.message is not None and expect.failure.message not in played.message:
            yield f"message of the failure: expected {_shown(expect.failure.message)}, got {_shown(played.message)}"
    elif expect.status is not None:
        if played.status != expect.status:
            yield f"status: expected {expect.status}, got {got}"
    elif played.status == "failed":
        yield f"it {got}"
    elif played.status == "waiting" and expect.waits is None:
        yield f"it is stuck: it waits at {', '.join(played.waits)}, and nothing that is scripted moves it on"


def _arguments(played: Played, name: str, given: Sequence[Any]) -> Iterator[str]:
    asked = [one.arguments for one in played.asked if name in aliases(one.at)]
    if not asked:
        yield f"arguments of `{name}`: it did not run"
    elif len(given) == 1:
        for number, arguments in enumerate(asked):
            yield from _values(f"arguments of `{name}`{f' ({number + 1})' if number else ''}", given[0], arguments)
    elif len(given) != len(asked):
        yield f"arguments of `{name}`: expected {len(given)} executions, got {len(asked)}"
    else:
        for number, (wanted, arguments) in enumerate(zip(given, asked, strict=True)):
            yield from _values(f"arguments of `{name}` ({number + 1})", wanted, arguments)


def _events(expected: Sequence[ExpectedEvent], told: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    at = 0
    for wanted in expected:
        fields = wanted.model_extra or {}
        while at < len(told) and not (
            told[at]["t"] == wanted.type and all(_same(told[at].get(key), value) for key, value in fields.items())
        ):
            at += 1
        if at == len(told):
            there = [event for event in told if event["t"] == wanted.type]
            near = f"; the last of this type was {_shown(there[-1])}" if there else ""
            yield f"events: no {wanted.type}{f' with {_shown(fields)}' if fields else ''} in this place{near}"
            return
        at += 1


def _waits(expected: Sequence[str], waits: Sequence[str]) -> Iterator[str]:
    known = [aliases(at) for at in waits]
    fits = all(any(name in names for names in known) for name in expected)
    if not fits or not all(any(name in expected for name in names) for names in known):
        yield f"waits: expected {', '.join(expected) or 'nothing'}, got {', '.join(waits) or 'nothing'}"


def _list(name: str, expected: list[str], got: list[str]) -> Iterator[str]:
    if expected != got:
        yield f"{name}: expected {', '.join(expected) or 'nothing'}; got {', '.join(got) or 'nothing'}"


def _values(name: str, expected: Any, got: Any) -> list[str]:
    found = list(_different(name, expected, got))
    more = [f"{name}: and {len(found) - MAX_DIFFERENCES} more differences"] if len(found) > MAX_DIFFERENCES else []
    return found[:MAX_DIFFERENCES] + more


def _different(place: str, expected: Any, got: Any) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in [*expected, *(key for key in got if key not in expected)]:
            inside = f"{place}.{key}"
            if key not in got:
                yield f"{inside}: expected {_shown(expected[key])}, and it is not there"
            elif key not in expected:
                yield f"{inside}: not expected, got {_shown(got[key])}"
            else:
                yield from _different(inside, expected[key], got[key])
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, (wanted, given) in enumerate(zip(expected, got, strict=True)):
            yield from _different(f"{place}[{index}]", wanted, given)
    elif not _same(expected, got):
        yield f"{place}: expected {_shown(expected)}, got {_shown(got)}"


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; true is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def failed(rehearsal: Rehearsal) -> list[str]:
    """The names of the cases that went another way."""
    return [played.case.name for played in rehearsal.cases if differences(played)]


def explanation(rehearsal: Rehearsal) -> str:
    """Say what went another way, case by case; empty when nothing did."""
    lines: list[str] = []
    for played in rehearsal.cases:
        found = differences(played)
        if found:
            lines += [f"{rehearsal.graph}: {played.case.name}", *(f"  {line}" for line in found)]
            lines += [f"  ({line})" for line in hints(played)]
    return "\n".join(lines)


def to_json(rehearsal: Rehearsal) -> dict[str, Any]:
    """Everything about a scenario that has been played, as JSON."""
    return {
        "graph": rehearsal.graph,
        "scenario": rehearsal.scenario,
        "ok": not failed(rehearsal),
        "cases": [_case(played) for played in rehearsal.cases],
        "coverage": rehearsal.coverage.to_json(),
        "unused": list(rehearsal.unused),
    }


def _case(played: Played) -> dict[str, Any]:
    found = differences(played)
    return {
        "name": played.case.name,
        "ok": not found,
        "differences": found,
        "hints": hints(played),
        "status": played.status,
        "result": played.result,
        "failure": {"code": played.code, "message": played.message} if played.code else None,
        "seconds": played.duration,
        "visits": {name: count for name, count in sorted(played.coverage.names.items()) if "#" not in name},
        "trace": played.trace,
        "log": [{"seconds": one.time, "at": one.at, "what": one.what} for one in played.log],
        "waits": list(played.waits),
    }
