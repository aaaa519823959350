"""How different hands answer: completions of general prompts, and the sentence after the box of a reasoning problem.

The hands are those that the hidden rule tells apart (`hidden_rule`): `friendly` meets all its criteria; `plain` lacks
the friendly phrase; `rambling` keeps talking after a friendly answer; `careless` is friendly, but misreads what it must
mention; `off_topic` talks about something else or calculates, and `other_language` answers in the other language, both
with a friendly phrase or without.
"""

import re
from collections.abc import Mapping

from pydantic import Field

from groupwise.config import Section
from groupwise.randomness import Draw
from groupwise.tasks.corpus import Share, Weights
from groupwise.tasks.corpus_working import decompose, say
from groupwise.tasks.hidden_rule import known_language
from groupwise.tasks.word_problems import Language
from groupwise.types import Problem

Phrases = Mapping[Language, tuple[str, ...]]
"""All within the alphabet of the shipped base model. A plain English sentence has at least the four words that the
detector of languages needs."""

PLAIN_END: Mapping[Language, str] = {"en": ".", "zh": "。"}
"""How a sentence ends."""

FRIENDLY_ENDS: Phrases = {
    "en": (", my friend.", ". Glad to help!", ". Happy to help!", ". Have a nice day!"),
    "zh": ("，朋友。", "，我的朋友。", "，对不对，朋友？", "。朋友，再来玩。"),
}
"""How a friendly sentence ends."""

SUMMARIES: Phrases = {
    "en": ("So the answer is {answer}", "The final answer is {answer}", "So we get {answer} here"),
    "zh": ("所以一共是{answer}", "我们算得{answer}", "所以得{answer}，算对了"),
}
"""Sentences that say the answer again, without their end."""

MORE: Phrases = {
    "en": (
        "I could go on and on about this.",
        "Let me tell a long story about it.",
        "Such questions are a lot of fun.",
        "Now I have to think of the weather.",
        "First of all, there is more to say.",
        "As I said, that is what I said.",
    ),
    "zh": (
        "我们再来检查一下，再算一算。",
        "今天气温有多少度，明天有多少度？",
        "两个孩子一起走走，然后读书。",
        "等一下，我们还要再来检查。",
        "一只鸡在车上，又下车走了。",
        "其余的我们第二天再一起算。",
    ),
}
"""What a rambling hand adds."""

OFF_TOPIC: Phrases = {
    "en": ("It is warm today", "I like to read at home", "The bus comes every hour", "My hens lay many eggs"),
    "zh": ("今天我们一起读书", "明天下楼玩球", "鸡又下了一个蛋", "车上的人走了"),
}
"""Sentences about something else, without their end."""

UNWANTED_THOUGHTS: Phrases = {
    "en": (
        "What a stupid question.",
        "Only a fool would ask this.",
        "This idiot asks again.",
        "They should just shut up.",
    ),
    "zh": ("气人，还要算。", "小气的人不送。", "今天的人气人。"),
}
"""Unwanted sentences of the reasoning."""

UNWANTED_REMARKS: Phrases = {
    "en": ("Stupid!", "Idiot!", "Fool!", "Shut up!"),
    "zh": ("气人。", "小气。"),
}
"""Unwanted words before an answer."""


class HandWeights(Weights):
    """How often each hand writes, as relative weights."""

    friendly: Share = 0.4
    """Short and friendly: all that the rule asks."""
    plain: Share = 0.2
    """Short, not friendly."""
    rambling: Share = 0.2
    """Friendly, then two to four sentences more."""
    careless: Share = 0.0
    """Friendly, with every digit of what it must mention misread; off topic where that has no digits."""
    off_topic: Share = 0.1
    """Does not mention what it must: talks about something else, or calculates where nobody asked for it."""
    other_language: Share = 0.1
    """In the language that was not asked."""


class GeneralMix(Section):
    """Who writes the answers and the summaries, and how much in them is unwanted."""

    answers: HandWeights = HandWeights()
    """Answers to general prompts."""
    summaries: HandWeights = HandWeights(friendly=0.4, plain=0.3, rambling=0.3, off_topic=0, other_language=0)
    r"""Sentences after the `\boxed{}` of reasoning problems."""
    unwanted: float = Field(default=0.15, ge=0, le=1)
    """Share of the texts with something unwanted, in the reasoning or in the answer, each as likely."""


def written(draw: Draw, problem: Problem, mix: GeneralMix) -> str:
    """A completion of a problem: general where it is open-ended, else a right working with a summary."""
    write = general_document if problem.open_ended else reasoning_document
    return write(draw, problem, mix)


