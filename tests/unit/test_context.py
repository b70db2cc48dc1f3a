import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.agent.context import CUT, Component, ComponentPriority, assemble, estimate_tokens, select_messages
from loom_dsl.errors import ContextLengthExceeded

PRIORITIES = st.sampled_from(ComponentPriority)
COMPONENTS = st.lists(
    st.builds(
        Component, name=st.text("abc", min_size=1, max_size=3), content=st.text(max_size=200), priority=PRIORITIES
    )
    | st.builds(
        Component, name=st.just("cut"), content=st.text(max_size=200), priority=PRIORITIES, truncatable=st.just(True)
    ),
    max_size=6,
)
SIZES = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), max_size=8)


def words(text: str) -> int:
    return len(text.split())


def lines(text: str) -> int:
    return 3 * text.count("\n") + len(text)


@given(COMPONENTS, st.integers(-5, 300), st.sampled_from([estimate_tokens, words, lines, len]))
def test_what_is_assembled_never_exceeds_the_budget(components, budget, count) -> None:  # type: ignore[no-untyped-def]
    try:
        result = assemble(components, budget, count)
    except ContextLengthExceeded:
        assert any(c.priority is ComponentPriority.CRITICAL for c in components)
        return

    assert result.tokens == (count(result.text) if result.text else 0)
    assert result.tokens <= max(budget, 0)
    parts = len(result.included) + len(result.truncated) + len(result.dropped)
    assert parts == sum(1 for c in components if c.content)
    assert assemble(components, budget, count) == result


def test_parts_come_by_priority_and_then_in_the_given_order() -> None:
    low, high = ComponentPriority.LOW, ComponentPriority.HIGH
    parts = [
        Component(name="1", content="one", priority=low),
        Component(name="2", content="two", priority=high),
        Component(name="3", content="three", priority=low),
        Component(name="4", content="", priority=high),
    ]

    result = assemble(parts, 100)

    assert result.text == "two\n\none\n\nthree"
    assert result.included == ("2", "1", "3")


def test_a_part_that_may_be_cut_is_cut_as_little_as_possible() -> None:
    result = assemble([Component(name="docs", content="x" * 100, truncatable=True)], 60, len)

    assert result.text == "x" * (60 - len(CUT)) + CUT
    assert (result.truncated, result.dropped, result.tokens) == (("docs",), (), 60)


def test_a_part_that_may_not_be_cut_is_left_out_and_a_smaller_one_still_fits() -> None:
    parts = [
        Component(name="tools", content="x" * 50),
        Component(name="hint", content="y", priority=ComponentPriority.LOW),
    ]

    result = assemble(parts, 10, len)

    assert (result.text, result.dropped, result.included) == ("y", ("tools",), ("hint",))


def test_a_critical_part_that_does_not_fit_is_an_error_with_both_figures() -> None:
    part = Component(name="base_instructions", content="x" * 50, priority=ComponentPriority.CRITICAL)

    with pytest.raises(ContextLengthExceeded, match=r"`base_instructions` needs 50 tokens .* room for 10"):
        assemble([part], 10, len)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("abcd", 1),
        ("abcde", 2),
        ("中文字符", 4),
        ("héllo wörld", 4),
        ("かな한글", 4),
        ("ab中", 2),
        ("Привет мир", 5),
    ],
)
def test_tokens_are_estimated_by_kind_of_character(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(st.text(), st.text())
def test_an_estimate_never_falls_when_text_is_added(a: str, b: str) -> None:
    assert max(estimate_tokens(a), estimate_tokens(b)) <= estimate_tokens(a + b)


def flat(groups: list[list[int]]) -> tuple[list[int], list[tuple[int, int]]]:
    ranges, start = [], 0
    for group in groups:
        ranges.append((start, start + len(group)))
        start += len(group)
    return [size for group in groups for size in group], ranges


@given(SIZES, st.integers(0, 400), st.none() | st.integers(0, 30))
def test_a_selection_fits_splits_no_group_and_is_as_long_as_it_can_be(
    sizes_by_group: list[list[int]], budget: int, first_user: int | None
) -> None:
    sizes, groups = flat(sizes_by_group)
    try:
        chosen = select_messages(sizes, budget, groups, first_user)
    except ContextLengthExceeded:
        task = [g for g in groups if first_user is not None and g[0] <= first_user < g[1] and g != groups[-1]]
        assert sum(sum(sizes[start:end]) for start, end in [*task, groups[-1]]) > budget
        return

    indices = [index for start, end in chosen for index in range(start, end)]
    assert sum(sizes[index] for index in indices) <= budget
    assert indices == sorted(set(indices))
    assert len(chosen) <= 2
    assert all(set(range(*group)) <= set(indices) or not set(range(*group)) & set(indices) for group in groups)
    if groups:
        assert chosen[-1][1] == len(sizes)
        assert first_user is None or first_user >= len(sizes) or first_user in indices
        left_out = [group for group in groups if group[0] not in indices]
        if left_out:
            assert sum(sizes[index] for index in indices) + sum(sizes[slice(*left_out[-1])]) > budget


@pytest.mark.parametrize(
    ("budget", "chosen"),
    [(100, [(0, 6)]), (60, [(0, 6)]), (59, [(0, 1), (2, 6)]), (49, [(0, 1), (4, 6)]), (30, [(0, 1), (4, 6)])],
)
def test_the_task_and_the_latest_messages_are_kept(budget: int, chosen: list[tuple[int, int]]) -> None:
    assert select_messages([10] * 6, budget, [(0, 1), (1, 2), (2, 4), (4, 6)], first_user=0) == chosen


def test_a_selection_that_cannot_hold_the_latest_group_is_an_error() -> None:
    with pytest.raises(ContextLengthExceeded, match=re.escape("need 30 tokens, but the context has room for 29")):
        select_messages([10] * 6, 29, [(0, 1), (1, 4), (4, 6)], first_user=0)
