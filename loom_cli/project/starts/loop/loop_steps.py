"""What the graph runs: plain functions. Arguments and results are JSON values."""

import subprocess
import sys
from typing import Any

from loom_dsl import ToolContext


def change(round: int, before: dict[str, Any] | None, context: ToolContext) -> str:
    """Write the program; the first try is wrong. The context knows the job's directory (`--workdir`)."""
    sign = "-" if before is None else "+"
    (context.working_dir / "adding.py").write_text(f"def add(a, b):\n    return a {sign} b\n")
    return f"round {round + 1} adds with {sign}"


def test(context: ToolContext) -> dict[str, Any]:
    """Run the test in a process of its own."""
    code = "import adding; assert adding.add(2, 3) == 5, adding.add(2, 3)"
    # -B: a program that is written twice within a second would be run as it was compiled the first time.
    command = [sys.executable, "-B", "-c", code]
    ended = subprocess.run(command, cwd=context.working_dir, capture_output=True, text=True)
    return {"passed": ended.returncode == 0, "output": ended.stderr[-1000:]}
