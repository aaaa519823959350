r"""Answers as comparable text: spelling differences of LaTeX, Unicode and print removed, meaning untouched.

What is removed is listed: styles, fonts, sizes, switches. What changes a value is computed: E-notation, and words that
are factors (`3 \text{ million}`). Every regular expression here is linear in the length of the text, which
`guards.refusal` bounds first.
"""

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

from groupwise.config import read_toml
from groupwise.verifiers.extraction import lists

TABLES: dict[str, Any] = read_toml(Path(__file__).with_name("tables.toml"))
COMMA_LANGUAGES = frozenset(TABLES["comma_languages"].split())
_SPELLED, _FACTORS = TABLES["spelled"], TABLES["factors"]
_SHARES = {f"{word}th": number for word, number in _FACTORS.items()} | TABLES["shares"]
_PARTS = _SHARES | {"fourth": 4, "quarter": 4}  # behind figures they are also coins and places
_UNICODE = {code: f" \\{unicodedata.name(chr(code)).split()[-1].lower()} " for code in range(0x3B1, 0x3CA)}  # Greek
_UNICODE |= {ord(char): f" {latex} " if "\\" in latex else latex for char, latex in TABLES["symbols"].items()}


def _small(kind: str) -> str:
    """The raised or lowered characters that NFKC would put on the line; those with a meaning of their own left out."""
    chars = map(chr, range(0xA0, 0x3000))
    return "".join(c for c in chars if unicodedata.decomposition(c).startswith(kind) and c not in TABLES["symbols"])


def _script(mark: str, content: str) -> str:
    content = unicodedata.normalize("NFKC", content)
    return mark + (content if len(content) == 1 else f"{{{content}}}")


_COMMANDS = {name: replacement for replacement, names in TABLES["commands"].items() for name in names.split()}
_COMMAND = re.compile(r"\\(?:left|right)\.|\\([a-zA-Z]+)\*?")
_FUNCTION = r"(?:arc|ar|a)?(?:sin|cos|tan)h?|arc(?:cot|sec|csc)|coth?|csch?|sech|log|ln|exp|gcd|lcm|det"
_ROOTS = {"√": r"\sqrt", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]"}
_NUMBER = r"[0-9]{1,99}(?:,[0-9]{3}){0,30}(?:\.[0-9]{1,99})?|\.[0-9]{1,99}"
_Replacement = str | Callable[[re.Match[str]], str]


def _scaled(match: re.Match[str]) -> str:
    """A number times the factors behind it, computed; a factor behind anything else as a product."""
    words = [word.removesuffix("s") for word in match["words"].lower().split()]
    factor = prod(Fraction(_FACTORS.get(word) or Fraction(1, _SHARES[word])) for word in words)
    value = factor * Fraction(match["number"].replace(",", "") if match["number"] else 1)
    text = _fraction(value)
    return (text if match["number"] else rf" \cdot {text}") + (r"\text{" if match["text"] and not match["end"] else " ")