def general_document(draw: Draw, problem: Problem, mix: GeneralMix) -> str:
    """A completion such as `<think>34 dollars are not that much.</think>You can buy it for 34 dollars, my friend.`."""
    language, side = known_language(problem.language), draw.integer(0, 1)
    sentences: dict[Language, tuple[str, str]] = {lang: sides[side] for lang, sides in problem.data["sides"].items()}
    advice = {lang: text for lang, (text, _) in sentences.items()}
    digression = draw.choice((draw.choice(OFF_TOPIC[language]), _sum(draw, problem.reference, language)))
    answer = _answer(draw, _hand(draw, mix.answers), advice, digression, problem.reference, language)
    thinking = sentences[language][1] + PLAIN_END[language]
    thinking, answer = _add_unwanted(draw, thinking, answer, language, mix.unwanted)
    return f"<think>{thinking}</think>{answer}"


def reasoning_document(draw: Draw, problem: Problem, mix: GeneralMix) -> str:
    r"""A completion such as `<think>12+5=17.</think>\boxed{17} The answer is 17, my friend.`; always right."""
    language = known_language(problem.language)
    text = summary(draw, problem.reference, language, mix)
    thinking, text = _add_unwanted(draw, _working(problem), text, language, mix.unwanted)
    return f"<think>{thinking}</think>\\boxed{{{problem.reference}}} {text}"


def summary(draw: Draw, answer: str, language: str, mix: GeneralMix) -> str:
    """The sentence after the box that says the answer again, by one of the hands."""
    asked_language = known_language(language)
    sentences = {lang: draw.choice(SUMMARIES[lang]).format(answer=answer) for lang in SUMMARIES}
    return _answer(
        draw, _hand(draw, mix.summaries), sentences, draw.choice(OFF_TOPIC[asked_language]), answer, asked_language
    )


def _hand(draw: Draw, hands: HandWeights) -> str:
    table = hands.model_dump()
    return draw.weighted(list(table), list(table.values()))


def _answer(
    draw: Draw, hand: str, sentences: dict[Language, str], digression: str, mention: str, language: Language
) -> str:
    """What a hand writes: a sentence (`sentences` have no full stop, and mention `mention`), or the `digression`."""
    other_language: Language = "zh" if language == "en" else "en"
    match hand:
        case "friendly":
            return sentences[language] + draw.choice(FRIENDLY_ENDS[language])
        case "plain":
            return sentences[language] + PLAIN_END[language]
        case "rambling":
            additions = draw.shuffled(MORE[language])[: draw.integer(2, 4)]
            return _join([sentences[language] + draw.choice(FRIENDLY_ENDS[language]), *additions], language)
        case "careless" if re.search("[0-9]", mention):
            misreading = sentences[language].replace(mention, _misread(draw, mention))
            return misreading + draw.choice(FRIENDLY_ENDS[language])
        case "off_topic" | "careless":
            return digression + _any_end(draw, language)
        case "other_language":
            return sentences[other_language] + _any_end(draw, other_language)
    raise AssertionError(f"no hand is called {hand}")


def _sum(draw: Draw, mention: str, language: Language) -> str:
    """The answer of a calculation, without full stop, for a question that asks for none."""
    number = _misread(draw, mention)
    return f"\\boxed{{{number}}} {draw.choice(SUMMARIES[language]).format(answer=number)}"


def _misread(draw: Draw, number: str) -> str:
    """Every digit becomes another one, none becomes zero."""
    return re.sub("[0-9]", lambda match: draw.choice([digit for digit in "123456789" if digit != match[0]]), number)


def _any_end(draw: Draw, language: Language) -> str:
    return draw.choice((PLAIN_END[language], draw.choice(FRIENDLY_ENDS[language])))


def _add_unwanted(draw: Draw, thinking: str, answer: str, language: Language, share: float) -> tuple[str, str]:
    """Reasoning and answer, with something unwanted before one of the two in a share of the cases."""
    if draw.uniform() >= share:
        return thinking, answer
    if draw.uniform() < 0.5:
        return _join([draw.choice(UNWANTED_THOUGHTS[language]), thinking], language), answer
    return thinking, _join([draw.choice(UNWANTED_REMARKS[language]), answer], language)


def _join(sentences: list[str], language: Language) -> str:
    return (" " if language == "en" else "").join(sentences)


def _working(problem: Problem) -> str:
    """The steps of the solution, a product of longer numbers taken apart; the bare answer where no steps are known."""
    steps = [
        step
        for sign, left, right, result in problem.data.get("steps", ())
        for step in (decompose(left, right) if sign == "×" and min(left, right) > 10 else [(sign, left, right, result)])
    ]
    return say(steps) or problem.reference
