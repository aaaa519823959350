r"""Answers as comparable text: spelling differences of LaTeX and Unicode removed, meaning untouched.

Every regular expression here is linear in the length of the text, which `guards.refusal` bounds first.
"""

import re
import unicodedata
from collections.abc import Callable

from groupwise.verifiers.extraction import lists

COMMA_LANGUAGES = frozenset(
    ["bg", "cs", "da", "de", "el", "es", "et", "fi", "fr", "hr", "hu", "id", "it", "lt", "lv", "nb", "nl", "no", "pl",
     "pt", "ro", "ru", "sk", "sl", "sr", "sv", "tr", "uk"]
)  # fmt: skip
"""Languages (ISO 639-1) that write decimals with a comma."""

_LETTERS = {char: unicodedata.name(char).split()[-1].lower() for char in "αβγδεζηθικμνξπρστυφχψω"}
_LETTERS |= {"λ": "lambda", "ϕ": "phi", "ϵ": "epsilon"} | {
    "Δ": "Delta", "Ω": "Omega", "Γ": "Gamma", "Σ": "Sigma", "Φ": "Phi",
}  # fmt: skip
_SYMBOLS = {char: f"\\{name}" for char, name in _LETTERS.items()} | {
    "×": r"\times", "·": r"\cdot", "⋅": r"\cdot", "∙": r"\cdot", "÷": r"\div", "∞": r"\infty", "∪": r"\cup",
    "∩": r"\cap", "≤": r"\leq", "⩽": r"\leq", "≥": r"\geq", "⩾": r"\geq", "≠": r"\neq", "±": r"\pm", "∓": r"\mp",
    "∈": r"\in", "≈": r"\approx", "∅": r"\emptyset", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℚ": r"\mathbb{Q}",
    "ℕ": r"\mathbb{N}", "ℂ": r"\mathbb{C}", "∖": r"\setminus", "…": r"\ldots", "⋯": r"\ldots", "′": "'", "∠": r"\angle",
    "△": r"\triangle", "∶": ":", "−": "-", "–": "-", "‐": "-", "‑": "-", "°": r"^\circ", "º": r"^\circ",
    "，": ", ", "；": "; ", "、": ", ", "。": ".", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
}  # fmt: skip
_UNICODE = {ord(char): f" {latex} " if "\\" in latex else latex for char, latex in _SYMBOLS.items()}
_UNICODE |= {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if code not in _UNICODE}
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n")


def _script(mark: str, content: str) -> str:
    return mark + (content if len(content) == 1 else f"{{{content}}}")


_COMMANDS = {name: replacement for names, replacement in (
    ("left right middle big bigl bigr bigm Big Bigl Bigr Bigm bigg biggl biggr Bigg Biggl Biggr", ""),
    ("displaystyle textstyle limits nolimits", ""), ("quad qquad", " "),
    ("dfrac tfrac cfrac", r"\frac"), ("dbinom tbinom", r"\binom"),
    ("mathrm mathbf mathit mathsf mathtt textrm textbf textit textsf texttt textup textnormal", r"\text"),
    ("mbox hbox operatorname", r"\text"), ("degree textdegree", r"^\circ"),
    ("le leqslant leqq", r"\leq"), ("ge geqslant geqq", r"\geq"), ("lt", "<"), ("gt", ">"), ("ne", r"\neq"),
    ("lbrace", r"\{"), ("rbrace", r"\}"), ("langle", "("), ("rangle", ")"), ("lvert rvert mid vert", "|"),
    ("colon", ":"), ("dots cdots dotsb dotsc dotsm dotso", r"\ldots"), ("varnothing O", r"\emptyset"),
    ("R", r"\mathbb{R}"), ("Z", r"\mathbb{Z}"), ("Q", r"\mathbb{Q}"), ("N", r"\mathbb{N}"),
) for name in names.split()}  # fmt: skip
_COMMAND = re.compile(r"\\(?:left|right)\.|\\([a-zA-Z]+)\*?")
_Replacement = str | Callable[[re.Match[str]], str]
_REPLACEMENTS: list[tuple[str, re.Pattern[str], _Replacement]] = [
    (trigger, re.compile(pattern), replacement)
    for trigger, pattern, replacement in (
        ("", r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]{1,99}", lambda match: _script("^", match[0].translate(_RAISED))),
        ("", r"[₀₁₂₃₄₅₆₇₈₉₊₋ₙ]{1,99}", lambda match: _script("_", match[0].translate(_LOWERED))),
        ("", r"[¼½¾⅐-⅞]",
         lambda match: r"\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", match[0]).split("⁄"))),
        ("√", r"√ ?([0-9.]{1,50}|[a-zA-Z])", r"\\sqrt{\1}"),
        ("√", r"√", r"\\sqrt"),
        ("\\", r"\\phantom ?(?:\{[^{}]{0,99}\}|[^{])|^ ?\\approx(?![a-zA-Z])", ""),
        ("quad", r"(?<=[^\s,;:&\\({\[|]) ?(?:\\q?quad(?![a-zA-Z]) ?)+(?=[0-9a-zA-Z\\({\[|.+-])"
         r"(?!\(? ?(?:\\(?:text|mathrm|mbox|b?mod|pmod|q?quad|in|[,;:!\\])|mod\b)|(?:and|or|for|where|if)\b)", ", "),
        ("\\\\", r" ?\\\\ ?(?=[A-Za-z\\][A-Za-z0-9_{}]{0,20} ?=)", ", "),
        ("\\", _COMMAND.pattern, lambda match: _COMMANDS.get(match[1] or "left", match[0])),
        (",", r"(?<=[0-9])(?:, ?\\!|\{,\}) ?(?=[0-9]{3}(?![0-9]))", ""),
        ("text", r"\\text ?\{\s*\}", " "),
        ("", r"(?<!\\)\\!\s?|\\?\$|\{\s?\}", ""),
        ("", r"(?<!\\)\\[ ,;:>]|[~\s]", " "),
        ("text", r"\\text ?\{ ?([ei]|sin|cos|tan|cot|sec|csc|log|ln|exp|arcsin|arccos|arctan) ?\}",
         lambda match: match[1] if len(match[1]) == 1 else f"\\{match[1]} "),
        ("", r"\\text ?\{ ?(?:percent(?:age)?|pct|%) ?\}|\b(?:percent(?:age)?|pct)\b", r"%"),
        ("degree", r"\\text ?\{ ?degrees? ?\}|(?<=[0-9]) degrees?\b", r"^\\circ"),
        ("<=", r"<=", r" \\leq "),
        (">=", r">=", r" \\geq "),
        ("!=", r"!=", r" \\neq "),
        ("**", r"\*\*", "^"),
        ("...", r"\.\.\.", r"\\ldots"),
        ("", r"(?<![\\a-zA-Z])(?:(?:arc)?(?:sin|cos|tan)|cot|sec|csc|log|ln|sqrt|infty|infinity|pi)(?![a-zA-Z])",
         lambda match: "\\infty" if match[0] == "infinity" else f"\\{match[0]}"),
        ("frac", r"\\frac ?([0-9]|\\[a-z]{2,9}(?= ?[0-9])) ?([0-9])", r"\\frac{\1}{\2}"),
        ("frac", r"\\frac ?([0-9]) ?\{", r"\\frac{\1}{"),
        ("frac", r"(\\frac ?\{[^{}]{1,200}\}) ?([0-9a-z])", r"\1{\2}"),
        ("sqrt", r"\\sqrt ?([0-9a-z])", r"\\sqrt{\1}"),
        ("sqrt", r"\\sqrt ?\(([^()]{1,200})\)", r"\\sqrt{\1}"),
        ("circ", r"\^ ?\{ ?\\circ ?\}|\^ ?\\circ", r"^\\circ"),
        ("{,}", r"\{,\}", ","),
        ("%", r"\\%", "%"),
        (" ", r" +", " "),
    )
]  # fmt: skip
"""Triggers (a text that must occur for the pattern to occur), patterns and their replacements, in order."""
_PLAIN = re.compile(r"-?[0-9]+(?:[./][0-9]+)?")
_WRAPPERS = (("\\[", "\\]"), ("\\(", "\\)"))
_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_WORDS = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+){0,99}\.?")
_EATEN = str.maketrans({"\a": r"\a", "\b": r"\b", "\f": r"\f", "\v": r"\v"})
r"""Commands whose backslash a string literal has eaten, as in some data sets: `\frac` became a form feed and `rac`."""
_INNER_SPACE = re.compile(r"(?<![0-9]) | (?![0-9])")


