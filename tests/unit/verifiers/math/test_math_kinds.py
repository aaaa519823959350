"""Kinds of answers that a reader of structures must see through, each with equal forms and near misses.

Written for this project. The near misses are what a lenient comparison would take: another order where order matters, a
value missing or too many, another unit, a swapped name, an interval closed instead of open.
"""

from typing import Any

import pytest

from groupwise.tasks.base import Template
from groupwise.types import Outcome, Problem
from groupwise.verifiers import Request
from groupwise.verifiers.math import MathVerifier
from groupwise.verifiers.workers import WorkerPool

Pairs = list[tuple[str, str]]

KINDS: dict[str, tuple[Pairs, Pairs]] = {
    "named values": ([
        ("(1,2),(2,1)", r"(x,y) = (1,2) \text{ and } (x,y) = (2,1)"), ("(1,2),(2,1)", r"(a, b) \in \{(1,2), (2,1)\}"),
        ("(1,2),(2,1)", r"x = 1, y = 2 \text{ or } x = 2, y = 1"),
        ("x=1, y=2", r"\left\{\begin{array}{l} x = 1 \\ y = 2 \end{array}\right."),
        ("a=3, b=-4, c=1", "(a,b,c) = (3,-4,1)"), ("n=1, n=3", r"n \in \{1, 3\}"), ("n=1,3", r"\{1,3\}"),
        (r"k=2 \text{ or } k=-3", "k = -3, 2"), (r"x_{1}=1, x_{2}=-\frac{1}{2}", r"x = 1 \text{ or } x = -\frac12"),
        (r"x_1=2,\ x_2=3,\ x_3=5", r"\{2,3,5\}"), (r"\cos \theta = \frac{1}{3}", r"\frac13"),
        ("(2, 3, 5)", "p = 2, q = 3, r = 5"), ("p=2, q=3", "(p, q) = (2, 3)"),
        ("m = 4, n = 9", r"m = 4 \quad \text{and} \quad n = 9"), ("1,2,3,4", "n = 1, 2, 3, 4"),
        ("n=2, 4", r"n = 2 \text{ or } n = 4"), ("(0,0), (1,1)", r"\{(0,0),(1,1)\}"),
        (r"\left(\frac{1}{2}, \frac{3}{4}\right)", "(0.5, 0.75)"),
    ], [
        ("(1,2),(2,1)", "(1,2)"), ("(1,2),(2,1)", "(x,y) = (1,2), (3,1)"),
        ("(1,2),(3,4)", r"x = 1, y = 4 \text{ or } x = 3, y = 2"), ("x=1, y=2", "x = 2, y = 1"),
        ("x=1, y=2", r"\begin{cases} x = 2 \\ y = 1 \end{cases}"), ("a=3, b=-4", "(a, b) = (-4, 3)"),
        ("n=1,3", "n = 1"), ("n=1,3", "1, 3, 5"), (r"k=2 \text{ or } k=-3", "k = 2"),
        (r"x_1=2,\ x_2=3,\ x_3=5", "x_1 = 2, x_2 = 3"), ("(2, 3, 5)", "p = 2, q = 5, r = 3"), ("12", r"1 \quad 2"),
        ("12", r"x = 1 \quad y = 2"), ("1, 2", r"1 \quad 2 \quad 3"), ("5", r"\begin{cases} 5 \\ 6 \end{cases}"),
        (r"\frac12, \frac13", r"\frac{1}{2} \text{ and not } \frac13"), ("x=a, y=b", "x=b, y=a"), ("a, b", "b, c"),
        ("2a + b", "2b + a"),
    ]),
    "money": ([
        (r"\$5", "5"), ("5", r"\$5"), (r"\$1,234.50", "1234.50 dollars"), (r"$\$5$", r"5 \text{ dollars}"),
        (r"\$5 \text{ per hour}", "5 dollars per hour"), ("-5", "minus 5"), ("-21", "Negative twenty-one"),
    ], [
        (r"\$5", r"5 \text{ euros}"), (r"5 \text{ cents}", r"\$5"), ("€5", "$5"), (r"\$5", "-$5"), ("5", "minus 5"),
        (r"\$5", "5 rupees"),
    ]),
    "signs": ([
        (r"x_{1,2} = \pm 3", "x = 3, x = -3"),
        (r"\pm \frac{\sqrt{2}}{2}", r"\left\{-\frac{1}{\sqrt{2}}, \frac{1}{\sqrt{2}}\right\}"),
        (r"x=\pm 1, x=\pm 2", "-2,-1,1,2"), (r"\{0, \pm\sqrt{3}\}", r"0, \sqrt3, -\sqrt3"),
        (r"\frac{-1 \pm \sqrt{5}}{2}", r"\frac{-1+\sqrt5}{2}, \frac{-1-\sqrt5}{2}"), (r"(\pm 2, 0)", "(2,0), (-2,0)"),
    ], [
        (r"\pm \frac{\sqrt{2}}{2}", r"\frac{\sqrt{2}}{2}"), (r"x=\pm 1, x=\pm 2", r"\pm 1"),
        (r"\{0, \pm\sqrt{3}\}", r"\pm\sqrt3"), (r"(\pm 2, 0)", r"(0, \pm 2)"), (r"(\pm 2, 0)", "(2, 0)"),
    ]),
    "descriptions": ([
        (r"\frac{BD}{DC}=\frac{3}{2}", r"\dfrac{3}{2}"), (r"\frac{AB}{CD} = \sqrt{2}", r"\sqrt2"),
        ("AB : BC = 2 : 3", "2:3"), ("a+b+c = 14", "14"), ("|z|=5", "5"),
        (r"\overrightarrow{AB} \cdot \overrightarrow{AC} = 4", "4"), (r"P(X=2) = \frac{3}{8}", r"\frac{3}{8}"),
        ("f(2023) = 2024", "2024"), (r"f_{\max} = 3", "3"), ("(x-2)^2+(y+1)^2=5", "x^2 - 4x + y^2 + 2y = 0"),
        (r"\frac{x^2}{16} + \frac{y^2}{9} = 1", "9x^2 + 16y^2 = 144"), ("17", "p + q = 17"), ("25", "a^2 + b^2 = 25"),
        (r"\frac{3}{4}", r"\frac{AP}{PB} = \frac{3}{4}"),
    ], [
        (r"\frac{BD}{DC}=\frac{3}{2}", r"\frac{DC}{BD} = \frac{3}{2}"), (r"\frac{BD}{DC}=\frac{3}{2}", r"\frac{2}{3}"),
        ("AB : BC = 2 : 3", "3:2"), ("a+b+c = 14", "a + b = 14"), ("2x + 3y = 14", "14"), ("x + y = 3", "3"),
        ("x^2 + y^2 = 25", "25"), ("x^2 - 5x + 6 = 0", "0"), ("a^2 = b^2 + c^2", "c^2"), ("13", "n + 1 = 13"),
        ("13", "2n = 13"), ("13", "12 = 13"), ("17", "p + q = 15"), ("17", "p + q = 17 = 18"),
        (r"\frac{3}{4}", r"\frac{AP}{PB} = \frac{4}{3}"),
        (r"a^2 + b = 0", "0"), (r"\sin x = 0", "0"),
    ]),
    "free letters": ([
        ("f(n)=2n", "f(x) = 2x"), ("f(x) = x^2 + c", "f(t) = t^2 + c"),
        ("f(x)=0, f(x)=x", r"f(n) = 0 \text{ and } f(n) = n"),
        (r"f(x) = kx \text{ for some constant } k", r"f(x) = cx \text{ where } c \text{ is a constant}"),
        ("f(x)=cx", r"f(x) = kx \text{ for any real constant } k"),
        ("P(x)=x^n", r"P(x) = x^n \text{ for } n \in \mathbb{N}"), ("a_n = 2^n - 1", "a_k = 2^k - 1"),
        ("f(x)=x+1", r"f(y) = y + 1 \text{ for all } y \in \mathbb{R}"),
        ("f(x)=x", r"f(n) = n \text{ for all positive integers } n"),
        (r"x = \frac{\pi}{4} + k\pi, k \in \mathbb{Z}", r"x = \frac{\pi}{4} + n\pi \text{ for integer } n"),
        (r"x = 2k\pi", r"2\pi n, \; n \in \mathbb{Z}"),
        (r"x=(-1)^{k} \frac{\pi}{6}+k \pi", r"(-1)^n \frac{\pi}{6} + n\pi, n \in \mathbb{Z}"),
        (r"\frac{k\pi}{2}, k \in \mathbb{Z}", r"x = \frac{n \pi}{2}"),
        (r"n = 3k, k \in \mathbb{N}", r"n = 3m \text{ for } m \in \mathbb{N}"),
        (r"6k \pm 1", r"6n \pm 1, n \in \mathbb{Z}"),
        (r"x = \frac{\pi}{2} + 2\pi k", r"x = \frac{(4n+1)\pi}{2}, n \in \mathbb{Z}"),
    ], [
        ("f(n)=2n", "f(x) = 3x"), ("f(n)=2n", "f(x) = 2x + 1"), ("f(n)=2n", "f(x) = 2n + x"),
        ("f(x) = x^2 + c", "f(t) = t^2 + t"), ("f(x)=0, f(x)=x", "f(x) = x"), ("f(x) = x^2", "f(x^2) = x"),
        ("f(x,y) = x - y", "f(y,x) = x - y"), ("f(x) = cx", "f(x) = c + x"), ("a_n = 2^n - 1", "a_k = 2^{k-1}"),
        ("a_n = n^2", "a_{n+1} = n^2"), (r"f(x) = 2x, x \in \mathbb{Z}", r"f(x) = 2x, x \in \mathbb{R}"),
        (r"x = \frac{\pi}{4} + k\pi, k \in \mathbb{Z}", r"x = \frac{\pi}{4} + 2n\pi, n \in \mathbb{Z}"),
        (r"x = \frac{\pi}{4} + k\pi, k \in \mathbb{Z}", r"x = \frac{3\pi}{4} + k\pi, k \in \mathbb{Z}"),
        (r"x = 2k\pi", r"x = \pi k, k \in \mathbb{Z}"), (r"\frac{k\pi}{2}, k \in \mathbb{Z}", r"\frac{\pi}{2}"),
        (r"n = 3k, k \in \mathbb{N}", r"n = 3k + 1, k \in \mathbb{N}"),
        (r"k\pi, k \in \mathbb{Z}", r"k\pi, k \in \mathbb{N}"), (r"a\pi", r"b\pi"), (r"n\pi + m", r"m\pi + n"),
        ("x > 3", r"x > 3, x \in \mathbb{Z}"), (r"[k\pi, k\pi + 1]", r"(n\pi, n\pi + 1)"), (r"6k \pm 1", "6k + 1"),
        ("m + n", "p + q"),
    ]),
    "sets": ([
        (r"S_{\triangle ABC} = 6\sqrt{3}", r"6 \sqrt3"), (r"\angle BAC = 60^\circ", "60"),
        (r"\angle A = 30^{\circ}", r"30 \text{ degrees}"),
        (r"\mathbb{R} \setminus \{0\}", r"(-\infty, 0) \cup (0, \infty)"),
        (r"\mathbb{R} \setminus \{-1, 1\}", r"x \neq \pm 1"), (r"\{x \mid x \geq 2\}", r"[2, +\infty)"),
        (r"\{x \mid -1 \leqslant x < 3\}", "[-1, 3)"),
        (r"(-\infty, -2] \cup [2, \infty)", r"x \leq -2 \text{ or } x \geq 2"), ("x > 3", r"(3, \infty)"),
        (r"a \geq 1", r"a \in [1, +\infty)"), ("m<-1", r"(-\infty,-1)"), ("-2 < k < 2", "(-2, 2)"),
        (r"0 < x \leq 1", r"x \in (0, 1]"), ("(0, 4)", "0 < m < 4"),
        (r"[-3, 0) \cup (0, 3]", r"-3 \leq x \leq 3, x \neq 0"),
        (r"(0,1) \cup (1, 4)", r"\{x : 0 < x < 4, x \neq 1\}"),
        (r"x \in (1, 2) \cup (3, +\infty)", r"1 < x < 2 \text{ or } x > 3"),
        (r"\left\{x \mid x<-1 \text{ or } x>5\right\}", r"(-\infty,-1) \cup (5,\infty)"),
        (r"\left(-\infty, \frac{1}{2}\right]", r"x \leq 0.5"),
        (r"k > \frac{1}{4} \text{ and } k \neq 1", r"\left(\frac14, 1\right) \cup (1, \infty)"),
        (r"\sqrt[3]{4}", "4^{1/3}"), (r"\text{no solution}", r"\emptyset"),
        (r"\text{No real solutions}", r"\text{no real solutions}"), (r"120^\circ", r"\angle BOC = 120^\circ"),
    ], [
        (r"\angle BAC = 60^\circ", r"120^\circ"), (r"\mathbb{R} \setminus \{0\}", r"(-\infty, 0) \cup [0, \infty)"),
        (r"\mathbb{R} \setminus \{-1, 1\}", "(-1, 1)"), (r"\mathbb{R} \setminus \{-1, 1\}", r"x \neq 1"),
        (r"\{x \mid x \geq 2\}", r"(2, +\infty)"), (r"\{x \mid -1 \leqslant x < 3\}", "[-1, 3]"),
        (r"x \leq -2 \text{ or } x \geq 2", r"-2 \leq x \leq 2"),
        (r"x \leq -2 \text{ or } x \geq 2", r"x \leq -2 \text{ and } x \geq 2"), ("x > 3", "y > 3"), ("x > 3", "3"),
        ("(0, 4)", r"0 < m \leq 4"), ("(0, 4)", r"m > 0 \text{ or } m < 4"), ("(4, 0)", "0 < m < 4"),
        (r"[-3, 0) \cup (0, 3]", r"-3 \leq x \leq 3"), (r"(0,1) \cup (1, 4)", "(0, 4)"),
        (r"k > \frac{1}{4} \text{ and } k \neq 1", r"k > \frac14"), (r"\{1, 5\}", "[1, 5]"),
        (r"\{1, 5\}", r"1 \leq x \leq 5"), (r"\text{no solution}", "0"), (r"\text{no solution}", r"\mathbb{R}"),
        (r"\emptyset", r"\{\emptyset\}"), (r"[0, \pi]", r"[0, 2\pi]"), ("[0, 1]", r"\setminus"),
    ]),
    "ordinals, units and words": ([
        ("3rd", "3"), ("21st", r"21^{\text{st}}"), (r"\text{Thursday}", "Thursday"), (r"5^{\text{th}}", "5th"),
        (r"12 \text{ cm}, 5 \text{ cm}", "12, 5"), (r"(3 \text{ cm}, 4 \text{ cm})", "(3, 4)"),
        (r"30^\circ, 60^\circ, 90^\circ", "30, 60, 90"),
        (r"40 \text{ km/h}, 60 \text{ km/h}", r"40 \text{ km/h and } 60 \text{ km/h}"),
        ("240, 210", r"240 \text{ yuan}, 210 \text{ yuan}"), (r"\text{(B)}", "B"), (r"\text{B. } 12", "B"),
        ("13", r"\text{The number of ways is } 13"), ("13", r"\text{Total} = 13"),
        (r"\frac{5}{12}", r"\text{Probability} = \frac{5}{12}"), (r"\sqrt{3}", r"\text{Distance: } \sqrt{3}"),
    ], [
        ("3rd", "4"), ("3rd", r"3 \text{ cm}"), ("21st", r"21^{\text{th}}2"), (r"5^{\text{th}}", "6th"),
        (r"12 \text{ cm}, 5 \text{ cm}", r"12 \text{ m}, 5 \text{ m}"), (r"(3 \text{ cm}, 4 \text{ cm})", "(4, 3)"),
        (r"240 \text{ apples}, 210 \text{ pears}", r"210 \text{ apples}, 240 \text{ pears}"), (r"\text{B. } 12", "C"),
        (r"\text{B. } 12", "B. 13"), ("13", r"\text{The number of ways is not } 13"),
        ("13", r"\text{The number of ways is at most } 13"), ("13", r"\text{The answer is } 13 \text{ or } 14"),
        ("13", r"\text{Total} = 12 + 13"),
    ]),
    "words that name values": ([
        ("5, 7", r"\text{Alice is } 5, \text{ Bob is } 7"), ("Alice: 5, Bob: 7", r"\text{Bob: } 7, \text{Alice: } 5"),
        ("Ann: 3", "3"), ("3", r"\text{Minimum: } 3"),
    ], [
        ("Alice: 5, Bob: 7", "Alice: 7, Bob: 5"), (r"\text{Alice is } 5, \text{ Bob is } 7", "7, 5"),
        ("Minimum: 1, Maximum: 2", "Minimum: 2, Maximum: 1"), ("3", r"\text{never: } 3"),
    ]),
    "lettered choices": ([
        ("A, C", "AC"), ("AC", "C, A"), ("ABD", r"A \text{ and } B \text{ and } D"), ("AC", "(A), (C)"),
        ("C", r"\text{C) 7}"), ("7", r"\textbf{C) 7}"), ("C", r"\text{C) } 7"),
    ], [
        ("AC", "A, B"), ("AC", "A"), ("AC", "A, C, D"), ("A, C", "ACD"), ("AC", "A, A, C"), ("A", "A, A"),
        ("x, y", "xy"), ("a, b", "ab"), ("A, K", "AK"), ("C", r"\text{D) C}"),
    ]),
    "equations": ([
        (r"V = \frac{4}{3}\pi r^3", r"\frac43 \pi r^3"), (r"y = \frac{3}{4}x - 2", "3x - 4y - 8 = 0"),
        ("3x + 2y - 6 = 0", r"y = -\frac{3}{2}x + 3"), (r"y = \sqrt{x} + 1", "y = 1 + x^{1/2}"),
        (r"r = \frac{C}{2\pi}", r"C = 2 \pi r"), (r"t = \frac{\ln 2}{k}", r"k = \frac{\ln 2}{t}"),
        ("y - 3 = 2(x - 1)", "y = 2x + 1"), ("y = 2x+3", "2x + 3"), ("2x - y + 3 = 0", "y = 2x+3"),
        (r"y = \frac{2x}{x - 1}", "xy - y = 2x"), (r"y = \tan x", r"y\cos x = \sin x"), ("y = e^{-x}", "ye^x = 1"),
    ], [
        ("y = 2x", "2"), ("y = e^x", "x = e^y"), ("y = x^2", r"x = \sqrt{y}"), (r"r = \frac{C}{2\pi}", r"C = \pi r"),
        (r"r = \frac{C}{2\pi}", r"C = \frac{r}{2 \pi}"), ("3x + 2y - 6 = 0", r"y = \frac{3}{2}x + 3"),
        ("y = 2x + 3", "2x - 3"), ("y = 2x + 3", "x = 2y + 3"), ("y - 3 = 2(x - 1)", "2x - 1"),
        ("x + y = 5", "5 - y + x"), ("y = 2x + 3", "(y - 2x - 3)(x - 1) = 0"), ("y = 2x + 3", "xy = 2x^2 + 3x"),
        ("x = 3", "y(x - 3) = 0"), ("y = 2x", r"\sin(x)(y - 2x) = 0"), ("y = 2x", "(x + z + w + 1)^{60}(y - 2x) = 0"),
    ]),
    "numbers": ([
        (r"0.\overline{3}", r"\frac13"), (r"\frac{1}{7}", r"0.\overline{142857}"),
        (r"1.2\overline{5}", r"\frac{113}{90}"), (r"2^{10} \cdot 3^5", "248832"),
        (r"\frac{n(n-1)}{2}", r"\binom{n}{2}"), ("2^n-1", "2^{n} - 1"), (r"\frac{2}{\sqrt{3}}", r"\frac{2\sqrt3}{3}"),
        (r"\log_2 3", r"\frac{\ln 3}{\ln 2}"), (r"\log_2 3", r"\ln 3/\ln 2"), (r"\tan x", r"\sin x / \cos x"),
        (r"\lfloor \frac{n}{2} \rfloor", r"\left\lfloor n/2 \right\rfloor"),
    ], [
        (r"\log_2 3", r"\ln(3/\ln 2)"), (r"\tan x", r"\cos x/\sin x"), (r"0.\overline{3}", "0.3"),
        (r"\frac{1}{7}", r"0.\overline{14285}"), ("0.3", r"0.\overline{3}"),
        ("(4,112)", "4112"), ("(4,112)", "4,112"),
    ]),
    "units with prefixes, and of several parts": ([
        ("4.2 eV", "4.2"), (r"3\text{ GHz}", "3"), ("5 kPa", "5"), ("2.5 kJ/mol", "2.5"), ("5", r"5\text{ mg/dL}"),
        (r"10\,\mu\text{m}", "10 µm"), ("36", "36 sq. cm"), (r"500", "Rs. 500"), ("20", "20平方厘米"), ("5", "5 个"),
        ("2 hours 30 minutes", r"2\text{ h and }30\text{ min}"), ("5 ft 11 in", "5 feet, 11 inches"),
    ], [
        ("5 mV", "5 MV"), (r"3\text{ GHz}", r"3\text{ MHz}"), ("5 kPa", "5 Pa"),
        (r"10\,\mu\text{m}", r"10\text{ m}"),
        ("4.2 eV", "4.2 J"), (r"2\mu g", "2"), ("20平方厘米", "20立方厘米"), ("5 元", "5 美元"), ("5", "5万"),
        ("5", "3千"), ("2 hours 30 minutes", "2 minutes 30 hours"), ("2 hours 30 minutes", "2 hours"),
        ("2a, 3b", "2b, 3a"), ("2 red 3 blue", "2 blue 3 red"), ("3 kT", "3"), ("2x", "2ˣ"), (r"2\mu m", "2"),
    ]),
    "words": ([
        ("7", "seven apples"), ("10%", "ten percent"), ("x is even", r"x \text{ is even}"),
        ("DNE", "does not exist"), ("parabola", r"\text{a parabola}"), ("ellipse", "An ellipse."),
        ("January 1", r"\text{January } 1"), ("red", "“red”"), ("yes", "Yes!"), ("July 4", "July 4th"),
        ("sí", "Sí"), ("是", r"\text{是}"),
    ], [
        ("7", "seven or eight"), ("7", "seven less"), ("7", "seventy percent"), ("no", "on"),
        ("20", "twenty zero"), ("是", "否"), ("parabola", "not a parabola"), ("parabola", "a circle"),
        ("x is even", r"x \text{ is odd}"), ("January 12", r"\text{January 1} 2"), ("x", "х"), ("5", "٥"),
    ]),
    "forms of one number": ([
        ("1/6", "0.1(6)"), (r"\frac13", "0.(3)"), ("1/2", "1⁄2"), ("2/3", r"\nicefrac{2}{3}"), ("2:3", "2{:}3"),
        ("3", "⌊3.5⌋"), ("2", "∛8"),
        ("12", "𝟏𝟐"), ("-5", "﹣5"), ("1011_2", r"1011 \text{ (base 2)}"), ("1011_2", r"1011_{\text{base } 2}"),
        ("A3_{12}", r"\text{A3}_{12}"), (r"\sqrt2", r"2^\frac12"), ("321_5", r"\overline{321}_5"),
        ("5", r"\implies 5"), ("5", r"5 \checkmark"),
        ("5", r"\Delta x = 5"), ("55", r"\sum_{k=1}^{10} k = 55"), (r"\frac13", r"\int_0^1 x^2\,dx = \frac13"),
    ], [
        ("1/6", "0.(16)"), ("0.6", "0.1(6)"), ("3", "∛8"), ("1011_2", "1011 base 3"), ("5", r"6 \implies 5"),
        ("55", r"\sum_{k=1}^{10} k"), ("55", r"\sum_{k=1}^{10} k = 54"), ("55", r"x = \sum_{k=1}^{10} k = 55"),
        ("f(x) = x^2", "x = y^2"), ("f(x) = x^2, g(x) = x", "f(x) = x, g(x) = x^2"),
    ]),
}  # fmt: skip
"""Right pairs of reference and answer, and wrong ones."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("right", [True, False])
def test_equal_forms_are_right_and_near_misses_wrong(misjudged: Any, kind: str, right: bool) -> None:
    assert misjudged(KINDS[kind][not right], right) == []


def test_values_in_boxes_of_their_own(verifier: MathVerifier) -> None:
    for text, right in (
        (r"$\alpha = \boxed{2}$, $\beta = \boxed{3}$", True),
        (r"\boxed{x_1 = 3} \quad \boxed{x_2 = 2}", True),
        (r"\boxed{x_1 = 2} and \boxed{x_2 = 2}", False),
        (r"\boxed{x_1 = 2}, which leaves \boxed{x_2 = 3}", False),
    ):
        verdict = verifier.verify(Problem("p", "q", "2, 3"), text)
        assert (verdict.outcome is Outcome.CORRECT) is right, text


@pytest.mark.parametrize(
    ("decimals", "right"),
    [(6, ["0.333333", "3.141593", r"0.\overline{3}"]), (2, ["0.33", "3.14", "0.333333", "3.141593", r"0.\overline{3}"]),
     (50, [r"0.\overline{3}"])],
)  # fmt: skip
def test_a_setting_says_from_how_many_places_on_a_decimal_stands_for_a_number(
    symbolic_workers: WorkerPool, decimals: int, right: list[str]
) -> None:
    config = MathVerifier.Config(kind="math", timeout_s=20.0, decimals=decimals)
    tried = [(r"\frac{1}{3}", "0.33"), (r"\pi", "3.14"), (r"\frac{1}{3}", "0.333333"), (r"\pi", "3.141593")]
    tried += [(r"\frac{1}{3}", r"0.\overline{3}"), (r"\frac{1}{3}", "0.34"), (r"\frac{1}{8}", "0.13"), (r"\pi", "3.15")]
    requests = [Request(Problem("p", "q", gold), f"\\boxed{{{answer}}}") for gold, answer in tried]
    judged = zip(tried, MathVerifier(config, symbolic_workers).verify_many(requests), strict=True)
    found = [answer for (_, answer), verdict in judged if verdict.outcome is Outcome.CORRECT]
    assert found == sorted(right, key=[answer for _, answer in tried].index)


def test_references_that_cannot_be_read_are_listed_and_warned_of(verifier: MathVerifier) -> None:
    texts = ["5", r"\frac{1}{", "x^2+1", "90^", r"\{x \mid x > 2\}", "n", "Monday", r"3\text{ cm}, 4\text{ cm}", ""]
    problems = [Problem(f"row-{number}", "q", text) for number, text in enumerate(texts, start=1)]
    faults = verifier.unreadable(problems)
    assert [problem.id for problem, _ in faults] == ["row-2", "row-4"]
    assert "I expected something else" in faults[0][1]
    with pytest.warns(UserWarning, match=r"2 of 9 reference answers cannot be read.*row-2"):
        verifier.check(problems, Template())


def test_digits_of_other_scripts_are_read_in_other_languages(outcomes: Any) -> None:
    pairs = [("12", "१२"), ("٣٫١٤", "3.14"), ("۱۲", "12"), ("۱۲", "21")]
    assert outcomes(pairs, "fa") == [Outcome.CORRECT] * 3 + [Outcome.WRONG]


def test_what_cannot_be_read_as_a_set_is_wrong_and_other_digits_are_no_failure(outcomes: Any) -> None:
    assert outcomes([(r"\mathbb{R} - \{54\}", "t = 54")]) == [Outcome.WRONG]
    assert outcomes([("x+1", "❷❸"), ("23", "❷❸")]) == [Outcome.UNPARSABLE] * 2
