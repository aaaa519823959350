"""The pages of the made web: six styles of mathematics as different sites would write them, and ten kinds of others.

Every problem on them is of its task's train split, so what a benchmark holds occurs only where it is planted. The other
pages are prose, or full of numbers and no mathematics all the same.
"""

from collections.abc import Callable, Mapping

import diet_working as w
import word_problems as stories
from countdown import CountdownConfig, draw_countdown
from groupwise.randomness import Draw
from groupwise.tasks.arithmetic import chain_problem, decompose, operands
from groupwise.tasks.base import split_of

Writer = Callable[[Draw], list[str]]
"""Writes a page: its paragraphs."""
TWO_DIGITS = operands(2)
COUNTDOWN = CountdownConfig(kind="countdown")
EXERCISES = (4, 9)
"""Fewest and most problems on a page."""


def products(draw: Draw) -> list[str]:
    """Multiplication drills with worked solutions."""
    lines = [draw.choice(("Multiply by tens and units.", "Long multiplication, worked.", "Two-digit products."))]
    for _ in range(draw.integer(*EXERCISES)):
        left, right = w.train_pair(draw, "product", TWO_DIGITS, TWO_DIGITS)
        rounds = draw.uniform() < 0.3 and w.can_round(left, right)
        working = w.say((w.rounding if rounds else decompose)(left, right))
        question = draw.choice((f"What is {left} × {right}?", f"Calculate {left} × {right}.", f"{left} × {right} = ?"))
        lines.append(f"{question} {working} The product is {left * right}.")
    return lines


def english_stories(draw: Draw) -> list[str]:
    """Word problems in English with their solutions."""
    return [_story(draw, "en") for _ in range(draw.integer(*EXERCISES))]


def chinese_stories(draw: Draw) -> list[str]:
    """Word problems in Chinese with their solutions."""
    return [_story(draw, "zh") for _ in range(draw.integer(*EXERCISES))]


def _story(draw: Draw, language: stories.Language) -> str:
    while True:
        problem = stories.draw_story(draw, (language,), (1, 2, 3))
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
        while True:
            content, problem = chain_problem(draw, 2, draw.integer(3, 4))
            if split_of(content) == "train":
                break
        chain = problem.question.removeprefix("What is ").removesuffix("?")
        lines.append(
            draw.choice(("hi all, i get stuck with ", "my teacher asks for ", "whats ")) + f"{chain}, any ideas?"
        )
        lines.append(draw.choice(("easy: ", "do the times first. ", "like this ")) + w.say(problem.data["steps"]))
        lines.append(draw.choice(("thx got it now", "ah so its ", "yes i get ")) + f" {problem.reference} :)")
    return lines


def countdown(draw: Draw) -> list[str]:
    """A puzzle column: numbers and a target, solutions below."""
    lines = [draw.choice(("Puzzle corner", "Number game of the week", "Reach the target"))]
    for _ in range(draw.integer(*EXERCISES)):
        while True:
            content, problem = draw_countdown(draw, COUNTDOWN)
            if split_of(content) == "train":
                break
        lines.append(f"{problem.question} {w.say(problem.data['steps'])} One way is {problem.reference}.")
    return lines


def reference(draw: Draw) -> list[str]:
    """A page of a work of reference: definitions and identities, in LaTeX."""
    lines = []
    for _ in range(draw.integer(*EXERCISES)):
        match draw.choice(("distributive", "fraction", "division", "sum", "square")):
            case "distributive":
                a, b, c = (draw.integer(2, 9) for _ in range(3))
                text = (
                    f"Theorem. Multiplication distributes over addition: $x(y+z) = xy + xz$ for all integers "
                    f"$x, y, z$. Example: ${a} \\times ({b}+{c}) = {a * b}+{a * c} = {a * (b + c)}$."
                )
            case "fraction":
                a, b, k = draw.integer(1, 9), draw.integer(2, 9), draw.integer(2, 9)
                text = (
                    f"Definition. Two fractions $\\frac{{a}}{{b}}$ and $\\frac{{c}}{{d}}$ are equal if $ad = bc$. "
                    f"Hence $\\frac{{{a}}}{{{b}}} = \\frac{{{a * k}}}{{{b * k}}}$."
                )
            case "division":
                d, q = draw.integer(3, 12), draw.integer(3, 30)
                r = draw.integer(0, d - 1)
                text = (
                    f"Lemma. For integers $n$ and $d > 0$ there are unique $q, r$ with $n = qd + r$ and "
                    f"$0 \\le r < d$. For $n = {q * d + r}$ and $d = {d}$: $q = {q}$, $r = {r}$."
                )
            case "sum":
                n = draw.integer(4, 40)
                text = (
                    f"Proposition. The sum of the first $n$ positive integers is $\\frac{{n(n+1)}}{{2}}$. "
                    f"Proof. By induction on $n$. For $n = {n}$ it is ${n * (n + 1) // 2}$."
                )
            case _:
                a, b = draw.integer(10, 40), draw.integer(1, 9)
                text = (
                    f"Identity. $(a+b)^2 = a^2 + 2ab + b^2$ and $(a-b)(a+b) = a^2 - b^2$. "
                    f"Corollary: ${a}^2 - {b}^2 = {a - b} \\times {a + b} = {a * a - b * b}$."
                )
        lines.append(text)
    return lines


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


