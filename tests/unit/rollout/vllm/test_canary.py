"""What a canary proves, on hand-made numbers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import InvariantError
from groupwise.models.policy import Policy
from groupwise.rollout.vllm.canary import Canary, Reading, fixed_text, judge

TEXT = tuple(range(12))
NEW = np.array([-1.0, -2.0, -3.0], np.float32)


def canary(old: Any = None, bound: float = 1e-3) -> Canary:
    return Canary(TEXT, NEW, None if old is None else np.array(old, np.float32), AFTER, bound, 0.7)


def reading(text: Any, sampled: Any = (-1.0, -1.5)) -> Reading:
    return Reading(np.array(text, np.float32), np.array([3, 4]), np.array(sampled, np.float32))


OURS = np.array([-1.0, -1.5], np.float32)
AFTER = np.array([-9, -9, -9, -1.0, -1.5], np.float32)
"""Of every token after the prompt; the tokens 3 and 4 are drawn."""


def test_distances_are_the_largest_differences() -> None:
    proof = judge(reading(NEW + np.array([0, 2e-4, -1e-4]), (-1.0, -1.5003)), canary(NEW + 0.5), "a")
    assert proof.text == pytest.approx(2e-4, rel=1e-2)
    assert proof.sampled == pytest.approx(3e-4, rel=1e-2)
    assert proof.before == pytest.approx(0.5, rel=1e-2)
    assert proof.is_clear


@pytest.mark.parametrize(
    ("text", "sampled", "old", "said"),
    [
        (NEW + np.array([0, 0, 2e-3]), OURS, None, "does not have the weights"),
        (NEW + np.array([0, 0, np.nan]), OURS, None, "does not have the weights"),
        (NEW + 1e-4, OURS, NEW + 1e-4, "still has the weights from before"),
        (NEW, OURS + np.array([0, -2e-3]), None, "does not sample from them"),
        (NEW, OURS + np.array([0, np.nan]), None, "does not sample from them"),
    ],
)
def test_what_it_refuses(text: Any, sampled: Any, old: Any, said: str) -> None:
    with pytest.raises(InvariantError, match=f"the server a .*{said}"):
        judge(reading(text, sampled), canary(old), "a")


@given(st.floats(1e-6, 1e-4), st.floats(0, 0.2))
def test_an_update_moves_the_text_by_more_than_rounding_or_it_proves_nothing(moved: float, rounding: float) -> None:
    """Whoever has the old weights is refused, or the proof says that it is none."""
    old, noise = NEW.astype(np.float64) - moved, np.array([1, -1, 1]) * moved * rounding
    proof = judge(Reading(NEW + noise, np.array([3]), OURS[:1]), canary()._replace(new=NEW, old=old), "a")
    assert proof.is_clear
    with pytest.raises(InvariantError, match="from before"):
        judge(Reading(old + noise, np.array([3]), OURS[:1]), canary()._replace(new=NEW, old=old), "a")


def test_weights_that_did_not_move_are_no_error_and_no_proof() -> None:
    assert not judge(reading(NEW), canary(NEW), "a").is_clear


def test_the_text_is_always_the_same_and_fits(trained: Policy) -> None:
    text = fixed_text(trained)
    assert text == fixed_text(trained)
    assert len(text) < trained.context_length
    assert not trained.stop_ids & set(text)
    assert max(text) > 200  # of the whole vocabulary
