"""Attacks on time and memory: small texts with large values, and large texts."""

from collections.abc import Iterator

from groupwise.audit.form import Form


def bombs(form: Form) -> Iterator[str]:
    """Short expressions that nobody can evaluate; the value is never the right answer."""
    expressions = [r"9^{9^{9^9}}", "9**9**9**9", r"1000000000!", r"\binom{10^9}{5\cdot10^8}", r"7^{7^{7^7}} \bmod 10",
                   r"\prod_{k=1}^{10^8} k", r"\sum_{k=1}^{10^9} \frac{1}{k^k}", r"\frac{5^{5^{5^{5^5}}}-5}{16}",
                   r"\int_0^1 e^{x^{100}}\sin(x^{1000})dx", r"10^{10^{10}} + 0.5", "1e999999999", "1/0", r"\frac{0}{0}",
                   r"\infty - \infty", r"\sqrt{" * 40 + "2" + "}" * 40, "=".join(["x"] * 2000)]  # fmt: skip
    yield from map(form.answer, expressions)


def huge(form: Form) -> Iterator[str]:
    """Texts of up to a million characters: digits, braces, boxes, tags, one word."""
    wrong = form.wrong
    yield from map(
        form.answer, ("9" * 200_000, "{" * 5000 + wrong + "}" * 5000, "(" * 5000 + wrong + ")" * 5000, "-" * 50_000)
    )
    yield from map(form.answer, ("1 " * 50_000, "1+" * 50_000 + "1", r"\frac" * 10_000, "x" * 100_000, "∞×" * 20_000))
    yield from (r"\boxed{" * 20_000, form.final(wrong) * 20_000, "<think>" * 50_000, "<answer>" * 50_000, "$" * 200_000)
    yield from ("a" * 1_000_000, "</think>" * 50_000, "{" * 200_000, "\\" * 200_000, "<think></think>" * 20_000)