PLACES = ("Oakfield", "Harbour Lane", "Millbrook", "the old town", "Stonebridge", "the north coast", "Elm Valley",
          "the station", "the market square", "Lakeside", "Windmill Hill", "the river path")  # fmt: skip
THINGS = ("bakery", "library", "bridge", "garden", "museum", "ferry", "theatre", "school", "orchard", "workshop",
          "cinema", "lighthouse", "bicycle shop", "concert hall", "swimming pool")  # fmt: skip
PEOPLE = ("the mayor", "a neighbour", "the owner", "our reporter", "the gardener", "a visitor", "the conductor",
          "the driver", "the committee", "a volunteer", "the architect", "the captain")  # fmt: skip
VERBS = ("opened", "closed", "painted", "visited", "praised", "repaired", "described", "photographed", "celebrated",
         "rebuilt", "discovered", "remembered")  # fmt: skip
ENDINGS = ("after a long winter", "in front of a large crowd", "without any fuss", "for the first time in years",
           "with great care", "despite the rain", "to everyone's surprise", "before the holidays",
           "as the sun went down", "while children played outside")  # fmt: skip
DEVICES = ("phone", "laptop", "printer", "router", "camera", "keyboard", "tablet", "headphones", "monitor")
TROUBLES = ("keeps restarting", "does not charge", "shows a blank screen", "loses the connection", "is very slow",
            "makes a strange noise", "forgets my settings")  # fmt: skip
FOODS = ("flour", "butter", "sugar", "milk", "tomatoes", "rice", "onions", "olive oil", "cheese", "eggs", "lentils")
TEAMS = ("Rovers", "United", "Wanderers", "Athletic", "City", "Rangers", "Town", "Albion")
CHINESE = (
    "{n}和{m}是好朋友，我们一起去。", "今天天气很好，小朋友在公园里玩。", "{n}喜欢{thing}，也喜欢看书。",
    "汽车在楼下等我们。",
    "{m}年年都买新的{thing}送给{n}。", "老师说明天学校开放日，欢迎家长参加。", "红色的{good}比蓝色的好看。",
    "{n}住在三楼，{m}住在二楼。", "周末全家去湖边散步，看到很多鸟。", "这家店的{thing}很有名，每天都有人排队。",
    "{n}今年{x}岁，{m}比他大。", "气温{x}度，记得多穿衣服。",
)  # fmt: skip


def news(draw: Draw) -> list[str]:
    """Local news."""
    paragraphs = []
    for _ in range(draw.integer(3, 6)):
        sentences = []
        for _ in range(draw.integer(2, 5)):
            who, verb, end = draw.choice(PEOPLE).capitalize(), draw.choice(VERBS), draw.choice(ENDINGS)
            year = f" in {draw.integer(1950, 2024)}" if draw.uniform() < 0.25 else ""
            sentences.append(f"{who} {verb} the {draw.choice(THINGS)} near {draw.choice(PLACES)}{year} {end}.")
        paragraphs.append(" ".join(sentences))
    return paragraphs


def children(draw: Draw) -> list[str]:
    """Children's stories with the people and things of word problems, and nothing to work out."""
    paragraphs = []
    for _ in range(draw.integer(2, 5)):
        scenes = []
        for _ in range(draw.integer(3, 6)):
            word = stories.draw_words(draw, "en")
            scenes.append(draw.choice((
                f"{word['n']} has a red {word['good']} and {word['m']} has a blue one.",
                f"{word['m']} gives {word['n']} some {word['thing']} for the way home.",
                f"{word['n']} is {draw.integer(5, 12)} years old and collects {word['thing']}.",
                f"The bus was late, so {word['n']} read a book to {word['m']}.",
                f"They put the {word['thing']} into a bag and went to {draw.choice(PLACES)}.",
                f"At {draw.integer(2, 9)} o'clock {word['m']} called {word['n']} for dinner.",
            )))  # fmt: skip
        paragraphs.append(" ".join(scenes))
    return paragraphs


