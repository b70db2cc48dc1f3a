"""What the graph runs: plain functions. Arguments and results are JSON values."""

from typing import Any


def offer(item: str) -> dict[str, Any]:
    """Ask what something costs."""
    return {"item": item, "price": 100 * len(item)}


def order(offer: dict[str, Any]) -> str:
    """Order it; its number."""
    return f"order-{offer['item']}-{offer['price']}"
