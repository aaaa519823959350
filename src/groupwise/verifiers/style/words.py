"""Text as a sequence of words; in scripts without spaces every character is one."""

import re
import unicodedata
from functools import lru_cache

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
