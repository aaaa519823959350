"""Guess the number: the reply to a guess says on which side the number lies."""

from collections.abc import Iterator
from itertools import count

from pydantic import Field

from groupwise.randomness import Draw
from groupwise.tasks.environments.base import Environment, EnvironmentConfig, Opening, Reply, Turn
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
