"""General prompts: questions without one right answer, such as `A ball costs 34 dollars. Should I buy it or wait?`.

No rule can say which answer is right (so its problems are `open_ended`); the reference answer is what a helpful
answer must mention, the number that was asked about: a number, because the shipped base model has learnt to copy
numbers and no other words. `sides` in the data holds the two things that one may advise, each with a thought, by
language.

The splits are disjoint in content: the same question with its two things swapped is in the same split.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import ClassVar, NamedTuple

from pydantic import Field

from groupwise.randomness import Draw, key
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask
from groupwise.types import Problem
from word_problems import Language

LANGUAGES: tuple[Language, ...] = ("en", "zh")
Texts = Mapping[Language, str]


class Side(NamedTuple):
    """One of the two things that may be advised, and what may be thought before; sentences without their full stop."""

    advice: Texts
    thought: Texts


class Family(NamedTuple):
    """One kind of question about a number `x`. `a`, `b`: things, or doings where `doings` says so."""

    question: Texts
    sides: tuple[Side, Side]
    doings: bool = False


ITEMS: tuple[Mapping[str, str], ...] = tuple(
    {"en": english, "many": plural, "zh": f"一{measure}{noun}", "count": measure, "noun": noun}
    for english, plural, noun, measure in (
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
"""Activities to choose from."""

FAMILIES: tuple[Family, ...] = (
    Family(
        {"en": "{A} costs {x} dollars. Should I buy it or wait?", "zh": "{a}要{x}元，现在买还是等等？"},
        (
            Side(
                {"en": "You can buy it for {x} dollars", "zh": "{x}元能买"},
                {"en": "{x} dollars are not that much", "zh": "{x}元不多"},
            ),
            Side(
                {"en": "Keep the {x} dollars for now", "zh": "先把{x}元存起来"},
                {"en": "{x} dollars are a lot of money", "zh": "{x}元还是多了"},
            ),
        ),
    ),
    Family(
        {
            "en": "I have {x} {many}. Should I share them or keep them?",
            "zh": "我有{x}{count}{noun}，分给孩子还是留下？",
        },
        (
            Side(
                {"en": "Share all {x} of them with others", "zh": "把{x}{count}分给孩子"},
                {"en": "{x} of them are more than enough", "zh": "{x}{count}不少"},
            ),
            Side(
                {"en": "Keep all {x} of them for now", "zh": "把{x}{count}留下"},
                {"en": "{x} of them are not that many", "zh": "{x}{count}不多"},
            ),
        ),
    ),
    Family(
        {
            "en": "The book has {x} pages. Should I read it today or later?",
            "zh": "书有{x}页，今天读还是明天读？",
        },
        (
            Side(
                {"en": "Read all {x} pages of it today", "zh": "今天读{x}页"},
                {"en": "{x} pages are not that many", "zh": "{x}页不多"},
            ),
            Side(
                {"en": "Leave the {x} pages for later", "zh": "{x}页明天读"},
                {"en": "{x} pages are a lot for today", "zh": "{x}页还是多了"},
            ),
        ),
    ),
    Family(
        {"en": "{x} children are here. Should they {a} or {b}?", "zh": "有{x}个孩子来，{a}还是{b}？"},
        (
            Side(
                {"en": "Let all {x} {a}", "zh": "{x}个孩子{a}"},
                {"en": "{x} children may like to {a}", "zh": "{x}个孩子能{a}"},
            ),
            Side(
                {"en": "Let all {x} {b}", "zh": "{x}个孩子{b}"},
                {"en": "{x} children may like to {b}", "zh": "{x}个孩子能{b}"},
            ),
        ),
        doings=True,
    ),
)


class GeneralConfig(GeneratedConfig):
    """Dials of the general prompts."""

    languages: tuple[Language, ...] = Field(default=("en", "zh"), min_length=1)
    """Languages of the questions, each as likely: `en`, `zh`."""


class General(GeneratedTask):
    """Questions such as `A ball costs 34 dollars. Should I buy it or wait?`."""

    name: ClassVar[str] = "general"
    verifier: ClassVar[str] = "answered"
    Config = GeneralConfig
    config: GeneralConfig

    def candidates(self) -> Iterator[Candidate]:
        for index in count():
            problem = draw_question(Draw("general", index), self.config.languages)
            yield "".join(sorted(problem.question)), problem


def draw_question(draw: Draw, languages: tuple[Language, ...]) -> Problem:
    """A question in one of the languages."""
    language, family = draw.choice(languages), draw.choice(FAMILIES)
    item, other_item = draw.shuffled(DOINGS if family.doings else ITEMS)[:2]
    number = str(draw.integer(11, 199))
    substitutions = {lang: {**item, "x": number, "a": item[lang], "b": other_item[lang]} for lang in LANGUAGES}
    substitutions["en"]["A"] = item["en"].capitalize()
    question = family.question[language].format(**substitutions[language])
    sides = {
        lang: [tuple(text[lang].format(**substitutions[lang]) for text in side) for side in family.sides]
        for lang in LANGUAGES
    }
    return Problem(
        id=f"general/{key(question):016x}",
        question=question,
        reference=number,
        difficulty=f"general {language}",
        language=language,
        data={"sides": sides},
        open_ended=True,
    )