def _fraction(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else f"\\frac{{{value.numerator}}}{{{value.denominator}}}"


def spelled(words: list[str]) -> Fraction | None:
    """Return the number that English words spell; None where they spell none.

    >>> [str(spelled(words.split())) for words in ("two hundred and six", "two thirds", "two and a half", "two one")]
    ['206', '2/3', '5/2', 'None']
    """
    if "and" in words[1:-2] and words[-1].removesuffix("s") in _SHARES:  # a whole number and a share of one
        place = len(words) - 1 - words[::-1].index("and")
        whole, rest = spelled(words[:place]), spelled(words[place + 1 :])
        return whole + rest if whole is not None and rest is not None and rest < 1 else None
    if len(words) == 3 and words[:2] == ["half", "a"] and words[2] in _FACTORS:
        return Fraction(_FACTORS[words[2]], 2)
    share = _PARTS.get(words[-1].removesuffix("s"))
    if len(words) > 1 and (share or words[-1] == "dozen"):
        count = Fraction(1) if words[:-1] == ["a"] else spelled(words[:-1])
        if not share:
            return 12 * count if count else None
        return count / share if count and (count == 1) != words[-1].endswith("s") else None
    total, part, above = 0, -1, 10**15  # whole thousands, what is below them, the last of them
    for index, word in enumerate(words):
        number, factor = _SPELLED.get(word, -1), _FACTORS.get(word, 0)
        if number >= 0 and (part < 0 or part % 100 == 0 < part or (part % 100 > 19 and part % 10 == 0 < number < 10)):
            part = max(part, 0) + number
        elif factor == 100 and 0 < part < 100 and part % 10:
            part *= factor
        elif part > 0 and 1000 <= factor < above:
            total, part, above = total + part * factor, -1, factor
        elif word == "a" and index == 0 and words[1:]:
            part = 1
        elif word != "and" or words[index - 1] not in _FACTORS or index + 1 == len(words):
            return None
    return Fraction(total + max(part, 0)) if total or part >= 0 else None


_TWO, _THREE = (re.compile(rf"(?<![\\a-zA-Z])[a-zA-Z]{{{number}}}") for number in (2, 3))
_REPLACEMENTS: list[tuple[str | re.Pattern[str], re.Pattern[str], _Replacement]] = [
    (trigger, re.compile(pattern), replacement)
    for trigger, pattern, replacement in (
        (re.compile("[√∛∜]"), r"([√∛∜]) ?([0-9.]{1,50}|[a-zA-Z])?",
         lambda match: _ROOTS[match[1]] + (f"{{{match[2]}}}" if match[2] else "")),
        ("<", r"<(su[bp])>([^<>]{1,99})</\1>",
         lambda match: ("^" if match[1] == "sup" else "_") + f"{{{match[2]}}}"),
        ("</", r"</?(?:b|i|u|em|strong|mark|code|big|small|span|div|p|font)(?: [a-z]+=\"[^\"<>]{0,60}\"){0,3}>", ""),
        ("~~", r"~~(?! )([^~]{1,99})(?<! )~~", r"\\cancel{\1}"),
        (re.compile("[xX]"), r"(?<=[0-9]) ?[xX] ?(?=10 ?\^)", r" \\times "),
        ("\\", r"\\[hv]?phantom ?(?:\{[^{}]{0,99}\}|[^{])|^ ?\\(?:approx|implies|[rR]ightarrow)(?![a-zA-Z])"
         r"|\\(?:tag|label|[hv]space)\*? ?\{[^{}]{0,99}\}", ""),
        ("quad", r"(?<=[^\s,;:&\\({\[|]) ?(?:\\q?quad(?![a-zA-Z]) ?)+(?=[0-9a-zA-Z\\({\[|.+-])"
         r"(?!\(? ?(?:\\(?:text|mathrm|mbox|b?mod|pmod|q?quad|in|[,;:!\\])|mod\b)|(?:and|or|for|where|if)\b)", ", "),
        ("\\\\", r" ?\\\\ ?(?=[A-Za-z\\][A-Za-z0-9_{}]{0,20} ?=)", ", "),
        ("prime", r"\^ ?(?:\{ ?)?((?:\\prime ?){1,2})\}?", lambda match: "'" * match[1].count("p")),
        ("{\\", r"\{ ?\\(?:rm|sf|tt)(?![a-zA-Z])[ ~]*([A-Za-z][^{}\\]{0,99})\}", r"\\text{\1}"),
        ("\\", _COMMAND.pattern, lambda match: _COMMANDS.get(match[1] or "left", match[0])),
        ("\\", r"(?<=[0-9])(?:, ?\\! ?|\\,)(?=[0-9]{3}(?![0-9]))", ""),
        ("{,}", r"(?<=[0-9])\{,\} ?(?=[0-9]{3}(?![0-9]))", ""),
        ("$", rf"^(\$?)(-?) ?(?:US ?)?(?:\\\$|(?<!\$)\$) ?"
         rf"(?=(?:{_NUMBER}) ?(?:\\text ?\{{[^{{}}0-9]*\}}|[A-Za-z /]+)?\.?\1$)", r"\2USD "),
        (re.compile(r"(?i)^(?:minus|negative)"), r"(?i)^(?:minus|negative) (?=[0-9.\\])", "-"),
        ("text", r"\\text ?\{\s*\}", " "),
        ("\\!", r"(?<!\\)\\!\s?", ""),
        ("$", r"\\?\$", ""),
        ("{}", r"\{\}", ""), ("{ }", r"\{ \}", ""),
        ("\\", r"(?<!\\)\\[ ,;:>]", " "),
        (re.compile(r"[~\t-\r]"), r"[~\t-\r]", " "),
        ("text", rf"\\text ?\{{ ?([ei]|{_FUNCTION}|(?:sec|max|min)(?= ?\}} ?[({{\\^])) ?\}}",
         lambda match: match[1] if len(match[1]) == 1 else f"\\{match[1]} "),
        (re.compile(r"[0-9.][eE][0-9+-]"),
         r"(?<![0-9A-Za-z.\\^_/])([0-9]{1,99}\.?[0-9]{0,99}|\.[0-9]{1,99})[eE]([+-]?[0-9]{1,99})"
         r"(?![0-9A-Za-z]|\.[0-9]| ?[_^!])", r"\1 \\cdot 10^{\2}"),
        (_THREE, rf"(?i)(?:(?<![0-9.,^_/a-zA-Z])(?P<number>{_NUMBER})|(?<=[0-9}}])) ?(?P<text>\\text ?\{{ ?)?"
         rf"(?P<words>(?<![a-zA-Z])(?:{'|'.join([*_FACTORS, *_SHARES])})s?(?![a-zA-Z])"
         rf"(?: (?:{'|'.join([*_FACTORS, *_SHARES])})s?(?![a-zA-Z])){{0,3}}) ?(?(text)(?P<end>\}})?|(?P<none>))",
         _scaled),
        (_THREE, r"\\text ?\{ ?(?:percent(?:age)?|pct) ?\}|\b(?:percent(?:age)?|pct)\b", r"%"),
        ("degree", r"\\text ?\{ ?degrees? ?\}|(?<=[0-9]) degrees?\b", r"^\\circ"),
        ("degree", r"\\text ?\{ ?degrees? ", r"^\\circ \\text{"),
        ("<=", r"<=", r" \\leq "), (">=", r">=", r" \\geq "), ("!=", r"!=", r" \\neq "),
        ("**", r"\*\*", "^"), ("...", r"\.\.\.", r"\\ldots"),
        ("log", r"(?<![\\a-zA-Z_])log(2|10)(?=\()", r"\\log_{\1}"),
        (_TWO, rf"(?<![\\a-zA-Z_])(?:(?:{_FUNCTION}|sqrt|cbrt|infty|infinity|pi)(?![a-zA-Z])"
         r"|sec(?= ?[({^\\]| [a-z](?![a-z]))|(?:max|min|abs|floor|ceil)(?=\())",
         lambda match: _COMMANDS.get(match[0], f"\\{match[0]}")),
        ("=", r"^ *= *(?![=<>])", ""),
        ("equiv", r"(?<=[0-9a-z)}]) ?(?:\\bmod|\\text ?\{ ?mod ?\}|(?<![a-z])mod) ?\{?([0-9]{1,6}|[a-z])\}?$",
         r"\\pmod{\1}"),
        ("dot", r"(?<=\.)([0-9]{0,20})\\dot ?\{?([0-9])\}? ?([0-9]{0,20})\\dot ?\{?([0-9])\}?$",
         r"\1\\overline{\2\3\4}"),
        (".", r"^(-? ?0?\.[0-9]{0,20})\(([0-9]{1,20})\)(?=%?$)", r"\1\\overline{\2}"),
        ("base", r"(?<=[0-9A-F)}]) ?_? ?\{{0,2} ?(?:\\text ?\{ ?)?\(?(?:in )?base ?\}? ?([0-9]{1,2}|[a-z]{3,8})"
         r" ?\)?[} ]{0,3}$", r"_{\1}"),
        ("平方", "平方", " square "), ("立方", "立方", " cubic "),
        ("\\mu", r"(?<=[0-9}]) *\\mu *\\text ?\{ ?([A-Za-z]{1,3}) ?\}", r" \\text{u\1}"),
        (_THREE, r"\b((?:Jan|Feb|Ma[ry]|Apr|Ju[nl]|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6} [0-9]{1,2})(?:st|nd|rd|th)\b", r"\1"),
        ("smallmatrix", r"smallmatrix", "matrix"),
        ("text", r"\\frac ?\{ ?\\text ?\{([a-zA-Z]{1,9})\} ?\} ?\{ ?\\text ?\{([a-zA-Z]{1,9})\} ?(\^ ?[0-9])? ?\}",
         r"\\text{\1/\2\3}"),
        ("log", r"\\log ?_ ?(?:e(?![a-zA-Z])|\{ ?e ?\})", r"\\ln "),
        ("choose", r"\{ ?([^{}\\]{1,40}?) ?\\choose(?![a-z]) ?([^{}\\]{1,40}?) ?\}", r"\\binom{\1}{\2}"),
        ("binom", r"\\binom ?([0-9]) ?([0-9])", r"\\binom{\1}{\2}"),
        ("\\", r"\\(?:hat|widehat|vec|overrightarrow)(?: ?\{ ?\\?([ijk])(?:math)? ?\}"
         r"| \\?([ijk])(?:math)?(?![a-zA-Z]))",
         lambda match: f" {match[1] or match[2]} "),
        ("ldots", r"^(-? ?[0-9]{0,20}\.[0-9]{0,20}?)(?:([0-9])\2{2,40}|([0-9]{2,20}?)\3{1,20}) ?\\ldots ?$",
         lambda match: rf"{match[1]}\overline{{{match[2] or match[3]}}}"),
        (re.compile(r"[][]"), r"^ ?([\](\[]) ?([^][()]{1,80}?[,;][^][()]{1,80}?) ?([\[)\]]) ?$",
         lambda match: f"{match[1].replace(']', '(')}{match[2]}{match[3].replace('[', ')')}"),
        (re.compile("R|remainder"), r"(?<=[0-9]) ?(?:\\text ?\{ ?)?(?:R|remainder)(?: ?\})? ?(?=[0-9]+$)", " R "),
        (re.compile("[oO]ption|[cC]hoice|[aA]nswer"),
         r"^(?:\\text ?\{ ?)?(?:[Oo]ption|[Cc]hoice|[Aa]nswer):? \(?([A-J])\)?(?: ?\})?$", r"\1"),
        (":", r"^0(?=[0-9]:[0-9]{2}$)", ""),
        ("frac", r"\\frac ?([0-9]|\\[a-z]{2,9}(?= ?[0-9])) ?([0-9])", r"\\frac{\1}{\2}"),
        ("frac", r"\\frac ?([0-9]) ?\{", r"\\frac{\1}{"),
        ("frac", r"(\\frac ?\{[^{}]{1,200}\}) ?([0-9a-z])", r"\1{\2}"),
        ("sqrt", r"\\sqrt ?([0-9a-z])", r"\\sqrt{\1}"),
        ("circ", r"\^ ?(?:\{ ?\\circ ?\}|(?:\^ ?)?\\circ)", r"^\\circ"),
        ("'", r"(?<![0-9.])([0-9]{1,3})\^\\circ ?([0-5]?[0-9])'(?!')(?: ?([0-5]?[0-9])'')?",
         lambda at: _fraction(Fraction(sum(int(at[n] or 0) * 60 ** (3 - n) for n in (1, 2, 3)), 3600)) + r"^\circ"),
        ("Omega", r"(?<=[0-9]) *\\Omega *$", r" \\text{ohm}"),
        (re.compile("[,:]}"), r"\{([,:])\}", r"\1"),
        ("^", r"\^ ?(\\frac ?\{[^{}]{1,99}\} ?\{[^{}]{1,99}\})", r"^{\1}"),
        ("frac", r"(?<![^(,+=-])\{ ?([0-9.]{1,99}) ?\}(?= ?\\frac)", r"\1"),
        (re.compile("[_^]{"), r"([_^])\{ ?([0-9a-zA-Z]) ?\}(?![0-9a-zA-Z])", r"\1\2"),
        (".", r"(?<=[}a-z])\. ?(?=[)\]])", ""),
        ("%", r"\\%", "%"),
        ("  ", r" +", " "),
    )
]  # fmt: skip
"""Triggers (a text that must occur for the pattern to occur), patterns and their replacements, in order."""
_CHARACTERS: list[tuple[re.Pattern[str], _Replacement]] = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\s", " "),
        (r"(?<=[0-9}]) *[µμ]([msg])(?![A-Za-z])", r" \\text{u\1}"),
        (rf"[{_small('<super>')}]{{1,99}}", lambda match: _script("^", match[0])),
        (rf"[{_small('<sub>')}]{{1,99}}", lambda match: _script("_", match[0])),
        (r"[¼½¾⅐-⅞]", lambda match: r"\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", match[0]).split("⁄"))),
        (r"[①-⑳]{1,99}", lambda match: ", ".join(unicodedata.normalize("NFKC", char) for char in match[0])),
    )
]
_STYLE = re.compile(
    r"\\(?:(?:(?P<roman>mathrm|text|textrm|mathsf|mathtt|textsf|texttt|textup|textnormal|mbox|hbox|operatorname)"
    r"|(?P<bold>textbf|textit|textsl|mathbf|mathit|emph)"
    r"|boldsymbol|bm|pmb|mathnormal|smash|underline|underbar|uline|ensuremath|num|fbox|framebox)(?![a-zA-Z])\*?"
    r"|(?:fcolorbox ?\{[^{}]{0,40}\}|colorbox|textcolor|color) ?(?:\[[^\][]{0,20}\])? ?\{[^{}]{0,40}\}) ?(?P<open>\{)?"
)
_BOLD = r"\\(?:mathbf|boldsymbol|bm) ?\{ ?([a-zA-Z]) ?\}"
_BOLD_CROSS = re.compile(rf"{_BOLD} ?\\times ?{_BOLD}")
_LETTER, _WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]"), re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2}|\([A-J]\)")
_CALL = re.compile(r"\\(?P<name>sqrt|cbrt|abs|floor|ceil|coth|sech|csch) ?\(")
_PLAIN = re.compile(r"-?[0-9]+(?:[./][0-9]+)?")
_WRAPPERS = (("\\[", "\\]"), ("\\(", "\\)"))
_MARKED = re.compile(r"(\*\*\*|\*\*|\*|```|``|`|__|_)([^*`_]+)\1(.*)", re.DOTALL)
TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_WORDS = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+){0,99}\.?")
_EATEN = str.maketrans({"\a": r"\a", "\b": r"\b", "\f": r"\f", "\v": r"\v"})
r"""Commands whose backslash a string literal has eaten, as in some data sets: `\frac` became a form feed and `rac`."""
_EATEN_SPACE = re.compile(r"\t(?=ext|imes|heta|frac|an[^a-z]|au[^a-z])|\r(?=ight|ho[^a-z])")
_INNER_SPACE = re.compile(r"(?<![0-9]) | (?![0-9])")


