"""Rewards of turns reach the tokens of their turns, and nothing that was put in."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from groupwise.algorithms.advantages import advantage
from groupwise.config import parse
from groupwise.errors import ConfigError, VerifierError
from groupwise.pipeline.collect import Asked
from groupwise.trainers.grpo import GrpoRecipe, advantaged
from groupwise.trainers.ppo import PpoConfig, _advantages
from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, Prompt, ScoredGroup, TurnRecord, Verdict

MASK = [1, 1, 0, 1, 0, 0, 1, 1]
"""Turns of 2, 1 and 2 tokens, with replies of 1 and 2 between them."""


def episode(index: int, rewards: list[float | None], mask: list[int] = MASK) -> Completion:
    sampled = np.array(mask, np.bool_)
    ends = [i + 1 for i in range(len(mask)) if mask[i] and (i + 1 == len(mask) or not mask[i + 1])]
    zeros = np.zeros(len(mask), np.float32)
    turns = tuple(TurnRecord(end, reward, str(i)) for i, (end, reward) in enumerate(zip(ends, rewards, strict=True)))
    return Completion(index, np.arange(len(mask)), zeros, zeros, FinishReason.DONE, "", sampled, turns=turns)


def scored(*completions: Completion, extra: float = 0.0) -> ScoredGroup:
    verdicts = []
    for completion in completions:
        total = sum(turn.reward or 0.0 for turn in completion.turns)
        verdicts.append(Verdict(Outcome.CORRECT, {"environment": total, "style": extra}, ""))
    prompt = Prompt(Problem("p", "q", "a"), "q", (1,))
    return ScoredGroup(Group(prompt, completions, 0, 0), tuple(verdicts))


def test_a_turns_advantage_is_that_of_its_tokens() -> None:
    group = scored(episode(0, [1.0, None, 2.0]), episode(1, [0.0], [1, 1]))
    [found] = advantaged([group], advantage("turn_return"), None)  # type: ignore[arg-type]
    first, second = found.advantages
    assert first.tolist() == [3, 3, 0, 2, 0, 0, 2, 2]
    assert second.tolist() == [-3, -3]


def test_what_is_earned_beside_the_turns_is_the_last_ones() -> None:
    group = scored(episode(0, [1.0, None, 2.0]), episode(1, [0.0], [1, 1]), extra=0.5)
    [found] = advantaged([group], advantage("turn_return"), None)  # type: ignore[arg-type]
    assert found.advantages[0].tolist() == [3, 3, 0, 2, 0, 0, 2, 2]  # 3.5 2.5 2.5 less the other's 0.5
    unjudged = replace(group, verdicts=(group.verdicts[0], Verdict(Outcome.CRASHED, {}, "")))
    [alone] = advantaged([unjudged], advantage("turn_return"), None)  # type: ignore[arg-type]
    assert alone.advantages[1] is None
    assert not np.any(alone.advantages[0])


def test_no_turns_no_credit_of_turns() -> None:
    plain = replace(episode(0, [0.0], [1, 1]), turns=())
    with pytest.raises(VerifierError, match="needs turns, and problem p is played in no environment"):
        advantaged([scored(plain, plain)], advantage("equal_state"), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "advantages", "returns"),
    [
        # values .5 before each token; rewards 1, 0, 2 at the ends: returns to go, less .5
        ({"lam": 1.0}, [2.5, 2.5, 0, 1.5, 0, 0, 1.5, 1.5], [3, 3, 0, 2, 0, 0, 2, 2]),
        ({"lam": 1.0, "unit": "turn"}, [2.5, 2.5, 0, 1.5, 0, 0, 1.5, 1.5], [3, 3, 0, 2, 0, 0, 2, 2]),
        # one step: r + V' - V
        ({"lam": 0.0}, [0, 1, 0, 0, 0, 0, 0, 1.5], [0.5, 1.5, 0, 0.5, 0, 0, 0.5, 2]),
        ({"lam": 0.0, "unit": "turn"}, [1, 1, 0, 0, 0, 0, 1.5, 1.5], [1.5, 1.5, 0, 0.5, 0, 0, 2, 2]),
        # γ counts turns: 1 + .5 (0 + .5 · 2) - .5
        ({"lam": 1.0, "gamma": 0.5, "unit": "turn"}, [1, 1, 0, 0.5, 0, 0, 1.5, 1.5], [1.5, 1.5, 0, 1, 0, 0, 2, 2]),
    ],
)
def test_the_critics_advantages(config: dict[str, Any], advantages: list[float], returns: list[float]) -> None:
    values = [np.full(8, 0.5, np.float32)]
    found = _advantages(scored(episode(0, [1.0, 0.0, 2.0])), values, None, PpoConfig(**config))
    assert found.advantages[0].tolist() == advantages
    assert found.critic[0].returns.tolist() == returns


RECIPE: dict[str, Any] = {
    "algorithm": "grpo", "run": {"directory": "runs/x", "num_steps": 1},
    "task": {"kind": "episodes", "environment": "guess"},
}  # fmt: skip
PLAYED = {"kind": "episodes"}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"advantage": {"kind": "process"}}, "where turns are such steps its gradient is biased"),
        ({"task": {"kind": "arithmetic"}, "advantage": {"kind": "turn_return"}}, "needs turns, and the task has no"),
        ({"sampling": {"tools": {"c": {"kind": "calculator"}}}}, "is played in an environment, which answers calls"),
        ({"task": {**PLAYED, "environment": {"kind": "guess", "turns": 3}}}, "environment.turns: unknown key"),
        ({"task": {**PLAYED, "environment": {"kind": "gues"}}}, "there is no environment 'gues'; did you mean"),
    ],
)  # fmt: skip
def test_what_a_recipe_refuses(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        parse(GrpoRecipe, RECIPE | changes)


def test_a_stage_that_writes_single_completions_refuses_episodes() -> None:
    section = {"task": RECIPE["task"], "model": {}, "sampling": {}, "seed": 0}
    with pytest.raises(ConfigError, match="writes prompts with one completion each"):
        parse(Asked, section)


def test_parts_of_a_mixture_may_be_played() -> None:
    parts = {"a": {"task": RECIPE["task"]}, "b": {"task": {"kind": "arithmetic"}}}
    recipe = parse(GrpoRecipe, RECIPE | {"task": {"kind": "mixture", "parts": parts}})
    assert not recipe.needs_records
    with pytest.raises(ConfigError, match="its gradient is biased"):
        parse(GrpoRecipe, RECIPE | {"task": {"kind": "mixture", "parts": parts}, "advantage": {"kind": "process"}})
    played = {"kind": "episodes", "environment": {"kind": "guess", "repeatable": False}}
    assert parse(GrpoRecipe, RECIPE | {"task": played}).needs_records
