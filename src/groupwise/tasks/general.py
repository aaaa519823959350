"""General prompts: questions without one right answer, such as `Should I give Anna a ball or a book?`.

No rule can say which answer is right (`open_ended` in a problem's `data`); the reference answer is what a helpful
answer must mention, the person asked about. `sides` in the data holds, by language, the two things that one may
advise, each with a thought.

The splits are disjoint in content: the same question with its two things swapped is in the same split.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from groupwise.randomness import Draw, key
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask
from groupwise.tasks.word_problem_text import NAMES, Language
from groupwise.types import Problem

LANGUAGES: tuple[Language, ...] = ("en", "zh")
Texts = Mapping[Language, str]


class Side(NamedTuple):
    """One of the two things that may be advised, and what may be thought before; sentences without their full stop."""

    advice: Texts
    thought: Texts


class Family(NamedTuple):
    """One kind of question. `n`, `m`: people; `a`, `b`: things, or doings where `doings` says so; `x`: a number."""

    question: Texts
    sides: tuple[Side, Side]
    doings: bool = False


ITEMS: tuple[Mapping[str, str], ...] = tuple(
    {"en": english, "many": many, "zh": f"一{measure}{noun}", "count": measure, "noun": noun}
    for english, many, noun, measure in (
        ("a pen", "pens", "笔", "支"), ("a cup", "cups", "杯子", "个"), ("a cap", "caps", "帽子", "顶"),
        ("a toy", "toys", "玩具", "个"), ("a ball", "balls", "球", "个"), ("a bag", "bags", "书包", "个"),
        ("an apple", "apples", "苹果", "个"), ("a pencil", "pencils", "铅笔", "支"), ("a book", "books", "书", "本"),
        ("a sticker", "stickers", "贴纸", "张"), ("a card", "cards", "卡片", "张"), ("a stamp", "stamps", "邮票", "枚"),
        ("a balloon", "balloons", "气球", "个"),
    )
)  # fmt: skip
"""The things of the word problems that both languages have."""

DOINGS: tuple[Mapping[str, str], ...] = (
    {"en": "read a book", "zh": "读书"}, {"en": "play ball", "zh": "玩球"}, {"en": "buy apples", "zh": "买苹果"},
    {"en": "pack the bag", "zh": "装书包"}, {"en": "take a walk", "zh": "下楼走走"},
    {"en": "check the cards", "zh": "检查卡片"}, {"en": "send a card", "zh": "送卡片"},
    {"en": "buy stamps", "zh": "买邮票"},
)  # fmt: skip
"""What one may do first or second."""

FAMILIES: tuple[Family, ...] = (
    Family(
        {"en": "Should I give {n} {a} or {b}?", "zh": "送{n}{a}还是{b}？"},
        (
            Side({"en": "Give {n} {a}", "zh": "送{n}{a}"}, {"en": "{n} may like {a} more", "zh": "{n}有{b}，要{a}"}),
            Side({"en": "Give {n} {b}", "zh": "送{n}{b}"}, {"en": "{n} may like {b} more", "zh": "{n}有{a}，要{b}"}),
        ),
    ),
    Family(
        {"en": "Should {n} {a} or {b} first?", "zh": "{n}先{a}还是先{b}？"},
        (
            Side({"en": "{n} should {a} first", "zh": "{n}先{a}"}, {"en": "{n} can {b} later", "zh": "{n}然后能{b}"}),
            Side({"en": "{n} should {b} first", "zh": "{n}先{b}"}, {"en": "{n} can {a} later", "zh": "{n}然后能{a}"}),
        ),
        doings=True,
    ),
    Family(
        {"en": "{n} has {x} dollars. Should {n} buy {a} or save the money?", "zh": "{n}有{x}元，买{a}还是先存？"},
        (
            Side(
                {"en": "{n} should buy {a}", "zh": "{n}买{a}"},
                {"en": "{x} dollars may be enough for {a}", "zh": "{x}元能买{a}"},
            ),
            Side(
                {"en": "{n} should save the money", "zh": "{n}先把{x}元存起来"},
                {"en": "{x} dollars are not that much", "zh": "{x}元不多"},
            ),
        ),
    ),
    Family(
        {
            "en": "{n} has {x} {many}. Should {n} share them with {m} or keep them all?",
            "zh": "{n}有{x}{count}{noun}，分给{m}还是留下？",
        },
        (
            Side(
                {"en": "{n} should share them with {m}", "zh": "{n}分给{m}{a}"},
                {"en": "{m} may like {many} too", "zh": "{m}要{noun}"},
            ),
            Side(
                {"en": "{n} should keep them all", "zh": "{n}把{noun}留下"},
                {"en": "{m} may have {many} too", "zh": "{m}有{noun}"},
            ),
        ),
    ),
)


class GeneralConfig(GeneratedConfig):
    """Dials of the general prompts."""

    name: Literal["general"] = "general"
    """Says that the section is this task's."""
    languages: tuple[Language, ...] = Field(default=("en", "zh"), min_length=1)
    """Languages of the questions, each as likely: `en`, `zh`."""


class General(GeneratedTask):
    """Questions such as `Should I give Anna a ball or a book?`."""

    name: ClassVar[str] = "general"
    verifier: ClassVar[str] = "answered"
    config: GeneralConfig

    def candidates(self) -> Iterator[Candidate]:
        for index in count():
            problem = draw_question(Draw("general", index), self.config.languages)
            yield "".join(sorted(problem.question)), problem


def draw_question(draw: Draw, languages: tuple[Language, ...]) -> Problem:
    """A question in one of the languages."""
    language, family = draw.choice(languages), draw.choice(FAMILIES)
    person, other = draw.shuffled(NAMES[language])[:2]
    first, second = draw.shuffled(DOINGS if family.doings else ITEMS)[:2]
    people = {"n": person, "m": other, "x": str(draw.integer(5, 95))}
    fill = {each: {**first, **people, "a": first[each], "b": second[each]} for each in LANGUAGES}
    question = family.question[language].format(**fill[language])
    sides = {
        each: [tuple(text[each].format(**fill[each]) for text in side) for side in family.sides] for each in LANGUAGES
    }
    return Problem(
        id=f"general/{key(question):016x}",
        question=question,
        reference=person,
        difficulty=f"general {language}",
        language=language,
        data={"open_ended": True, "sides": sides},
    )
