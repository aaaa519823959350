"""The verifier of reasoning-gym's problems: the answer in the one `<answer></answer>`, scored by its generator."""

import json
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from groupwise.config.places import Place
from groupwise.errors import ConfigError
from groupwise.types import Outcome, Verdict
from groupwise.verifiers.extraction import extract
from groupwise.verifiers.python import PythonConfig, PythonVerifier

MOST = 1_000_000  # problems that a generator is asked for; it makes each one on demand


class ReasoningGymConfig(PythonConfig):
    """Settings for the scores of reasoning-gym, 0 to 1; the score is the reward."""

    correct_above: float = 0.99
    """A score above this counts as a correct answer: many generators give a little for a well-formed wrong one."""


class ReasoningGymVerifier(PythonVerifier):
    """Asks the generator of the problem, in worker processes."""

    Config = ReasoningGymConfig
    place: ClassVar[Place] = Place(Path(__file__), "score", __name__)
    accepts_references: ClassVar[bool] = True


def score(completion: str, dataset: str, seed: int, settings: str, index: int) -> float | Verdict:
    """Score the answer by its generator; runs in a worker process."""
    extraction = extract(completion, "tag")
    if extraction.answer is None:
        return Verdict(Outcome.UNPARSABLE, {"reward": 0.0}, extraction.reason)
    problems = generator(dataset, seed, settings)
    return float(problems.score_answer(extraction.answer, problems[index]))


@cache
def generator(name: str, seed: int, settings: str) -> Any:
    """A generator of the library; `settings` are its dials as JSON (ConfigError: names what is missing)."""
    try:
        import reasoning_gym
    except ImportError:
        raise ConfigError("the task reasoning_gym needs a library: pip install 'groupwise[reasoning-gym]'") from None
    try:
        return reasoning_gym.create_dataset(name, seed=seed, size=MOST, **json.loads(settings))
    except (ValueError, TypeError, AssertionError) as error:
        raise ConfigError(f"reasoning-gym cannot make {name!r} with the settings {settings}: {error}") from None
