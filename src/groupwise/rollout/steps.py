"""The ends of a completion's steps, in tokens: verifiers know characters, advantages belong to tokens."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers.decoders import DecodeStream

from groupwise.models.policy import Policy
from groupwise.types import Completion, Prompt

PIECE = 64
"""Tokens of a piece whose beginnings are decoded from near, instead of from the text's beginning."""
CONTEXT = 16
"""Tokens decoded before a piece: more than a cut character or a space at a text's beginning has an influence on."""


def step_ends(policy: Policy, prompt: Prompt, completion: Completion, char_ends: Sequence[int]) -> list[int]:
    """Number of completion tokens up to and with the one in which each step ends; linear in the text.

    `char_ends` are increasing, in the judged text (prefill and completion). The stop token belongs to the last of them
    where that is the text's end.
    """
    ids = completion.token_ids.tolist()
    offset, total = len(prompt.prefill), len(completion.text)
    beginnings = _Beginnings(policy.tokenizer, ids, PIECE)
    if beginnings.whole != len(policy.tokenizer.decode(ids)):  # pieces give another text: always from its beginning
        beginnings = _Beginnings(policy.tokenizer, ids, max(1, len(ids)))
    ends = []
    for number, end in enumerate(char_ends, 1):
        inside = min(max(end - offset, 0), total)
        is_whole = inside >= total and number == len(char_ends)
        ends.append(len(ids) if is_whole else beginnings.first_reaching(inside))
    return ends


class _Beginnings:
    def __init__(self, tokenizer: Any, ids: list[int], piece: int) -> None:
        self._tokenizer, self._ids, self._piece = tokenizer, ids, piece
        self._marks = [0]
        for end in (*range(piece, len(ids), piece), len(ids)):
            self._marks.append(self.length(end))

    @property
    def whole(self) -> int:
        return self._marks[-1]

    def length(self, count: int) -> int:
        piece = max(0, count - 1) // self._piece
        start = piece * self._piece
        begin = max(0, start - CONTEXT)
        before = self._decoded(begin, start) if begin < start else 0
        return self._marks[piece] + self._decoded(begin, count) - before

    def first_reaching(self, length: int) -> int:
        piece = max(0, bisect_left(self._marks, length, lo=1) - 1)
        counts = range(piece * self._piece + 1, min((piece + 1) * self._piece, len(self._ids)) + 1)
        return min(counts.start + bisect_left(counts, length, key=self.length), len(self._ids))

    def _decoded(self, start: int, end: int) -> int:
        return len(self._tokenizer.decode(self._ids[start:end]))


class TokenEnds:
    """Finds the ends of tokens in texts that one tokenizer decoded; pieces seen once are remembered."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._pieces: dict[int, str] = {}

    def __call__(self, ids: Sequence[int], text: str) -> NDArray[np.int32] | None:
        """(T,) where in `text` each token ends, in code points; None where the tokenizer does not tell.

        Tokens after the end of the text are empty; a character that several tokens share belongs to the last of them.
        """
        pieces = self._aligned([self._piece(token) for token in ids], text)
        if pieces is None:
            pieces = self._aligned(self._stream(ids), text)
        return None if pieces is None else np.minimum(np.cumsum(list(map(len, pieces))), len(text)).astype(np.int32)

    def _aligned(self, pieces: list[str] | None, text: str) -> list[str] | None:
        if not pieces:
            return None
        joined = "".join(pieces)
        if joined == text or (joined[: len(text)] == text and len(joined) - len(text) == len(pieces[-1])):
            return pieces
        rest = text[len(joined) :]  # bytes that never became a character belong to the last token
        if text.startswith(joined) and not rest.strip("\ufffd"):
            return [*pieces[:-1], pieces[-1] + rest]
        return None

    def _piece(self, token: int) -> str:
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._tokenizer.decode([token])
        return piece

    def _stream(self, ids: Sequence[int]) -> list[str] | None:
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            return None
        stream = DecodeStream(skip_special_tokens=False)
        return [stream.step(backend, token) or "" for token in ids]