def normalise(text: str, language: str = "en") -> str:
    r"""The same answer in one spelling: `\dfrac12.` becomes `\frac{1}{2}`; single spaces remain."""
    if _PLAIN.fullmatch(text):
        return text
    text = text.strip()
    while match := _MARKED.fullmatch(text):
        text = (match[2] + match[3]).strip()
    if not text.isascii():
        if language != "en":  # digits of other scripts, which are odd beside an English question
            text = re.sub(r"\d", lambda match: str(unicodedata.decimal(match[0])), text)
        for pattern, replacement in _CHARACTERS:
            text = pattern.sub(replacement, text)
        text = text.translate(_UNICODE)
        folded = unicodedata.normalize("NFKC", text).translate(_UNICODE)
        text = folded if len(folded) <= 2 * len(text) + 99 else text  # some characters are eighteen
    if "\\" in text:
        if "\\\\" in text and not re.search(r"(?<!\\)\\begin", text):
            text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", text)
        text = _unstyled(text)
    for trigger, pattern, replacement in _REPLACEMENTS:
        if trigger in text if isinstance(trigger, str) else trigger.search(text):
            text = pattern.sub(replacement, text)
    start = 0
    while match := _CALL.search(text, start):
        end = closing(text, match.end() - 1)
        if end >= 0:
            text = text[: match.start()] + TABLES["called"][match["name"]] % text[match.end() : end] + text[end + 1 :]
        start = match.start() + 1
    text = text.strip()
    for left, right in _WRAPPERS:
        text = text.removeprefix(left).removesuffix(right)
    text = re.sub(r"(?:[.,;]|\\\\) ?$", "", text.strip()).strip()
    if text.startswith(r"\text") and (start := text.find("{")) > 0 and closing(text, start) == len(text) - 1:
        text = text[start + 1 : -1].strip().rstrip(".")
    if (text[-1:].isalpha() and "\\" not in text) or text.endswith(" %"):
        key = text.casefold()
        text = TABLES["synonyms"].get(key, text)
        magnitude = key.removeprefix("minus ").removeprefix("negative ")
        words = magnitude.replace("-", " ").split()
        for end in range(min(len(words), 16), 0, -1):  # a unit may stand behind the number
            if (number := spelled(words[:end])) is not None and not _SPELLED.keys() & words[end:]:
                text = " ".join([("" if magnitude == key else "-") + _fraction(number), *words[end:]])
                break
    if r"\ldots" in text:
        text = _RUN.sub(_ascending, text)
    if language not in COMMA_LANGUAGES:
        return text
    # decimal commas as points: everywhere except in brackets, where an unspaced comma separates unless `;` does
    text = re.sub(r"(?<=[0-9])\.(?=[0-9]{3}(?:\.[0-9]{3}){0,9},[0-9])", "", text)
    outer_text = text if ";" in text else outer(text)
    commas = {match.start() for match in re.finditer(r"(?<=[0-9]),(?=[0-9])", outer_text)}
    return "".join("." if index in commas else char for index, char in enumerate(text))


