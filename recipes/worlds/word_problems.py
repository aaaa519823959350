"""Word problems: short stories of one to three steps in English and Chinese, some with a number that is irrelevant.

A problem's `data` holds its solution: `steps` (sign, left, right, result), the answer's `unit`, and the irrelevant
number as `distractor` (None without one).

A family's plan is its solution; its templates tell the story. Letters stand for numbers (all at least 2, so that
nouns are always plural), `n` and `m` for two people, `thing` for what is counted, `goods` for what is bought.
Factors and divisors whose counterpart has two digits have one digit: a step is never a held-out two-digit product.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from groupwise.randomness import Draw, key
from groupwise.tasks.arithmetic import Step, calculate
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask
from groupwise.types import Problem

NumSteps = Annotated[int, Field(ge=1, le=3)]
Language = Literal["en", "zh"]


class WordProblemsConfig(GeneratedConfig):
    """Dials of the word problems."""

    languages: tuple[Language, ...] = Field(default=("en", "zh"), min_length=1)
    """Languages of the stories, each as likely: `en`, `zh`."""
    steps: tuple[NumSteps, ...] = Field(default=(1, 2, 3), min_length=1)
    """Numbers of steps a solution may have, 1 to 3, each as likely."""


class WordProblems(GeneratedTask):
    """Stories such as `Tom has 12 apples. Mia gives Tom 5 more. How many apples does Tom have now?`."""

    name: ClassVar[str] = "word_problems"
    verifier: ClassVar[str] = "number"
    Config = WordProblemsConfig
    config: WordProblemsConfig

    def candidates(self) -> Iterator[Candidate]:
        config = self.config
        for index in count():
            problem = draw_story(Draw("word_problems", index), config.languages, config.steps)
            yield problem.question, problem


Plan = tuple[tuple[str, str, str, str], ...]
"""Steps of a solution: sign, left operand, right operand, result; operands and results are letters."""


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of story."""

    plan: str
    """Steps such as `r=a+b s=r×c`; the last result is the answer."""
    ranges: dict[str, tuple[int, int]]
    """Smallest and largest value of each letter. A letter that is not in the story is drawn to make others."""
    en: str
    zh: str
    unit: tuple[str, str]
    dividend: str = ""
    """The dividend, made so that the division comes out even, for example `t=q×d` or `t=q×d+k`."""

    @property
    def steps(self) -> Plan:
        return tuple((part[3], part[2], part[4], part[0]) for part in self.plan.split())

    def template(self, language: Language) -> str:
        return self.en if language == "en" else self.zh

    def solve(self, values: dict[str, int]) -> tuple[Step, ...] | None:
        numbers, solution = dict(values), list[Step]()
        for sign, left, right, result in self.steps:
            if sign == "÷" and numbers[left] % numbers[right]:
                return None
            numbers[result] = calculate(sign, numbers[left], numbers[right])
            solution.append((sign, numbers[left], numbers[right], numbers[result]))
            if not 2 <= numbers[result] <= MAX_RESULT:
                return None
        return tuple(solution)


