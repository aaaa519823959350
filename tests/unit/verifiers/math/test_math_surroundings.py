"""What may surround a value, and what changes it: units, number words, E-notation, print styles, environments."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from groupwise.types import Outcome, Problem
from groupwise.verifiers.extraction import Extracted
from groupwise.verifiers.math import MathVerifier, NumberVerifier, decide

Pairs = list[tuple[str, str]]

KINDS: dict[str, tuple[Pairs, Pairs]] = {
    "dates and times": ([
        ("2024-01-05", "2024-1-5"), ("03/04/2020", "3/4/2020"), ("06:00", "6:00"), ("6:00 a.m.", "6 AM"),
        (r"6:00 \text{ p.m.}", "6 PM"), ("3:30", "3:30 pm"),
    ], [
        ("2024-01-05", "2018"), ("1956", "1999-12-31"), ("2024-01-05", "2024-05-01"), ("5/12/2024", "10/24/2024"),
        ("6 AM", "6 PM"), ("6:30 AM", "6 AM"),
    ]),
    "other forms": ([
        ("12", "= 12"), (r"\ln 2", r"\log_e 2"), ("10", r"{5 \choose 2}"), ("10", r"\binom52"),
        (r"2\hat{i}+3\hat{j}", r"2\mathbf{i}+3\mathbf{j}"), ("1/3", "0.333..."), ("1/6", r"0.1666\ldots"),
        ("4/33", "0.1212..."), ("(0,1)", "]0;1["), ("[0,1[", "[0,1)"), ("7 R 2", r"7\text{ remainder }2"),
        ("B", r"\text{Option B}"), ("B", "answer (B)"), ("2A_{16}", "2a_{16}"), (r"30^\circ 30'", r"30.5^\circ"),
        (r"25 ℃", r"25^\circ\text{C}"), (r"40\ \Omega", r"40\text{ ohms}"), ("£5", r"\pounds 5"),
        ("[[1,2],[3,4]]", r"\begin{bmatrix}1&2\\3&4\end{bmatrix}"),
    ], [
        ("12", "= 13"), ("12", "<= 12"), (r"\log_2 e", r"\ln 2"), ("10", r"{5 \choose 1}"), ("e", "2.71828..."),
        (r"2\hat{i}+3\hat{j}", r"3\mathbf{i}+2\mathbf{j}"), ("1/3", "0.34..."), ("1/3", "0.333"), ("[0,1)", "]0,1]"),
        ("7", "7 R 2"), ("B", "Option C"), ("2A_{16}", "2a_{12}"), (r"30^\circ 30'", r"30^\circ"),
        ("40", r"40\text{ k}\Omega + 1"), (r"5\text{ nm}", r"5\text{ Nm}"), (r"5\text{ mm}", r"5\text{ Mm}"),
        ("[[1,2],[3,4]]", r"\begin{bmatrix}1&3\\2&4\end{bmatrix}"), ("[1,2]", "[[1,2]]"),
    ]),
    "what only looks alike": ([
        (r"\frac{dy}{dx}=2x", "2x"), ("2x", "dy/dx = 2x"), (r"\frac{dV}{dt}=4r^2\frac{dr}{dt}", r"4r^2\frac{dr}{dt}"),
        ("7 R 2", "7R2"), ("12:30", "12:30 PM"), ("2:3:5", "4:6:10"), ("2:4", "1:2"), ("f'(x)=2x", "2x"),
        (r"x\equiv 2\pmod 5", r"x \equiv 2 \bmod 5"), (r"0.\dot{3}\dot{6}", "4/11"), ("(1,234)", "(1, 234)"),
        ("3", r"\log_2 8"), ("3", "log2(8)"), ("3", "log10(1000)"), (r"\emptyset", "No solutions"),
        ("y''+y=0", "2y''+2y=0"), ("f^{-1}(x)=2x", "2x"), (r"\angle ABC", r"\angle CBA"),
        ("2^T", "2^{T}"), ("2", r"\lg 100"),
        (r"\vec{a}\times\vec{b}", r"-\vec{b}\times\vec{a}"), (r"\{1,\{2\}\}", r"\{\{2\},1\}"),
        (r"\begin{cases}x^2 & x\ge0\\ -x & x<0\end{cases}",
         r"\begin{cases}-x, & \text{if } x<0\\ x^2, & \text{if } 0\leq x\end{cases}"),
    ], [
        (r"\frac{dy}{dx}=2x", r"\frac{dy}{dx}=3x"),
        (r"\frac{\partial f}{\partial x}=2", r"\frac{\partial f}{\partial x}=3"),
        (r"\frac{dV}{dt}=4r^2\frac{dr}{dt}", r"\frac{dV}{dt}=3r^2\frac{dr}{dt}"), (r"\frac{dy}{dx}", "0"),
        (r"\frac{d}{dx}f(x)=2x", r"\frac{d}{dx}f(x)=3x"), (r"\frac{dy}{dx}", r"\frac{dx}{dy}"),
        ("f'(x)=2x", "f(x)=2x"), ("f(x)=2x", "f'(x)=2x"), ("y''+y=0", "y''+2y=0"), ("y''+y=0", "y'+y=0"),
        ("f^{-1}(x)", r"\frac{1}{f(x)}"), (r"\angle ABC", r"\angle ACB"), ("2^T", "2"), ("A^T", "A"),
        ("(1+r)^T", "1+r"), (r"\mathbf{a}\times\mathbf{b}", r"\mathbf{b}\times\mathbf{a}"),
        (r"\vec{a}\times\vec{b}", r"\vec{b}\times\vec{a}"), (r"\vec{a}\times\vec{b}", r"\vec{a}\cdot\vec{b}"),
        (r"\{1,\{2\}\}", r"\{1,2\}"),
        (r"\begin{cases}x^2 & x\ge0\\ -x & x<0\end{cases}", r"\begin{cases}x^2 & x<0\\ -x & x\ge0\end{cases}"),
        (r"\begin{cases}x^2 & x\ge0\\ -x & x<0\end{cases}", r"\begin{cases}x^2 & x>0\\ -x & x\le0\end{cases}"),
        ("7 R 2", "2 R 7"), ("7 R 2", "14"), ("12:30", "0.4"), ("12:30", "2:5"), ("2:3:5", "4:6:11"),
        ("(1,0)", "(1,000)"), (r"x\equiv 2\pmod 5", r"x \equiv 2 \bmod 7"), ("3", r"\log_2 9"), ("1", r"\log_2 8 3"),
    ]),
    "number words": ([
        ("5 million", "5000000"), ("5000000", "5 million"), ("2.5 billion", "2{,}500{,}000{,}000"),
        (r"7.8\text{ billion people}", "7800000000"), ("12", "1 dozen"), ("36", "3 dozen eggs"),
        ("0.03", "3 hundredths"), (r"\frac{7}{10}", "7 tenths"), ("2/3", "2 thirds"), ("5", r"5\text{ percent}"),
        ("500", "5 hundred"), ("1200", "12 hundred"), (r"\$1.2\text{ million}", "1200000"),
        ("1,500,000", r"1.5\text{ million}"), ("seven", "7"), ("7", "seven"), ("21", "twenty-one"), ("3", "three"),
        ("3 thousand", "3000 dollars"), ("3", "3 times"), ("3 hundred thousand", "300000"), ("1.5", "3 halves"),
        (r"\frac{1}{2}\text{ million}", "500000"), ("10^6", "1 million"), ("3,000,000", "3 million"),
        (r"\$3\text{ million}", r"\$3,000,000"), ("3000", r"3\text{ thousand}"),
        ("1.5 million", "1,500,000"), (r"\text{5 hundred}", "500"), (r"15 \text{ thousand dollars}", "15000"),
    ], [
        (r"7.8\text{ billion people}", "7.8"), ("3 dozen", "3"), ("4", "4 dozen"), ("7", "7 tenths"),
        ("2", "2 thirds"), ("9", "3 squared"), ("3", "3 squared"), ("5", "5 less"), ("5", "5 fewer"),
        ("5", "5 in debt"), ("5", r"\$5 loss"), ("-5", "5 below zero"), ("5", r"5\text{ below sea level}"),
        (r"\$1.2\text{ million}", "1.2"), ("1.2", "1.2 million"), ("7", "eight"), ("21", "twenty-two"),
        ("3 million", "3 billion"), ("3", "3 halves"), ("3", "half of 3"), ("3", "3 ago"),
        (r"\frac{1}{2}\text{ million}", r"\frac12"), ("3", "3 score"), ("3", "3 squared units"), ("3", "negative 3"),
        ("3", "minus 3"), ("3", "3 negative"), ("4", r"4\text{ north}"), ("4", "4 east"), ("4 seat", "4 east"),
        ("5", "5 short"), ("5", r"5\text{ more than }x"), ("6", "6 doubled"), ("-7", "7 under par"),
        ("7", r"7\text{ BC}"), ("3 million", "3"), ("3", "3 million"), ("3", r"3\text{ thousand}"),
        (r"\$3\text{ million}", r"\$3"), ("3", "3 hundred"), ("2.5 million dollars", "2.5"), ("3", "3 hundredths"),
        ("3", r"3\text{ cubed}"), ("3", "3 below zero"),
        ("2", r"2 \text{ millionths}"), ("3", "3 over 4"),
    ]),
    "units": ([
        (r"25^\circ\text{C}", "25"), (r"25^\circ C", r"25^\circ\text{C}"), (r"25^\circ C", r"25^\circ"),
        ("25 degrees Celsius", r"25^\circ\text{ C}"), (r"5\text{ m}", "5"), ("5", r"5\text{ m}"),
        (r"5\text{ m}", r"5\text{ meters}"), ("5 m", "5 meters"), (r"10\text{ m/s}^2", "10"),
        (r"9.8\,\mathrm{m/s^2}", r"9.8\text{ m/s}^2"), (r"9.8\,\mathrm{m/s^{2}}", r"9.8 \text{ m}\cdot\text{s}^{-2}"),
        ("25 m^2", "25 square meters"), ("12 inches", "12 in."), ("9.8 m/s^2", r"9.8\ \mathrm{m\,s^{-2}}"),
        ("9.8 m/s^2", r"9.8\frac{\text{m}}{\text{s}^2}"), (r"60\text{ km per hour}", "60 km/h"),
        ("5'", "5 feet"), ("5''", "5 inches"), (r"5\text{ hours}", "5 hrs"),
        ("3 apples", "3"), (r"3\text{ sq ft}", r"3\text{ ft}^2"), (r"3\text{ cubic meters}", r"3\text{ m}^3"),
        (r"\$5", "5 dollars"), ("€5", "5 euros"), ("20 N", r"20 \text{ N}"), (r"20\text{ J}", "20 joules"),
        (r"2\text{ kg}\cdot\text{m}", "2"), (r"12\text{ people}", "12"), ("8:00 AM", "8:00 a.m."),
        (r"8:00\text{ A.M.}", "8:00 AM"), (r"90^\circ", "90"), (r"90^\circ", r"\frac{\pi}{2}"), (r"6^\prime", "6'"),
        ("10 years old", "10"), (r"4\text{ units}", "4"), (r"4\text{ square units}", "4"), (r"7\text{ ways}", "7"),
        (r"7\text{ blue marbles}", "7"), (r"3\pi\text{ cm}", r"3\pi"), (r"3\pi", r"3\pi\text{ inches}"),
        ("3", r"3\text{ m/s}"), ("45 mi/h", "45 mph"), (r"3\,\text{L}", "3 liters"),
        (r"37\ \mathrm{^\circ C}", r"37^\circ C"), (r"20\text{ minutes}", r"20\text{ min}"), ("30", r"30\text{ sec}"),
    ], [
        ("25 degrees Celsius", "25 degrees Fahrenheit"), (r"300\text{ K}", r"300^\circ C"),
        (r"5\text{ m}", r"5\text{ cm}"), (r"5\text{ m}", r"500\text{ cm}"), (r"10\text{ m/s}", r"10\text{ m/s}^2"),
        ("25 m^2", "25 cubic meters"), ("9.8 m/s^2", r"9.8\frac{\text{m}}{\text{s}}"), ("60 km/h", "60 mph"),
        ("5'", "5''"), (r"5\text{ hours}", r"5\text{ minutes}"), ("3 apples", "3 oranges"),
        (r"3\text{ sq ft}", r"3\text{ ft}"), ("5 cents", "5 dollars"), ("£5", "€5"), (r"20\text{ N}", r"20\text{ J}"),
        ("12 students", "12 teachers"), ("8:00 AM", "8:00 PM"), ("15 days", "15 weeks"),
        (r"100\text{ cm}^2", r"100\text{ cm}^3"), (r"5\text{ kg}", r"5000\text{ g}"),
        (r"7\text{ red balls}", r"7\text{ blue balls}"), ("3 km", "3 m"), (r"2\text{ GB}", r"2\text{ MB}"),
        (r"20^\circ\mathrm{C}", r"20^\circ\mathrm{F}"), (r"20^\circ F", r"20^\circ C"), ("6''", "6'"),
        ("6 ft 2 in", "6"), (r"10\text{ N}\cdot\text{m}", r"10 \text{ J}"),
    ]),
    "E-notation": ([
        ("6.02e23", r"6.02\times10^{23}"), ("1E-3", "0.001"), ("0.001", "1e-3"), ("2.5e2", "250"), ("2.5E+2", "250"),
        ("1e3", "1000.0"), ("e", "1e"), ("3e", "3 e"), ("2e^3", "2 e^{3}"), ("-4e2", "-400"), ("1e23", "10^{23}"),
        ("1e+23", "10^{23}"), ("1e0", "1"), (r"\frac{1e3}{2}", "500"), ("(1e2, 2e2)", "(100, 200)"),
        (r"1e3\text{ m}", "1000"), ("1e10", "10^{10}"), ("5.0e-1", "1/2"), ("1e6", "1 million"), (".5e1", "5"),
        ("1e400", "10^{400}"), (r"\num{1e3}", "1000"), ("3e8", r"3\times 10^8"), ("1e-05", "0.00001"),
        ("1e-05", "10^{-5}"), ("1000", "1e3"), ("500000", "5e5"), ("1.5e-3", r"1.5\times 10^{-3}"),
    ], [
        ("1e3", "100"), ("1e3", "e^3"), ("1e3", "1^3"), ("1e2", "e2"), ("2e^3", "2e3"), ("1e-05", "10^{-6}"),
        ("400", "-4e2"), ("10^{23}", "99999999999999991611392"), ("1.5e3", "1.5e"), ("4e", "4"),
        ("1e400", "10^{401}"), ("1e3", "3e"), ("2e3", "6e"), ("2e1", "2e"), ("1e1", "e"),
    ]),
    "print styles": ([
        ("73", r"\textbf{73}"), ("73", r"\mathbf{73}"), ("73", r"\textcolor{blue}{73}"), ("73", r"\color{blue} 73"),
        ("73", r"\colorbox{yellow}{73}"), ("73", r"\Large{73}"), ("73", r"\mathbf{\color{red}{73}}"), ("73", "`73`"),
        ("73", "*73*"), ("73", "__73__"), ("73", "***73***"), ("73", r"\emph{73}"), ("73", r"\mathrm{73}"),
        ("73", r"{\bf 73}"), ("73", r"\text{73}"), ("73", r"\displaystyle 73"), ("73", r"\displaystyle{73}"),
        (r"\frac{1}{2}", r"\mathbf{\frac{1}{2}}"), (r"\frac{1}{2}", r"\displaystyle\frac{1}{2}"),
        ("x^2", r"\mathbf{x}^2"), ("x^{10}", r"x^{\mathbf{10}}"), ("x^{10}", r"x^\mathbf{10}"),
        ("73", r"\hspace{1em}73"), ("73", r"\smash{\mathnormal{73}}"), ("73", '<span style="color:red">73</span>'),
        (r"\sqrt{2}", r"\boldsymbol{\sqrt{2}}"), (r"\sqrt{2}", r"\sqrt{\boldsymbol{2}}"),
        ("(1,2)", r"\boldsymbol{(1,2)}"), (r"\pi", r"\boldsymbol{\pi}"), (r"2\pi", r"2\boldsymbol{\pi}"),
        (r"\text{yes}", r"\textbf{yes}"), (r"\text{(C)}", r"\textbf{(C)}"), ("C", r"\mathbf{C}"),
        ("C", r"\boldsymbol{C}"), ("73", r"\underline{\textbf{73}}"), ("x=3", r"\boldsymbol{x=3}"),
        ("3", r"\boldsymbol{x=3}"), ("73", r"$\bm{73}$"), ("73", r"\(\mathbf{73}\)"), ("73", r"\textbf{7}3"),
        ("73", r"\text{\textbf{73}}"), ("3x", r"3\mathit{x}"), (r"\mathbf{v}", "v"), ("12", r"\fbox{\textbf{12}}"),
        ("x+1", r"\color{red}{x}+1"), (r"4\text{ cm}", r"\textbf{4 cm}"), ("4", r"\textbf{4 cm}"),
        (r"\alpha\beta", r"\alpha\boldsymbol{\beta}"), ("73", r"\boldsymbol{73}"), ("73", r"\bm{73}"),
        ("73", r"\color{red}{73}"), ("73", r"{\color{red}73}"), ("73", r"\underline{73}"), ("73", "**73**"),
        ("73", r"\large 73"), ("73", r"\bf 73"), ("x+1", r"\boldsymbol{x+1}"),
        (r"\frac{1}{2}", r"\boldsymbol{\frac{1}{2}}"), ("73", r"\ensuremath{73}"), ("73", r"\num{73}"),
        ("73", r"\fbox{73}"),
        ("42", "**Answer:** 42"), ("42", "<b>42</b>"), ("42", r"\textcolor[rgb]{1,0,0}{42}"),
    ], [
        ("37", r"\boldsymbol{73}"), ("37", "**73**"), ("73", r"\textbf{37}"), ("(1,2)", r"\boldsymbol{(2,1)}"),
        ("C", r"\boldsymbol{D}"), ("73", r"7\textbf{4}"), (r"0.\overline{3}", "0.3"), ("5", r"\overline{5}"),
        ("3", r"\cancel{3}"), ("3", r"\sout{3}"), ("12", "**12"), ("x+1", r"\color{red}{x-1}"),
        (r"4\text{ m}", r"\textbf{4 cm}"),
        ("42", "**Answer:** 24"), ("321", "3**2**1"),
    ]),
    "thousands": ([
        (r"12,345\pi", r"12345\pi"), ("2,000+3x", "3x+2000"), ("1,234,567x", "1234567x"), (r"\sqrt{1,024}", "32"),
        (r"\frac{1}{1,000}", "0.001"), (r"\frac{1}{1,000}", "10^{-3}"), ("(1,000, 2,000)", "(1000, 2000)"),
        (r"\{1,000, 2,000\}", r"\{1000, 2000\}"), (r"1,000\pi", r"1000\pi\text{ cm}"), ("x = 1,000", "1000"),
        (r"1,000 \text{ dollars}", "1000"), (r"\$1,000,000", "1000000"), (r"1\,000\,000", "1000000"),
        (r"1{,}000\pi", r"1000\pi"), ("2^{1,000}", "2^{1000}"), ("-1,000x", "-1000x"), ("1,000/7", r"\frac{1000}{7}"),
        ("1,000%", "10"), (r"\binom{1,000}{2}", "499500"), (r"5,000\text{ ft}^2", "5000"),
        ("1000/3", r"\frac{1,000}{3}"), (r"\frac{1,000}{2}", "500"), (r"1000\pi", r"1,000\pi"), ("1,000/3", "1000/3"),
        ("1,000x", "1000x"), ("1,000+1", "1001"), (r"\frac{\mathrm{1,000}}{2}", "500"),
    ], [
        ("(1,000)", "1000"), ("1000", "(1,000)"), ("1,000,2,000", "1000"), ("1,2,3", "123"),
        (r"12,34\pi", r"1234\pi"), ("1,000x", "1x"), (r"1,000\pi", "0"), ("(1,234)", "1234"), ("[1,000]", "1000"),
        (r"\{1,000\}", "1000"), ("0,123x", "123x"), (r"1,00\pi", r"100\pi"), ("1,0000", "10000"),
        ("a_{1,234}", "a_{1234}"), (r"1, 200\pi", r"1200\pi"), ("f(1,000)", "f(1000)"),
    ]),
    "functions": ([
        ("e^{-x}", "exp(-x)"), (r"\cosh(x)", "cosh(x)"), (r"\tanh x", "tanh(x)"),
        (r"\frac{e^x+e^{-x}}{2}", "cosh(x)"), (r"\ln 2", "ln(2)"), (r"\sqrt{5}", "sqrt(5)"),
        (r"\sqrt{x^2+1}", "sqrt((x^2)+1)"), (r"2\sqrt{3}", "2*sqrt(3)"), (r"\arctan(2)", "arctan(2)"),
        (r"\arctan(2)", "atan(2)"), (r"\arcsin x", "asin(x)"), (r"\frac{\sqrt{3}}{2}", "sqrt(3)/2"),
        (r"\sin(x)+\cos(x)", "sin(x)+cos(x)"), (r"\sqrt[3]{2}", "cbrt(2)"), ("|x|", "abs(x)"),
        (r"\lfloor x\rfloor", "floor(x)"), (r"\lceil x \rceil", "ceil(x)"), (r"\coth(x)", r"\frac{\cosh x}{\sinh x}"),
        ("coth(x)", "cosh(x)/sinh(x)"), (r"\operatorname{sech}(x)", r"\frac{1}{\cosh x}"), (r"\pi", "pi"),
        (r"2\pi", "2pi"), (r"2\pi", "2*pi"), ("e^{x^2}", "exp(x**2)"), ("x^2 e^x", "x^2*exp(x)"),
        (r"\log_2 3", "log_2(3)"), (r"\exp(2)", "e^2"), (r"\max(3,x)", "max(3,x)"), ("e^{exp(0)}", "e"),
        (r"\sec x", "sec x"), ("30", "30 sec"), ("5 min", "5"), (r"\operatorname{arsinh}(x)", "asinh(x)"),
        ("t e^{-t}", "t*exp(-t)"), (r"\sqrt{2}", r"\sqrt(2)"), ("sin(pi/6)", "1/2"), (r"\tan^{-1}(2)", "arctan(2)"),
        ("e^2", "exp(2)"), ("e^{16}-1", "-1 + exp(16)"), ("exp(-t)", "e^{-t}"), ("e^{2x}", "exp(2x)"),
        (r"\frac{e^x-e^{-x}}{2}", "sinh(x)"),
    ], [
        ("e^{x}", "exp(-x)"), (r"\frac{e^x+e^{-x}}{2}", "sinh(x)"), (r"\sin x", "cos x"), ("e^2", "exp(3)"),
        (r"\sqrt{2}", "sqrt(3)"),
    ]),
    "environments": ([
        ("3", r"\begin{align*}x&=3\end{align*}"), ("3", r"\begin{align}3\end{align}"),
        ("3", r"\begin{gather}3\end{gather}"), ("3", r"\begin{gathered}x=3\end{gathered}"),
        ("3", r"\begin{equation*}x=3\end{equation*}"), ("3", r"\begin{array}{l}x=3\end{array}"),
        ("3", r"\begin{cases}x=3\end{cases}"), ("x=1,y=2", r"\begin{aligned}x&=1\\y&=2\end{aligned}"),
        ("x=1,y=2", r"\begin{aligned}x&=1,&y&=2\end{aligned}"), ("7", r"\begin{aligned}x&=3+4\\&=7\end{aligned}"),
        ("3", r"\begin{matrix}3\end{matrix}"), ("3", r"\begin{split}x&=3\end{split}"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\bigl(\begin{smallmatrix}1&2\\3&4\end{smallmatrix}\bigr)"),
        ("3", r"\begin{equation}x=3\tag{1}\end{equation}"),
        ("(1,2)", r"\begin{cases}x=1\\y=2\end{cases}"), ("x^2+1", r"\begin{aligned}f(x)&=x^2+1\end{aligned}"),
        ("3", r"\begin{eqnarray*}x&=&3\end{eqnarray*}"), ("3", r"\begin{aligned}[t]x&=3\end{aligned}"),
        ("3", r"\[\begin{aligned}x&=3\end{aligned}\]"), ("1,2", r"\begin{aligned}x&=1\\x&=2\end{aligned}"),
        ("x>3", r"\begin{aligned}x&>3\end{aligned}"), (r"\begin{aligned}x&=3\end{aligned}", "3"),
        (r"\begin{cases}x=1\\y=2\end{cases}", "x=1, y=2"), ("10", r"\begin{multline}x=10\end{multline}"),
        ("3", r"\begin{aligned}x&=3\end{aligned}"), ("x=3", r"\begin{aligned}x&=3\end{aligned}"),
        ("3", r"\begin{equation}3\end{equation}"),
    ], [
        ("x=1,y=2", r"\begin{aligned}x&=2\\y&=1\end{aligned}"), ("8", r"\begin{aligned}x&=3+4\\&=8\end{aligned}"),
        ("3", r"\begin{aligned}x&=4\end{aligned}"), ("4", r"\begin{equation}3\end{equation}"),
        ("3", r"\begin{aligned}3\\4\end{aligned}"), ("1,2", r"\begin{aligned}x&=1\end{aligned}"),
        ("x>3", r"\begin{aligned}x&<3\end{aligned}"),
    ]),
    "small": ([
        ("12_5", r"12_{\text{five}}"), ("101_2", "101_{two}"), (r"2\frac{1}{3}", r"{2}\frac{1}{3}"),
        ("7/3", r"{2}\frac13"), (r"\infty", r"\text{infinitely many}"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)"), ("30.52", r"\frac{1587}{52}"), ("2.67", "8/3"),
        ("x^2", "x<sup>2</sup>"), ("x_1", "x<sub>1</sub>"), ("60^\textcirc", "60"), ("\text{cm}", "cm"),
        ("2\times 3", "6"), (r"(1, \sqrt{2}.]", r"(1,\sqrt{2}]"), ("②③", "2, 3"), (r"9 \text{ p.m.}", "9 PM"),
        ("3:30", "3:30 PM"), (r"\rho\sin\theta=\sqrt{3}", r"\rho=\sqrt{3}\csc\theta"), (r"\text{only }x=0", "0"),
        ("5", r"\text{The final answer is } 5"), ("5", "Answer: 5"), ("25", r"\text{Area of the square is } 25"),
        ("52_8", r"52_{\text{eight}}"), ("12:30 PM", r"12:30 \text{ p.m.}"), (r"3\text{ kg}\cdot\text{m/s}", "3"),
        ("23/4", r"{5}\frac{3}{4}"),
        ("110_2", "110_{(2)}"),
    ], [
        ("12_5", r"12_{\text{six}}"), (r"2\frac{1}{3}", r"{2}\frac{2}{3}"), ("3", "nan"), ("3", "inf"),
        ("3", "infinitely many"), (r"\begin{pmatrix}1&2\end{pmatrix}", "(2,1)"), ("30.52", r"\frac{1588}{52}"),
        ("3.1", r"\pi"), ("0.33", "1/3"), ("2.66", "8/3"), (r"\pi", "3.14"), ("0.3333", "1/3"),
        ("x^2", "x<sup>3</sup>"), ("②③", "1, 3"), ("3:30 PM", "4:30 PM"),
        ("9", r"\text{The square of the answer is } 9"), ("3", r"\text{half of it is } 3"),
        ("-3", r"\text{The opposite is } -3"), ("5", r"5\text{ is the answer}"), ("5", r"\text{Not } 5"),
        ("5", r"5 \text{ (approximately)}"),
        ("110_2", "110_{(3)}"),
    ]),
    "words": ([
        ("206", "two hundred and six"), ("300", "three hundred"), ("1500", "one thousand five hundred"),
        ("-2100", "minus twenty-one hundred"), ("1000001", "one million and one"), ("2/3", "two thirds"),
        ("0.03", "three hundredths"), ("24", "two dozen"), ("500000", "half a million"),
        ("3/4", "three quarters"), ("1/4", "one fourth"),
        ("2.5", "two and a half"), ("1/3", "a third"), ("0.5", "half"),
        (r"\infty", "Infinity"), (r"2.5\times10^3", "2.5 x 10^3"), ("73", "<u>73</u>"),
    ], [
        ("2", "two thirds"), ("3", "three hundredths"), ("2", "two and a half"), ("21", "twenty-one hundred"),
        ("3", "three quarters"), ("0.75", "3 quarters"), ("4", "fourth"), ("2", "two dozen"), ("20", "twenty zero"),
        ("3", "two one"), ("1/100", "three hundredth"), ("0", "0x1F"), ("0", "0b101"),
        ("73", "~~73~~"), ("37", "37~~73~~"), ("3", r"3 x 10^3"),
    ]),
    "runs": ([
        (r"a_0+a_1+\ldots+a_k", r"a_k+a_{k-1}+\cdots+a_0"), (r"1+2+\cdots+n", r"n+(n-1)+\ldots+1"),
        (r"S=a_1+a_2+\cdots+a_n", r"a_1+\cdots+a_n"), (r"\frac{a_1+a_2+\ldots+a_n}{n}", r"\frac{a_n+\ldots+a_1}{n}"),
        (r"x_1x_2\cdots x_n", r"x_n \cdot \ldots \cdot x_1"), (r"\{1,2,\ldots,n\}", r"\{1,2,3,\ldots,n\}"),
        (r"(1,2,\ldots,n)", r"(1,2,3,\ldots,n)"), (r"1+2+\cdots+100", r"100+99+\cdots+1"),
    ], [
        (r"a_1+a_2+\cdots+a_n", r"a_1+a_3+\cdots+a_n"), (r"a_1+a_2+\cdots+a_n", r"a_1+a_2+\cdots+a_{n-1}"),
        (r"a_1+a_2+\cdots+a_n", r"a_1a_2\cdots a_n"), (r"a_1+a_2+\cdots+a_n", r"a_1+a_2+\cdots+b_n"),
        (r"1+2+\cdots+n", r"1+2+4+\cdots+n"), (r"1+2+\cdots+n", r"1+2+\cdots+n+1"),
        (r"(1,2,\ldots,n)", r"(n,\ldots,2,1)"), (r"n-a_0+a_1+\ldots+a_k", r"n-a_k+a_{k-1}+\ldots+a_0"),
        (r"x_1x_2\cdots x_n^2", r"x_n^2\cdots x_2x_1"), (r"2,3,\ldots,9", r"3,2,\ldots,9"),
    ]),
    "control": ([
        ("7", "7 books"), ("7 books", "7"), ("3 million", "3 million"), ("4e", "4e"), (r"20^\circ\text{C}", "20"),
        ("1,234", "1234"),
    ], [
        ("5 kg", "5 lb"), ("37", r"\mathbf{73}"), ("x+1", r"\boldsymbol{x-1}"),
    ]),
}  # fmt: skip
"""Right pairs of reference and answer, and wrong ones."""

STYLES = (
    "{}", "${}$", r"\({}\)", "**{}**", "`{}`", r"\boldsymbol{{{}}}", r"\mathbf{{{}}}", r"\textbf{{{}}}", "{}.",
    r"\color{{red}}{{{}}}", r"{{\color{{red}}{}}}", r"\textcolor{{blue}}{{\bm{{{}}}}}", r"\underline{{{}}}",
    r"\large {}",
    r"{{\bf {}}}", r"\fbox{{{}}}", r"\displaystyle {}", r"\begin{{aligned}}{}\end{{aligned}}", "x = {}",
    r"\begin{{equation*}}{}\end{{equation*}}", r"\begin{{aligned}}x&={}\end{{aligned}}",
    r"\text{{The answer is }} {}",
)  # fmt: skip
"""Ways to print a value that leave it what it is."""
WORDS = {"hundred": 100, "million": 10**6, "tenths": Fraction(1, 10), r"\text{ thousand}": 1000, r"\text{ cm}": 1}
VALUES = st.one_of(  # as written, and the value
    st.integers(-(10**12), 10**12).map(lambda n: (f"{n:,}", Fraction(n))),
    st.decimals(-(10**6), 10**6, places=3).map(lambda n: (f"{n:f}", Fraction(n))),
    st.builds(lambda a, b: (rf"\frac{{{a}}}{{{b}}}", Fraction(a, b)), st.integers(1, 999), st.integers(2, 999)),
    st.builds(lambda a, b: (f"{a}e{b}", a * Fraction(10) ** b), st.integers(1, 9999), st.integers(-9, 9)),
    st.builds(lambda a, w: (f"{a} {w}", a * Fraction(WORDS[w])), st.integers(2, 999), st.sampled_from(list(WORDS))),
)


def judged(reference: str, answer: str) -> bool:
    step = decide(Problem("p", "q", reference), Extracted(answer, "", False))
    assert step.finding is not None, (reference, answer, "needs a parser")
    return step.finding.outcome is Outcome.CORRECT


@settings(deadline=None, max_examples=200)
@given(VALUES, VALUES, st.sampled_from(STYLES), st.sampled_from(STYLES))
def test_a_value_in_any_style_is_itself_and_no_other(
    value: tuple[str, Fraction], other: tuple[str, Fraction], style: str, other_style: str
) -> None:
    assert judged(style.format(value[0]), other_style.format(value[0]))
    assume(value[1] != other[1] and abs(value[1] - other[1]) > Fraction(1, 1000))  # a rounding may stand for a fraction
    assert not judged(style.format(value[0]), other_style.format(other[0]))
    assert not judged(other_style.format(other[0]), style.format(value[0]))


MARKS = "0123456789 .,-+/^_{}()\\eExm%'\"$*&°"
PIECES = [*MARKS, r"\frac", r"\text{", r"\bm{", "million", "cm", r"\begin{align}", "&="]


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_no_text_raises_and_none_is_wrong_for_itself(text: str) -> None:
    step = decide(Problem("p", "q", text), Extracted(text, "", False))
    assert step.finding is None or step.finding.outcome is not Outcome.WRONG


@pytest.mark.parametrize(("kind", "side"), [(kind, side) for kind in KINDS for side in (0, 1)])
def test_pairs(misjudged: Any, kind: str, side: int) -> None:
    assert misjudged(KINDS[kind][side], side == 0) == []


@pytest.mark.parametrize("reference", ["nan", "NaN", "-inf", "inf"])
def test_what_a_program_prints_for_no_number_is_no_reference(verifier: MathVerifier, reference: str) -> None:
    verdict = verifier.verify(Problem("p", "q", reference), f"\\boxed{{{reference}}}")
    assert (verdict.outcome, verdict.reward) == (Outcome.CRASHED, None)


@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [("1e-05", "0.00001", True), ("1e+23", "10^{23}", True), ("3 million", "3,000,000", True),
     ("3", "3 million", False),
     ("1e3", "3e", False), ("20^\\circ C", "20^\\circ F", False), ("73", "**73**", True), ("3", "3 below zero", False)],
)  # fmt: skip
def test_the_verifier_of_numbers_reads_the_same(reference: str, answer: str, right: bool) -> None:
    verdict = NumberVerifier().verify(Problem("p", "q", reference), f"\\boxed{{{answer}}}")
    assert (verdict.outcome is Outcome.CORRECT) is right


def test_references_with_words_that_are_no_unit_are_listed(verifier: MathVerifier) -> None:
    texts = ["7 books", r"3\text{ kg}\cdot\text{m/s}", "3 below zero", r"7\text{ zorbs}"]
    problems = [Problem(text, "q", text) for text in texts]
    assert [problem.id for problem, _ in verifier.unreadable(problems)] == texts[2:]
