import numpy as np
import pytest

from groupwise.recall.near_duplicates import agreement, chance, duplicates, signature


def grams(*numbers: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    return np.array(numbers, np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def test_places_agree_with_the_probability_of_the_jaccard_similarity() -> None:
    shared, own = range(60), range(1000, 1020)
    left, right = signature(grams(*shared), 4000), signature(grams(*shared, *own), 4000)
    assert agreement(left, right) == pytest.approx(60 / 80, abs=4 * (0.75 * 0.25 / 4000) ** 0.5)
    assert agreement(left, left) == 1
    assert agreement(signature(grams(), 8), left[:8]) == 0


def test_a_long_text_is_looked_at_in_blocks_and_none_is_left_out() -> None:
    whole = grams(*range(10_000))
    halves = [signature(part, 112) for part in (whole[:5000], whole[5000:])]
    assert signature(whole, 112).tolist() == np.minimum(*halves).tolist()


def test_the_first_of_several_copies_stays() -> None:
    one, other = signature(grams(*range(50)), 112), signature(grams(*range(100, 150)), 112)
    assert duplicates([one, other, one, other, one], bands=14, min_agreement=0.7) == {2: 0, 3: 1, 4: 0}


def test_texts_without_ngrams_are_nobodys_copies() -> None:
    nothing = signature(grams(), 112)
    assert duplicates([nothing, nothing], 14, 0.7) == {}


def test_a_chain_of_small_changes_does_not_make_two_texts_one() -> None:
    """Each text shares 8 in 9 with the next, and the first nothing with the last."""
    chain = [signature(grams(*range(start, start + 170)), 112) for start in range(0, 171, 10)]
    found = duplicates(chain, 14, 0.7)
    assert len(chain) - len(found) >= 4
    assert all(agreement(chain[copy], chain[first]) >= 0.7 for copy, first in found.items())


def test_candidates_are_as_frequent_as_the_formula_says() -> None:
    trials, hits = 300, 0
    for trial in range(trials):
        base = trial * 10_000
        left = signature(grams(*range(base, base + 70)), 112)
        right = signature(grams(*range(base, base + 56), *range(base + 500, base + 514)), 112)  # 56 of 84 are shared
        hits += bool(duplicates([left, right], 14, 0.0))
    expected = chance(56 / 84, 14, 8)
    assert hits / trials == pytest.approx(expected, abs=4 * (expected * (1 - expected) / trials) ** 0.5)
    assert chance(0, 14, 8) == 0
    assert chance(1, 14, 8) == 1
