"""Everyday questions with short answers in English and Chinese, and every word that the corpus teaches to spell."""

import re
from collections.abc import Mapping, Sequence
from functools import cache

from groupwise.randomness import Draw
from groupwise.tasks import corpus_working as w
from groupwise.tasks import general, general_text
from groupwise.tasks import word_problems as stories
from groupwise.tasks.diet.config import DietConfig
from groupwise.tasks.logic.knights_knaves import NAMES as PUZZLE_NAMES
from groupwise.tasks.word_problems import Language
from groupwise.types import Problem

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
    language: Language = "zh" if draw.uniform() < mix.chinese else "en"
    kind = draw.choice(list(TEMPLATES))
    words, wrong = _words(draw, kind, language)
    question, answer = TEMPLATES[kind][language]
    is_wrong = draw.uniform() < mix.everyday_mistake
    problem = Problem(f"everyday/{kind}", question.format(**words), "", language=language, open_ended=True)
    return problem, f"<think></think>{answer.format(**(wrong if is_wrong else words))}", kind


def _words(draw: Draw, kind: str, language: Language) -> tuple[dict[str, str], dict[str, str]]:
    """What fills the template, rightly and wrongly."""
    if kind in ("owner", "greeting"):
        name, other_name = draw.shuffled(stories.NAMES[language])[:2]
        (thing, _), (other_thing, _) = draw.shuffled(stories.THINGS[language])[:2]
        words = {"n": name, "m": other_name, "thing": thing, "other": other_thing}
        return {**words, "a": name}, {**words, "a": other_name}
    pairs = _pairs(kind, language)
    (key, value), (_, wrong) = draw.shuffled(pairs)[:2]
    return {"a": key, "b": value}, {"a": key, "b": wrong}


def _pairs(kind: str, language: Language) -> Sequence[tuple[str, str]]:
    if kind == "day":
        days = DAYS[language]
        return list(zip(days, (*days[1:], days[0]), strict=True))
    pairs = (OPPOSITES if kind == "opposite" else COLOURS)[language]
    return [*pairs, *((value, key) for key, value in pairs)] if kind == "opposite" else pairs


@cache
def texts() -> tuple[str, ...]:
    """Every table that the words of the corpus come from, placeholders taken out."""
    stated: list[object] = [stories.NAMES, stories.THINGS, stories.GOODS, stories.DISTRACTORS]
    stated += [PUZZLE_NAMES, OPPOSITES, COLOURS, DAYS, TEMPLATES, general.ITEMS, general.DOINGS, general.FAMILIES]
    stated += [general_text.FRIENDLY_ENDS, general_text.SUMMARIES, general_text.MORE, general_text.OFF_TOPIC]
    stated += [general_text.UNWANTED_THOUGHTS, general_text.UNWANTED_REMARKS, w.CHECK, w.YES, w.NO, w.OPENERS, w.LINKS]
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
    """How many of a text's English words are in the vocabulary, and how many there are; tags do not count."""
    words = re.findall(r"[a-z]+(?:'[a-z]+)?", re.sub(r"</?\w+>|\\boxed", " ", text).lower())
    return sum(word in vocabulary() for word in words), len(words)
