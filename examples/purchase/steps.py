"""What a purchase does besides asking: plain functions. Run again after a crash, they change nothing more."""

import json
from pathlib import Path

from loom_dsl import ToolContext


def reserve(number: str, amount: int, context: ToolContext) -> None:
    """Set money aside: here, a line of `budget.json` under the purchase's id."""
    budget = _budget(context)
    budget[number] = amount
    _keep(context, budget)


def give_back(number: str, context: ToolContext) -> None:
    """Take `reserve` back."""
    budget = _budget(context)
    budget.pop(number, None)
    _keep(context, budget)


def order(number: str, item: str, context: ToolContext) -> dict[str, str]:
    """Order, under a number that is the same whenever it runs for this purchase."""
    orders = context.working_dir / "orders"
    orders.mkdir(exist_ok=True)
    (orders / f"{number}.txt").write_text(f"{item}\n", encoding="utf-8")
    return {"order": f"PO-{number}"}


def tell(who: str, text: str, context: ToolContext) -> None:
    """Tell somebody; here, by a line in a file."""
    with (context.working_dir / "messages.txt").open("a", encoding="utf-8") as file:
        file.write(f"{who}: {text}\n")


def _budget(context: ToolContext) -> dict[str, int]:
    file = context.working_dir / "budget.json"
    found: dict[str, int] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found


def _keep(context: ToolContext, budget: dict[str, int]) -> None:
    place: Path = context.working_dir / "budget.json"
    (beside := place.with_suffix(".new")).write_text(json.dumps(budget), encoding="utf-8")
    beside.replace(place)