def normalise(text: str, language: str = "en") -> str:
    r"""The same answer in one spelling: `\dfrac12.` becomes `\frac{1}{2}`; single spaces remain."""
    if _PLAIN.fullmatch(text):
        return text
    text = text.translate(_UNICODE)
    if "\\\\" in text and not re.search(r"matrix|array|cases", text):
        text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", text)
    for trigger, pattern, replacement in _REPLACEMENTS:
        if trigger in text:
            text = pattern.sub(replacement, text)
    text = text.strip()
    for left, right in _WRAPPERS:
        text = text.removeprefix(left).removesuffix(right)
    text = re.sub(r"[.,;] ?$", "", text.strip()).strip()
    match = _TEXT.fullmatch(text)
    text = match[1].strip().rstrip(".") if match else text
    return decimal_points(text) if language in COMMA_LANGUAGES else text


def decimal_points(text: str) -> str:
    """Decimal commas as points: everywhere except in brackets, where an unspaced comma separates unless `;` does."""
    text = re.sub(r"(?<=[0-9])\.(?=[0-9]{3}(?:\.[0-9]{3}){0,9},[0-9])", "", text)
    outer_text = text if ";" in text else outer(text)
    commas = {match.start() for match in re.finditer(r"(?<=[0-9]),(?=[0-9])", outer_text)}
    return "".join("." if index in commas else char for index, char in enumerate(text))


def outer(text: str) -> str:
    """The text with everything inside brackets blanked out, position by position; the brackets themselves remain."""
    chars, depth = [], 0
    for char in text:
        depth -= char in ")]}"
        chars.append(char if depth <= 0 else " ")
        depth += char in "([{"
    return "".join(chars)


def compact(text: str) -> str:
    """A normalised answer without spaces (except between digits, where one matters): equal keys, equal answers."""
    return _INNER_SPACE.sub("", text)


def read_reference(reference: str, language: str = "en") -> str:
    """A reference answer, normalised; of a worked solution, the contents of its last list of boxes."""
    text = reference.translate(_EATEN)
    boxes = lists(text)
    return normalise(boxes[-1] if boxes else text, language)


def is_words(text: str) -> bool:
    """True for answers in words (three letters or more): they are compared as words, never as products of letters."""
    return _WORDS.fullmatch(text) is not None and max(map(len, re.split(r"[ '.-]", text))) > 2


def as_words(text: str) -> str:
    r"""The key by which answers in words are compared: case, spaces and a wrapping `\text` do not matter."""
    return "".join(_TEXT.sub(r"\1", text).casefold().split()).rstrip(".")


def texts(text: str) -> list[str]:
    r"""Contents of the `\text{}` groups."""
    return _TEXT.findall(text)