NAMES: dict[Language, tuple[str, ...]] = {
    "en": ("Tom", "Anna", "Ben", "Mia", "Sam", "Lily", "Max", "Emma", "Leo", "Nora", "Jack", "Ella"),
    "zh": ("小明", "小红", "小刚", "小丽", "小华", "小芳", "小军", "小林"),
}
THINGS: dict[Language, tuple[tuple[str, str], ...]] = {
    "en": (("apples", ""), ("pencils", ""), ("books", ""), ("stickers", ""), ("cards", ""), ("shells", ""),
           ("marbles", ""), ("stamps", "")),
    "zh": (("苹果", "个"), ("铅笔", "支"), ("书", "本"), ("贴纸", "张"), ("糖", "颗"), ("邮票", "枚"),
           ("气球", "个"), ("卡片", "张")),
}  # fmt: skip
"""Things to count, each with its Chinese measure word."""
GOODS: dict[Language, tuple[tuple[str, str], ...]] = {
    "en": (("pen", "pens"), ("cup", "cups"), ("cap", "caps"), ("toy", "toys"), ("ball", "balls"), ("bag", "bags")),
    "zh": (("笔", "支"), ("杯子", "个"), ("帽子", "顶"), ("玩具", "个"), ("球", "个"), ("书包", "个")),
}
"""Things to buy: English singular and plural; Chinese noun and measure word."""
DISTRACTORS: dict[Language, tuple[str, ...]] = {
    "en": ("{n} is {x} years old.", "It is {x} degrees.", "{n} lives at number {x}.", "{n} has {x} cousins."),
    "zh": ("{n}今年{x}岁。", "今天气温{x}度。", "{n}住在{x}号。", "{n}家在{x}楼。"),
}
"""Sentences with a number that has nothing to do with the question."""
_ANY = (5, 60)
_FEW = (2, 9)
FAMILIES: tuple[Family, ...] = (
    Family("r=a+b", {"a": _ANY, "b": _ANY},
           "{n} has {a} {thing}. {m} gives {n} {b} more. How many {thing} does {n} have now?",
           "{n}有{a}{cl}{thing}，{m}又给了{n}{b}{cl}。{n}现在有多少{cl}{thing}？", ("{thing}", "{cl}")),
    Family("r=a-b", {"a": (20, 90), "b": (3, 18)},
           "{n} had {a} {thing} and gave {b} to {m}. How many {thing} does {n} have left?",
           "{n}有{a}{cl}{thing}，给了{m}{b}{cl}，还剩多少{cl}？", ("{thing}", "{cl}")),
    Family("r=a-b", {"a": (40, 95), "b": (11, 38)},
           "{n} has {a} {thing} and {m} has {b}. How many more {thing} does {n} have than {m}?",
           "{n}有{a}{cl}{thing}，{m}有{b}{cl}。{n}比{m}多多少{cl}？", ("{thing}", "{cl}")),
    Family("r=a×b", {"a": _FEW, "b": (3, 30)},
           "There are {a} boxes with {b} {thing} in each. How many {thing} are there?",
           "有{a}盒{thing}，每盒{b}{cl}。一共有多少{cl}{thing}？", ("{thing}", "{cl}")),
    Family("r=p×k", {"p": (3, 40), "k": _FEW},
           "A {good} costs {p} dollars. How many dollars do {k} {goods} cost?",
           "一{goods}{good}{p}元，买{k}{goods}要多少元？", ("dollars", "元")),
    Family("r=v×h", {"v": (21, 95), "h": _FEW},
           "A bus drives {v} km per hour. How many km does it drive in {h} hours?",
           "汽车每小时行{v}千米，{h}小时行多少千米？", ("km", "千米")),
    Family("r=t÷d", {"q": (3, 30), "d": _FEW},
           "{d} children share {t} {thing} equally. How many {thing} does each child get?",
           "把{t}{cl}{thing}平均分给{d}个孩子，每人分到多少{cl}？", ("{thing}", "{cl}"), "t=q×d"),
    Family("r=t÷d", {"q": (3, 30), "d": _FEW},
           "{n} packs {t} {thing} into bags of {d}. How many bags does {n} fill?",
           "{n}把{t}{cl}{thing}装袋，每袋{d}{cl}，能装多少袋？", ("bags", "袋"), "t=q×d"),
    Family("r=a+b s=r×c", {"a": _FEW, "b": (3, 20), "c": _FEW},
           "{n} buys {a} red and {b} blue {goods} at {c} dollars each. How many dollars does {n} pay?",
           "{n}买了{a}{goods}红{good}和{b}{goods}蓝{good}，每{goods}{c}元。一共要付多少元？", ("dollars", "元")),
    Family("r=a×b s=r-c", {"a": (3, 9), "b": (6, 25), "c": (3, 16)},
           "{n} has {a} boxes of {b} {thing} and gives away {c} {thing}. How many {thing} are left?",
           "{n}有{a}盒{thing}，每盒{b}{cl}，送走{c}{cl}，还剩多少{cl}？", ("{thing}", "{cl}")),
    Family("r=a×b s=r+c", {"a": (3, 25), "b": _FEW, "c": (5, 50)},
           "{n} saves {a} dollars a week for {b} weeks and then gets {c} more. How many dollars does {n} have?",
           "{n}每周存{a}元，存了{b}周，又得到{c}元，现在有多少元？", ("dollars", "元")),
    Family("r=k×p s=t-r", {"k": _FEW, "p": (3, 10), "t": (92, 200)},
           "{n} has {t} dollars and buys {k} {goods} at {p} dollars each. How many dollars are left?",
           "{n}有{t}元，买了{k}{goods}{good}，每{goods}{p}元，还剩多少元？", ("dollars", "元")),
    Family("r=t-k s=r÷d", {"q": (2, 20), "d": _FEW, "k": (3, 15)},
           "{n} has {t} {thing}, keeps {k} and shares the rest among {d} friends. How many does each friend get?",
           "{n}有{t}{cl}{thing}，留下{k}{cl}，其余平均分给{d}个朋友，每人得多少{cl}？", ("{thing}", "{cl}"), "t=q×d+k"),
    Family("r=t+k s=r÷d", {"q": (4, 20), "d": (4, 9), "k": (3, 14)},
           "{n} has {t} {thing} and {m} has {k}. They pack them all in bags of {d}. How many bags is that?",
           "{n}有{t}{cl}{thing}，{m}有{k}{cl}，合起来每{d}{cl}装一袋，装多少袋？", ("bags", "袋"), "t=q×d-k"),
    Family("r=a+b s=a+r", {"a": _ANY, "b": (3, 30)},
           "{n} has {a} {thing}. {m} has {b} more than {n}. How many {thing} do they have together?",
           "{n}有{a}{cl}{thing}，{m}比{n}多{b}{cl}，两人一共有多少{cl}？", ("{thing}", "{cl}")),
    Family("r=a×k s=a+r", {"a": (3, 40), "k": (2, 6)},
           "{n} has {a} {thing}. {m} has {k} times as many. How many {thing} do they have together?",
           "{n}有{a}{cl}{thing}，{m}的{thing}是{n}的{k}倍，两人一共有多少{cl}？", ("{thing}", "{cl}")),
    Family("r=a-b s=r+c", {"a": (20, 60), "b": (2, 18), "c": (2, 18)},
           "There are {a} people on a bus. {b} get off and {c} get on. How many people are on the bus now?",
           "车上有{a}人，下去{b}人，又上来{c}人，现在车上有多少人？", ("people", "人")),
    Family("r=a×p s=b×q u=r+s", {"a": _FEW, "p": (3, 20), "b": _FEW, "q": (3, 20)},
           "{n} buys {a} {goods} at {p} dollars each and {b} hats at {q} dollars each. How many dollars does {n} pay?",
           "{n}买{a}{goods}{good}，每{goods}{p}元，又买{b}条围巾，每条{q}元，共付多少元？", ("dollars", "元")),
    Family("r=a+b s=r×c u=t-s", {"a": _FEW, "b": (2, 10), "c": (2, 5), "t": (97, 200)},
           "{n} has {t} dollars and buys {a} red and {b} blue {goods} at {c} dollars each. How many dollars are left?",
           "{n}有{t}元，买{a}{goods}红{good}和{b}{goods}蓝{good}，每{goods}{c}元，还剩多少元？", ("dollars", "元")),
    Family("r=a×b s=r-c u=s÷d", {"a": (3, 9), "b": (4, 20), "d": _FEW, "c": (2, 14)},
           "{n} has {a} bags of {b} {thing}, keeps {c} and shares the rest among {d} friends. How many does each get?",
           "{n}有{a}袋{thing}，每袋{b}{cl}，留下{c}{cl}，其余平分给{d}人，每人多少{cl}？", ("{thing}", "{cl}")),
    Family("r=a+b s=a+r u=t-s", {"a": (8, 40), "b": (3, 20), "t": (110, 250)},
           "A book has {t} pages. {n} read {a} on Monday and {b} more than that on Tuesday. How many pages are left?",
           "一本书{t}页，{n}第一天读{a}页，第二天比第一天多读{b}页，还剩多少页？", ("pages", "页")),
    Family("r=a×b s=r-c u=s-d", {"a": (5, 9), "b": (8, 25), "c": (2, 15), "d": (4, 20)},
           "{a} hens lay {b} eggs each. {c} eggs break and {n} sells {d}. How many eggs are left?",
           "{a}只鸡各下{b}个蛋，碎了{c}个，{n}又卖掉{d}个，还剩多少个？", ("eggs", "个")),
)  # fmt: skip
MAX_RESULT = 999
DISTRACTED = 0.3
"""Share of stories with an irrelevant number."""


