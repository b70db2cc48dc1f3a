"""Hooks that do each what a hook may do, and what it may not."""

from loom_dsl.tools.hooks import HookAnswer, HookCall


def note(call: HookCall) -> HookAnswer:
    """Note which tool it is."""
    return HookAnswer(note=f"{call.point} {call.tool} in turn {call.turn}")


def mend(call: HookCall) -> HookAnswer | None:
    """Ask for another sum."""
    return HookAnswer(arguments={"expression": "40 + 2"}) if call.arguments["expression"] == "1 + 1" else None


def guard(call: HookCall) -> HookAnswer | None:
    """Refuse a number."""
    return HookAnswer(deny="not this number") if "666" in call.arguments["expression"] else None


def veil(call: HookCall) -> HookAnswer | None:
    """Hide one result, withhold another."""
    if call.output == "99":
        return HookAnswer(deny="too large")
    return HookAnswer(output="veiled") if call.output == "7" else None


def broken(call: HookCall) -> HookAnswer | None:
    """Fail, or want what is not its to want."""
    text = str(call.arguments["expression"])
    if "13" in text:
        raise LookupError("the author did not think of this")
    if "14" in text:
        return HookAnswer(arguments={"expression": "1"})
    return "yes" if "15" in text else None  # type: ignore[return-value]
