"""Nim: take objects from one pile; who takes the last one wins. Asked is a move that wins against any play.

A position is lost for the player to move exactly when the bitwise exclusive or of the piles is 0 (Bouton 1901, "Nim, a
game with a complete mathematical theory"), so a move wins when it leaves 0. Only positions with such a move are asked.
"""

from collections.abc import Sequence
from functools import reduce
from operator import xor
from typing import ClassVar, Self

from pydantic import Field, model_validator

from groupwise.randomness import Draw
from groupwise.tasks.base import Candidate, GeneratedConfig
from groupwise.tasks.logic.drawn import DrawnTask
from groupwise.types import Problem


class NimConfig(GeneratedConfig):
    """Dials of the nim task."""

    num_problems: int = Field(default=1000, ge=1)
    """Problems in the train split."""
    num_eval_problems: int = Field(default=64, ge=1)
    """Problems in the dev split, and as many in the test split."""
    min_piles: int = Field(default=3, ge=2, le=8)
    """Fewest piles."""
    max_piles: int = Field(default=4, ge=2, le=8)
    """Most piles."""
    max_objects: int = Field(default=15, ge=2, le=99)
    """Most objects in a pile; the fewest are 1."""

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        if self.min_piles > self.max_piles:
            raise ValueError(f"min_piles = {self.min_piles} is above max_piles; at most {self.max_piles} is allowed")
        return self


class Nim(DrawnTask):
    """Problems such as `Piles: 3, 4, 6. ... Which move wins?`, answered `1:1` (pile 1, take 1)."""

    name: ClassVar[str] = "nim"
    verifier: ClassVar[str] = "game_move"
    answers_any_question: ClassVar[bool] = False
    Config = NimConfig
    config: NimConfig

    def draw(self, index: int) -> Candidate:
        return draw_nim(Draw("nim", index), self.config)


def draw_nim(draw: Draw, config: NimConfig) -> Candidate:
    """A position in which some move wins; its content is the sorted piles."""
    while True:
        num_piles = draw.integer(config.min_piles, config.max_piles)
        piles = [draw.integer(1, config.max_objects) for _ in range(num_piles)]
        if best := winning_moves(piles):
            break
    legal = [f"{pile}:{taken}" for pile, objects in enumerate(piles, 1) for taken in range(1, objects + 1)]
    question = (
        f"Nim with {num_piles} piles: {', '.join(map(str, piles))}. Two players take turns; each takes one or more "
        "objects from one pile, and who takes the last object wins. Which move wins? Answer as pile:number, for "
        "example 1:2 for two objects from the first pile."
    )
    data = {"piles": piles, "best_moves": best, "legal_moves": legal}
    name = "-".join(map(str, piles))
    problem = Problem(f"nim/{name}", question, draw.choice(best), f"nim {num_piles} piles", data=data)
    return f"nim {'-'.join(map(str, sorted(piles)))}", problem


def winning_moves(piles: Sequence[int]) -> list[str]:
    """The moves that leave a nim sum of 0, as `pile:number` with piles from 1."""
    total = reduce(xor, piles, 0)
    return [f"{pile}:{size - (size ^ total)}" for pile, size in enumerate(piles, 1) if size ^ total < size]
