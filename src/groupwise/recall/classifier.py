"""A linear classifier of hashed word n-grams: pages that are like the seed.

fastText (Joulin et al., arXiv:1607.01759) averages embeddings of a text's n-grams and multiplies the mean by one row
per class. With two classes only the difference of the rows counts, so the score is linear in the n-grams: one weight
each, which is what is learned here, by the same stochastic descent with a rate that falls to 0. A text is the unit
vector of its n-grams, so that its length does not decide.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from groupwise.randomness import permutation

Texts = Sequence[NDArray[np.int64]]


class Descent(NamedTuple):
    """Settings of the training."""

    buckets: int
    min_count: int
    lr: float
    """First rate; it falls linearly to 0 at the last text of the last epoch."""
    epochs: int
    seed: int


class Linear(NamedTuple):
    """Weights of a classifier."""

    weights: NDArray[np.float64]
    """(buckets,)"""
    bias: float

    def scores(self, texts: Texts) -> NDArray[np.float64]:
        """Return the (B,) probability of each text to be positive; without n-grams that of the bias."""
        return np.asarray(sigmoid(np.array([self.logit(text) for text in texts])))

    def logit(self, text: NDArray[np.int64]) -> float:
        return self.bias + (float(self.weights[text].sum()) / np.sqrt(len(text)) if len(text) else 0.0)


def sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 / (1 + exp(-x)), without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0, -values)))


def slope(model: Linear, text: NDArray[np.int64], label: bool, weight: float = 1.0) -> float:
    """Return the derivative of the weighted negative log-likelihood of a label by the logit and by the bias.

    That by a weight of the text is this / sqrt(M).
    """
    return weight * (float(sigmoid(np.array(model.logit(text)))) - label)


def train(texts: Texts, labels: Sequence[bool], how: Descent) -> Linear:
    """Train on texts and their labels (True: positive); both classes have the same total weight."""
    known = np.bincount(np.concatenate([*texts, np.zeros(0, np.int64)]), minlength=how.buckets) >= how.min_count
    kept = [text[known[text]] for text in texts]
    positive = max(1, sum(labels))
    of_class = {True: len(labels) / (2 * positive), False: len(labels) / (2 * max(1, len(labels) - positive))}
    weights, bias, step, total = np.zeros(how.buckets), 0.0, 0, how.epochs * len(texts)
    for epoch in range(how.epochs):
        for index in permutation(len(texts), "classifier", how.seed, epoch).tolist():
            text, label = kept[index], bool(labels[index])
            change = how.lr * (1 - step / total) * slope(Linear(weights, bias), text, label, of_class[label])
            if len(text):
                weights[text] -= change / np.sqrt(len(text))
            bias -= change
            step += 1
    return Linear(weights, bias)