_INDEXED = r"[A-Za-z]_(?:[0-9a-z]|\{ ?(?:[0-9]{1,4}|[a-z] ?[+-] ?[0-9]{1,4}) ?\})"
_INDEX = rf"{_INDEXED}|[0-9]{{1,4}}|[a-z]|\( ?[a-z] ?[+-] ?[0-9]{{1,4}} ?\)"
_RUN = re.compile("|".join(
    rf"(?:^|(?<=[(\[{{,=])) ?(?:(?:{term}){sign}){{1,4}}\\ldots{sign}(?:{term})(?:{sign}(?:{term})){{0,3}}"
    r"(?= ?(?:\\?[)\]},=]|$))"
    for term, sign in ((_INDEX, r" ?\+ ?"), (_INDEX, " ?, ?"), (_INDEXED, r" ?(?:\\cdot(?![a-z]))? ?"))
))  # fmt: skip
r"""A whole sum, list or product with an ellipsis: `n + (n-1) + \ldots + 1`, `1, 2, \ldots, n`, `x_1 x_2 \ldots x_n`."""
_TERM = re.compile(
    r"(?:(?P<name>[A-Za-z])_)?(?:[({] ?(?P<letter>[a-z])? ?(?P<shift>[+-]? ?[0-9]+) ?[)}]|(?P<l>[a-z])|(?P<n>[0-9]+))"
)


