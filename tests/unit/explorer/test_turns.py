"""An episode as a conversation."""

import numpy as np

from groupwise.explorer.views import turns_of
from groupwise.runs.row import Row
from groupwise.types import Outcome, TurnRecord

ROW = {
    "problem": "p", "difficulty": "", "language": "en", "question": "q", "reference": "", "open_ended": False,
    "prefill": "", "sample": 0, "text": "16|>\n24|", "finish_reason": "done", "outcome": Outcome.CORRECT,
    "answer": None, "evidence": "", "num_tokens": 6,
    "turns": (TurnRecord(3, -0.1, "opening"), TurnRecord(8, 0.9, "17 to 31")),
}  # fmt: skip


def test_turns_are_cut_at_their_tokens() -> None:
    sampled = np.array([True] * 3 + [False] * 2 + [True] * 3)
    advantages = np.array([0.5] * 3 + [np.nan] * 2 + [0.25] * 3, np.float32)
    row = Row(**ROW, token_ids=np.arange(8), token_ends=np.arange(1, 9), sampled=sampled, token_advantages=advantages)  # type: ignore[arg-type]
    first, second = turns_of(row)
    assert (first["said"], first["reply"], first["reward"], first["advantage"]) == ("16|", ">\n", -0.1, 0.5)
    assert (second["said"], second["reply"], second["state"]) == ("24|", "", "17 to 31")
    assert turns_of(Row(**ROW)) == []  # type: ignore[arg-type]
