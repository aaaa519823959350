"""Games with an exact optimum: guess the number, lights out, blackjack, and nim and tic-tac-toe against perfect play.

Blackjack has an endless deck, without doubling or splitting; its optimum comes by dynamic programming. In nim a
position is lost for the player to move exactly when the bitwise exclusive or of the piles is 0 (Bouton 1901, "Nim, a
game with a complete mathematical theory"), so a move wins when it leaves 0. Only positions with such a move are begun.
Tic-tac-toe is a draw when both play perfectly.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache, reduce
from itertools import accumulate, count
from operator import xor

from pydantic import Field

from groupwise.randomness import Draw
from groupwise.tasks.environments.base import Decided, Environment, EnvironmentConfig, Opening, Reply, Turn
from groupwise.types import Problem


class GuessConfig(EnvironmentConfig):
    """Dials of the game."""

    highest: int = Field(31, ge=2)
    """The largest number; the smallest is 1. Perfect play needs at most ⌈log₂(highest + 1)⌉ turns."""


class Guess(Environment):
    """`16` is answered by `>` (the number is above), `<` (below) or `?` (no number), and `16` itself wins.

    Every turn costs 1 / `max_turns`, and finding the number earns 1 beside that.
    """

    Config = GuessConfig
    config: GuessConfig

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        assert isinstance(config, GuessConfig)
        for index in count():
            secret = str(Draw("guess", config.highest, index).integer(1, config.highest))
            yield Problem(f"guess/{index}", f"1 to {config.highest}", secret, f"guess 1 to {config.highest}")

    def start(self, problem: Problem, seed: int) -> Opening:
        self._secret, self._range = int(problem.reference), (1, self.config.highest)
        return Opening.of(problem.question)

    def step(self, turn: Turn) -> Reply:
        said = turn.text.strip()
        number = int(said) if said.isascii() and said.isdigit() and len(said) < 10 else None
        cost = -1 / self.config.max_turns
        if number == self._secret:
            return Reply(reward=1 + cost, done=True, outcome="correct", evidence=f"{number} is the number")
        low, high = self._range
        if number is None:
            answer = "?"
        elif number < self._secret:
            answer, self._range = ">", (max(low, number + 1), high)
        else:
            answer, self._range = "<", (low, min(high, number - 1))
        low, high = self._range
        return Reply.of(answer, reward=cost, state=f"{low} to {high}", evidence=f"it lies in {low} to {high}")

    def ended(self, reason: str) -> Reply:
        return Reply(reward=0.0, outcome="wrong", evidence=f"the number was {self._secret}")

    def best(self) -> str:
        return str(sum(self._range) // 2)

    def options(self) -> list[str]:
        return [str(number) for number in range(1, self.config.highest + 1)]


class LightsOut(Environment):
    """Boards such as `010111010`, row by row; a digit, 1 to 9, presses a cell.

    Every turn costs 1 / `max_turns`, and darkness earns 1 beside that. Correct is the least number of presses.
    """

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        for index in count():
            draw = Draw("lights out", 9, index)
            cells = draw.shuffled(range(9))[: draw.integer(1, 9)]
            board = 0
            for cell in cells:
                board ^= PRESSES[cell]
            yield Problem(f"lights_out/{index}", f"{board:09b}", f"{board:09b}", f"lights out, {len(cells)} presses")

    def start(self, problem: Problem, seed: int) -> Opening:
        self._board, self._least, self._turns = int(problem.reference, 2), least()[int(problem.reference, 2)], 0
        return Opening.of(problem.question)

    def step(self, turn: Turn) -> Reply:
        said, cost = turn.text.strip(), -1 / self.config.max_turns
        self._turns += 1
        if said in self.options():
            self._board ^= PRESSES[int(said) - 1]
        if self._board:
            text = f"{self._board:09b}"
            return Reply.of(text, reward=cost, state=text, evidence=f"{least()[self._board]} presses are needed")
        outcome: Decided = "correct" if self._turns == self._least else "wrong"
        evidence = f"dark after {self._turns} presses, {self._least} are the least"
        return Reply(reward=1 + cost, done=True, outcome=outcome, evidence=evidence)

    def ended(self, reason: str) -> Reply:
        return Reply(reward=0.0, outcome="wrong", evidence="lights are left")

    def best(self) -> str:
        return min(self.options(), key=lambda cell: least()[self._board ^ PRESSES[int(cell) - 1]])

    def working(self) -> str:
        """Count, modulo 2, the lights that decide each cell of the first row; then rows are chased by what is seen."""
        lights = [int(light) for light in f"{self._board:09b}"]
        counts = (accumulate((lights[cell - 1] for cell in cells), xor) for cells in DECIDING)
        return "" if self._turns else "".join(str(parity) for parities in counts for parity in parities)

    def options(self) -> list[str]:
        return [str(cell) for cell in range(1, 10)]


DECIDING = ((1, 3, 6, 7, 8), (5, 7, 8, 9), (1, 3, 4, 8, 9))
"""Cells of which an odd number is lit exactly where cell 1, 2 and 3 must be pressed."""
PRESSES = [
    sum(1 << (8 - other) for other in range(9) if abs(other // 3 - cell // 3) + abs(other % 3 - cell % 3) <= 1)
    for cell in range(9)
]
"""Lights that each cell turns, as bits; the first cell is the highest."""


@cache
def least() -> dict[int, int]:
    """Return the least number of presses from each board to darkness, by breadth-first search."""
    found, layer = {0: 0}, [0]
    while layer:
        after = {board ^ press for board in layer for press in PRESSES}
        layer = [board for board in after if board not in found]
        found |= dict.fromkeys(layer, max(found.values()) + 1)
    return found


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

    def ended(self, reason: str) -> Reply:
        return self._over(-1, "neither h nor s")

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


class BoardGame(Environment):
    """Two players move in turn; an illegal move loses. Whoever does not lose earns 1.

    A position is a text; `won` of one that is over is its result for the model: 1, 0 (a draw) or -1.
    """

    def start(self, problem: Problem, seed: int) -> Opening:
        self._draw, self._position = Draw("board game", seed), problem.reference
        return Opening.of(problem.question)

    @abstractmethod
    def moves(self, position: str) -> dict[str, str]:
        """Return the legal moves, and the positions that they lead to."""

    @abstractmethod
    def good(self, position: str) -> Sequence[str]:
        """Return the moves that perfect play allows."""

    @abstractmethod
    def won(self, position: str, is_own: bool) -> int | None:
        """Return the result for the model of a position after a move, its own or the other's; None: it goes on."""

    def step(self, turn: Turn) -> Reply:
        moves = self.moves(self._position)
        if (said := turn.text.strip()) not in moves:
            return Reply(reward=0.0, done=True, outcome="wrong", evidence=f"{said!r:.40} is no legal move")
        self._position = moves[said]
        if (result := self.won(self._position, True)) is None:
            answer = self._draw.choice(self.good(self._position))
            self._position = self.moves(self._position)[answer]
            result = self.won(self._position, False)
        if result is None:
            return Reply.of(self._position, reward=0.0, state=self._position)
        words = {1: "won", 0: "drawn", -1: "lost"}[result]
        outcome: Decided = "wrong" if result < 0 else "correct"
        return Reply(reward=float(result >= 0), done=True, outcome=outcome, evidence=f"{self._position}: {words}")

    def ended(self, reason: str) -> Reply:
        return Reply(reward=0.0, outcome="wrong", evidence="no move")

    def best(self) -> str:
        return self.good(self._position)[0]

    def options(self) -> list[str]:
        return list(self.moves(self._position))


