"""Lights out on 3 × 3 cells: a press turns a cell and its neighbours; all lights must go out."""

from collections.abc import Iterator
from functools import cache
from itertools import count

from pydantic import Field

from groupwise.randomness import Draw
from groupwise.tasks.environments.base import Decided, Environment, EnvironmentConfig, Opening, Reply, Turn
from groupwise.types import Problem


class LightsOutConfig(EnvironmentConfig):
    """Dials of the game."""

    presses: int = Field(4, ge=1, le=9)
    """Most presses that a board needs."""


class LightsOut(Environment):
    """Boards such as `010111010`, row by row; a digit, 1 to 9, presses a cell.

    Every turn costs 1 / `max_turns`, and darkness earns 1 beside that. Correct is the least number of presses.
    """

    Config = LightsOutConfig
    config: LightsOutConfig

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        assert isinstance(config, LightsOutConfig)
        for index in count():
            draw = Draw("lights out", config.presses, index)
            cells = draw.shuffled(range(9))[: draw.integer(1, config.presses)]
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

    def options(self) -> list[str]:
        return [str(cell) for cell in range(1, 10)]


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