def _ascending(run: re.Match[str]) -> str:
    """A run whose index goes by ones as its ends, the lower first where order is nothing; any other as it is."""
    sides = [list(_TERM.finditer(side)) for side in run[0].replace(r"\cdot", "").split(r"\ldots")]
    places = [
        [(m["name"], m["letter"] or m["l"], int((m["shift"] or m["n"] or "0").replace(" ", ""))) for m in side]
        for side in sides
    ]
    steps = {b[2] - a[2] if a[:2] == b[:2] else 0 for side in places for a, b in pairwise(side)}
    (name, letter, low), (other, last_letter, high) = places[0][0], places[-1][-1]
    if not steps and name:  # a name and no neighbours: up, or down to a number
        steps = {-1 if letter and not last_letter else 1}
    if steps not in ({1}, {-1}) or name != other or (letter == last_letter and (high - low) * min(steps) <= 0):
        return run[0]
    ends, between = [sides[0][0][0], sides[-1][-1][0]], _TERM.sub("", run[0])
    if "," in between:
        return r", \ldots, ".join(ends)
    return (r" + \ldots + " if "+" in between else r" \ldots ").join(ends[:: min(steps)])


def _unstyled(text: str) -> str:
    r"""The text without print styles and fonts: words in `\text{}`, everything else bare."""
    start, text = 0, _BOLD_CROSS.sub(r"\\vec{\1}\\times\\vec{\2}", text)
    while match := _STYLE.search(text, start):
        end = closing(text, match.end() - 1) if match["open"] else match.end()
        start = match.end()
        if end < 0:
            continue
        before, inner, after = text[: match.start()], text[match.end() : end], text[end + len(match["open"] or "") :]
        words = _LETTER if match["roman"] else _WORD if match["bold"] else None
        if match["open"] and words and words.search(inner):
            start, inner = match.start() + len(r"\text{"), re.sub(r"\\[,;:! ]", " ", inner)
            inner = inner if "\\" in inner else inner.replace("{", "").replace("}", "")
            text = rf"{before}\text{{{inner}}}{after}"
            continue
        start = match.start()
        if match["open"] and before.rstrip()[-1:] in ("^", "_"):
            inner = f"{{{inner}}}"
        elif re.search(r"\\[a-zA-Z]+$", before) and inner[:1].isalpha():
            inner = f" {inner}"
        text = before + inner + after
    return text


def closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one at `start`, -1 if there is none. A brace is closed by braces alone."""
    depth = 0
    for match in (_BRACE if text[start] == "{" else _BRACKET).finditer(text, start):
        depth += 1 if match[0] in "([{" else -1
        if depth <= 0:
            return match.start()
    return -1


_BRACKET, _BRACE = re.compile(r"[()\[\]{}]"), re.compile("[{}]")


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


@lru_cache(maxsize=65536)
def read_reference(reference: str, language: str = "en") -> str:
    """A reference answer, normalised; of a worked solution, the contents of its last list of boxes."""
    text = _EATEN_SPACE.sub(lambda match: {"\t": r"\t", "\r": r"\r"}[match[0]], reference.translate(_EATEN))
    boxes = lists(text)
    return normalise(boxes[-1] if boxes else text, language)


def is_words(text: str) -> bool:
    """True for answers in words (three letters or more, fewer of other scripts), which are no products of letters."""
    longest = max(map(len, re.split(r"[ '.-]", text)))
    return _WORDS.fullmatch(text) is not None and (longest > 2 or not text.isascii() or text.casefold() == "no")


def as_words(text: str) -> str:
    r"""The key by which answers in words are compared, without case, spaces, article, `\text` and marks around them."""
    return compact(re.sub(r"^(?:an?|the) ", "", TEXT.sub(r"\1", text).casefold().strip(" .!'\"“”")))
