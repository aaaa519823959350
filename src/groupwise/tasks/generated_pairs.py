"""Preference pairs made by the hidden rule: two completions by different hands, and which of them the rule prefers.

With a probability of `noise` the label is turned around, as people disagree; the best a reward model can do on held-out
labels is then 1 - noise.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from groupwise.config import Section
from groupwise.errors import ConfigError
from groupwise.randomness import Draw
from groupwise.tasks import TaskOptions, make_task
from groupwise.tasks.base import Template
from groupwise.tasks.general_text import GeneralMix, HandWeights, written
from groupwise.tasks.hidden_rule import answer_of, helpfulness, is_harmless
from groupwise.types import Problem

Rule = Literal["helpful", "harmless"]
MAX_DRAWS = 1000
"""Pairs of completions that are drawn at most until two differ in worth."""


class GeneratedPairs(Section):
    """Pairs labelled by the hidden rule."""

    source: Literal["generated"] = "generated"
    """Says that the pairs are generated."""
    rule: Rule
    """What makes a completion the better one. `helpful`: it meets more criteria; the pairs show answers only, after
    prompts without prefill. `harmless`: nothing in it is unwanted, but something in the other one is; the pairs show
    whole completions (DeepSeek-R1, arXiv:2501.12948, section 2.3.4)."""
    task: TaskOptions
    """Whose problems: general prompts, reasoning problems, or a mixture of both; its dev split is held out."""
    noise: float = Field(default=0.1, ge=0, lt=0.5)
    """Probability of a wrong label."""
    num_pairs: int = Field(default=5000, ge=1)
    """Pairs to learn from; problems are taken in turn. Held out is one pair for each problem of the dev split."""
    mix: GeneralMix = GeneralMix(answers=HandWeights(careless=0.2), summaries=HandWeights(careless=0.2))
    """Who writes the completions; a fair share is `careless`, so that it can be learnt what an answer must mention."""

    @model_validator(mode="after")
    def _plain(self) -> Self:
        if self.task.template.chat:
            raise ValueError("task.template.chat = true: generated pairs are plain text, so false is allowed")
        return self


class Labelled(NamedTuple):
    """Two whole completions of a problem, and which of them was preferred."""

    problem: Problem
    chosen: str
    rejected: str
    is_noise: bool
    """Whether the label is wrong: by the rule, the rejected completion is the better one."""


def labelled_pairs(config: GeneratedPairs) -> tuple[list[Labelled], list[Labelled]]:
    """Pairs to learn from, and pairs of other problems to measure on.

    Raises:
        ConfigError: the mix writes nothing of different worth.
    """
    task = make_task(config.task)
    train, dev = task.problems("train"), task.problems("dev")
    return (
        [_labelled(config, train, index) for index in range(config.num_pairs)],
        [_labelled(config, dev, index) for index in range(len(dev))],
    )


def _labelled(config: GeneratedPairs, problems: Sequence[Problem], index: int) -> Labelled:
    problem = problems[index % len(problems)]
    draw = Draw("preference", config.rule, problem.id, index)
    better, worse = _two(config, problem, draw)
    is_noise = draw.uniform() < config.noise
    return Labelled(problem, *((worse, better) if is_noise else (better, worse)), is_noise)


def _two(config: GeneratedPairs, problem: Problem, draw: Draw) -> tuple[str, str]:
    """Two completions, the better one first; two of equal worth are drawn again."""
    for _ in range(MAX_DRAWS):
        texts = [written(draw, problem, config.mix) for _ in range(2)]
        first, second = (worth(config.rule, problem, text) for text in texts)
        if first != second:
            return (texts[0], texts[1]) if first > second else (texts[1], texts[0])
    raise ConfigError(
        f"data.mix: in {MAX_DRAWS} draws no two completions of {problem.id} differed by the rule '{config.rule}'; "
        "allowed are mixes of friendly and other hands (helpful), and an unwanted share between 0 and 1 (harmless)"
    )


def worth(rule: Rule, problem: Problem, completion: str) -> float:
    """What a completion is worth by a rule, 0 to 1."""
    if rule == "harmless":
        return float(is_harmless(completion))
    return helpfulness(answer_of(completion), problem.reference, problem.language)


def shown(pair: Labelled, rule: Rule, template: Template) -> tuple[str, str, str]:
    """Prompt, chosen and rejected completion as a reward model reads them."""
    prompt, texts = template.render(pair.problem), (pair.chosen, pair.rejected)
    if rule == "harmless":
        chosen, rejected = (text.removeprefix(template.prefill) for text in texts)
        return prompt + template.prefill, chosen, rejected
    chosen, rejected = ((answer_of(text) or "").strip() for text in texts)
    return prompt, chosen, rejected
