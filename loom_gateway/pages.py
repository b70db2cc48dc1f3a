"""The pages of links, in plain HTML. Everything in them is escaped, and look-alikes are made visible."""

import html
import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import HTMLResponse

from loom_client.edited_arguments import rules_in_words
from loom_client.records import Receipt
from loom_dsl.text.confusables import gathered, revealed
from loom_gateway.links import Link
from loom_gateway.responses import SAFE, Problem, title_of

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
</head><body><h1>{title}</h1>
{body}
</body></html>
"""
MAX_LINE = 120
"""Characters of a line on the page, which has no styles that would fold it."""
_FACTS = (("job", "Job"), ("tool", "Tool"), ("summary", "What"), ("reason", "Why it asks"), ("requester", "Who asks"))


def question(link: Link, row: Mapping[str, Any]) -> HTMLResponse:
    """Show what a link decides, with the button that does."""
    facts = [(name, row[key]) for key, name in _FACTS if row.get(key)]
    facts += [
        (name, row["details"][key]) for key, name in (("risk", "Risk"), ("rule", "Rule")) if key in row["details"]
    ]
    facts += [(name, said) for name, said in _consequences(row["details"]) if said]
    facts += [("Decided by", link.by)]
    lines = "".join(f"<dt>{_safe(name)}</dt><dd>{_safe(value)}</dd>\n" for name, value in facts)
    parts = [f"<dl>\n{lines}</dl>"]
    if row["content"] is not None:
        text = json.dumps(row["content"], indent=2, ensure_ascii=False)
        parts.append(f"<h2>Arguments</h2><pre>{_folded(text)}</pre>")
    if row["preview"]:
        parts.append(f"<h2>What it would change</h2><pre>{_folded(row['preview'])}</pre>")
    parts.append(f'<form method="post"><button type="submit">{_safe(link.choice.capitalize())}</button></form>')
    return _page(f"{link.choice.capitalize()} this?", "\n".join(parts), 200)


def _consequences(details: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What follows: when nobody answers, and of the answer. A link decides once, so that nothing is remembered."""
    rules = rules_in_words(details.get("rules"))
    return (
        ("When nobody answers", str(details.get("unanswered", ""))),
        ("Remembered", f"nothing; with `loom decide --remember` it would be: {rules}" if rules else ""),
    )


def done(link: Link, answer: Receipt, status: int) -> HTMLResponse:
    """Say what came of it."""
    return _page(
        "Sent" if status == 202 else "Recorded", f"<p>{_safe(link.choice)}: {_safe(answer.message)}</p>", status
    )


def refused(found: Problem) -> HTMLResponse:
    """Say why not."""
    page = _page(title_of(found), f"<p>{_safe(found.message)}</p>", found.status)
    page.headers.update(found.headers)
    return page


def _page(title: str, body: str, status: int) -> HTMLResponse:
    return HTMLResponse(_PAGE.format(title=_safe(title), body=body), status, SAFE)


def _folded(text: str) -> str:
    """A text whose lines all end on the page: what a reader had to scroll to would be out of sight."""
    folded = []
    for line in _seen(text).split("\n"):
        folded += [line[:MAX_LINE]]
        folded += [f"  ↳ {line[at : at + MAX_LINE]}" for at in range(MAX_LINE, len(line), MAX_LINE)]
    return html.escape("\n".join(folded))


def _seen(text: str) -> str:
    return revealed("\n".join(gathered(text.split("\n"))))


def _safe(value: Any) -> str:
    return html.escape(_seen(str(value)))
