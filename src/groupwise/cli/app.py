"""The application that commands register with, the options that they share, and options read from source."""

import ast
import functools
import inspect
import json
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from typer.core import TyperCommand, TyperGroup

import groupwise
from groupwise.config.places import expanded
from groupwise.errors import ConfigError
from groupwise.runs import progress
from groupwise.runs.ledger import or_null
from groupwise.runs.processes import stop
from groupwise.runs.progress import Work

HALF = re.compile("[\ud800-\udfff]")
WIDE = 80
"""Columns of a terminal from which on a command's help has tables."""
OF_THE_LAB = ("oracle", "claims", "import")
"""Commands of the package groupwise-lab."""


class _Commands(TyperGroup):
    """In a narrow terminal a command's help is plain and wraps: the tables of the other form would cut long names.

    Words that are paths from a home directory, also behind `--option=`, are expanded as a shell would.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if odd := [word for word in args if not word.isprintable() and HALF.search(word)]:
            raise ConfigError(
                f"the argument {odd[0]!r:.80} is no text: its bytes are not {sys.getfilesystemencoding()}"
            )
        homes = [re.fullmatch(r"(--[\w-]+=)?(~|~[\w.-]*/.*)", word, re.DOTALL) for word in args]
        whole = [(m[1] or "") + expanded(m[2]) if m else word for m, word in zip(homes, args, strict=True)]
        return super().parse_args(ctx, whole)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:  # else the library ends the process without a word
            stop(signal.SIGINT, None, *interrupt.args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is None and cmd_name in OF_THE_LAB:
            raise ConfigError(
                f"`groupwise {cmd_name}` comes with the package groupwise-lab: in a checkout, pip install -e ./lab"
            )
        if isinstance(command, TyperCommand) and shutil.get_terminal_size().columns < WIDE:
            command.rich_markup_mode = None
        return command


app = typer.Typer(
    help="Groupwise teaches language models to reason: GRPO with verifiable rewards, on a laptop or a GPU.\n\n"
    "Begin with `groupwise demo`; it needs no GPU, no hub and a few minutes on two cores.",
    no_args_is_help=True, add_completion=False, rich_markup_mode="markdown", cls=_Commands,
    pretty_exceptions_enable=False,
)  # fmt: skip


class _Screen(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*objects, **options)
        progress.wrote()


console: Console = _Screen()


def _print_version(is_set: bool) -> None:
    if is_set:
        console.print(f"groupwise {groupwise.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True,
        help="Print the version and end.")] = False,
) -> None:  # fmt: skip
    """Take the options that may stand before a command. The application's own help is above."""


Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a value of the recipe, e.g. `--set grpo.group_size=8`. Repeatable."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Checkpoint = Annotated[str, typer.Argument(help="A checkpoint directory, a hub name, or `base` for the shipped model.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


def print_json(value: Any) -> None:
    """Print a value as JSON; null stands for numbers that JSON lacks."""
    print(json.dumps(or_null(value), indent=1, allow_nan=False))


def table_of(*left: str, right: Iterable[str] = (), **options: Any) -> Table:
    """Return an empty table with these columns, whose cells wrap; those of `right` hold figures."""
    table = Table(title_justify="left", **options)
    for names, side in ((left, "left"), (right, "right")):
        for name in names:
            table.add_column(name, justify=side, overflow="fold")  # type: ignore[arg-type]
    return table


SOON_S = 2.0
"""Seconds after which work has a bar: what is done sooner would only flicker."""


@contextmanager
def reported(is_json: bool) -> Iterator[None]:
    """Show what long work says: bars in a terminal, elsewhere a line now and then; on standard error beside JSON."""
    screen = Console(stderr=True) if is_json else console
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=screen, transient=True)
    tasks: dict[str, TaskID] = {}

    def draw(works: dict[str, Work], now: float) -> None:
        for what in [what for what in tasks if what not in works]:
            bars.remove_task(tasks.pop(what))
        for what, work in works.items():
            if what not in tasks and now - work.began >= SOON_S:
                bars.start()
                tasks[what] = bars.add_task(what, total=work.total or None)
            if what in tasks:
                bars.update(tasks[what], completed=work.done, total=work.total or None)
        if not tasks and bars.live.is_started:
            bars.stop()

    def write(line: str) -> None:
        screen.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)

    has_bars = screen.is_terminal and not screen.is_dumb_terminal
    try:
        with progress.shown(progress.Reporter(write, draw=draw if has_bars else None)):
            yield
    finally:
        if bars.live.is_started:
            bars.stop()


