"""Whatever a document says, it is refused with a place and a word, or it runs: nothing crashes, hangs or fails inside.

A sample runs in `make test`, a hundred thousand in the nightly lane.
"""

from collections import Counter

import pytest

from tests.support.mutated_documents import EVERY_FIELD, chosen, data_of, documents, mutated, tried

SAMPLE, NIGHT, LANES = 100, 100_000, 20


def test_the_documents_are_many_and_are_valid_without_a_change() -> None:
    name, data, source = EVERY_FIELD, data_of(EVERY_FIELD), chosen(0)[2]
    assert tried(name, data, source) != "refused"
    assert len(documents()) > 100


def test_a_seed_says_the_document() -> None:
    assert chosen(7)[:2] == chosen(7)[:2]
    assert mutated(data_of(EVERY_FIELD), chosen(1)[2], 1) != data_of(EVERY_FIELD)


def gone(seeds: range) -> Counter[str]:
    """How the documents of some seeds went; the seed is told where one goes wrong."""
    went: Counter[str] = Counter()
    for seed in seeds:
        name, data, source = chosen(seed)
        try:
            went[tried(name, data, source).split()[0]] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}, {name}: {type(error).__name__}: {error}") from error
    return went


def test_a_changed_document_is_refused_with_a_place_or_runs() -> None:
    went = gone(range(SAMPLE))
    assert went["refused"] > SAMPLE // 2
    assert went.total() - went["refused"] > SAMPLE // 20


@pytest.mark.nightly
@pytest.mark.parametrize("lane", range(LANES))
def test_many_changed_documents_are_refused_with_a_place_or_run(lane: int) -> None:
    size = NIGHT // LANES
    assert gone(range(SAMPLE + lane * size, SAMPLE + (lane + 1) * size)).total() == size
