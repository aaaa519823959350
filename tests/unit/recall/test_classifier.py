"""The classifier against numbers by hand, a slow loop of its own, and finite differences."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.randomness import permutation
from groupwise.recall.words import Descent, Linear, sigmoid, slope, train

TEXTS = [np.array(text) for text in ([0, 1, 2, 3], [1, 2], [3, 4], [4, 5, 6], [0, 3], [5, 6])]
LABELS = [True, True, False, False, True, False]
HOW = Descent(buckets=8, min_count=1, lr=0.7, epochs=3, seed=5)


def loss(model: Linear, text: np.ndarray, label: bool, weight: float = 1.0) -> float:
    """The weighted negative log-likelihood of a text's label, in nats."""
    return weight * float(np.logaddexp(0, -model.logit(text) if label else model.logit(text)))


def test_numbers_by_hand() -> None:
    model = Linear(np.array([1.0, 2.0, 3.0, 4.0]), -5.0)
    text = np.array([0, 1, 2, 3])
    assert model.logit(text) == -5 + 10 / 2
    assert loss(model, text, True) == pytest.approx(math.log(2))
    assert slope(model, text, True) == -0.5
    assert slope(model, text, False, weight=3) == 1.5
    assert model.logit(np.array([], int)) == -5
    assert sigmoid(np.array([-800.0, 0, 800])).tolist() == [0, 0.5, 1]


@given(st.integers(0, 5), st.booleans(), st.floats(-2, 2), st.floats(0.1, 4))
def test_the_slope_is_the_derivative_of_the_loss(index: int, label: bool, bias: float, weight: float) -> None:
    weights = np.linspace(-1, 1.3, 8)
    text, step = TEXTS[index], 1e-6
    by_bias = [loss(Linear(weights, bias + sign * step), text, label, weight) for sign in (1, -1)]
    own = slope(Linear(weights, bias), text, label, weight)
    assert own == pytest.approx((by_bias[0] - by_bias[1]) / (2 * step), abs=1e-6)
    moved = [weights.copy(), weights.copy()]
    moved[0][text[0]] += step
    moved[1][text[0]] -= step
    up, down = (loss(Linear(one, bias), text, label, weight) for one in moved)
    assert own / math.sqrt(len(text)) == pytest.approx((up - down) / (2 * step), abs=1e-6)


def slow_train(min_count: int) -> tuple[dict[int, float], float]:
    """Stochastic descent, a weight at a time."""
    often = [bucket for bucket in range(8) if sum(bucket in text for text in TEXTS) >= min_count]
    weights, bias, step = dict.fromkeys(range(8), 0.0), 0.0, 0
    for epoch in range(HOW.epochs):
        for i in permutation(len(TEXTS), "classifier", HOW.seed, epoch):
            own = [int(bucket) for bucket in TEXTS[i] if bucket in often]
            logit = bias + sum(weights[b] / math.sqrt(len(own)) for b in own)
            error = 1 / (1 + math.exp(-logit)) - (1 if LABELS[i] else 0)
            rate = HOW.lr * (18 - step) / 18  # both classes have three texts, so all weigh 1
            for b in own:
                weights[b] -= rate * error / math.sqrt(len(own))
            bias -= rate * error
            step += 1
    return weights, bias


@pytest.mark.parametrize("min_count", [1, 2, 3])
def test_training_equals_a_slow_loop(min_count: int) -> None:
    model = train(TEXTS, LABELS, HOW._replace(min_count=min_count))
    weights, bias = slow_train(min_count)
    assert model.weights == pytest.approx(np.array([weights[b] for b in range(8)]), abs=1e-12)
    assert model.bias == pytest.approx(bias, abs=1e-12)


def test_both_classes_weigh_the_same_in_sum() -> None:
    """One positive among nine equal negatives: the text that both share says nothing."""
    texts, labels = [np.array([0])] * 10, [True] + [False] * 9
    model = train(texts, labels, Descent(2, 1, 0.02, 200, 0))
    assert model.scores([np.array([0])])[0] == pytest.approx(0.5, abs=0.02)


def test_what_tells_the_classes_apart_is_learned() -> None:
    model = train(TEXTS, LABELS, HOW._replace(epochs=40))
    assert [bool(score > 0.5) for score in model.scores(TEXTS)] == LABELS


def test_no_texts_of_a_class_and_empty_texts_are_no_error() -> None:
    empty = np.array([], np.int64)
    assert train([empty], [True], HOW).scores([empty])[0] > 0.5
    assert train([], [], HOW).bias == 0
