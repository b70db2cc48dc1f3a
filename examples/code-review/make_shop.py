"""Make the repository `shop` with an open pull request, number 7, whose tests fail."""

import subprocess
from pathlib import Path

TOTAL = "def total(prices):\n    return sum(prices)\n"
DISCOUNT = "\n\ndef discounted(prices, percent):\n    return total(prices) * (1 + percent / 100)\n"
TEST = "from prices import discounted\n\n\ndef test_a_discount():\n    assert discounted([100], 10) == 90\n"


def git(*words: str) -> None:
    who = ["-c", "user.name=shop", "-c", "user.email=shop@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *who, *words], cwd="shop", check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


shop = Path("shop")
shop.mkdir()
git("init")
(shop / "prices.py").write_text(TOTAL)
git("add", ".")
git("commit", "--message", "Add up prices")
git("switch", "--create", "pr-7")
(shop / "prices.py").write_text(TOTAL + DISCOUNT)
(shop / "test_prices.py").write_text(TEST)
git("add", ".")
git("commit", "--message", "Give discounts")
git("switch", "main")
print("made shop, with pull request 7 on the branch pr-7")
