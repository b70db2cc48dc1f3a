"""Write the generated pictures into the documentation: ``python docs/pictures.py [--check] [FILE…]``.

A picture stands between ``<!-- picture: NAME -->`` and ``<!-- end of picture -->``; the name is that of a table,
``states`` or ``decisions``, ``packages`` (or ``packages:`` and one, for what is in it) or that of a shipped graph, or
``text:`` and that of one, for the picture as a terminal shows it. With ``--check`` nothing is written, and the status
is 1 when a file is not up to date.
"""

import io
import re
import sys
from pathlib import Path

import packages  # beside this file

from loom_cli.render.flowchart import draw
from loom_cli.render.terminal import Terminal
from loom_dsl.agent import states
from loom_dsl.authoring.mermaid import mermaid
from loom_dsl.graph.library import shipped
from loom_dsl.graph.plan import Plan
from loom_dsl.machine import decision_states

_TABLES = {"states": states.mermaid, "decisions": decision_states.mermaid}
PLACE = re.compile(r"(<!-- picture: (?P<name>\S+) -->\n).*?(<!-- end of picture -->)", re.DOTALL)


def drawn(text: str) -> str:
    """Give a document's text with its pictures as they are now."""
    return PLACE.sub(lambda found: f"{found[1]}{_picture(found['name'])}```\n{found[3]}", text)


def _picture(name: str) -> str:
    if name.startswith("text:"):
        graph, out = shipped(name.removeprefix("text:")), io.StringIO()
        draw(Terminal(out, columns=lambda: 100), Plan(graph.name, {graph.name: graph}, {}))
        return f"```text\n{out.getvalue()}"
    if name.partition(":")[0] == "packages":
        return f"```mermaid\n{packages.mermaid(name.partition(':')[2])}"
    drawn_table = _TABLES.get(name)
    return f"```mermaid\n{drawn_table() if drawn_table else mermaid(shipped(name))}"


def main(arguments: list[str]) -> int:
    """Rewrite, or check, the named files; by default every Markdown file of the documentation."""
    files = [Path(name) for name in arguments if name != "--check"] or sorted(Path(__file__).parent.rglob("*.md"))
    status = 0
    for file in files:
        before = file.read_text(encoding="utf-8")
        after = drawn(before)
        if after == before:
            continue
        if "--check" in arguments:
            print(f"{file} is not up to date: run python docs/pictures.py", file=sys.stderr)
            status = 1
        else:
            file.write_text(after, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
