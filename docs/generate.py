"""The pages that come from code: `python docs/generate.py` writes them, and a test says when they are stale.

It reads source and the table of commands; no torch is loaded. docs/recipe.md and docs/algorithms.md have commands of
their own (`groupwise keys --write`, `groupwise oracle --write`).
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

import groupwise
from groupwise import errors
from groupwise.cli.main import app

DOCS = Path(__file__).parent
SOURCE = DOCS.parent / "src" / "groupwise"
NOTE = "Written by `python docs/generate.py`"


# --------------------------------------------------------------------------------------------------------- commands


def commands() -> str:
    """Return the page of commands: the help of each, its examples, its arguments and options."""
    group: Any = get_command(app)
    parts = [f"# Commands\n\n{NOTE} from the command line itself; `groupwise COMMAND --help` says the same.\n"]
    parts += [_command(command, name) for name, command in group.commands.items()]
    return "\n".join(parts)


def _command(command: Any, name: str) -> str:
    text = inspect.cleandoc(command.callback.__doc__ or "")
    body, _, examples = re.split(r"^(Examples?:)$", text, maxsplit=1, flags=re.MULTILINE) if "Example" in text else (
        text, "", "")  # fmt: skip
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    shown = "\n".join(["```sh", *lines, "```"]) if lines else ""
    params = [_parameter(one) for one in command.params if one.name != "help"]
    return (
        "\n\n".join(part for part in (f"## `groupwise {name}`", body.strip(), shown, "\n".join(params)) if part) + "\n"
    )


def _parameter(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    if is_option:
        value = "" if parameter.is_flag else f" {_metavar(parameter)}"
        title = ", ".join([f"`{parameter.opts[0]}{value}`", *(f"`{other}`" for other in parameter.opts[1:])])
    else:
        title = f"`{_metavar(parameter)}`"
    facts = "" if not parameter.required or is_option else " (required)"
    default = parameter.default() if callable(parameter.default) else parameter.default
    if is_option and not parameter.is_flag and default not in (None, "", (), []):
        facts = f" (default `{default}`)"
    return f"- {title}{facts}: {' '.join((parameter.help or '').split())}"


def _metavar(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    said = str(parameter.type_descriptor.annotation)
    return next((word for kind, word in VALUES.items() if kind in said), "TEXT")


VALUES = {"int": "N", "float": "X", "Path": "PATH"}
"""Words for a value of an option, by its type."""


# ----------------------------------------------------------------------------------------------------------- errors


def error_page() -> str:
    """Return the page of errors, a paragraph for each."""
    rows = []
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.GroupwiseError):
            rows.append(f"## `{name}`\n\n{inspect.cleandoc(kind.__doc__ or '')} {_raisers(name)}\n")
    return (
        f"# Errors\n\n{NOTE} from `errors.py`.\n\n"
        "Whatever a user can mend is one of these: one sentence on standard error that names the thing, the value and "
        "what is allowed, and exit status 2. What a Python file of yours raises is told with its line. "
        "Anything else is a bug of ours: its traceback is "
        "written to a file in the run's directory (without one, in that of temporary files), and one sentence names "
        "it; please [report it](do/cards.md#a-bug-report).\n\n"
        "| exit status | means |\n|---|---|\n"
        "| 0 | done; an interrupted run says that it stopped, and the same command continues |\n"
        "| 1 | a judgement is negative: `verify`, `audit` and `replay` found what they look for |\n"
        "| 2 | one of the errors below, or one in your own Python; a NO-GO of `preflight`; an unknown option |\n"
        "| 3 | `doctor --fail-on` found something as bad as that |\n"
        "| 70 | a bug of ours, with a file to report |\n"
        "| 74 | the work is done, but standard output could not be written, as on a full disk |\n\n" + "\n".join(rows)
    )


def _raisers(name: str) -> str:
    """Return a sentence that names the folders of the package that raise an error."""
    found = sorted({
        path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for path in SOURCE.rglob("*.py")
        if re.search(rf"raise {name}\(|{name}\(f?\"|told_as\({name},", path.read_text("utf-8"))
    } - {"errors"})  # fmt: skip
    return f"Raised in {', '.join(f'`{one}`' for one in found)}." if found else ""


# ---------------------------------------------------------------------------------------------------------- metrics


def metrics() -> str:
    """Return the page of metrics: those of held-out problems and those of a step's line."""
    from groupwise.evaluation.metrics import METRICS

    rows = [f"| `{key}` | {one.name} | {one.unit} | {' '.join(one.meaning.split())} |" for key, one in METRICS.items()]
    step = [f"| `{name}` | {said} |" for name, said in fields_of(SOURCE / "trainers" / "report.py", "StepReport")]
    return (
        f"# Metrics\n\n{NOTE} from `evaluation/metrics.py` and `trainers/report.py`.\n\n"
        "## Of an evaluation\n\nUnder these keys in `metrics.jsonl` (kinds `dev`, `test-before`, `test-after`), in "
        "facts of stages, in `groupwise eval --json`. Shares are kept as 0 to 1 and shown in percent; an estimate is "
        "[value, low, high] with a 95 % interval.\n\n| key | name | unit | meaning |\n|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n\n## Of a step\n\nWhat a step's line in the terminal is made of; `Run.steps()` is the table. Shares are "
        "in [0, 1], lengths in tokens, times in seconds.\n\n| field | meaning |\n|---|---|\n" + "\n".join(step) + "\n"
    )


