"""Puzzles and everyday questions as the shipped base model read them, and every word that it was taught to spell.

Puzzles: guesses, honest searches, and tries that are said to fit. Everyday questions: short answers in English and
Chinese, some of them wrong, none misspelt.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product as all_of

import diet_working as w
import general as hands
import questions
import word_problems as stories
from countdown import CountdownConfig, combine, draw_countdown
from diet_config import CHINESE, EVERYDAY_MISTAKE, RIGHT_GUESS, DietConfig
from diet_solutions import think
from groupwise.randomness import Draw
from groupwise.tasks.base import split_of
from groupwise.types import Problem
from knights_knaves import NAMES as PUZZLE_NAMES
from knights_knaves import KnightsKnavesConfig, Statement, candidate, drawn_puzzle, truth_table
from word_problems import Language

THREE = CountdownConfig(kind="countdown", min_numbers=3, max_numbers=3, num_problems=2000, num_eval_problems=100)
"""Countdown with three numbers."""
TWO = KnightsKnavesConfig(
    kind="knights_knaves", min_people=2, max_people=2, max_depth=2, operators=("not", "and", "or", "iff"),
    num_problems=500, num_eval_problems=40,
)  # fmt: skip
"""Knights and knaves with two people."""
MAX_TRIES = 5


def countdown(draw: Draw, way: str, mix: DietConfig) -> tuple[Problem, str]:
    """A countdown problem of three numbers, and its completion in a way."""
    while True:
        content, problem = draw_countdown(draw, THREE)
        if split_of(content) == "train":
            break
    numbers, target = list(problem.data["numbers"]), int(problem.data["target"])
    match way:
        case "guess":
            right = draw.uniform() < RIGHT_GUESS
            return problem, think("", problem.reference if right else _try(draw, numbers)[0])
        case "claim":
            expression, _ = _try(draw, numbers, target)
            return problem, think(f"{expression}={target}.", expression)
    tries = [_try(draw, numbers, target) for _ in range(draw.integer(0, MAX_TRIES - 1))]
    text = "".join(f"{expression}={value}, no. " for expression, value in tries)
    if way == "unfinished":
        return problem, "<think>" + w.unfinished(draw, f"{text}{problem.reference}={target}.")
    return problem, think(f"{text}{problem.reference}={target}. {w.YES['en']}", problem.reference)


def _try(draw: Draw, numbers: Sequence[int], other_than: int | None = None) -> tuple[str, int]:
    while True:
        expression, _ = combine(draw, list(numbers))
        content = f"countdown {'-'.join(map(str, sorted(numbers)))}={expression.value}"
        if expression.value != other_than and split_of(content) == "train":
            return expression.text, expression.value


def knights(draw: Draw, way: str, mix: DietConfig) -> tuple[Problem, str]:
    """A puzzle with two people, and its completion in a way."""
    while True:
        puzzle = drawn_puzzle(draw, TWO)
        content, problem = candidate(*puzzle)
        if split_of(content) == "train":
            break
    _, names, statements, roles = puzzle
    others = [guess for guess in all_of((True, False), repeat=2) if guess != roles]
    match way:
        case "guess":
            is_right = draw.uniform() < RIGHT_GUESS
            return problem, think("", _roles(names, roles if is_right else draw.choice([roles, *others])))
        case "claim":
            guess = draw.choice(others)
            return problem, think(_short(names, guess) + ": fits.", _roles(names, guess))
    tries = draw.shuffled(others)[: draw.integer(0, 3)]
    text = "".join(_assumed(names, statements, guess) for guess in tries)
    if way == "unfinished":
        return problem, "<think>" + w.unfinished(draw, text + _assumed(names, statements, roles))
    return problem, think((text + _assumed(names, statements, roles)).rstrip(), _roles(names, roles))


def _assumed(names: Sequence[str], statements: Sequence[Statement], guess: Sequence[bool]) -> str:
    """Work out an assumption, as in `Ada knight, Ben knave: Ada says true, Ben says true, no. `."""
    row = sum(1 << person for person, is_knight in enumerate(guess) if is_knight)
    all_rows = (1 << (1 << len(names))) - 1
    knights = [sum(1 << r for r in range(1 << len(names)) if r >> person & 1) for person in range(len(names))]
    said = [bool(truth_table(statement, knights, all_rows) >> row & 1) for statement in statements]
    words = ", ".join(f"{name} says {str(truth).lower()}" for name, truth in zip(names, said, strict=True))
    return f"{_short(names, guess)}: {words}, {'fits.' if said == list(guess) else 'no.'} "


def _short(names: Sequence[str], roles: Sequence[bool]) -> str:
    return ", ".join(f"{name} {'knight' if role else 'knave'}" for name, role in zip(names, roles, strict=True))


def _roles(names: Sequence[str], roles: Sequence[bool]) -> str:
    return ", ".join(f"{name} is a {'knight' if role else 'knave'}" for name, role in zip(names, roles, strict=True))


Pairs = tuple[tuple[str, str], ...]
OPPOSITES: Mapping[Language, Pairs] = {
    "en": (("big", "small"), ("hot", "cold"), ("long", "short"), ("old", "new"), ("fast", "slow"), ("day", "night"),
           ("open", "shut"), ("early", "late")),
    "zh": (("大", "小"), ("热", "冷"), ("长", "短"), ("新", "旧"), ("快", "慢"), ("上", "下"), ("早", "晚"),
           ("多", "少")),
}  # fmt: skip
COLOURS: Mapping[Language, Pairs] = {
    "en": (("grass", "green"), ("snow", "white"), ("milk", "white"), ("coal", "black"), ("blood", "red"),
           ("the sky", "blue"), ("the sun", "yellow"), ("a lemon", "yellow")),
    "zh": (("草", "绿色"), ("雪", "白色"), ("牛奶", "白色"), ("天", "蓝色"), ("苹果", "红色"), ("太阳", "黄色")),
}  # fmt: skip
DAYS: Mapping[Language, tuple[str, ...]] = {
    "en": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "zh": ("星期一", "星期二", "星期三", "星期四", "星期五", "星期六", "星期日"),
}
TEMPLATES: Mapping[str, Mapping[Language, tuple[str, str]]] = {
    "opposite": {"en": ("What is the opposite of {a}?", "The opposite of {a} is {b}."),
                 "zh": ("{a}的反义词是什么？", "{a}的反义词是{b}。")},
    "colour": {"en": ("What colour is {a}?", "I think {a} is {b}."),
               "zh": ("{a}是什么颜色？", "{a}是{b}。")},
    "day": {"en": ("Which day comes after {a}?", "The day after {a} is {b}."),
            "zh": ("{a}的后一天是什么？", "{a}的后一天是{b}。")},
    "owner": {"en": ("{n} has the {thing} and {m} has the {other}. Who has the {thing}?", "{a} has the {thing}."),
              "zh": ("{n}有{thing}，{m}有{other}。谁有{thing}？", "{a}有{thing}。")},
    "greeting": {"en": ("Say hello to {n}.", "Hello {a}, how are you today?"), "zh": ("向{n}问好。", "{a}，你好！")},
}  # fmt: skip
"""Question and answer of each kind."""


def everyday(draw: Draw, mix: DietConfig) -> tuple[Problem, str, str]:
    """An everyday question, its answer, and which kind it is; some answers are wrong, none is misspelt."""
    language: Language = "zh" if draw.uniform() < CHINESE else "en"
    kind = draw.choice(list(TEMPLATES))
    words, wrong = _words(draw, kind, language)
    question, answer = TEMPLATES[kind][language]
    is_wrong = draw.uniform() < EVERYDAY_MISTAKE
    problem = Problem(f"everyday/{kind}", question.format(**words), "", language=language, open_ended=True)
    return problem, f"<think></think>{answer.format(**(wrong if is_wrong else words))}", kind


def _words(draw: Draw, kind: str, language: Language) -> tuple[dict[str, str], dict[str, str]]:
    if kind in ("owner", "greeting"):
        name, other_name = draw.shuffled(stories.NAMES[language])[:2]
        (thing, _), (other_thing, _) = draw.shuffled(stories.THINGS[language])[:2]
        words = {"n": name, "m": other_name, "thing": thing, "other": other_thing}
        return {**words, "a": name}, {**words, "a": other_name}
    if kind == "day":
        pairs: Sequence[tuple[str, str]] = list(
            zip(DAYS[language], (*DAYS[language][1:], DAYS[language][0]), strict=True)
        )
    elif kind == "colour":
        pairs = COLOURS[language]
    else:
        pairs = [*OPPOSITES[language], *((value, key) for key, value in OPPOSITES[language])]
    (key, value), (_, wrong) = draw.shuffled(pairs)[:2]
    return {"a": key, "b": value}, {"a": key, "b": wrong}


@cache
def texts() -> tuple[str, ...]:
    """Every table that the words of the corpus come from, placeholders taken out."""
    stated: list[object] = [stories.NAMES, stories.THINGS, stories.GOODS, stories.DISTRACTORS]
    stated += [PUZZLE_NAMES, OPPOSITES, COLOURS, DAYS, TEMPLATES, questions.ITEMS, questions.DOINGS, questions.FAMILIES]
    stated += [hands.FRIENDLY_ENDS, hands.SUMMARIES, hands.MORE, hands.OFF_TOPIC]
    stated += [hands.UNWANTED_THOUGHTS, hands.UNWANTED_REMARKS, w.CHECK, w.YES, w.NO, w.OPENERS, w.LINKS]
    stated += [(family.en, family.zh, family.unit) for family in stories.FAMILIES]
    return tuple(re.sub(r"\{\w+\}", " ", text) for part in stated for text in _strings(part))


def _strings(part: object) -> list[str]:
    if isinstance(part, str):
        return [part]
    if isinstance(part, Mapping):
        return [text for value in part.values() for text in _strings(value)]
    return [text for value in part for text in _strings(value)] if isinstance(part, tuple | list) else []


_BESIDE = "another way same knight knave knights knaves says true false fits no try hello"


@cache
def vocabulary() -> frozenset[str]:
    """Every English word of the corpus, in lower case: what is spelt otherwise is spelt wrong."""
    return frozenset(re.findall(r"[a-z']+", " ".join([*texts(), _BESIDE]).lower()))


def spelt_right(text: str) -> tuple[int, int]:
    """Count a text's English words in the vocabulary, and all of them; tags do not count."""
    words = re.findall(r"[a-z]+(?:'[a-z]+)?", re.sub(r"</?\w+>|\\boxed", " ", text).lower())
    return sum(word in vocabulary() for word in words), len(words)
