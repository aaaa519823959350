"""What the judge said, read strictly: a verdict is the last line, whole and alone, or there is none."""

import json
import re
from typing import NamedTuple

from groupwise.verifiers.extraction import after_thinking
from groupwise.verifiers.judge.config import Mode

_LABEL = {"correctness": "VERDICT:", "rubric": "SCORE:"}
_LINE = {
    "correctness": re.compile(r"VERDICT: (CORRECT|WRONG|CANNOT JUDGE)"),
    "rubric": re.compile(r"SCORE: ([0-9]|10|CANNOT JUDGE)"),
}


class Opinion(NamedTuple):
    """A reply of the model, whether or not there is a verdict in it."""

    content: str
    finish_reason: str


class Ruling(NamedTuple):
    """What an opinion comes to."""

    share: float | None
    """1 for CORRECT, 0 for WRONG, a tenth of the score; None when the judge could not judge."""
    evidence: str


def read_reply(body: bytes) -> tuple[Opinion, int | None] | None:
    """The opinion in a chat completion's JSON, and the tokens it cost if that is said; None when it is not one."""
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        return None
    match reply:
        case {"choices": [{"message": {"content": str(content)}, "finish_reason": str(reason)}]}:
            return Opinion(content, reason), _tokens(reply)
    return None


def _tokens(reply: dict[str, object]) -> int | None:
    match reply:
        case {"usage": {"total_tokens": int(tokens)}} if tokens >= 0:
            return tokens
    return None


def rule(opinion: Opinion, mode: Mode) -> Ruling:
    """The verdict in an opinion. A judge's own `<think>` part does not count."""
    if opinion.finish_reason != "stop":
        return Ruling(None, f"its reply did not end by itself but by {opinion.finish_reason[:40]!r}")
    text = after_thinking(opinion.content)
    *reasons, last = (text or "").strip().split("\n")
    labelled = [line for line in (*reasons, last) if line.strip().startswith(_LABEL[mode])]
    found = _LINE[mode].fullmatch(last)
    if found is None or len(labelled) != 1:
        return Ruling(None, f"its reply does not end with one `{_LABEL[mode]} ...` line: {opinion.content[-200:]!r}")
    return Ruling(_share(found[1]), f"{last}; {' '.join(reasons)[-300:]!r}")


def _share(word: str) -> float | None:
    if word == "CANNOT JUDGE":
        return None
    return float(word == "CORRECT") if word in ("CORRECT", "WRONG") else int(word) / 10
