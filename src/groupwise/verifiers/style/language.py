"""Language consistency: which share of a completion's words is in the required language.

Script tells Chinese, Japanese, Russian, ... apart; the languages written in Latin letters are told apart by the
detector py3langid, a few sentences' words at a time.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from groupwise.errors import ConfigError
from groupwise.types import Verdict
from groupwise.verifiers.base import Request, StylePart

# kana, Han, Thai, Lao, Burmese, Khmer
_UNSPACED = r"\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_WORD = re.compile(rf"[^\W\d_{_UNSPACED}]+|[{_UNSPACED}]")
_UNIT = re.compile(rf"[^\W{_UNSPACED}]+|[{_UNSPACED}]|[^\w\s]")


def words(text: str) -> list[str]:
    """Runs of letters, and single characters of scripts without spaces."""
    return [word for word in _WORD.findall(text) if word[0].isalpha()]


def units(text: str) -> list[str]:
    """Words, numbers and symbols: everything but white space."""
    return _UNIT.findall(text)


@lru_cache(maxsize=65536)
def script(character: str) -> str:
    """The script of a letter: the first word of its Unicode name, for example LATIN, CYRILLIC, CJK or HIRAGANA."""
    return unicodedata.name(character, "UNKNOWN").partition(" ")[0].partition("-")[0]


SCRIPTS = {
    "ar": "ARABIC", "el": "GREEK", "he": "HEBREW", "hi": "DEVANAGARI", "ko": "HANGUL", "ru": "CYRILLIC", "th": "THAI",
}  # fmt: skip
"""Languages that their script gives away, among the languages of this file."""
LATIN = ("cs", "de", "en", "es", "fr", "id", "it", "nl", "pl", "pt", "sv", "tr", "vi")
"""Languages that the detector tells apart."""
DOUBT = 7.0
"""Nats within which a passage is in the language of the whole text, if another is likelier: of "Wait, let me check."
French is, by 3.2; short sentences that are in another language are likelier there by 14 and more."""
MIN_WORDS = 4
"""With fewer words a text is in no language, and a sentence is read together with the next: on sentences of English
working (GSM8K) the detector errs in 37 % below four words, in 0.2 % from four on."""

_KANA = ("HIRAGANA", "KATAKANA")
_HAN = ("CJK", "IDEOGRAPHIC")
_NO_SCRIPT = ("MODIFIER", "UNKNOWN")
_SENTENCE_END = re.compile(r"[.!?:;。！？：；\n]+")
_FORMULA = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`"  # code
    r"|\$\$[^$]*\$\$|\$(?! )[^$\n]*(?<! )\$(?!\d)"  # mathematics; `$5 and $6` is money
    r"|\\[(\[].*?(?:\\[)\]]|\n\n|\Z)"
    r"|\\[A-Za-z]+(?:\{[^{}]*\})*"  # a LaTeX command with its plain arguments
    r"|</?[A-Za-z_]{1,20}>"  # tags
    r"|(?<![A-Za-z0-9_])[A-Za-z]*[0-9_][A-Za-z0-9_]*"  # names with digits, numbers with units
    r"|(?<![A-Za-z])[A-Za-z]+(?=\s{0,3}[=+*/^×÷])|[=+*/^×÷]\s{0,3}[A-Za-z]+",  # names beside an operator
    re.DOTALL,
)
_NAME = re.compile("[A-Za-z\u0370-\u03ff]")


class LanguagePart(StylePart):
    """Share (0 to 1) of the words that are in the problem's language (DeepSeek-R1, arXiv:2501.12948, section 2.3.2).

    Mathematics, code, tags and single Latin letters are in no language, and a text of nothing else earns 0.
    """

    def measure(self, request: Request, verdict: Verdict) -> float:
        language, sentences = request.problem.language, _sentences(request.text[len(request.prefill) :])
        scripts = [script(word[0]) for sentence in sentences for word in sentence]
        if language in SCRIPTS:
            num_matching = scripts.count(SCRIPTS[language])
        elif language in ("zh", "ja"):
            # Japanese mixes kana with Chinese characters: each kana vouches for two of them
            kana, han = (sum(map(scripts.count, group)) for group in (_KANA, _HAN))
            japanese = min(han, 2 * kana)
            num_matching = kana + japanese if language == "ja" else han - japanese
        elif language in LATIN:
            # Latin words of successive sentences, MIN_WORDS or more at a time; fewer in total are in no language
            passages, passage = list[list[str]](), list[str]()
            for sentence in sentences:
                passage += [word for word in sentence if script(word[0]) == "LATIN"]
                if len(passage) >= MIN_WORDS:
                    passages.append(passage)
                    passage = []
            if passages:
                passages[-1] += passage
            whole, num_matching = _detector().classify(" ".join(chain(*passages)))[0], 0
            for part in passages:
                likely: dict[str, float] = dict(_detector().rank(" ".join(part)))
                gap = max(likely.values()) - likely[language]
                num_matching += len(part) if gap == 0 or (language == whole and gap < DOUBT) else 0
        else:
            languages = ", ".join(sorted((*SCRIPTS, "zh", "ja", *LATIN)))
            raise ConfigError(f"language consistency cannot tell the language {language!r}; known are {languages}")
        return num_matching / len(scripts) if len(scripts) >= MIN_WORDS else 0.0


def scripts_of(language: str) -> tuple[str, ...] | None:
    """The scripts that a language is written in; None for a language that cannot be told here."""
    if language in LATIN:
        return ("LATIN",)
    if language in ("zh", "ja"):
        return _HAN if language == "zh" else (*_HAN, *_KANA)
    return (SCRIPTS[language],) if language in SCRIPTS else None


def written_words(text: str, scripts: Sequence[str]) -> tuple[list[str], list[str]]:
    """The text's words in these scripts and its words in others; single Latin and Greek letters are names, not words.

    By script alone, so languages that share one are not told apart.

    >>> written_words("So 3θ=12, and 所以 θ is 4.", ["LATIN"])
    (['So', 'and', 'is'], ['所', '以'])
    """
    all_words = [word for sentence in _sentences(text) for word in sentence if script(word[0]) not in _NO_SCRIPT]
    all_words = [word for word in all_words if len(word) > 1 or script(word) != "GREEK"]
    return [w for w in all_words if script(w[0]) in scripts], [w for w in all_words if script(w[0]) not in scripts]


def prose(text: str) -> str:
    """The text without the Latin and Greek letters of formulas, code and tags; other letters count anywhere."""
    return _FORMULA.sub(lambda match: _NAME.sub(" ", match[0]), unicodedata.normalize("NFKC", text))


def _sentences(text: str) -> list[list[str]]:
    return [
        [word for word in words(sentence) if len(word) > 1 or script(word) != "LATIN"]
        for sentence in _SENTENCE_END.split(prose(text))
    ]


@lru_cache(maxsize=2)
def _detector(languages: tuple[str, ...] | None = LATIN) -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    detector = LanguageIdentifier.from_model_file(MODEL_FILE)
    detector.set_languages(languages)
    return detector


def language_of(text: str) -> str:
    """Return the language of a text (ISO 639-1), among the 97 that the detector knows."""
    return str(_detector(None).classify(text)[0])
