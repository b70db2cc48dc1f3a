"""Code blocks and links of the documentation.

A block's info string is its language and what a test does with it:

    bash                 run it; the directory and the variables stay for the next block
    bash background      start it, and end it with the page
    bash answer=y        run it at a terminal and answer the question that it asks
    bash retry           run it again until it succeeds: what it waits for takes a moment
    text output          what the block before printed; … stands for anything
    python               run it
    LANGUAGE file=NAME   write it into a file (Python is only compiled, documents of Loom are validated)
    LANGUAGE in=NAME     its lines are in that file
    yaml agent           part of an agent's file; validated
    json decision        a decision (or a control); validated
    json, yaml           parsed
    … no-test            not run; the reason is in `not_run.py`
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = [ROOT / "examples" / name / "README.md" for name in ("code-review", "nightly-report", "purchase", "written")]
"""Pages of examples, which are read in a copy of their directory."""
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *EXAMPLES,
]
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        page: Name of the file, from the root.
        line: Number of its first line of text.
        language: First word of the info string.
        words: The other words that are not ``name=value``.
        options: The ``name=value`` pairs.
        text: What is in it.
    """

    page: str
    line: int
    language: str
    words: frozenset[str]
    options: dict[str, str]
    text: str

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"{self.page}:{self.line}"


def name_of(page: Path) -> str:
    """Give a page's name from the root."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    """Give a page's blocks in order, those in comments included."""
    lines = page.read_text(encoding="utf-8").split("\n")
    number = 0
    while number < len(lines):
        opening = re.fullmatch(r"(`{3,})(.*)", lines[number])
        number += 1
        if opening is None:
            continue
        end = lines.index(opening[1], number)
        language, *rest = opening[2].split() or [""]
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        words = frozenset(word for word in rest if "=" not in word)
        yield Block(name_of(page), number + 1, language, words, options, "\n".join(lines[number:end]) + "\n")
        number = end + 1


def links(page: Path) -> Iterator[str]:
    """Give the targets of a page's links, without those in code."""
    text = re.sub(r"(?ms)^(`{3,}).*?^\1$", "", page.read_text(encoding="utf-8"))
    yield from (found[1] for found in _LINK.finditer(re.sub(r"`[^`\n]*`", "", text)))


def anchors(page: Path) -> set[str]:
    """Give the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"(?ms)^(`{3,}).*?^\1$", "", page.read_text(encoding="utf-8"))
    headings = re.findall(r"(?m)^#+ (.*)$", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
