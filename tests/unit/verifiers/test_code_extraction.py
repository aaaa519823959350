"""Where the program stands in a completion."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.verifiers.extraction import extract_program

FENCE = "```"


def block(code: str, mark: str = "python") -> str:
    return f"{FENCE}{mark}\n{code}\n{FENCE}\n"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (block("a = 1"), "a = 1\n"),
        (block("a") + "better:\n" + block("b"), "b\n"),
        (block("a", "py") + block("usage", "bash") + block("output", ""), "a\n"),
        (block("a", "") + "so\n" + block("b", "text"), "a\n"),
        (f"<think>{block('a')}</think>{block('b')}", "b\n"),
        (f"<think>\n{block('a')}</think>\nnothing", None),
        (f"<think>{block('a')}", None),
        ("a = 1", None),
        (f"{FENCE}python\na = 1", None),
        (block("a", "Python3"), "a\n"),
        (block("print()", "cpp"), None),
        (block("  \n"), None),
        (block("a") + f"{FENCE}python\nunfinished", "a\n"),
        (block("a\nb").replace("\n", "\r\n"), "a\nb\n"),
        ("inline ```code``` then\n" + block("a"), "a\n"),
        (f"1. so:\n   {FENCE}python\n   x = 1\n   {FENCE}\n", "   x = 1\n"),
        ("", None),
    ],
)
def test_the_rule(text: str, program: str | None) -> None:
    found = extract_program(text)
    assert found.answer == program
    assert bool(found.reason) == (program is None)


def test_tags() -> None:
    assert extract_program(f"<think>x</think>{block('a')}").tags_right
    assert not extract_program(block("a")).tags_right
    assert not extract_program(f"<think></think><think></think>{block('a')}").tags_right


@given(st.text(alphabet="`\n ap<>/think", max_size=200))
def test_no_text_raises(text: str) -> None:
    extract_program(text)


def test_long_texts_are_read_quickly() -> None:
    start = time.process_time()
    for text in ("```python\n" * 50_000, "`" * 500_000, "```\n" * 100_001, "\n" * 500_000):
        extract_program(text)
    assert time.process_time() - start < 2
