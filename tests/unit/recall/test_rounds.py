import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.recall.page import domain, known_share, pattern
from groupwise.recall.rounds import keep, rich_domains


def test_the_best_pages_that_fit() -> None:
    scores = np.array([0.9, 0.2, 0.8, 0.7, 0.95])
    kept = keep(scores, [10, 10, 10, 10, 10], budget=30, min_score=0.5)
    assert (kept.pages, kept.threshold) == (frozenset({4, 0, 2}), 0.8)
    assert keep(scores, [10] * 5, budget=0, min_score=0.5).pages == {0, 2, 3, 4}
    assert keep(scores, [10] * 5, budget=0, min_score=0.99) == (frozenset(), 0, 1.0)


def test_a_page_longer_than_the_budget_does_not_block_the_others() -> None:
    kept = keep(np.array([0.9, 0.8, 0.7]), [1000, 10, 10], budget=20, min_score=0.5)
    assert (kept.pages, kept.too_long) == (frozenset({1, 2}), 1)


def test_pages_of_one_score_stand_or_fall_together() -> None:
    assert keep(np.array([0.9, 0.7, 0.7]), [10, 10, 10], budget=25, min_score=0).pages == {0}


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.5, 0.6, 0.9]), st.integers(1, 9)), max_size=8), st.integers(1, 30))
def test_what_is_kept_fits_and_nothing_better_that_fits_is_left(pages: list[tuple[float, int]], budget: int) -> None:
    scores, sizes = np.array([score for score, _ in pages]), [size for _, size in pages]
    kept = keep(scores, sizes, budget, 0.3)
    assert sum(sizes[i] for i in kept.pages) <= budget
    assert all(scores[i] >= 0.3 for i in kept.pages)
    for i in range(len(pages)):
        if i not in kept.pages and sizes[i] <= budget and scores[i] >= 0.3:
            assert all(scores[j] > scores[i] for j in kept.pages)


@pytest.mark.parametrize(
    ("url", "host", "name"),
    [
        ("https://Math.Example:8080/answers/7/a.html?p=2#x", "math.example", "math.example/answers/"),
        ("http://math.example/7.html", "math.example", "math.example/"),
        ("math.example", "math.example", "math.example/"),
        ("file.jsonl#12", "file.jsonl", "file.jsonl/"),
    ],
)
def test_domain_and_pattern(url: str, host: str, name: str) -> None:
    assert (domain(url), pattern(url)) == (host, name)


def test_rich_domains_are_above_the_share_and_not_at_it() -> None:
    domains = ["a"] * 10 + ["b"] * 10 + ["c"] * 2
    assert rich_domains(domains, [0, 10, 11, 20], 0.1) == [("c", 1, 2), ("b", 2, 10)]
    assert [name for name, *_ in rich_domains(domains, [0, 10, 11, 20], 0.0)] == ["c", "b", "a"]


def test_known_share_by_hand() -> None:
    assert known_share({1, 2, 3, 9}, {1, 2, 3, 4}) == 0.75
    assert known_share({1}, set()) == 0
