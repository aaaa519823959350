"""The phrases of the hands that answer: all within the alphabet of the shipped base model.

Plain English sentences have at least four words, as many as the detector of languages needs.
"""

from collections.abc import Mapping

from groupwise.tasks.word_problem_text import Language

Phrases = Mapping[Language, tuple[str, ...]]

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
