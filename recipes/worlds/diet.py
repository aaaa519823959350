"""The text that the shipped base model was pretrained on: many families of problems, each solved in many ways.

As in a base model's diet the ways are in uneven proportion, and not always good: reinforcement learning then finds
which one pays. Every problem is from a train split, and no held-out product of two two-digit numbers is stated
anywhere: workings multiply by one digit or by multiples of ten only. Smaller facts (47×6=282) are not held out.
"""

import string
from collections.abc import Callable
from typing import Any, NamedTuple

import diet_puzzles
import diet_working as w
import word_problems as stories
from calculations import NumberKind, draw_numbers
from countdown import CountdownConfig, combine, draw_countdown
from diet_config import (
    ANSWERS,
    CALLS,
    CHINESE,
    COUNTDOWN_AT_ONCE,
    LARGE_PRODUCTS,
    STEPS_AT_ONCE,
    VERIFY_ERROR,
    DietConfig,
)
from diet_puzzles import everyday, texts
from diet_solutions import Solution, equations, practice, product, solution, think, written_way
from general import Weights, drawn
from groupwise.randomness import Draw
from groupwise.tasks.arithmetic import Kind, Step, chain_problem, decompose, operands, pair_problem, step
from groupwise.tasks.base import Template, split_of
from groupwise.types import Problem
from questions import draw_question

Written = tuple[Problem, str, str]
"""Problem, completion, strategy."""
Writer = Callable[[Draw, Any], Written]
TWO_DIGITS = operands(2)
COUNTDOWN = CountdownConfig(kind="countdown")
THREE_DIGITS = operands(3)


class Diet(DietConfig):
    """The texts in such a mix."""

    kind: str = "worlds/diet.py:Diet"
    """This class."""

    def text(self, seed: int, place: int) -> tuple[str, str]:
        written = document(seed, place, self)
        return written.prompt, written.completion

    def alphabet(self) -> str:
        return alphabet()


class Document(NamedTuple):
    """One text: the prompt and one continuation, without the end-of-text token."""

    prompt: str
    completion: str
    strategy: str
    kind: str


def document(seed: int, index: int, mix: DietConfig) -> Document:
    """The document at a place of the corpus; the same arguments give the same document."""
    draw = Draw("diet", seed, index)
    kind = drawn(draw, mix.kinds)
    problem, completion, strategy = WRITERS[kind](draw, mix)
    return Document(Template().render(problem), completion, strategy, kind)


def _numbers(kind: NumberKind, weights: Callable[[DietConfig], Weights]) -> Writer:
    def write(draw: Draw, mix: DietConfig) -> Written:
        while True:
            content, problem = draw_numbers(draw, kind)
            if split_of(content) == "train":
                break
        way = drawn(draw, weights(mix))
        return problem, written_way(draw, way, solution(problem), mix), way

    return write


def _puzzle(
    write: Callable[[Draw, str, DietConfig], tuple[Problem, str]], weights: Callable[[DietConfig], Weights]
) -> Writer:
    def write_puzzle(draw: Draw, mix: DietConfig) -> Written:
        way = drawn(draw, weights(mix))
        return *write(draw, way, mix), way

    return write_puzzle


def _product(draw: Draw, mix: DietConfig) -> Written:
    strategy = drawn(draw, mix.products)
    left, right = w.train_pair(draw, "product", TWO_DIGITS, TWO_DIGITS)
    while strategy == "rounding" and not w.can_round(left, right):
        left, right = w.train_pair(draw, "product", TWO_DIGITS, TWO_DIGITS)
    steps, mirror = decompose(left, right), decompose(right, left)
    answer = left * right
    match strategy:
        case "at_once":
            text = think(f"{left}×{right}={answer}", answer)
        case "decompose":
            text = think(w.say(steps), answer)
        case "rounding":
            text = think(w.say(w.rounding(left, right)), answer)
        case "verify":
            attempt = w.err(draw, steps)
            text = think(_checked_working(draw, mix, attempt, mirror, steps, "en"), answer)
        case "another_way":
            other_way = w.rounding(left, right) if w.can_round(left, right) and draw.uniform() < 0.5 else mirror
            text = think(w.say(steps) + w.ANOTHER + w.say(other_way) + w.SAME, answer)
        case "other_language":
            working = w.check(steps, mirror, "zh") if draw.uniform() < 0.3 else w.linked(draw, steps, "zh")
            text = think(working, answer)
        case "unfinished_or_loop":
            text = "<think>" + (w.unfinished(draw, w.say(steps)) if draw.uniform() < 0.5 else w.loop(draw, steps))
        case _:
            raise AssertionError(f"no way to write a product as {strategy}")
    return pair_problem("product", (left, right))[1], text, strategy


def _checked_working(
    draw: Draw, mix: DietConfig, attempt: list[Step], check: list[Step], solution: list[Step], language: str
) -> str:
    if draw.uniform() < VERIFY_ERROR and attempt[-1][3] != solution[-1][3]:
        return f"{w.check(attempt, check, language)} {w.say(solution)}"
    return w.check(solution, check, language)


_SUB_SKILLS = {"by_digit": 0.35, "by_tens": 0.15, "sum": 0.30, "difference": 0.20}
"""Relative weights of the sub-skills."""


