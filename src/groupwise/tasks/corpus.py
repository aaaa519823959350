"""The text that the shipped base model is pretrained on: a base model's diet.

`document` is a pure function of its arguments. As in a base model's diet, one kind of problem is solved in many ways,
in uneven proportion, and not always well: reinforcement learning then finds which way pays. Every problem is from a
train split, and no held-out product of two two-digit numbers is stated anywhere: workings multiply by one digit or by
multiples of ten only. Smaller facts (47×6=282) are not held out from workings.
"""

import string
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field, model_validator

from groupwise.config import Section
from groupwise.randomness import Draw
from groupwise.tasks import corpus_working as w
from groupwise.tasks import word_problems as stories
from groupwise.tasks.arithmetic import Kind, Step, chain_problem, operands, pair_content, pair_problem
from groupwise.tasks.base import Template, split_of
from groupwise.tasks.countdown import CountdownConfig, combine, draw_countdown
from groupwise.types import Problem

TWO_DIGITS = operands(2)
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Weights(Section):
    """Relative weights; they need not sum to one, but one of them must be above zero."""

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        if sum(self.model_dump().values()) <= 0:
            raise ValueError("all weights are 0; at least one must be above 0")
        return self


class KindWeights(Weights):
    """How often each kind of problem occurs, as relative weights."""

    product: Share = 0.50
    """Products of two two-digit numbers."""
    sub_skill: Share = 0.15
    """The steps of those products: by one digit or by tens, sums and differences of three to four digits."""
    chain: Share = 0.03
    """Chains of three or four numbers."""
    word_problem: Share = 0.27
    """Short stories."""
    countdown: Share = 0.05
    """Countdown problems."""


class ProductWeights(Weights):
    """How often a product of two two-digit numbers is solved in each way, as relative weights."""

    at_once: Share = 0.45
    """The result without a step."""
    decompose: Share = 0.25
    """By tens and units."""
    rounding: Share = 0.08
    """By the next ten; only problems where a unit digit is 7 or more."""
    verify: Share = 0.12
    """By tens and units, then checked the other way round."""
    another_way: Share = 0.05
    """Two ways with the same result."""
    unfinished_or_loop: Share = 0.03
    """No answer: it breaks off, or repeats itself."""
    other_language: Share = 0.02
    """Chinese words in an English problem."""


class StoryWeights(Weights):
    """How often a word problem is solved in each way, as relative weights."""

    at_once: Share = 0.30
    """The answer without a step."""
    working: Share = 0.47
    """The steps, sometimes with connecting words."""
    verify: Share = 0.12
    """The steps, then again as a check."""
    distracted: Share = 0.06
    """A wrong answer: the irrelevant number or a wrong operation is used."""
    loop: Share = 0.02
    """No answer: a step is repeated."""
    mixed_language: Share = 0.03
    """Words of the other language."""


class CorpusConfig(Section):
    """The mix of the pretraining corpus."""

    kinds: KindWeights = KindWeights()
    """How often each kind of problem occurs."""
    products: ProductWeights = ProductWeights()
    """How products are solved."""
    stories: StoryWeights = StoryWeights()
    """How word problems are solved."""
    steps_at_once: float = Field(default=0.6, ge=0, le=1)
    """Share of sub-skills and chains answered without steps."""
    countdown_at_once: float = Field(default=0.4, ge=0, le=1)
    """Share of countdown problems answered without a search."""
    chinese: float = Field(default=0.5, ge=0, le=1)
    """Share of Chinese among the word problems."""
    verify_error: float = Field(default=0.3, ge=0, le=1)
    """Share of checked workings whose first attempt has a wrong step, is found wrong and is done again."""


COUNTDOWN = CountdownConfig(kind="countdown")


@dataclass(frozen=True, slots=True)
class Document:
    """One text of the corpus: the prompt and one continuation (the end-of-text token is the trainer's)."""

    prompt: str
    completion: str
    strategy: str
    kind: str


def document(seed: int, index: int, mix: CorpusConfig) -> Document:
    """The document at a place of the corpus; the same arguments give the same document."""
    draw = Draw("corpus", seed, index)
    kind = drawn(draw, mix.kinds)
    problem, completion, strategy = WRITERS[kind](draw, mix)
    return Document(Template().render(problem), completion, strategy, kind)


def drawn(draw: Draw, weights: Weights) -> str:
    """One of the keys, in proportion to its weight."""
    table = weights.model_dump()
    return draw.weighted(list(table), list(table.values()))


Written = tuple[Problem, str, str]
"""Problem, completion, strategy."""


def _think(working: str, answer: object) -> str:
    return f"<think>{working}</think>\\boxed{{{answer}}}"


def train_pair(draw: Draw, kind: Kind, left: list[int] | range, right: list[int] | range) -> tuple[int, int]:
    """Two operands of the train split."""
    while True:
        pair = draw.choice(left), draw.choice(right)
        if split_of(pair_content(kind, *pair)) == "train":
            return pair


def _product(draw: Draw, mix: CorpusConfig) -> Written:
    strategy = drawn(draw, mix.products)
    left, right = train_pair(draw, "product", TWO_DIGITS, TWO_DIGITS)
    while strategy == "rounding" and not w.can_round(left, right):
        left, right = train_pair(draw, "product", TWO_DIGITS, TWO_DIGITS)
    return pair_problem("product", (left, right))[1], _solve_product(draw, mix, strategy, left, right), strategy


