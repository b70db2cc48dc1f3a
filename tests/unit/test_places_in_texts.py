"""Where in the file an expression is wrong: through all the ways in which YAML writes a text."""

import pytest

from loom_dsl.documents.document import load_yaml
from loom_dsl.graph.compiler import check_text

HEAD = "loom: 1\nkind: graph\nname: g\ninput: {x: str}\nnodes:\n  a:\n    end:\n"


def places(text: str) -> list[tuple[int, int]]:
    """Where the wrong names `bad` are told, and where they are."""
    return [(found.line or 0, found.column or 0) for found in check_text(HEAD + text, "g.yaml")]


def written(text: str) -> list[tuple[int, int]]:
    lines = (HEAD + text).split("\n")
    return [(n, at + 1) for n, line in enumerate(lines, 1) for at in range(len(line)) if line.startswith("bad", at)]


@pytest.mark.parametrize(
    "text",
    [
        "      t: one ${bad} and ${input.x}\n",
        "      t: one ${input.x + bad}\n",
        "      t: 'it''s ${bad} and ''${bad}'''\n",
        '      t: "a \\"quoted\\" ${bad} \\u00e9 ${bad}"\n',
        '      t: "tab\\t new\\n ${ bad } \\x20 ${bad}"\n',
        '      t: "over \\\n        two ${bad}\n        lines ${bad}"\n',
        "      t: plain over\n        two lines ${bad}\n\n        and ${bad}\n",
        "      t: |\n        first ${input.x}\n          ${bad}\n\n        last ${bad}\n",
        "      t: |2-  # said\n          ${bad}\n",
        "      t: >-\n        folded ${bad}\n        on ${bad}\n\n          more ${bad}\n",
        "      t: &here ${bad}\n",
        '      t: !!str "${bad}"\n',
        "      t: {u: ['${bad}', \"${bad}\"]}\n",
        "      t: äöü ${bad} 🙂 ${bad}\n",
        "      t: |\n        ${[\n          input.x,\n          bad\n        ]}\n",
    ],
)
def test_every_wrong_expression_of_a_text_is_told_where_it_stands(text: str) -> None:
    assert places(text) == written(text)


@pytest.mark.parametrize(
    ("condition", "column"),
    [
        ("input.x == bad", 25), ("input.x ==", 24), ("input.x and input.", 32), ("len(input.x", 17),
        ("len(input.x) and nope(1)", 31), ("input.x && input.x", 22), ("input.nope == 1", 14),
    ],
)  # fmt: skip
def test_a_wrong_condition_is_told_at_the_column_in_it(condition: str, column: int) -> None:
    head = "loom: 1\nkind: graph\nname: g\ninput: {x: str}\nnodes:\n  a:\n    next:\n"
    text = f"{head}      - {{if: {condition}, to: b}}\n      - {{to: b}}\n  b: {{end: 1}}\n"
    assert [(f.line, f.column) for f in check_text(text, "g.yaml")] == [(8, column)]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("${bad} ${nodes.b} ${input.y} ${input.}", ["L130", "L121", "L121", "L130"]),
        ("${input.x} ${bad", ["L130"]),
        ("${bad} ${input.x", ["L130", "L130"]),
        ("${input.y} ${input.x", ["L121", "L130"]),
        ("$${bad} ${input.x}", []),
    ],
)
def test_all_wrong_holes_of_a_text_are_told_in_their_order(text: str, codes: list[str]) -> None:
    found = check_text(f"{HEAD}      t: '{text}'\n", "g.yaml")
    assert [one.code for one in found] == codes
    columns = [one.column or 0 for one in found]
    assert columns == sorted(columns)


def test_a_text_whose_characters_cannot_be_found_has_the_place_where_it_starts() -> None:
    document = load_yaml("a: text\nb: 'x y'\n", "x.yaml")
    assert document.position_in(("b",), 2) == (2, 7)
    assert document.position_in(("b",), 99) == (2, 4)
    assert document.position_in(("nowhere",), 3) == document.position_in((), 3) == (1, 1)
