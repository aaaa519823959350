"""Where each token ends in the text it was decoded to, so that a page shows tokens without a tokenizer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers.decoders import DecodeStream


class TokenEnds:
    """Finds the ends of tokens in texts that one tokenizer decoded; pieces seen once are remembered."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._pieces: dict[int, str] = {}

    def __call__(self, ids: Sequence[int], text: str) -> NDArray[np.int32] | None:
        """(T,) where in `text` each token ends, in Unicode code points; None where the tokenizer does not tell.

        Tokens after the end of the text (the stop token) are empty. A token that ends within a character is empty, and
        the one that completes the character has it.
        """
        pieces = self._aligned([self._piece(token) for token in ids], text)
        if pieces is None:
            pieces = self._aligned(self._stream(ids), text)
        return None if pieces is None else np.minimum(np.cumsum(list(map(len, pieces))), len(text)).astype(np.int32)

    def _aligned(self, pieces: list[str] | None, text: str) -> list[str] | None:
        """The pieces, if they are the text: whole, or with a stop token behind it."""
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
        """Piece by piece as the characters become whole; slower, and only where tokens are no characters."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            return None
        stream = DecodeStream(skip_special_tokens=False)
        return [stream.step(backend, token) or "" for token in ids]
