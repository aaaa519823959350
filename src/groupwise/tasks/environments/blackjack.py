"""Blackjack with an endless deck, without doubling or splitting, and its exact optimum by dynamic programming."""

from collections.abc import Iterator
from functools import cache
from itertools import count

from groupwise.randomness import Draw
from groupwise.tasks.environments.base import Decided, Environment, EnvironmentConfig, Opening, Reply, Turn
from groupwise.types import Problem

CARDS = {1: 1 / 13, **dict.fromkeys(range(2, 10), 1 / 13), 10: 4 / 13}
"""Probability of each card; 1 is the ace, which counts 11 while that keeps the hand at 21 or less."""
STANDS = 17
"""The dealer stands on 17 or more."""

Hand = tuple[int, bool]
"""Total, and true where an ace counts 11."""


class Blackjack(Environment):
    """Hands such as `14 10` or `s14 6` (an ace counts 11; the dealer shows a 6); `h` hits, `s` stands.

    The reward is 1 for a win, 0 for a draw, -1 for a loss; correct is a win. Anything else that is said loses. The
    cards come from the seed, so the episodes of a group have the same deck.
    """

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        return (Problem(f"blackjack/{index}", "blackjack", "", "blackjack") for index in count())

    def start(self, problem: Problem, seed: int) -> Opening:
        self._draw = Draw("blackjack", problem.id, seed)
        self._dealer = self._card()
        self._hand = with_card(with_card((0, False), self._card()), self._card())
        return Opening.of(self._text())

    def step(self, turn: Turn) -> Reply:
        said = turn.text.strip()
        if said == "h":
            self._hand = with_card(self._hand, self._card())
            if self._hand[0] <= 21:
                return Reply.of(self._text(), reward=0.0, state=self._text())
            return self._over(-1, f"bust with {self._hand[0]}")
        if said != "s":
            return self._over(-1, f"{said!r:.40} is neither h nor s")
        dealer = with_card((0, False), self._dealer)
        while dealer[0] < STANDS:
            dealer = with_card(dealer, self._card())
        own = self._hand[0]
        result = 1 if dealer[0] > 21 or own > dealer[0] else -1 if own < dealer[0] else 0
        return self._over(result, f"{own} against {dealer[0]}")

    def _over(self, result: int, evidence: str) -> Reply:
        outcome: Decided = "correct" if result > 0 else "wrong"
        return Reply(reward=float(result), done=True, outcome=outcome, evidence=evidence)

    def _card(self) -> int:
        return self._draw.weighted(list(CARDS), list(CARDS.values()))

    def _text(self) -> str:
        total, is_soft = self._hand
        return f"{'s' if is_soft else ''}{total} {self._dealer}"

    def best(self) -> str:
        return "h" if of_hit(self._hand, self._dealer) > of_stand(self._hand[0], self._dealer) else "s"

    def options(self) -> list[str]:
        return ["h", "s"]


def with_card(hand: Hand, card: int) -> Hand:
    """Return a hand with one more card.

    >>> with_card((16, True), 9)
    (15, False)
    """
    total, is_soft = hand[0] + card, hand[1]
    if card == 1 and total + 10 <= 21:
        total, is_soft = total + 10, True
    elif total > 21 and is_soft:
        total, is_soft = total - 10, False
    return total, is_soft


@cache
def dealers(hand: Hand) -> dict[int, float]:
    """Return the probability of each last total of a dealer; 22 and more is bust."""
    if hand[0] >= STANDS:
        return {hand[0]: 1.0}
    totals: dict[int, float] = {}
    for card, chance in CARDS.items():
        for total, probability in dealers(with_card(hand, card)).items():
            totals[total] = totals.get(total, 0.0) + chance * probability
    return totals


def of_stand(total: int, dealer: int) -> float:
    """Return the expected reward of standing on a total against the dealer's card."""
    last = dealers(with_card((0, False), dealer))
    return sum(p * ((t > 21 or total > t) - (t <= 21 and total < t)) for t, p in last.items())


@cache
def of_hit(hand: Hand, dealer: int) -> float:
    """Return the expected reward of one more card and perfect play after it."""
    return sum(p * worth(with_card(hand, card), dealer) for card, p in CARDS.items())


def worth(hand: Hand, dealer: int) -> float:
    """Return the expected reward of perfect play."""
    return -1.0 if hand[0] > 21 else max(of_stand(hand[0], dealer), of_hit(hand, dealer))


def optimum() -> float:
    """Return the expected reward of perfect play before any card is dealt."""
    deals = [(a, b, dealer) for a in CARDS for b in CARDS for dealer in CARDS]
    return sum(
        CARDS[a] * CARDS[b] * CARDS[dealer] * worth(with_card(with_card((0, False), a), b), dealer)
        for a, b, dealer in deals
    )