def fields_of(file: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a class and the text under each; without one, the name in words."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    for node, after in zip(found.body, [*found.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            has_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            text = str(after.value.value) if has_text else node.target.id.replace("_", " ")  # type: ignore[union-attr]
            yield node.target.id, " ".join(text.split()).replace("|", "\\|")


# -------------------------------------------------------------------------------------------------------------- API


def api() -> str:
    """Return the page of names: signatures and docstrings, read from source."""
    parts = [
        f"# Names of the package\n\n{NOTE} from the docstrings. `import groupwise as gw`, then `gw.NAME`; "
        "[python.md](python.md) shows how they belong together.\n"
    ]
    for name, (module, attribute) in groupwise._PLACES.items():
        parts.append(_name(name, module, attribute))
    return "\n".join(parts)


def _name(name: str, module: str, attribute: str) -> str:
    node = definition(module, attribute)
    signature = f"gw.{name}"
    if isinstance(node, ast.FunctionDef):
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        signature += f"({ast.unparse(node.args)}){returns}"
    text = f"`{ast.unparse(node)}`" if isinstance(node, ast.Assign) else _as_markdown(ast.get_docstring(node) or "")
    return f"## `{name}`\n\n```text\n{signature}\n```\n\n{text}\n\nIn `{module}`.\n"


def definition(module: str, name: str) -> ast.FunctionDef | ast.ClassDef | ast.Assign:
    """Return the definition of a name, followed through what its module imports."""
    base = SOURCE.joinpath(*module.split(".")[1:])
    file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
        names = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in names):
            return node
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            return definition(node.module, name)
    raise LookupError(f"{module} defines no {name}")


def _as_markdown(text: str) -> str:
    """Return a Google docstring with its examples and lists as blocks, so that no text of it is markup."""
    out: list[str] = []
    text = re.sub(r" *# doctest: \+\w+", "", text)
    for block in re.split(r"\n\n+", text):
        if block.lstrip().startswith(">>>") or block.startswith("    "):
            out.append(f"```pycon\n{inspect.cleandoc(block)}\n```" if ">>>" in block else f"```text\n{block}\n```")
        elif match := re.match(r"(Args|Returns|Raises):\n", block):
            out.append(f"{match[1]}:\n\n```text\n{inspect.cleandoc(block[match.end() :])}\n```")
        else:
            out.append(block)
    return "\n\n".join(out)


# ------------------------------------------------------------------------------------------------------------ files


def files() -> str:
    """Return the page of files: a run's directory, the columns of completions with their types."""
    from groupwise.runs import directory
    from groupwise.runs.rollouts import SCHEMA

    tree = (directory.__doc__ or "").split("\n\n")[1]
    records = SOURCE / "runs" / "row.py"
    meanings = COLUMNS | dict(fields_of(records, "GroupRecord")) | dict(fields_of(records, "Row"))
    rows = [f"| `{field.name}` | {field.type} | {meanings.get(field.name, '')} |" for field in SCHEMA]
    version = (SCHEMA.metadata or {})[b"groupwise_schema"].decode()
    return (
        f"# Files\n\n{NOTE} from `runs/`. Everything that looks at a run reads these files and nothing else.\n\n"
        f"## A run directory\n\n```text\n{tree}\n```\n\n"
        "`ledger.jsonl`: one JSON object a line, the same on every repeat and after every resume, each with the hash "
        "of the line before. `metrics.jsonl`: lines of the same form without hashes, `kind` says of what; "
        "[metrics](metrics.md) explains the keys. Both are only ever appended to, and cut back to the checkpoint on a "
        "resume.\n\n"
        f"## rollouts/*.parquet, schema {version}\n\n"
        "A row for each completion, a row group for each group; pandas, polars and DuckDB read it. A value that "
        "nothing measured is null, never 0.\n\n"
        "| column | type | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n\n"
        '## Problems of your own (`task.kind = "jsonl"`)\n\nJSON lines or Parquet, a problem a row: `question` '
        "and `answer`, or the fields that `task.question_field` and `task.answer_field` name; every other field "
        "reaches a reward function by its name. [Your own data](do/data.md).\n\n"
        "## Labelled cases (`groupwise audit --cases`), probes (`--probes`), labelled steps\n\nJSON lines; "
        "[attacks](do/reward.md#attacks-on-verifiers-and-the-sandbox), [process supervision](do/prm.md).\n\n"
        "## Checkpoints\n\nA plain Hugging Face directory that transformers and vLLM load unchanged, with the "
        "trainer's state and `manifest.json` (the hash of every file) beside it; with `[lora]` peft's own "
        "directory ([LoRA](do/lora.md)).\n"
    )


COLUMNS = {
    "difficulty": "The problem's, in the words of its task.",
    "prefill": "The end of the prompt that belongs to the answer.",
    "open_ended": "True where no rule knows a right answer.",
    "discarded": "Reason of a group not kept: right, wrong, equal, failed (no signal), surplus; else null.",
}
"""Columns that no field of a record is named after."""


PAGES = {"commands": commands, "errors": error_page, "metrics": metrics, "api": api, "files": files}


def write() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (DOCS / f"{name}.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write()
