"""The documents of the second edition's corpus; `document` is a pure function of its arguments."""

from collections.abc import Callable
from typing import Any

from groupwise.randomness import Draw
from groupwise.tasks import corpus
from groupwise.tasks import corpus_working as w
from groupwise.tasks.arithmetic import operands, pair_problem
from groupwise.tasks.base import Template, split_of
from groupwise.tasks.corpus import TWO_DIGITS, Document, Written, drawn, train_pair
from groupwise.tasks.diet import puzzles
from groupwise.tasks.diet.config import DietConfig, PuzzleWeights, WayWeights
from groupwise.tasks.diet.everyday import everyday, texts
from groupwise.tasks.diet.practice import practice
from groupwise.tasks.diet.solutions import Solution, product, solution, written
from groupwise.tasks.diet.ways import written as written_way
from groupwise.tasks.general import draw_question
from groupwise.tasks.general_text import general_document
from groupwise.tasks.numbers import NumberKind, draw_numbers
from groupwise.types import Problem

Writer = Callable[[Draw, Any], Written]
THREE_DIGITS = operands(3)


def document(seed: int, index: int, mix: DietConfig) -> Document:
    """The document at a place of the corpus; the same arguments give the same document."""
    draw = Draw("diet", seed, index)
    kind = drawn(draw, mix.kinds)
    problem, completion, strategy = WRITERS[kind](draw, mix)
    return Document(Template().render(problem), completion, strategy, kind)


def _numbers(kind: NumberKind, weights: Callable[[DietConfig], WayWeights]) -> Writer:
    def write(draw: Draw, mix: DietConfig) -> Written:
        while True:
            content, problem = draw_numbers(draw, kind)
            if split_of(content) == "train":
                break
        way = drawn(draw, weights(mix))
        return problem, written_way(draw, way, solution(problem), mix), way

    return write


def _puzzle(
    write: Callable[[Draw, str, DietConfig], tuple[Problem, str]], weights: Callable[[DietConfig], PuzzleWeights]
) -> Writer:
    def write_puzzle(draw: Draw, mix: DietConfig) -> Written:
        way = drawn(draw, weights(mix))
        return *write(draw, way, mix), way

    return write_puzzle


def _large_product(draw: Draw, mix: DietConfig) -> Written:
    pair = train_pair(draw, "product", THREE_DIGITS, THREE_DIGITS)
    way = drawn(draw, mix.large_products)
    return pair_problem("product", pair)[1], written_way(draw, way, product(*pair), mix), way


def _call(draw: Draw, mix: DietConfig) -> Written:
    way = drawn(draw, mix.calls)
    if draw.uniform() < 0.5:
        pair = train_pair(draw, "product", TWO_DIGITS, TWO_DIGITS)
        return pair_problem("product", pair)[1], written_way(draw, way, product(*pair), mix), way
    pair = train_pair(draw, "sum", range(100, 9000), range(20, 1000))
    problem = pair_problem("sum", pair)[1]
    steps = written([w.step("+", *pair)])
    high, low = max(pair), min(pair)
    known = Solution(f"{pair[0]}+{pair[1]}", problem.reference, steps, ((), ""), f"{high}-{low}={high - low}")
    return problem, written_way(draw, way, known, mix), way


def _general(draw: Draw, mix: DietConfig) -> Written:
    while True:
        problem = draw_question(draw, ("en", "zh"))
        if split_of("".join(sorted(problem.question))) == "train":
            return problem, general_document(draw, problem, mix.answers), "general"


WRITERS: dict[str, Writer] = {
    **corpus.WRITERS,
    "total": _numbers("total", lambda mix: mix.totals),
    "signed_chain": _numbers("signed_chain", lambda mix: mix.chains),
    "remainder": _numbers("remainder", lambda mix: mix.remainders),
    "fraction": _numbers("fraction", lambda mix: mix.fractions),
    "small_product": _numbers("small_product", lambda mix: mix.small_products),
    "large_product": _large_product,
    "three_countdown": _puzzle(puzzles.countdown, lambda mix: mix.countdowns),
    "two_knights": _puzzle(puzzles.knights, lambda mix: mix.knights),
    "call": _call,
    "practice": practice,
    "general": _general,
    "everyday": everyday,
}
"""Who writes each kind of problem."""


def alphabet() -> str:
    """Every character that prompts and documents can contain, sorted: the first edition's and those of new words."""
    return "".join(sorted(set(corpus.alphabet()).union(*texts())))
