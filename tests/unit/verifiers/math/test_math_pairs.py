"""Pairs of reference and answer of every kind, right and wrong: the contract of the verifier, beside its attacks."""

from typing import Any

import pytest

from groupwise.types import Outcome

RIGHT = [
    (r"\frac{1}{2}", "0.5"), (r"\frac{1}{2}", ".5"), ("0.5", r"\tfrac12"), ("10,000", "10000"),
    ("10000", "10{,}000"), ("10000", r"10\,000"), ("10000", "10 000"), (r"\$18.90", "18.90"),
    (r"\$32,\!348", "32348"), ("5", r"5 \text{ cm}"), ("5 cm", "5"), ("5 cm", r"5\text{ cm}"),
    (r"864 \mbox{ inches}^2", "864"), (r"864\text{ in}^2", r"864 \text{ square inches}"),
    (r"125\text{ miles}", "125 miles"), (r"15\%", "0.15"), (r"15\%", "15"), ("15%", "15 percent"), ("x=3", "3"),
    ("3", "x=3"), (r"x \in [1,2]", "[1,2]"), (r"(-\infty, 3)", "x<3"), ("x<3", r"(-\infty,3)"), ("x < 3", "3 > x"),
    (r"1\le x\le 3", "[1,3]"), ("[1,3]", r"1\leq x \leq 3"), (r"\{1,2,3\}", "3,1,2"), (r"\{1,2,3\}", "1, 2, 3"),
    ("1,2", r"x=1 \text{ or } x=2"), ("1,2", "x = 1, x = 2"), (r"\pm 2", "2,-2"), (r"\pm2", r"\{-2,2\}"),
    (r"1\pm\sqrt2", r"1+\sqrt{2}, 1-\sqrt2"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}"),
    (r"\begin{pmatrix}1&0\\0&1\end{pmatrix}", r"\left(\begin{array}{cc}1&0\\0&1\end{array}\right)"),
    (r"3\frac12", "3.5"), ("3 1/2", "7/2"), (r"-3\frac{1}{2}", "-3.5"), (r"90^\circ", "90"),
    (r"90^{\circ}", r"90 \text{ degrees}"), ("90", "90°"), (r"\frac{\pi}{2}", r"90^\circ"), ("3+4i", "4i+3"),
    ("3+4i", "3 + 4 i"), ("-i", r"\frac{1}{i}"), (r"2i\sqrt{3}", r"2\sqrt{3}i"), ("101_2", "101_{2}"),
    ("204_5", "204"), ("2^{10}", "1024"), ("x^2+2x+1", "(x+1)^2"), ("(x-1)(x+2)", "x^2+x-2"), ("y=2x+1", "2x+1"),
    ("y = 2x+1", "2x - y + 1 = 0"), ("x+y=1", "y=1-x"), ("x^2+y^2=4", r"\frac{x^2}{4}+\frac{y^2}{4}=1"),
    ("f(x)=2x", "2x"), (r"\text{yes}", "Yes"), (r"\text{even}", "Even."), ("Monday", r"\text{Monday}"),
    ("C", r"\text{(C)}"), ("(C)", "C"), (r"\text{(C)}\ 12", "C"), (r"\textbf{(C)}\ 12", "12"),
    ("C", r"\textbf{(C) }12"), ("2:3", "2/3"), ("2:3", r"\frac23"), ("1:2:3", "1 : 2 : 3"), ("€5", "5"),
    ("£5", "£5"), ("5", "5 €"), ("−3", "-3"), ("-3", "–3"), ("√2", r"\sqrt{2}"), ("2√3", r"2\sqrt3"), ("x²", "x^2"),
    ("π/3", r"\frac{\pi}{3}"), ("½", "0.5"), ("3½", "3.5"), ("6 × 10⁵", "600000"),
    (r"6.02\times 10^{23}", r"6.02 \cdot 10^{23}"), (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt{3}}"),
    (r"\sqrt{8}", r"2\sqrt2"), (r"\log_2 8", "3"), (r"e^{\ln 3}", "3"), (r"\sin\frac{\pi}{6}", "0.5"),
    (r"\sin 30^\circ", r"\frac12"), (r"\tan^{-1}(1)", r"\frac{\pi}{4}"), (r"\arctan 1", r"\pi/4"),
    (r"\binom{5}{2}", "10"), ("5!", "120"), (r"\frac{n(n+1)}{2}", r"\frac{n^2+n}{2}"),
    (r"\lfloor n/2 \rfloor", r"\left\lfloor \frac{n}{2}\right\rfloor"), ("(-1)^n", "(-1)^{n}"),
    ("2^{n+1}-2", "2(2^n-1)"), (r"(-\infty,-1)\cup(1,\infty)", r"x<-1 \text{ or } x>1"),
    (r"(-\infty,-1)\cup(1,\infty)", r"(1,\infty)\cup(-\infty,-1)"), (r"\mathbb{R}", r"(-\infty,\infty)"),
    (r"\emptyset", r"\varnothing"), (r"\infty", "∞"), ("(1,2)", "(1, 2)"), ("(1,2)", r"\left(1,2\right)"),
    ("(x,y)=(1,2)", "(1,2)"), ("(1,2)", "x=1, y=2"), ("x=1,y=2", "(1,2)"), ("a=1, b=2", "b=2, a=1"),
    ("a=1,b=2", "1,2"), ("1,2", "a=1,b=2"), ("0", "0.0"), ("1000", "10^3"), ("0.333333", r"\frac13"),
    (r"\frac13", "0.33333333"), ("3.5", "3,5"), ("1234.5", "1.234,5"), ("12", "12.0"), ("12", "12."),
    (r"\dfrac{a}{b}", "a/b"), ("a/b", "ab^{-1}"), ("2a+2b", "2(a+b)"), ("|x|", r"\sqrt{x^2}"), (r"\ln 4", r"2\ln 2"),
    (r"\frac{1}{x+1}", "(x+1)^{-1}"), ("x^{1/2}", r"\sqrt x"), (r"a\sqrt{b}", r"\sqrt{b}a"),
    (r"\sqrt{ab}", r"\sqrt{a}\sqrt{b}"), (r"\frac{x^2-1}{x-1}", "x+1"), (r"\cos 2x", r"1-2\sin^2 x"),
    (r"\sec^2 x", r"1+\tan^2 x"), ("6r^2-4r-24", "2(3r^2-2r-12)"), ("k=1,2,3", "1,2,3"), ("n = 5", "n=5"),
    (r"\angle ABC = 30^\circ", r"30^\circ"), ("AB = 5", "5"), ("P(A)=1/2", "0.5"),
    (r"\frac{3}{4}\pi", r"\frac{3\pi}{4}"), (r"\frac{2}{3}", r"\frac{4}{6}"),
    (r"0.1\overline{6}", r"0.1\overline{6}"), ("11:30", "11:30"), (r"2,3 \text{ and } 5", "2,3,5"),
    ("(2,3], [5,6)", "[5,6), (2,3]"), (r"\left[-\frac12, \frac12\right]", "[-0.5, 0.5]"), (r"x\neq 1", r"x \ne 1"),
    (r"\frac{-1}{3}", r"-\frac{1}{3}"), (r"-\frac{1}{-3}", r"\frac13"), (r"\sqrt[3]{2}", "2^{1/3}"),
    (r"\sqrt[3]{-8}", "-2"), ("1-x", "-(x-1)"), (r"\{5\}", "5"), (r"25 \text{ mph}", r"25\text{ miles per hour}"),
    ("8", r"8\text{ units}"), (r"8\pi \text{ cm}^2", r"8\pi"), (r"16\pi", r"16\pi \text{ square units}"),
    (r"6:00 \text{ a.m.}", "6:00 a.m."), ("3x", "3 x"), ("x-3", "x - 3"), ("10^{-5}", "0.00001"),
    (r"\frac{1}{10^{30}}", "10^{-30}"), ("2^{100}", "1267650600228229401496703205376"), ("1.5", "3/2"),
    ("13/28", r"\frac{13}{28}"), ("+5", "5"), ("(5)", "5"), ("$5$", "5"), (r"\[5\]", "5"), ("0.75", "3/4"),
    ("3/4", r"75\%"), (r"\frac{1}{2}\ln 2", r"\ln\sqrt{2}"), ("e", "e"), (r"\mathrm{e}^2", "e^2"), ("2e", "2e"),
    (r"x>2 \text{ and } x<5", "x<5, x>2"), (r"(0,\infty)", "x>0"), (r"\{x \mid x > 0\}", r"(0,\infty)"),
    (r"\{x : -1<x<1\}", "-1<x<1"), (r"\langle 1,2,3\rangle", "(1,2,3)"), (r"1,\!234,\!567", "1234567"),
    ("1{,}234", "1234"), ("5^2", "25"), ("1/3 + 1/6", "1/2"), (r"\frac{5}{3}", r"1\frac{2}{3}"),
    (r"-\sqrt{3}", r"-1\sqrt{3}"), (r"\frac{10}{\sqrt{5}}", r"2\sqrt{5}"), (r"30\text{ students}", "30"),
    (r"6 \text{ hours}", "6 hours"), (r"12 \text{ dollars}", r"\$12"), (r"2\frac{1}{3}", r"\frac73"), ("1.0", "1"),
    ("-0", "0"), ("007", "7"), (r"3 \cdot 10^{8}", "300000000"), ("x^3 - 6x^2 + 11x - 6", "(x-1)(x-2)(x-3)"),
    ("m+n", "n+m"), (r"\frac{a+b}{c}", r"\frac{a}{c}+\frac{b}{c}"), (r"3,\, 5", "5, 3"), ("-1, 0, 1", r"0, \pm 1"),
    (r"\frac{1}{4},\frac{3}{4}", "0.25, 0.75"), (r"[0,1)\cup(1,2]", r"[0,2]\setminus\{1\}"), ("2x<6", "x<3"),
    ("x<3", "6>2x"), (r"x \leq 1", r"-x \geq -1"), ("1<x<3", "3>x>1"), (r"y \geq x^2", r"x^2 - y \leq 0"),
    ("xy=6", r"y=\frac{6}{x}"), ("5", "2(3)-1"), ("12", "(2)(6)"), ("12", r"2\binom{4}{2}"),
    (r"\frac52 x", r"2\frac12 x"),
    ("391", "391"), ("391", "391.0"), ("1/2", r"\frac12"), (r"\sqrt{3}", r"\sqrt3"),
    (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}"), ("11", "x = 11"), ("11", "x=5+6=11"), ("3", r"3 \text{ cm}"),
    (r"\text{The sum is odd.}", "the sum is odd"), ("Even", r"\text{even}"), ("1,3", r"\{3, 1\}"),
    ("(0,1]", r"\left(0, 1\right]"), (r"\frac{3}{2}n + \frac{1}{2}m", r"\frac{3n+m}{2}"),
    ("2^{-99}", r"\frac{1}{2^{99}}"), (r"\pi/3", r"\frac{\pi}{3}"), ("so the answer is \\boxed{7}", "7"),
    ("(1,2),(3,4)", "(3,4), (1,2)"), ("\frac{1}{3}x", r"\frac{x}{3}"),
    ("so it is \boxed{\frac{1}{\beta}}", r"\beta^{-1}"),  # eaten backslashes
]  # fmt: skip
WRONG = [
    ("3", "[3,3.5]"), ("3", r"3\pm0.1"), (r"\sqrt2", "1.414"), ("1000000000001", "1000000000002"),
    ("x^2", "x^2+10^{-20}x"), ("x^2=4", "x=2"), ("x=2", "x^2=4"), ("x=2", "y=2"), ("x^2+1=0", "x^2+2=0"),
    ("y=2x", "y=2x+10^{-20}"), ("x>3", r"x\ge3"), ("x>3", "x<3"), ("(1,2)", "[1,2]"), ("(1,2)", "(2,1)"),
    ("(1,2)", r"\{1,2\}"), ("1,2", "1"), ("1", "1,2"), ("1,2,2", "1,2"), ("1,2", "1,2,3"), ("1,2", "1,1,2,2,2"),
    ("a=1,b=2", "a=2,b=1"), ("a=1,b=2", "2,1"), (r"\pm 2", "2"), ("2", r"\pm 2"), ("204_5", "204_6"), ("204_5", "54"),
    (r"5\text{ cm}", r"5\text{ m}"), (r"5\text{ cm}", r"5\text{ cm}^2"), ("|x|", "x"),
    (r"\lceil n/2\rceil", r"\lfloor n/2\rfloor+1"), (r"\lfloor x\rfloor", "x"), (r"1,3,5,\ldots", r"1,2,3,\ldots"),
    ("0.05", r"0.05\%"), ("1,000", "1000000"), ("A", "B"), ("C", r"\text{(A)}"), (r"\text{(C)}\ 12", "13"),
    (r"\text{(C)}\ 12", r"\text{(C)}\ 13"), ("yes", "no"), ("even", "not even"), ("(0,1)", "(0,1]"),
    ("[0,1]", r"[0,1]\cup[2,3]"), ("x<3", "x<4"), ("1<x<3", "(1,4)"), (r"x\neq1", "x=1"), ("3", "2=3"), ("3", "3=2"),
    ("i", "-i"), ("3+4i", "3-4i"), ("e", "2.718"), (r"\infty", r"-\infty"), ("0", r"\infty-\infty"),
    ("1", r"\frac{\infty}{\infty}"), ("0", r"0\cdot\infty"), ("5", "5x"), ("5", r"5\pi"), ("5", "5i"), ("5", "5!"),
    ("120", "5! + 10^{-40}"), (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}"), ("2/3", "3/2"), ("2:3", "3:2"),
    ("-3", "3"), ("0.3333", r"\frac13"), (r"\frac13", "0.3333"), (r"\frac13", "0.333334"), ("1234.5", "1,234"),
    ("3", "3,0"), ("3.5", "35"), ("a+A", "2a"), ("10", "1 0"), ("12", "1 2"), ("3", "1+1"), ("3", "3^2"),
    ("9", "3^{2^{1.0000001}}"), (r"\sin x", r"\cos x"), (r"2\sin x", r"\sin 2x"), ("x", r"\sin(\arcsin x)+10^{-35}"),
    ("24", r"\det\begin{pmatrix}4&0\\0&6\end{pmatrix}"), ("(1,2),(3,4)", "(1,2)"), ("(1,2),(3,4)", "(2,1),(4,3)"),
    ("(1,2),(3,4)", "(1,4),(3,2)"), ("x=1", r"x \in \{1,2\}"), ("1", r"x \in [0,2]"), ("[0,2]", "1"), ("1,2", "(1,2]"),
    ("[1,2]", "1,2"), ("x^2", "x^{2.0000001}"), ("n!", "n^n"), ("2^n", "n^2"), ("(-1)^n", "(-1)^{n+1}"),
    ("1", "(-1)^n"), ("n", "|n|"), ("x^3", "x^3+x(x-1)(x+1)10^{-12}"), ("(x-1)(x-2)(x-3)(x-4)(x-5)(x-6)(x-7)", "0"),
    ("0", "(n-1)(n-2)(n-3)(n-4)(n-5)(n-6)(n-7)(n-8)"), (r"\text{all}", "none"), ("Alice and Bob", "Bob"),
    ("2 hours", "2 minutes"), ("10 a.m.", "10 p.m."), ("x=3", "x=3 or x=4"), ("1.5", "1.50001"), ("100", "100.00001"),
    ("0.1", "0.10000001"), ("3", r"3\cdot"), ("3", r"\frac{9}{3}+x-x+1"), ("1:2", "2:1"), ("5", "2(3)"),
    ("5", "(2)(3)"), ("8", r"2\binom{4}{2}"), ("x<3", "-x<-3"), ("2x<6", r"x\leq 3"), ("x>2", "x<2"), ("xy=6", "xy=7"),
    ("y>x^2", "y<x^2"), ("3", r"3\text{ or less}"), ("3", "at least 3"), ("3", r"\text{about } 3"), ("1:2:3", "1:2:4"),
    ("1:2:3", "6"), ("1:2:3", "1/6"), ("391", "392"), ("3", r"\{3\}"), ("3", "1 2"), ("3", "3 \\pi"), ("3", "3m"),
    ("3", "3 sqrt 2"), ("2^{-99}", "2^{-98}"), (r"1, 2, \ldots, n", r"1, 3, \ldots, n"), ("4", r"4\sqrt(2)"),
    ("3", r"\frac{0}{0}"), (r"\boxed{1}, \boxed{2}", "2"), ("3", r"\text{answer}"), ("3", r"\boxed{4}=3"),
    ("3", "{" * 60 + "3" + "}" * 60), ("3", "=".join(["3"] * 30)), ("3", "3" + " " * 11_000 + "+0"),
]  # fmt: skip


def test_right_pairs(misjudged: Any) -> None:
    assert misjudged(RIGHT, True) == []
    assert misjudged([(answer, answer) for _, answer in RIGHT], True) == []  # and right for itself


def test_wrong_pairs(misjudged: Any) -> None:
    assert misjudged(WRONG, False) == []


@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [
        ("3,5", r"\frac{7}{2}", True), ("3.5", "3,5", True), ("1.234,5", "1234,5", True), ("(0,5; 1)", "(0,5;1)", True),
        (r"\frac{1}{8}", "0,125", True), ("1, 2", "2, 1", True), ("(1,2)", "(1, 2)", True), ("3,5", "3,6", False),
        ("0,5", "5", False), ("1, 2", "1,2", False),
    ],
)  # fmt: skip
def test_decimal_commas_where_the_language_has_them(outcomes: Any, reference: str, answer: str, right: bool) -> None:
    assert outcomes([(reference, answer)], "de") == [Outcome.CORRECT if right else Outcome.WRONG]