def draw_story(draw: Draw, languages: tuple[Language, ...], steps: tuple[int, ...]) -> Problem:
    """A story in one of the languages, with one of the numbers of steps. Its split is `split_of(question)`."""
    language = draw.choice(languages)
    num_steps = draw.choice(steps)
    family = draw.choice([family for family in FAMILIES if len(family.steps) == num_steps])
    values, solution = draw_numbers(draw, family)
    words = draw_words(draw, language)
    distractor = draw.integer(5, 30) if draw.uniform() < DISTRACTED else None
    question = family.template(language).format(**values, **words)
    if distractor is not None:
        aside = draw.choice(DISTRACTORS[language]).format(n=words["n"], x=distractor)
        question = f"{aside}{' ' if language == 'en' else ''}{question}"
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
        if family.dividend:
            extra = {"+": 1, "-": -1}.get(family.dividend[-2], 0) * values.get("k", 0)
            values["t"] = values["q"] * values["d"] + extra
        solution = family.solve(values)
        if solution is not None and values.get("t", 2) >= 2:
            return {letter: str(value) for letter, value in values.items()}, solution


def draw_words(draw: Draw, language: Language) -> dict[str, str]:
    """Two different people, what is counted and what is bought."""
    name, other_name = draw.shuffled(NAMES[language])[:2]
    thing, measure = draw.choice(THINGS[language])
    good, goods = draw.choice(GOODS[language])
    return {"n": name, "m": other_name, "thing": thing, "cl": measure, "good": good, "goods": goods}
