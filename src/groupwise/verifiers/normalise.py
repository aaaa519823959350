r"""Answers as comparable text: LaTeX spelling differences removed, meaning untouched; and what is refused unread.

Every regular expression here is linear in the length of the text, and `refusal` bounds that length first.
"""

import re
import unicodedata

from groupwise.verifiers.extraction import boxes

MAX_LENGTH = 10_000
MAX_NESTING = 50
MAX_LINKS = 20

_UNICODE = {ord(char): f" {latex} " for char, latex in {
    "×": r"\times", "·": r"\cdot", "⋅": r"\cdot", "÷": r"\div", "π": r"\pi", "∞": r"\infty", "∪": r"\cup", "∩": r"\cap",
    "≤": r"\leq", "≥": r"\geq", "≠": r"\neq", "±": r"\pm", "∈": r"\in", "≈": r"\approx",
}.items()}  # fmt: skip
_UNICODE |= {0x2212: "-", 0x00B0: r"^\circ "} | {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}

_REPLACEMENTS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right|big[lr]?|Big[lr]?|displaystyle|textstyle)(?![a-zA-Z])\.?", ""),
        (r"(?<!\\)\\!\s?|\\?\$|\{\s?\}", ""),
        (r"(?<!\\)\\[ ,;:]|~|\\q?quad(?![a-zA-Z])|\s", " "),
        (r"\\(?:d|t|c)frac", r"\\frac"),
        (r"\\(?:mathrm|textbf|textit|textrm|textnormal|mbox|mathbf|operatorname)(?=\s?\{)", r"\\text"),
        (r"\\([lg])eq?(?![a-zA-Z])", r"\\\1eq"),
        (r"\\frac ?([0-9]) ?([0-9])", r"\\frac{\1}{\2}"),
        (r"\\frac ?([0-9]) ?\{", r"\\frac{\1}{"),
        (r"(\\frac ?\{[^{}]{1,200}\}) ?([0-9a-z])", r"\1{\2}"),
        (r"\\sqrt ?([0-9])", r"\\sqrt{\1}"),
        (r"\^ ?\{ ?\\circ ?\}", r"^\\circ"),
        (r"\{,\}", ","),
        (r"\\%", "%"),
        (r" +", " "),
    )
]
_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_WORDS = re.compile(r"[^\W\d_](?:[^\W\d_]|[' -])*[^\W\d_]\.?")
_UNIT = re.compile(
    r"(?<=[0-9})\]])(?: ?\\text ?\{([^{}]*)\}(?:\^[0-9]|\^\{[0-9]\})?| ?(\^\\circ)(?: ?[CF])?"
    r"|(?<=[0-9]) ([A-Za-z]{4,20}(?: [A-Za-z]{1,20}){0,3}))$"
)
_NO_UNITS = {"or", "and", "not", "mod", "to", "sqrt", "sinh", "cosh", "tanh", "infinity"}
_INNER_SPACE = re.compile(r"(?<![0-9]) | (?![0-9])")
_LINKS = re.compile(r"=|<|>|\\(?:leq?|geq?|approx|equiv|neq?)(?![a-zA-Z])")
_DEPTH = {**dict.fromkeys("{[(", 1), **dict.fromkeys("}])", -1)}


def normalise(text: str) -> str:
    r"""The same answer in one spelling: `\dfrac12.` becomes `\frac{1}{2}`; single spaces remain."""
    text = text.translate(_UNICODE)
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    text = text.strip().removeprefix("\\[").removesuffix("\\]").removeprefix("\\(").removesuffix("\\)")
    text = re.sub(r"[.,;] ?$", "", text.strip()).strip()
    whole = _TEXT.fullmatch(text)
    return whole[1].strip().rstrip(".") if whole else text


def compact(text: str) -> str:
    """A normalised answer without spaces (except between digits, where one matters): equal keys, equal answers."""
    return _INNER_SPACE.sub("", text)


def read_reference(reference: str) -> str:
    r"""A reference answer, normalised; of a worked solution, the contents of its boxes (several make a list)."""
    found = list(dict.fromkeys(normalise(content) for content in boxes(reference)))
    return ", ".join(found) if found else normalise(reference)


def is_words(text: str) -> bool:
    """True for answers in words (three letters or more): they are compared as words, never as products of letters."""
    return len(text) > 2 and _WORDS.fullmatch(text) is not None


def as_words(text: str) -> str:
    r"""The key by which answers in words are compared: case, spaces and a wrapping `\text` do not matter."""
    return "".join(_TEXT.sub(r"\1", text).casefold().split()).rstrip(".")


def split_unit(text: str) -> tuple[str, str]:
    r"""An answer without its trailing unit, and the unit as a key: `5 \text{ cm}` becomes `5` and `cm`."""
    match = _UNIT.search(text)
    if match is None:
        return text, ""
    unit = (match[1] or match[2] or match[3] or "").strip()
    if any(char.isdigit() for char in unit) or _NO_UNITS & set(unit.casefold().split()):
        return text, ""
    return text[: match.start()].strip(), unit.casefold().rstrip(".").removesuffix("s")


def refusal(text: str) -> str | None:
    """Why an answer is not even read, or None: too long, too deep, too many links, invisible characters."""
    if len(text) > MAX_LENGTH:
        return f"the answer has {len(text)} characters, at most {MAX_LENGTH} are read"
    if any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co") and char not in "\n\t\r" for char in text):
        return "the answer holds control or invisible characters"
    if _nesting(text) > MAX_NESTING:
        return f"the answer is nested deeper than {MAX_NESTING}"
    if len(_LINKS.findall(text)) > MAX_LINKS:
        return f"the answer chains more than {MAX_LINKS} relations"
    return None


def ambiguity(text: str) -> str | None:
    """Why a normalised answer that is no plain number must not be parsed: LaTeX parsers silently read it wrongly."""
    if re.search(r"[0-9] [0-9]", text):
        return "numbers stand side by side without an operator"
    if re.search(r"%[ ]?[^ ,;)\]}]", text):
        return "a percent sign stands in the middle"
    if any(re.search(r"[0-9]|\bnot\b|\bor\b.*\d", content) for content in _TEXT.findall(text)):
        return "words in the answer hold a number or a negation"
    return None


def _nesting(text: str) -> int:
    depth = deepest = 0
    for char in text:
        depth += _DEPTH.get(char, 0)
        deepest = max(deepest, depth)
    return deepest