class Nim(BoardGame):
    """Piles such as `3 4 6`; `2:1` takes one object of the second. Who takes the last object wins."""

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        for index in count():
            draw = Draw("nim", index)
            piles = [draw.integer(1, 7) for _ in range(3)]
            if reduce(xor, piles):
                text = " ".join(map(str, piles))
                yield Problem(f"nim/{index}", text, text, "nim")

    def moves(self, position: str) -> dict[str, str]:
        piles = position.split()
        return {
            f"{i + 1}:{n}": " ".join([*piles[:i], str(int(size) - n), *piles[i + 1 :]])
            for i, size in enumerate(piles)
            for n in range(1, int(size) + 1)
        }

    def good(self, position: str) -> list[str]:
        moves = self.moves(position)
        return [move for move, after in moves.items() if not reduce(xor, map(int, after.split()))] or list(moves)

    def won(self, position: str, is_own: bool) -> int | None:
        return None if position.strip("0 ") else 1 if is_own else -1

    def working(self) -> str:
        """Return for each pile the size that would win: the exclusive or of the others."""
        piles = [int(size) for size in self._position.split()]
        return "".join(str(reduce(xor, [*piles[:i], *piles[i + 1 :]])) for i in range(len(piles)))


EMPTY = "."
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


class TicTacToe(BoardGame):
    """Boards such as `X..O.....`, row by row; a digit, 1 to 9, is a cell. In half of the games the other begins."""

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        for index in count():
            board = EMPTY * 9
            if index % 2:
                board = moves(board)[Draw("tic-tac-toe", index).choice(best_moves(board))]
            yield Problem(f"tic_tac_toe/{index}", board, board, f"tic-tac-toe, {'second' if index % 2 else 'first'}")

    def moves(self, position: str) -> dict[str, str]:
        return moves(position)

    def good(self, position: str) -> list[str]:
        return best_moves(position)

    def won(self, position: str, is_own: bool) -> int | None:
        if winner(position):
            return 1 if is_own else -1
        return None if EMPTY in position else 0


def moves(board: str) -> dict[str, str]:
    """Return every legal move and the board after it; X begins."""
    mark = "X" if board.count("X") == board.count("O") else "O"
    return {str(i + 1): f"{board[:i]}{mark}{board[i + 1 :]}" for i, cell in enumerate(board) if cell == EMPTY}


def winner(board: str) -> str:
    """Return the player with three in a line, or an empty text."""
    return next((board[a] for a, b, c in LINES if board[a] == board[b] == board[c] != EMPTY), "")


@cache
def value(board: str) -> int:
    """Result under perfect play for the player to move: 1 won, 0 drawn, -1 lost."""
    if winner(board):
        return -1
    return max((-value(after) for after in moves(board).values()), default=0)


def best_moves(board: str) -> list[str]:
    """Return the moves that keep the position's value."""
    return [move for move, after in moves(board).items() if -value(after) == value(board)]
