"""One word has one meaning: a class's name says which one is meant, wherever it is read."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "loom_dsl", "loom_store", "loom_tools", "workflows", "activities", "loom_client", "loom_gateway", "loom_cli",
    "demo",
)  # fmt: skip
TWICE = {
    "Approval": "a kind of node in documents, and the name on the wire of the gateway's document",
    "ApprovalRecord": "what a token keeps of a question, and what the client gives of it",
    "Job": "a handle in a client's program, and the name on the wire of the gateway's document",
    "Usage": "what an endpoint says, and what a turn sums up",
}
"""Names that two modules define, and why both are right."""


def test_a_public_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    for file in [*files, ROOT / "worker.py"]:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(ROOT)))
    twice = {name: found for name, found in places.items() if len(found) > 1 and name not in TWICE}
    assert len(places) > 300
    assert twice == {}