def _sub_skill(draw: Draw, mix: DietConfig) -> Written:
    skill = draw.weighted(list(_SUB_SKILLS), list(_SUB_SKILLS.values()))
    if skill in ("by_digit", "by_tens"):
        factors = range(2, 10) if skill == "by_digit" else range(10, 101, 10)
        left, right = w.train_pair(draw, "product", TWO_DIGITS, factors)
        problem = pair_problem("product", (left, right))[1]
        if skill == "by_digit" and draw.uniform() >= STEPS_AT_ONCE:
            return problem, think(w.say(w.decompose_left(left, right)), left * right), "by_digit_steps"
        return problem, think(f"{left}×{right}={left * right}", left * right), skill
    kind: Kind = "sum" if skill == "sum" else "difference"
    pair = w.train_pair(draw, kind, range(100, 9000), range(20, 1000))
    problem = pair_problem(kind, pair)[1]
    return problem, think(w.say(problem.data["steps"])[:-1], problem.reference), skill


def _chain(draw: Draw, mix: DietConfig) -> Written:
    while True:
        content, problem = chain_problem(draw, 2, draw.integer(3, 4))
        if split_of(content) == "train":
            break
    if draw.uniform() < STEPS_AT_ONCE:
        return problem, think("", problem.reference), "at_once"
    return problem, think(w.say(problem.data["steps"]), problem.reference), "working"


def _story(draw: Draw, mix: DietConfig) -> Written:
    language: stories.Language = "zh" if draw.uniform() < CHINESE else "en"
    while True:
        problem = stories.draw_story(draw, (language,), (1, 2, 3))
        if split_of(problem.question) == "train":
            break
    strategy = drawn(draw, mix.stories)
    steps: list[Step] = list(problem.data["steps"])
    answer = problem.reference
    match strategy:
        case "at_once":
            text = think(answer if draw.uniform() < 0.5 else "", answer)
        case "working":
            is_plain = draw.uniform() < 0.7
            text = think(w.say(steps) if is_plain else w.linked(draw, steps, problem.language), answer)
        case "verify":
            text = think(_checked_working(draw, mix, w.err_last(draw, steps), steps, steps, problem.language), answer)
        case "distracted":
            mistake = w.take_wrong_number(draw, steps, problem.data["distractor"])
            text = think(w.say(mistake), mistake[-1][3])
        case "mixed_language":
            target = "en" if problem.language == "zh" else "zh"
            working = w.check(steps, steps, target) if draw.uniform() < 0.3 else w.linked(draw, steps, target)
            text = think(working, answer)
        case _:
            text = "<think>" + w.loop(draw, steps)
    return problem, text, strategy


def _countdown(draw: Draw, mix: DietConfig) -> Written:
    while True:
        content, problem = draw_countdown(draw, COUNTDOWN)
        if split_of(content) == "train":
            break
    if draw.uniform() < COUNTDOWN_AT_ONCE:
        return problem, think("", problem.reference), "at_once"
    tries = [combine(draw, problem.data["numbers"])[1] for _ in range(draw.integer(0, 2))]
    failures = [w.say(steps)[:-1] + ", no. " for steps in tries if steps[-1][3] != problem.data["target"]]
    return problem, think("".join(failures) + w.say(problem.data["steps"]), problem.reference), "search"


def _large_product(draw: Draw, mix: DietConfig) -> Written:
    pair = w.train_pair(draw, "product", THREE_DIGITS, THREE_DIGITS)
    way = drawn(draw, LARGE_PRODUCTS)
    return pair_problem("product", pair)[1], written_way(draw, way, product(*pair), mix), way


def _call(draw: Draw, mix: DietConfig) -> Written:
    way = drawn(draw, CALLS)
    if draw.uniform() < 0.5:
        pair = w.train_pair(draw, "product", TWO_DIGITS, TWO_DIGITS)
        return pair_problem("product", pair)[1], written_way(draw, way, product(*pair), mix), way
    pair = w.train_pair(draw, "sum", range(100, 9000), range(20, 1000))
    problem = pair_problem("sum", pair)[1]
    steps = equations([step("+", *pair)])
    high, low = max(pair), min(pair)
    known = Solution(f"{pair[0]}+{pair[1]}", problem.reference, steps, ((), ""), f"{high}-{low}={high - low}")
    return problem, written_way(draw, way, known, mix), way


def _general(draw: Draw, mix: DietConfig) -> Written:
    while True:
        problem = draw_question(draw, ("en", "zh"))
        if split_of("".join(sorted(problem.question))) == "train":
            return problem, ANSWERS.written(draw, problem), "general"


WRITERS: dict[str, Writer] = {
    "product": _product,
    "sub_skill": _sub_skill,
    "chain": _chain,
    "word_problem": _story,
    "countdown": _countdown,
    "total": _numbers("total", lambda mix: mix.totals),
    "signed_chain": _numbers("signed_chain", lambda mix: mix.chains),
    "remainder": _numbers("remainder", lambda mix: mix.remainders),
    "fraction": _numbers("fraction", lambda mix: mix.fractions),
    "small_product": _numbers("small_product", lambda mix: mix.small_products),
    "large_product": _large_product,
    "three_countdown": _puzzle(diet_puzzles.countdown, lambda mix: mix.countdowns),
    "two_knights": _puzzle(diet_puzzles.knights, lambda mix: mix.knights),
    "call": _call,
    "practice": practice,
    "general": _general,
    "everyday": everyday,
}
"""The writer of each kind of problem."""


def alphabet() -> str:
    """Every character that prompts and documents can contain, sorted: printable ASCII, newline, × ÷ and the Chinese."""
    tables = (stories.NAMES, stories.THINGS, stories.GOODS, stories.DISTRACTORS)
    parts = [str(table) for table in tables] + [family.en + family.zh + str(family.unit) for family in stories.FAMILIES]
    characters = string.ascii_letters + string.digits + string.punctuation + " \n×÷"
    return "".join(sorted(set(characters).union(*parts, *w.WORDS, *texts())))
