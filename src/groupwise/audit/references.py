"""Problems made from reference answers alone: what a verifier of mathematics meets beside whole numbers."""

from collections.abc import Sequence

from groupwise.types import Problem

REFERENCES = ("-3", "0", "0.5", r"\frac{3}{4}", r"2\sqrt{3}", r"\pi", "(1, 3)", "[0, 1)", r"\{1, 2\}", "x^2+1", "x=2",
              r"\begin{pmatrix}1\\2\end{pmatrix}", "B", r"25\%", "1,000", "Monday")  # fmt: skip
"""Forms of mathematical answers."""


def reference_problems(references: Sequence[str]) -> list[Problem]:
    """One problem per reference answer, with a question that gives nothing away."""
    return [Problem(f"reference {one}", "What is the answer?", one) for one in references]
