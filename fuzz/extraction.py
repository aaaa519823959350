"""Fuzzes the reading of answers out of completions."""

import sys
import time
from typing import get_args

import atheris

with atheris.instrument_imports(include=["groupwise.verifiers.extraction"]):
    from groupwise.verifiers.base import Extraction
    from groupwise.verifiers.extraction import after_thinking, boxes, extract, lists

MAX_S = 1.0


def check(data: bytes) -> None:
    """Properties of `extract` and of what it is made of."""
    text = data.decode("utf-8", "surrogateescape")
    start = time.process_time()
    region = after_thinking(text)
    for mode in get_args(Extraction):
        extracted = extract(text, mode)
        assert (extracted.answer is None) == bool(extracted.reason), "an answer or a reason, never both"
        assert extracted.answer is None or (region is not None and extracted.answer.strip()), "an answer after thinking"
        assert not extracted.tags_right or extracted.answer is not None, "right tags enclose an answer"
    contents = boxes(text)
    assert all(content in text for content in contents), "a box's content stands in the text"
    assert len(lists(text)) <= len(contents), "a list has at least one box"
    assert extract(rf"{text}</think>\boxed{{7}}", "boxed").answer == "7", "what stands before the last </think> is dead"
    assert time.process_time() - start < MAX_S, "extraction takes linear time"


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
