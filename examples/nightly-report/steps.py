"""Reading and writing: plain functions. Each may run again after a crash and then changes nothing more."""

import csv

from loom_dsl import ToolContext


def read_source(source: str, context: ToolContext) -> dict[str, object]:
    """Add up what a source sent, if it has."""
    file = context.working_dir / "sources" / f"{source}.csv"
    if not file.exists():
        return {"there": False}
    with file.open(encoding="utf-8", newline="") as rows:
        amounts = [float(row["amount"]) for row in csv.DictReader(rows)]
    return {"there": True, "orders": len(amounts), "total": sum(amounts)}


def publish(numbers: list[dict[str, object]], text: str, context: ToolContext) -> dict[str, str]:
    """Write the report of this job."""
    lines = [f"| {n['source']} | {n['orders']} | {n['total']} |" for n in numbers if "missing" not in n]
    lines += [f"| {n['source']} | missing | |" for n in numbers if "missing" in n]
    reports = context.working_dir / "reports"
    reports.mkdir(exist_ok=True)
    head = [f"# {context.job}", "", text, "", "| source | orders | total |", "|---|---|---|"]
    (reports / f"{context.job}.md").write_text("\n".join([*head, *lines, ""]), encoding="utf-8")
    return {"path": f"reports/{context.job}.md"}
