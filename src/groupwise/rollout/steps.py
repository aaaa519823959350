"""The ends of a completion's steps, in tokens: verifiers know characters, advantages belong to tokens."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from groupwise.models.policy import Policy
from groupwise.types import Completion, Prompt

PIECE = 64
"""Tokens of a piece whose beginnings are decoded from near, instead of from the text's beginning."""
CONTEXT = 16
"""Tokens before a piece that are decoded with it: more than a character that is cut, or a space at the beginning of a
text, has an influence on."""


def step_ends(policy: Policy, prompt: Prompt, completion: Completion, char_ends: Sequence[int]) -> list[int]:
    """Number of completion tokens up to and with the one in which each step ends; linear in the text.

    Args:
        policy: whose tokenizer wrote the text.
        prompt: its prefill is the beginning of the judged text.
        completion: the tokens; a step that ends at the text's end has the stop token too.
        char_ends: ends of the steps in the judged text (prefill and completion), increasing. The stop token belongs
            to the last of them where that is the text's end: one before it was over when the stop token was drawn.
    """
    ids = completion.token_ids.tolist()
    offset, total = len(prompt.prefill), len(completion.text)
    beginnings = _beginnings(policy.tokenizer, ids)
    ends = []
    for number, end in enumerate(char_ends, 1):
        inside = min(max(end - offset, 0), total)
        is_whole = inside >= total and number == len(char_ends)
        ends.append(len(ids) if is_whole else beginnings.first_reaching(inside))
    return ends


class _Beginnings:
    """How many characters the first tokens of a text have."""

    def __init__(self, tokenizer: Any, ids: list[int], piece: int) -> None:
        self._tokenizer, self._ids, self._piece = tokenizer, ids, piece
        self._marks = [0]
        """Characters up to the beginning of each piece, and to the end."""
        for end in (*range(piece, len(ids), piece), len(ids)):
            self._marks.append(self.length(end))

    @property
    def whole(self) -> int:
        """Characters of the whole text."""
        return self._marks[-1]

    def length(self, count: int) -> int:
        """Characters of the first `count` tokens."""
        piece = max(0, count - 1) // self._piece
        start = piece * self._piece
        begin = max(0, start - CONTEXT)
        before = self._decoded(begin, start) if begin < start else 0
        return self._marks[piece] + self._decoded(begin, count) - before

    def first_reaching(self, length: int) -> int:
        """Fewest tokens, at least one, with so many characters; all of them where they have fewer."""
        piece = max(0, bisect_left(self._marks, length, lo=1) - 1)
        counts = range(piece * self._piece + 1, min((piece + 1) * self._piece, len(self._ids)) + 1)
        return min(counts.start + bisect_left(counts, length, key=self.length), len(self._ids))

    def _decoded(self, start: int, end: int) -> int:
        return len(self._tokenizer.decode(self._ids[start:end]))


def _beginnings(tokenizer: Any, ids: list[int]) -> _Beginnings:
    """Piece by piece, where that gives the text as it is decoded at once; else always from its beginning."""
    beginnings = _Beginnings(tokenizer, ids, PIECE)
    if beginnings.whole == len(tokenizer.decode(ids)):
        return beginnings
    return _Beginnings(tokenizer, ids, max(1, len(ids)))