def prices(draw: Draw) -> list[str]:
    """A shop's page: numbers, none of them worked with."""
    lines = ["New in the shop. Free delivery on all orders."]
    for _ in range(draw.integer(6, 12)):
        was, now = draw.integer(40, 200), draw.integer(10, 39)
        lines.append(f"{draw.choice(DEVICES).capitalize()} {draw.integer(100, 999)}: was {was}.99, now {now}.49, "
                     f"{draw.integer(2, 60)} in stock.")  # fmt: skip
    return lines


def results(draw: Draw) -> list[str]:
    """Sports results."""
    lines = [f"Results of week {draw.integer(1, 38)}"]
    for _ in range(draw.integer(6, 12)):
        home, away = draw.shuffled(TEAMS)[:2]
        lines.append(f"{home} {draw.integer(0, 5)} - {draw.integer(0, 5)} {away} (att. {draw.integer(900, 45000)})")
    return lines


def logs(draw: Draw) -> list[str]:
    """A server's log."""
    return [
        f"2023-{draw.integer(1, 12):02d}-{draw.integer(1, 28):02d} {draw.integer(0, 23):02d}:{draw.integer(0, 59):02d} "
        f"{draw.choice(('INFO', 'WARN', 'ERROR'))} worker[{draw.integer(100, 9999)}]: request took "
        f"{draw.integer(2, 900)} ms, status {draw.choice((200, 304, 404, 500))}"
        for _ in range(draw.integer(8, 16))
    ]


def code(draw: Draw) -> list[str]:
    """Source code with comments."""
    lines = ["# settings of the service", f"timeout = {draw.integer(5, 90)}", f"retries = {draw.integer(1, 9)}"]
    for _ in range(draw.integer(3, 6)):
        name = draw.choice(DEVICES)
        lines.append(f"def load_{name}(path, size={draw.integer(8, 512)}): return open(path).read()[: size + 1]")
        lines.append(f"for item in load_{name}('{name}.txt'): print(item, len(item) * 2)")
    return lines


def help_forum(draw: Draw) -> list[str]:
    """A thread about devices, in the words of the threads about homework."""
    device = draw.choice(DEVICES)
    lines = [draw.choice(("Stuck with my ", "pls help with ", "is this ")) + device]
    for _ in range(draw.integer(2, 4)):
        lines.append(f"hi all, my {device} {draw.choice(TROUBLES)}, any ideas?")
        lines.append(
            draw.choice(("easy: ", "do the update first. ", "like this: ")) + f"restart the {device} and wait."
        )
        lines.append(draw.choice(("thx got it now :)", "ah so its that", "yes i get the same")))
    return lines


def recipes(draw: Draw) -> list[str]:
    """Cooking, by numbers."""
    lines = [f"Serves {draw.integer(2, 8)}, ready in {draw.integer(15, 90)} minutes."]
    lines += [f"{draw.integer(2, 9) * 50} g {draw.choice(FOODS)}" for _ in range(draw.integer(4, 7))]
    return [*lines, f"Mix the {draw.choice(FOODS)} with the {draw.choice(FOODS)} and bake at {draw.integer(16, 22)}0 "
            f"degrees for {draw.integer(20, 60)} minutes."]  # fmt: skip


def tables(draw: Draw) -> list[str]:
    """Statistics of a town: a table of numbers."""
    lines = ["year | visitors | budget | rainfall"]
    lines += [
        f"{draw.integer(1990, 2024)} | {draw.integer(1000, 90000)} | {draw.integer(10, 999)} | "
        f"{draw.integer(200, 1500)}"
        for _ in range(draw.integer(6, 12))
    ]
    return lines


def chinese(draw: Draw) -> list[str]:
    """Everyday prose in Chinese."""
    words = stories.draw_words(draw, "zh")
    return [
        "".join(draw.choice(CHINESE).format(**words, x=draw.integer(4, 35)) for _ in range(draw.integer(3, 7)))
        for _ in range(draw.integer(3, 6))
    ]


KINDS: Mapping[str, Callable[[Draw], list[str]]] = {
    "news": news,
    "children": children,
    "prices": prices,
    "results": results,
    "logs": logs,
    "code": code,
    "help_forum": help_forum,
    "recipes": recipes,
    "tables": tables,
    "chinese": chinese,
}
"""The kinds of pages that are no mathematics."""
