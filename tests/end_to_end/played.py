"""Environments for runs of random models, whose turns are a few digits."""

import os
import time
from collections.abc import Iterator

from groupwise.tasks.environments.base import Environment, EnvironmentConfig, Opening, Reply, Turn
from groupwise.types import Problem


class Digits(Environment):
    """Says how many characters were said; an odd turn earns 1, and one with a 7 ends it."""

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        return (Problem(f"digits/{index}", f"What is {index % 10}?", "") for index in range(1000))

    def start(self, problem: Problem, seed: int) -> Opening:
        self.said = str(seed % 10)
        return Opening.of(problem.question)

    def step(self, turn: Turn) -> Reply:
        self.said += turn.text
        odd = turn.text[-1:] in set("13579")
        rank = f"rank {os.environ.get('RANK', '0')}"
        done = "7" in turn.text
        return Reply.of(self.answer(), reward=float(odd), done=done, state=str(len(self.said)), evidence=rank)

    def answer(self) -> str:
        return f"{len(self.said)}-{self.said[0]}"


class Clock(Digits):
    """Says what time it is, which no run can repeat."""

    def answer(self) -> str:
        return str(time.time_ns())[-9:]
