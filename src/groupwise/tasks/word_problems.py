"""Word problems: short stories of one to three steps in English and Chinese, some with a number that is irrelevant.

A problem's `data` holds its solution: `steps` (sign, left, right, result), the answer's `unit`, and the irrelevant
number as `distractor` (None without one).
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from groupwise.randomness import Draw, key
from groupwise.tasks.arithmetic import Step, calculate
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask
from groupwise.tasks.word_problem_text import DISTRACTORS, FAMILIES, GOODS, NAMES, THINGS, Family, Language
from groupwise.types import Problem

MAX_RESULT = 999
NumSteps = Annotated[int, Field(ge=1, le=3)]


class WordProblemsConfig(GeneratedConfig):
    """Dials of the word problems."""

    languages: tuple[Language, ...] = Field(default=("en", "zh"), min_length=1)
    """Languages of the stories, each as likely: `en`, `zh`."""
    steps: tuple[NumSteps, ...] = Field(default=(1, 2, 3), min_length=1)
    """Numbers of steps a solution may have, 1 to 3, each as likely."""
    distractors: float = Field(default=0.3, ge=0, le=1)
    """Probability that a story has an irrelevant number."""


class WordProblems(GeneratedTask):
    """Stories such as `Tom has 12 apples. Mia gives Tom 5 more. How many apples does Tom have now?`."""

    name: ClassVar[str] = "word_problems"
    verifier: ClassVar[str] = "number"
    Config = WordProblemsConfig
    config: WordProblemsConfig

    def candidates(self) -> Iterator[Candidate]:
        config = self.config
        index = 0
        while True:
            draw = Draw("word_problems", index)
            problem = draw_story(draw, config.languages, config.steps, config.distractors)
            yield problem.question, problem
            index += 1


def draw_story(draw: Draw, languages: tuple[Language, ...], steps: tuple[int, ...], distractors: float) -> Problem:
    """A story in one of the languages, with one of the numbers of steps. Its split is `split_of(question)`."""
    language = draw.choice(languages)
    num_steps = draw.choice(steps)
    family = draw.choice([family for family in FAMILIES if len(family.steps) == num_steps])
    values, solution = draw_numbers(draw, family)
    words = draw_words(draw, language)
    distractor = draw.integer(5, 30) if draw.uniform() < distractors else None
    question = _tell(draw, family.template(language), language, values | words, distractor)
    unit = family.unit[language == "zh"].format(**words)
    return Problem(
        id=f"word_problems/{key(question):016x}",
        question=question,
        reference=str(solution[-1][3]),
        difficulty=f"{num_steps} step{'s' if num_steps > 1 else ''} {language}",
        language=language,
        data={"steps": solution, "unit": unit, "distractor": distractor},
    )


def draw_numbers(draw: Draw, family: Family) -> tuple[dict[str, str], tuple[Step, ...]]:
    """Numbers of a story, as text by letter, and its solution: every result is an integer from 2 to 999."""
    while True:
        values = {letter: draw.integer(low, high) for letter, (low, high) in family.ranges.items()}
        if family.made:
            values["t"] = _made(family.made, values)
        solution = _solve(family, values)
        if solution is not None and values.get("t", 2) >= 2:
            return {letter: str(value) for letter, value in values.items()}, solution


def _made(rule: str, values: dict[str, int]) -> int:
    total = values["q"] * values["d"]
    if rule.endswith("+k"):
        return total + values["k"]
    return total - values["k"] if rule.endswith("-k") else total


def _solve(family: Family, values: dict[str, int]) -> tuple[Step, ...] | None:
    known = dict(values)
    solution: list[Step] = []
    for sign, left, right, result in family.steps:
        if sign == "÷" and known[left] % known[right]:
            return None
        known[result] = calculate(sign, known[left], known[right])
        solution.append((sign, known[left], known[right], known[result]))
        if not 2 <= known[result] <= MAX_RESULT:
            return None
    return tuple(solution)


def draw_words(draw: Draw, language: Language) -> dict[str, str]:
    """Two different people, what is counted and what is bought."""
    first, second = draw.shuffled(NAMES[language])[:2]
    thing, measure = draw.choice(THINGS[language])
    good, goods = draw.choice(GOODS[language])
    return {"n": first, "m": second, "thing": thing, "cl": measure, "good": good, "goods": goods}


def _tell(draw: Draw, story: str, language: Language, fill: dict[str, str], distractor: int | None) -> str:
    """The story with its words and numbers; the irrelevant sentence comes first."""
    text = story.format(**fill)
    if distractor is None:
        return text
    aside = draw.choice(DISTRACTORS[language]).format(n=fill["n"], x=distractor)
    return f"{aside}{' ' if language == 'en' else ''}{text}"
