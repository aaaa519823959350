"""The pages of the made web that are mathematics: six styles, as different sites would write them.

Every problem on them is of its task's train split, so what a benchmark holds occurs only where it is planted.
"""

from collections.abc import Callable, Mapping

from groupwise.randomness import Draw
from groupwise.tasks import corpus_working as w
from groupwise.tasks import word_problems as stories
from groupwise.tasks.arithmetic import chain_problem, operands
from groupwise.tasks.base import split_of
from groupwise.tasks.corpus import train_pair
from groupwise.tasks.countdown import CountdownConfig, draw_countdown
from groupwise.types import Problem

Writer = Callable[[Draw], list[str]]
"""Writes a page: its paragraphs."""
TWO_DIGITS = operands(2)
COUNTDOWN = CountdownConfig(kind="countdown")
EXERCISES = (4, 9)
"""Fewest and most problems on a page."""


def products(draw: Draw) -> list[str]:
    """Multiplication drills with worked solutions."""
    lines = [draw.choice(("Multiply by tens and units.", "Long multiplication, worked.", "Two-digit products."))]
    return lines + _several(draw, lambda: _product(draw))


def _product(draw: Draw) -> str:
    left, right = train_pair(draw, "product", TWO_DIGITS, TWO_DIGITS)
    rounds = draw.uniform() < 0.3 and w.can_round(left, right)
    working = w.say((w.rounding if rounds else w.decompose)(left, right))
    question = draw.choice((f"What is {left} × {right}?", f"Calculate {left} × {right}.", f"{left} × {right} = ?"))
    return f"{question} {working} The product is {left * right}."


def english_stories(draw: Draw) -> list[str]:
    """Word problems in English with their solutions."""
    return _several(draw, lambda: _story(draw, "en"))


def chinese_stories(draw: Draw) -> list[str]:
    """Word problems in Chinese with their solutions."""
    return _several(draw, lambda: _story(draw, "zh"))


def _story(draw: Draw, language: stories.Language) -> str:
    while True:
        problem = stories.draw_story(draw, (language,), (1, 2, 3), 0.3)
        if split_of(problem.question) == "train":
            break
    steps, unit = w.linked(draw, problem.data["steps"], language), problem.data["unit"]
    if language == "zh":
        return f"{problem.question}{steps}一共{problem.reference}{unit}。"
    return f"{problem.question} {steps} The answer is {problem.reference} {unit}."


def forum(draw: Draw) -> list[str]:
    """A thread in which pupils help one another with chains of operations."""
    lines = [draw.choice(("Stuck on homework again", "pls help with order of operations", "is my result right??"))]
    for _ in range(draw.integer(2, 4)):
        problem = _chain(draw)
        chain = problem.question.removeprefix("What is ").removesuffix("?")
        lines.append(
            draw.choice(("hi all, i get stuck with ", "my teacher asks for ", "whats ")) + f"{chain}, any ideas?"
        )
        lines.append(draw.choice(("easy: ", "do the times first. ", "like this ")) + w.say(problem.data["steps"]))
        lines.append(draw.choice(("thx got it now", "ah so its ", "yes i get ")) + f" {problem.reference} :)")
    return lines


def _chain(draw: Draw) -> Problem:
    while True:
        content, problem = chain_problem(draw, 2, draw.integer(3, 4))
        if split_of(content) == "train":
            return problem


def countdown(draw: Draw) -> list[str]:
    """A puzzle column: numbers and a target, solutions below."""
    lines = [draw.choice(("Puzzle corner", "Number game of the week", "Reach the target"))]
    return lines + _several(draw, lambda: _countdown(draw))


def _countdown(draw: Draw) -> str:
    while True:
        content, problem = draw_countdown(draw, COUNTDOWN)
        if split_of(content) == "train":
            break
    return f"{problem.question} {w.say(problem.data['steps'])} One way is {problem.reference}."


def reference(draw: Draw) -> list[str]:
    """A page of a work of reference: definitions and identities, in LaTeX."""
    return _several(draw, lambda: draw.choice(REFERENCE)(draw))


def _several(draw: Draw, write: Callable[[], str]) -> list[str]:
    return [write() for _ in range(draw.integer(*EXERCISES))]


def _distributive(draw: Draw) -> str:
    a, b, c = (draw.integer(2, 9) for _ in range(3))
    return (
        f"Theorem. Multiplication distributes over addition: $x(y+z) = xy + xz$ for all integers $x, y, z$. "
        f"Example: ${a} \\times ({b}+{c}) = {a * b}+{a * c} = {a * (b + c)}$."
    )


def _fraction(draw: Draw) -> str:
    a, b, k = draw.integer(1, 9), draw.integer(2, 9), draw.integer(2, 9)
    return (
        f"Definition. Two fractions $\\frac{{a}}{{b}}$ and $\\frac{{c}}{{d}}$ are equal if $ad = bc$. "
        f"Hence $\\frac{{{a}}}{{{b}}} = \\frac{{{a * k}}}{{{b * k}}}$."
    )


def _division(draw: Draw) -> str:
    d, q = draw.integer(3, 12), draw.integer(3, 30)
    r = draw.integer(0, d - 1)
    return (
        f"Lemma. For integers $n$ and $d > 0$ there are unique $q, r$ with $n = qd + r$ and $0 \\le r < d$. "
        f"For $n = {q * d + r}$ and $d = {d}$: $q = {q}$, $r = {r}$."
    )


def _sum(draw: Draw) -> str:
    n = draw.integer(4, 40)
    return (
        f"Proposition. The sum of the first $n$ positive integers is $\\frac{{n(n+1)}}{{2}}$. "
        f"Proof. By induction on $n$. For $n = {n}$ it is ${n * (n + 1) // 2}$."
    )


def _square(draw: Draw) -> str:
    a, b = draw.integer(10, 40), draw.integer(1, 9)
    return (
        f"Identity. $(a+b)^2 = a^2 + 2ab + b^2$ and $(a-b)(a+b) = a^2 - b^2$. "
        f"Corollary: ${a}^2 - {b}^2 = {a - b} \\times {a + b} = {a * a - b * b}$."
    )


REFERENCE = (_distributive, _fraction, _division, _sum, _square)
STYLES: Mapping[str, Writer] = {
    "products": products,
    "reference": reference,
    "english_stories": english_stories,
    "chinese_stories": chinese_stories,
    "forum": forum,
    "countdown": countdown,
}
"""The six styles of mathematics."""
SEEN = ("products", "reference")
"""Those that a seed of the made web holds; the others must be found."""


def language_of(style: str) -> str:
    """The language of a style's words (ISO 639-1)."""
    return "zh" if style.startswith("chinese") else "en"