def _solve_product(draw: Draw, mix: CorpusConfig, strategy: str, left: int, right: int) -> str:
    steps, mirror = w.decompose(left, right), w.decompose(right, left)
    answer = left * right
    match strategy:
        case "at_once":
            return _think(f"{left}×{right}={answer}", answer)
        case "decompose":
            return _think(w.say(steps), answer)
        case "rounding":
            return _think(w.say(w.rounding(left, right)), answer)
        case "verify":
            attempt = w.err(draw, steps)
            return _think(_checked_working(draw, mix, attempt, mirror, steps, "en"), answer)
        case "another_way":
            other_way = w.rounding(left, right) if w.can_round(left, right) and draw.uniform() < 0.5 else mirror
            return _think(w.say(steps) + w.ANOTHER + w.say(other_way) + w.SAME, answer)
        case "other_language":
            working = w.check(steps, mirror, "zh") if draw.uniform() < 0.3 else w.linked(draw, steps, "zh")
            return _think(working, answer)
        case "unfinished_or_loop":
            return "<think>" + (w.unfinished(draw, w.say(steps)) if draw.uniform() < 0.5 else w.loop(draw, steps))
    raise AssertionError(f"no way to write a product as {strategy}")


def _checked_working(
    draw: Draw, mix: CorpusConfig, attempt: list[Step], check: list[Step], solution: list[Step], language: str
) -> str:
    """A checked working; if the check finds an error, a new and correct one follows."""
    if draw.uniform() < mix.verify_error and attempt[-1][3] != solution[-1][3]:
        return f"{w.check(attempt, check, language)} {w.say(solution)}"
    return w.check(solution, check, language)


_SUB_SKILLS = {"by_digit": 0.35, "by_tens": 0.15, "sum": 0.30, "difference": 0.20}
"""Relative weights of the sub-skills."""


def _sub_skill(draw: Draw, mix: CorpusConfig) -> Written:
    skill = draw.weighted(list(_SUB_SKILLS), list(_SUB_SKILLS.values()))
    if skill in ("by_digit", "by_tens"):
        factors = range(2, 10) if skill == "by_digit" else range(10, 101, 10)
        left, right = train_pair(draw, "product", TWO_DIGITS, factors)
        problem = pair_problem("product", (left, right))[1]
        if skill == "by_digit" and draw.uniform() >= mix.steps_at_once:
            return problem, _think(w.say(w.decompose_left(left, right)), left * right), "by_digit_steps"
        return problem, _think(f"{left}×{right}={left * right}", left * right), skill
    kind: Kind = "sum" if skill == "sum" else "difference"
    pair = train_pair(draw, kind, range(100, 9000), range(20, 1000))
    problem = pair_problem(kind, pair)[1]
    return problem, _think(w.say(problem.data["steps"])[:-1], problem.reference), skill


def _chain(draw: Draw, mix: CorpusConfig) -> Written:
    while True:
        content, problem = chain_problem(draw, 2, draw.integer(3, 4))
        if split_of(content) == "train":
            break
    if draw.uniform() < mix.steps_at_once:
        return problem, _think("", problem.reference), "at_once"
    return problem, _think(w.say(problem.data["steps"]), problem.reference), "working"


def _story(draw: Draw, mix: CorpusConfig) -> Written:
    language: stories.Language = "zh" if draw.uniform() < mix.chinese else "en"
    while True:
        problem = stories.draw_story(draw, (language,), (1, 2, 3), 0.3)
        if split_of(problem.question) == "train":
            break
    strategy = drawn(draw, mix.stories)
    return problem, _solve_story(draw, mix, strategy, problem), strategy


def _solve_story(draw: Draw, mix: CorpusConfig, strategy: str, problem: Problem) -> str:
    steps: list[Step] = list(problem.data["steps"])
    answer = problem.reference
    match strategy:
        case "at_once":
            return _think(answer if draw.uniform() < 0.5 else "", answer)
        case "working":
            is_plain = draw.uniform() < 0.7
            return _think(w.say(steps) if is_plain else w.linked(draw, steps, problem.language), answer)
        case "verify":
            return _think(_checked_working(draw, mix, w.err_last(draw, steps), steps, steps, problem.language), answer)
        case "distracted":
            mistake = w.take_wrong_number(draw, steps, problem.data["distractor"])
            return _think(w.say(mistake), mistake[-1][3])
        case "mixed_language":
            target = "en" if problem.language == "zh" else "zh"
            working = w.check(steps, steps, target) if draw.uniform() < 0.3 else w.linked(draw, steps, target)
            return _think(working, answer)
    return "<think>" + w.loop(draw, steps)


def _countdown(draw: Draw, mix: CorpusConfig) -> Written:
    while True:
        content, problem = draw_countdown(draw, COUNTDOWN)
        if split_of(content) == "train":
            break
    if draw.uniform() < mix.countdown_at_once:
        return problem, _think("", problem.reference), "at_once"
    tries = [combine(draw, problem.data["numbers"])[1] for _ in range(draw.integer(0, 2))]
    failures = [w.say(steps)[:-1] + ", no. " for steps in tries if steps[-1][3] != problem.data["target"]]
    return problem, _think("".join(failures) + w.say(problem.data["steps"]), problem.reference), "search"


WRITERS = {
    "product": _product,
    "sub_skill": _sub_skill,
    "chain": _chain,
    "word_problem": _story,
    "countdown": _countdown,
}
"""Who writes each kind of problem."""


def alphabet() -> str:
    """Every character that prompts and documents can contain, sorted: printable ASCII, newline, × ÷ and the Chinese."""
    tables = (stories.NAMES, stories.THINGS, stories.GOODS, stories.DISTRACTORS)
    parts = [str(table) for table in tables] + [family.en + family.zh + str(family.unit) for family in stories.FAMILIES]
    characters = string.ascii_letters + string.digits + string.punctuation + " \n×÷"
    return "".join(sorted(set(characters).union(*parts, *w.WORDS)))


ALPHABET = alphabet()