class _Setting(NamedTuple):
    name: str
    type: Any
    default: Any
    help: str
    min: int | None = None
    is_list: bool = False
    only_with: str = ""


def refuse(when: str, **options: Any) -> None:
    """Refuse options, and arguments (in capitals), that nothing reads (ConfigError: names the first that is set)."""
    if given := [name for name, value in options.items() if value]:
        said = given[0] if given[0].isupper() else f"--{given[0].replace('_', '-')}"
        raise ConfigError(f"{said} has no effect {when}: leave it out")


def options_from(*places: str, **only_with: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for every keyword argument of a function, and for every key of a section.

    Names, types, defaults and help are read from the source of `package.module:name`, so that `--help` imports nothing
    that computes. The command gets the values as `**settings`; what it declares itself is left to it, and so is what a
    command line has no form for. A list of a section is written with commas. `only_with`: by option, what is read with
    that option alone.
    """

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        spec = inspect.getfullargspec(command)
        defaults = dict(zip(reversed(spec.args), reversed(spec.defaults or ()), strict=False))
        declared = {name: _parameter(name, spec.annotations[name], defaults.get(name, _NONE)) for name in spec.args}
        found: dict[str, _Setting] = {}
        for option, place in (*(("", place) for place in places), *only_with.items()):
            for setting in _settings(place):
                if setting.name not in declared:
                    said = f"With --{option}: {setting.help}" if option else setting.help
                    found.setdefault(setting.name, setting._replace(help=said, only_with=option))
        lists = [name for name, setting in found.items() if setting.is_list]

        @functools.wraps(command)
        def wrapped(**values: Any) -> None:
            for each in found.values():
                if each.only_with and values[each.only_with] is None and values[each.name] != each.default:
                    refuse(f"without --{each.only_with}", **{each.name: True})
            for name in lists:
                values[name] = [part.strip() for part in values[name].split(",") if part.strip()]
            command(**values)

        options = {
            name: _parameter(name, Annotated[kind, typer.Option(help=said, min=least)], default)
            for name, kind, default, said, least, *_ in found.values()
        }
        last = {name: declared.pop(name) for name in ("overrides", "json") if name in declared}
        keyword_only = [*(declared | options | last).values()]
        del wrapped.__wrapped__
        wrapped.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in keyword_only}
        return wrapped

    return decorated


_NONE = inspect.Parameter.empty


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _settings(place: str) -> Iterator[_Setting]:
    module, _, name = place.partition(":")
    file = Path(groupwise.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    node = next(node for node in tree.body if getattr(node, "name", None) == name)
    if isinstance(node, ast.FunctionDef):
        helps = dict(re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", ast.get_docstring(node) or "", re.MULTILINE))
        for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            if default is not None and (text := helps.get(argument.arg)):
                yield from _setting(argument.arg, argument.annotation, default, text)
    elif isinstance(node, ast.ClassDef):
        for field, after in pairwise(node.body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value is not None:
                text = str(ast.literal_eval(after.value)) if isinstance(after, ast.Expr) else ""
                yield from _setting(field.target.id, field.annotation, field.value, text)


TYPES = {"str": str, "int": int, "float": float, "bool": bool, "Path": Path, "Split": str}


def _setting(name: str, annotation: Any, default: ast.expr, text: str) -> Iterator[_Setting]:
    """Yield the option of one setting; none where it is no plain value."""
    bounds: dict[str, Any] = {}
    if isinstance(default, ast.Call):  # Field(4, ge=1)
        bounds = {word.arg: ast.literal_eval(word.value) for word in default.keywords if word.arg == "ge"}
        default = default.args[0]
    try:
        value = ast.literal_eval(default)
    except ValueError:
        return
    said = " ".join(text.replace("None: ", "default: ").split())
    said = said[:1].upper() + said[1:] if said.isascii() else said
    if isinstance(value, tuple) and ast.unparse(annotation).startswith("tuple["):
        yield _Setting(name, str, ",".join(map(str, value)), f"With commas: {said}", is_list=True)
    elif kind := TYPES.get(ast.unparse(annotation).partition(" | ")[0]) or (str if isinstance(value, str) else None):
        least = bounds.get("ge", 1 if kind is int and value != 0 else None)
        yield _Setting(name, kind | None if value is None else kind, value, said, least)
