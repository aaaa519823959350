"""Extraction: the answer or the program in a completion, never a guess."""

import time
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.verifiers.base import Extraction
from groupwise.verifiers.extraction import boxes, extract, extract_program


@pytest.mark.parametrize(
    ("text", "answer", "tags_right"),
    [
        (r"<think>a</think>\boxed{3}", "3", True), (r"\boxed{3}", "3", False),
        (r"reasoning without a start</think>\boxed{3}", "3", False),
        (r"<think>\boxed{4}</think> so \boxed{\frac{1}{2}}.", r"\frac{1}{2}", True),
        (r"<think>a</think>\boxed{3} and again \boxed{ 3}", "3", True),
        (r"<think>a</think>\boxed{3} \boxed{4", "3", True), (r"<think>a</think>\boxed{\boxed{3}}", r"\boxed{3}", True),
        (r"<think>a</think><think>b</think>\boxed{3}", "3", False), (r"</think><think>\boxed{3}", None, False),
        (r"<think>the answer is \boxed{3}", None, False), (r"<think>\boxed{3}</think> done", None, False),
        (r"<think>a</think>\boxed{1} \boxed{2}", "1, 2", True),
        (r"\boxed{1}, \boxed{2} \text{ and } \boxed{3}", "1, 2, 3", False),
        (r"$y = \boxed{1}$ and $z = \boxed{2}$", "1, z =2", False),
        (r"<think>a</think>\boxed{1}. No: \boxed{2}", None, False),
        (r"<think>a</think>First \boxed{\phantom{2}}, then \boxed{4}.", "4", True),
        (r"<think>a</think>\boxed{\ ?}", None, False), (r"<think>a</think>\boxed{}", None, False),
        (r"<think>a</think>\boxed{\}", None, False), ("", None, False), ("<answer>3</answer>", None, False),
        (r"\boxed{3} or rather \boxed{nothing}", None, False),
        (r"[THINK]\boxed{4}? let me check", None, False), (r"[THINK]\boxed{4}[/THINK]\boxed{3}", "3", False),
        (r"<thinking>\boxed{4}</thinking>\boxed{3}", "3", False), (r"<seed:think>\boxed{4}", None, False),
        (r"<|begin_of_thought|>\boxed{4}<|end_of_thought|>\boxed{3}", "3", False),
    ],
)  # fmt: skip
def test_boxed(text: str, answer: str | None, tags_right: bool) -> None:
    extracted = extract(text, "boxed")
    assert (extracted.answer, extracted.tags_right) == (answer, tags_right)
    assert (extracted.reason == "") == (answer is not None)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>a</think><answer> 3 </answer>", "3"), ("<answer>3</answer><answer>4</answer>", None),
        ("<answer>3</answer><answer>3</answer>", None), ("<answer>3<answer>4</answer></answer>", None),
        ("<answer></answer>", None), ("<answer>3", None),
    ],
)  # fmt: skip
def test_tag(text: str, answer: str | None) -> None:
    assert extract(text, "tag").answer == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [("first 3, then 1,234.5.", "1,234.5"), ("so -7", "-7"), ("3/4 of it", "3/4"), ("x2 none", None), ("", None)],
)
def test_last_number(text: str, answer: str | None) -> None:
    assert extract(text, "last_number").answer == answer


@pytest.mark.parametrize("piece", [r"\boxed{", "{", "}", r"\boxed{1}", "<answer>", "<think>", "</think>", "\\", "9"])
def test_extraction_takes_linear_time(piece: str) -> None:
    start = time.process_time()
    for mode in get_args(Extraction):
        extract(piece * 50_000, mode)
    assert time.process_time() - start < 2


@given(st.text(alphabet="\\boxed{}<>/think answer13"))
def test_whatever_the_text_boxes_lie_apart_and_in_order(text: str) -> None:
    for content in boxes(text):
        assert content in text
    assert extract(text, "boxed").answer != ""


FENCE = "```"


def block(code: str, mark: str = "python") -> str:
    return f"{FENCE}{mark}\n{code}\n{FENCE}\n"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (block("a = 1"), "a = 1\n"), (block("a") + "better:\n" + block("b"), "b\n"),
        (block("a", "py") + block("usage", "bash") + block("output", ""), "a\n"),
        (block("a", "") + "so\n" + block("b", "text"), "a\n"), (f"<think>{block('a')}</think>{block('b')}", "b\n"),
        (f"<think>\n{block('a')}</think>\nnothing", None), (f"<think>{block('a')}", None), ("a = 1", None),
        (f"{FENCE}python\na = 1", None), (block("a", "Python3"), "a\n"), (block("print()", "cpp"), None),
        (block("  \n"), None), (block("a") + f"{FENCE}python\nunfinished", "a\n"),
        (block("a\nb").replace("\n", "\r\n"), "a\nb\n"), ("inline ```code``` then\n" + block("a"), "a\n"),
        (f"1. so:\n   {FENCE}python\n   x = 1\n\n     y\n   {FENCE}\n", "x = 1\n\n  y\n"), ("", None),
        (f"  {FENCE}python\nif x:\n  y\n  {FENCE}", "if x:\n  y\n"), (block("a", "python title=a.py"), "a\n"),
    ],
)  # fmt: skip
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
