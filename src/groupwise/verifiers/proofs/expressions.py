"""Formulas, read by one operator precedence parser (Pratt 1973).

P, Q1, False, ~P, P & Q, P | Q, P -> Q, P <-> Q     -> associates to the right, the others to the left
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

MAX_SYMBOLS = 120
"""Symbols of one formula or term, which bounds its depth too."""


class Expression(NamedTuple):
    """An operator and its operands, or a leaf."""

    head: str
    parts: tuple["Expression", ...] = ()


class UnreadableError(Exception):
    """The text is not an expression of this language."""


@dataclass(frozen=True, eq=False)
class Grammar:
    """A language of expressions."""

    leaf: re.Pattern[str]
    """A leaf, as a whole token."""
    infix: Mapping[str, tuple[int, int]]
    """Binding power to the left and to the right; a higher one binds tighter."""
    prefix: Mapping[str, int]
    """Binding power to the right."""
    spellings: Mapping[str, str]
    """Other ways to write the symbols, longest first."""

    def normalise(self, text: str) -> str:
        """The text with every symbol in its one spelling."""
        for spelling, symbol in self.spellings.items():
            text = text.replace(spelling, symbol)
        return text

    def parse(self, text: str) -> Expression:
        """Read a normalised text.

        Raises:
            UnreadableError: names the symbol that is where something else was expected.
        """
        parser = _Parser(self, _TOKEN.findall(text))
        expression = parser.expression(0)
        if parser.peek():
            raise UnreadableError(f"{parser.peek()!r} where an operator or the end was expected")
        return expression

    def write(self, expression: Expression) -> str:
        """The expression's text; what has an infix operator is put in parentheses within others."""
        head, parts = expression
        if head in self.infix:
            return f" {head} ".join(map(self._enclose, parts))
        if head in self.prefix:
            return f"{head}{self._enclose(parts[0])}"
        return head

    def _enclose(self, part: Expression) -> str:
        return f"({self.write(part)})" if part.head in self.infix else self.write(part)


_TOKEN = re.compile(r"<->|->|[A-Za-z0-9_]+|\S")


class _Parser:
    def __init__(self, grammar: Grammar, tokens: list[str]) -> None:
        if len(tokens) > MAX_SYMBOLS:
            raise UnreadableError(f"an expression has {len(tokens)} symbols, at most {MAX_SYMBOLS} are read")
        self._grammar, self._tokens, self._position = grammar, tokens, 0

    def peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _take(self, symbol: str = "") -> str:
        token = self.peek()
        if symbol and token != symbol:
            raise UnreadableError(f"{token or 'the end'!r} where {symbol!r} was expected")
        self._position += 1
        return token

    def expression(self, power: int) -> Expression:
        """An expression whose infix operators bind at least as tightly as `power`."""
        left = self._operand()
        while (binding := self._grammar.infix.get(self.peek(), (-1, 0)))[0] >= power:
            left = Expression(self._take(), (left, self.expression(binding[1])))
        return left

    def _operand(self) -> Expression:
        token = self._take()
        if token in self._grammar.prefix:
            return Expression(token, (self.expression(self._grammar.prefix[token]),))
        if token == "(":
            return self._read_group()
        if not self._grammar.leaf.fullmatch(token):
            raise UnreadableError(f"{token or 'the end'!r} where an operand was expected")
        return Expression(token)

    def _read_group(self) -> Expression:
        expression = self.expression(0)
        self._take(")")
        return expression


FORMULAS = Grammar(
    leaf=re.compile(r"[A-Z][0-9]{0,3}|False"),
    infix={"<->": (0, 1), "->": (10, 10), "|": (20, 21), "&": (30, 31)},
    prefix={"~": 40},
    spellings={
        "\\leftrightarrow": "<->", "\\rightarrow": "->", "\\wedge": "&", "\\land": "&", "\\vee": "|", "\\lor": "|",
        "\\neg": "~", "\\lnot": "~", "\\bot": "False", "\\to": "->", "<=>": "<->", "=>": "->", "/\\": "&", "\\/": "|",
        "↔": "<->", "→": "->", "∧": "&", "∨": "|", "¬": "~", "⊥": "False",
    },
)  # fmt: skip
"""The language of propositional logic."""


@lru_cache(maxsize=4096)
def parse_stated(grammar: Grammar, text: str) -> Expression:
    """Read an expression of a problem; problems recur, so what was read is cached."""
    return grammar.parse(grammar.normalise(text))
