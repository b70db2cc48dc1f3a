"""What authorizing a call and masking secrets cost, without any engine."""

import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.report import Table, aim
from benchmarks.stand.tools import text_of
from loom_dsl.permissions.decide import Verdict, decide
from loom_dsl.permissions.policy import Permissions
from loom_dsl.permissions.shell_line import read_line
from loom_dsl.permissions.traits import traits_of
from loom_dsl.tools.tool import Tool
from loom_tools.masking import redact
from loom_tools.registry import ToolRegistry
from loom_tools.workspace.workspace import Workspace

KIB, MIB = 1024, 1024 * 1024
LARGE = 8 * MIB
CALLS = 50
PLAIN = "git log -3"
HARD = "git log -3 | head -5 && make test; echo $(date)"
GUARDED = re.compile("sk-[A-Za-z0-9_-]{16,}")
"""What the baseline masks beside the known values: one shape of a credential."""


def measure_policy(*, quick: bool) -> Table:
    """Measure on this process alone: each row a median, against the plainest code that could stand in its place."""
    table = Table("Authorize and redact, without an engine", ["", "each, µs", "ms/MB", "baseline, µs", "to baseline"])
    times = 3 if quick else 15
    with tempfile.TemporaryDirectory() as folder:
        _authorize(table, Path(folder), times)
    _redact(table, times)
    table.notes.append(
        "Authorize: what a call touches, by real paths in a real directory, and the verdict; the last rule fits. "
        "Baseline: the path's real path, held against one compiled regular expression a rule. Redact: known values in "
        "every form in which they travel, fifteen shapes of credentials, values beside telling names. Baseline: "
        "`str.replace` of each known value as it is, and one regular expression. CPU time of this process."
    )
    return table


def _authorize(table: Table, folder: Path, times: int) -> None:
    registry = ToolRegistry.load()
    (folder / "src").mkdir()
    (folder / "src" / "a.py").write_text("pass\n")
    read, write, bash = (registry.resolve(name) for name in ("read_file", "write_file", "execute_bash"))
    for rules in (0, 100, 1_000):
        permissions = _policy(rules)
        patterns = [re.compile(rf"read_file\(d{number}/.*\)") for number in range(rules + 1)]
        for what, tool, arguments in (
            ("read a file", read, {"path": "src/a.py"}),
            ("write a file", write, {"path": "src/a.py", "content": "x"}),
            ("a plain command seen before", bash, {"command": PLAIN}),
            ("a command line with pipes, never seen", bash, {"command": HARD}),
        ):
            judge = partial(_verdict, folder, tool, arguments, permissions, fresh=arguments.get("command") == HARD)
            if judge().decision != "allow" and tool is not bash:
                raise RuntimeError(f"{what} is not allowed")
            simply = partial(_looked_up, patterns, str(folder / "src" / "a.py"))
            ours, theirs, ratio = _against(judge, simply, CALLS, times)
            rest = ["", f"{theirs * 1e6:,.1f}", f"{ratio:.1f}"]
            table.rows.append([f"authorize: {what}, {rules:,} rules", f"{ours * 1e6:,.0f}", *rest])


def _policy(rules: int) -> Permissions:
    """Write a policy of so many rules about the tools in question, before those that fit."""
    part = rules // 5
    return Permissions(
        allow=[f"read_file(d{n}/**)" for n in range(part)]
        + [f"write_file(d{n}/**)" for n in range(part)]
        + [f"execute_bash(cmd{n} *)" for n in range(part)]
        + ["read_file", "write_file(src/**)", "execute_bash(git log *)"],
        deny=[f"write_file(kept{n}/**)" for n in range(part)] + [f"execute_bash(rm{n} *)" for n in range(part)],
    )


def _verdict(
    folder: Path, tool: Tool, arguments: Mapping[str, str], permissions: Permissions, *, fresh: bool
) -> Verdict:
    if fresh:
        read_line.cache_clear()
    with Workspace(folder) as workspace:
        traits = traits_of(
            tool,
            arguments,
            builtin=True,
            working_dir=str(folder),
            real_path=workspace.real_path,
        )
    return decide(permissions, traits, arguments)


def _looked_up(patterns: Sequence[re.Pattern[str]], path: str) -> bool:
    rule = f"read_file({os.path.realpath(path)})"
    return any(pattern.fullmatch(rule) for pattern in patterns)


def _redact(table: Table, times: int) -> None:
    ratios: dict[tuple[int, int], float] = {}
    texts = {size: text_of("redact", size) for size in (100, 10 * KIB, MIB, LARGE)}
    for count in (0, 10, 100):
        known = {f"KEY_{number}": text_of(f"key {number}", 40).replace(" ", "-") for number in range(count)}
        for size, text in texts.items():
            rounds = max(3, times // 3) if size >= MIB else times
            work = partial(redact, text, known), partial(_replaced, text, known)
            ours, theirs, ratio = _against(*work, max(1, 20 * KIB // size), rounds)
            ratios[count, size] = ratio
            sized = f"{size // MIB} MB" if size >= MIB else f"{size // KIB} KB" if size >= KIB else f"{size} bytes"
            spent = [f"{ours * 1e6:,.0f}", f"{ours / size * MIB * 1000:.0f}", f"{theirs * 1e6:,.1f}", f"{ratio:.0f}"]
            table.rows.append([f"redact: {sized}, {count} known values", *spent])
    growth = max(ratios[count, LARGE] / ratios[count, MIB] for count in (0, 10, 100))
    table.notes.append(
        f"From 1 MB to {LARGE // MIB} MB the ratio to the baseline, whose work is linear, grows to {growth:.2f} × at "
        f"most, aim {aim(growth, 1.25)}."
    )


def _replaced(text: str, known: Mapping[str, str]) -> str:
    for name, value in known.items():
        text = text.replace(value, f"${{secret:{name}}}")
    return GUARDED.sub("[redacted]", text)


def _against(
    ours: Callable[[], object], theirs: Callable[[], object], repeat: int, rounds: int
) -> tuple[float, float, float]:
    """Run both in turn. Seconds of CPU of one call of each, and the ratio: medians."""
    pairs = [(_cpu(ours, repeat), _cpu(theirs, repeat)) for _ in range(rounds + 1)][1:]  # the first fills caches
    mine, other = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
    return mine, other, statistics.median(a / b for a, b in pairs)


def _cpu(work: Callable[[], object], repeat: int) -> float:
    began = time.process_time()
    for _ in range(repeat):
        work()
    return (time.process_time() - began) / repeat
