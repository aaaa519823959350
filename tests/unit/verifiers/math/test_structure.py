"""Structures: what an answer's text says, and how two structures compare when the leaves can only compare text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.verifiers.math.compare import equivalent, same_plainly
from groupwise.verifiers.math.normalise import normalise
from groupwise.verifiers.math.structure import Node, read


def shown(node: Node) -> object:
    """A node as nested tuples."""
    if node.kind == "expression":
        return node.text
    return (node.kind + node.label, *map(shown, node.items))


@pytest.mark.parametrize(
    ("text", "structure"),
    [
        ("3", "3"), ("((3))", "3"), ("1,000", "1,000"), ("1, 2", ("list", "1", "2")), ("1,2", ("list", "1", "2")),
        ("1,000, 2,000", ("list", "1,000", "2,000")), ("1; 2,5", ("list", "1", "2", "5")), ("1,", "1"),
        (r"1 \text{ and } 2", ("list", "1", "2")), ("1 or 2", ("list", "1", "2")), (r"\{1,2\}", ("list{}", "1", "2")),
        (r"\{3\}", ("list{}", "3")), ("(1,2)", ("tuple()", "1", "2")), ("[1,2)", ("tuple[)", "1", "2")),
        ("(1;2)", ("tuple()", "1", "2")), ("1:2:3", ("tuple::", "1", "2", "3")), ("1:2", "1:2"),
        ("(1,2),(3,4)", ("list", ("tuple()", "1", "2"), ("tuple()", "3", "4"))), (r"\pm 2", ("list", "+ 2", "- 2")),
        (r"1 \pm 2", ("list", "1 + 2", "1 - 2")), (r"0, \pm 1", ("list", "0", "+ 1", "- 1")),
        ("x = 3", ("equationx", "3")), ("x=2+1=3", ("equationx", "2+1", "3")), ("4=3", ("equation", "4", "3")),
        ("f(x) = 2x", ("equationf(x)", "2x")), ("(x,y)=(1,2)", ("equation(x,y)", ("tuple()", "1", "2"))),
        (r"x \in [1,2]", ("equationx", ("tuple[]", "1", "2"))), ("AB = 5", ("equationAB", "5")),
        ("2x = 4", ("equation", "2x", "4")), ("x=y=2", ("equationx", "2")), ("x<3", "x<3"),
        (r"\{x | x > 2\}", "x > 2"), (r"(1,2) \cup \{3\}", ("union", ("tuple()", "1", "2"), ("list{}", "3"))),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", ("matrix2x2", "1", "2", "3", "4")),
        (r"[\begin{array}{cc}1&2\end{array}]", ("matrix1x2", "1", "2")), (r"3 \text{ or more}", r"3 \text{ or more}"),
    ],
)  # fmt: skip
def test_read(text: str, structure: object) -> None:
    assert shown(read(normalise(text))) == structure


def test_what_is_only_approximately_so_stands_apart() -> None:
    node = read(r"\frac{1}{3} \approx 0.33")
    assert [item.text for item in node.items] == [r"\frac{1}{3}"]
    assert [item.text for item in node.rounded] == ["0.33"]


NUMBERS = st.lists(st.integers(-99, 99), min_size=2, max_size=6, unique=True)


@given(NUMBERS, st.randoms(use_true_random=False))
def test_lists_have_no_order_and_tuples_have_one(numbers: list[int], random: "st.randoms") -> None:  # type: ignore[valid-type]
    mixed = list(numbers)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    left, right = (", ".join(map(str, each)) for each in (numbers, mixed))
    assert equivalent(left, right, same_plainly) is True
    assert equivalent(left, rf"\{{{right}\}}", same_plainly) is True
    assert equivalent(f"({left})", f"({right})", same_plainly) is (numbers == mixed)


@given(NUMBERS, st.integers(100, 200))
def test_lists_with_a_missing_another_or_a_wrong_element_differ(numbers: list[int], other: int) -> None:
    reference = ", ".join(map(str, numbers))
    for wrong in (numbers[1:], [*numbers, other], [*numbers[1:], other]):
        assert equivalent(reference, ", ".join(map(str, wrong)), same_plainly) is False


@pytest.mark.parametrize(
    ("reference", "answer", "same"),
    [
        ("1, 2", "1, 2, 2", True), ("1, 2, 2", "1, 2", False), ("-2,-2", "a=-2, b=-2", True), ("3", r"\{3\}", False),
        (r"\{3\}", "3", True), ("a=1, b=2", "b=2, a=1", True), ("a=1, b=2", "2, 1", False), ("1, 2", "a=2, b=1", False),
        ("x_1=1, x_2=2", "2, 1", True), ("(1,2)", "1, 2", True), ("1, 2", "(1,2)", True), (r"\{1,2\}", "(1,2)", False),
        ("[1,2]", "1, 2", False), ("[1,2]", "(1,2)", False), ("3", "x=3", True), ("x=3", "3", True),
        ("x=3", "y=3", None), ("3", "3=4", False), ("3", r"3 \approx 5", False), ("3", r"3 \approx 3.01", True),
        ("100,200,300", "300, 200, 100", True), ("32349", "32, 349", False), ("x^2", "x+1", None),
        ("1, x^2", "1, x+1", None), ("1, x^2", "2, x+1", None), ("1, x^2", "1", False),
        (r"(1,2)\cup(3,4)", r"(3,4)\cup(1,2)", True), ("1:2:3", "1:2:4", False),
        ("1:2:3", "1/6", False),
    ],
)  # fmt: skip
def test_policies(reference: str, answer: str, same: bool | None) -> None:
    assert equivalent(normalise(reference), normalise(answer), same_plainly) is same


@given(st.text(alphabet="xy12,;:()[]{}=<>\\pmcuptext and+-.", max_size=60))
def test_any_text_has_a_structure_and_equals_itself(text: str) -> None:
    plain = normalise(text)
    read(plain)
    assert equivalent(plain, plain, same_plainly) is True
