"""The pages of the made web that are no mathematics: prose, and pages that are full of numbers all the same."""

from collections.abc import Callable, Mapping

from groupwise.randomness import Draw
from groupwise.tasks import word_problems as stories

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
    return [" ".join(_sentence(draw) for _ in range(draw.integer(2, 5))) for _ in range(draw.integer(3, 6))]


def _sentence(draw: Draw) -> str:
    who, verb, end = draw.choice(PEOPLE).capitalize(), draw.choice(VERBS), draw.choice(ENDINGS)
    year = f" in {draw.integer(1950, 2024)}" if draw.uniform() < 0.25 else ""
    return f"{who} {verb} the {draw.choice(THINGS)} near {draw.choice(PLACES)}{year} {end}."


def children(draw: Draw) -> list[str]:
    """Children's stories with the people and things of word problems, and nothing to work out."""
    return [" ".join(_scene(draw) for _ in range(draw.integer(3, 6))) for _ in range(draw.integer(2, 5))]


def _scene(draw: Draw) -> str:
    word = stories.draw_words(draw, "en")
    return draw.choice((
        f"{word['n']} has a red {word['good']} and {word['m']} has a blue one.",
        f"{word['m']} gives {word['n']} some {word['thing']} for the way home.",
        f"{word['n']} is {draw.integer(5, 12)} years old and collects {word['thing']}.",
        f"The bus was late, so {word['n']} read a book to {word['m']}.",
        f"They put the {word['thing']} into a bag and went to {draw.choice(PLACES)}.",
        f"At {draw.integer(2, 9)} o'clock {word['m']} called {word['n']} for dinner.",
    ))  # fmt: skip


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
