"""The pages that come from code: `python docs/generate.py` writes them, and a test says when they are stale.

It reads source, the table of commands and the classes of recipes. docs/algorithms.md has a command of its own
(`groupwise oracle --write`).
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
from groupwise.cli.keys import markdown, reference
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
    facts = " (required)" if parameter.required else ""
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
        "| 0 | done; after Ctrl-C a run says that it stopped behind a step, and the same command continues |\n"
        "| 1 | `verify`: the verifier failed, or a reference answer of a file does not pass; `audit`: a wrong verdict; "
        "`replay`: a difference |\n"
        "| 2 | one of the errors below, or one in your own Python; a NO-GO of `preflight`; an unknown option |\n"
        "| 3 | `doctor --fail-on` found something as bad as that |\n"
        "| 70 | a bug of ours, with a file to report |\n"
        "| 74 | the work is done, but standard output could not be written, as on a full disk |\n"
        "| 128 + n | signal n ended it, and one sentence says what is kept |\n\n" + "\n".join(rows)
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
    fields = dict(fields_of(SOURCE / "trainers" / "report.py", "StepReport")) | OF_A_STEP
    step = [f"| `{name}` | {said} |" for name, said in fields.items()]
    return (
        f"# Metrics\n\n{NOTE} from `evaluation/metrics.py` and `trainers/report.py`.\n\n"
        "## Of an evaluation\n\nUnder these keys in facts of stages and in `groupwise eval --json`, by these names in "
        "reports. Lines of `metrics.jsonl` (kinds `dev`, `test-before`, `test-after`) have `pass_at_1`, `length` and "
        "`truncated`; the rest is computed from the recorded completions. Shares are kept as 0 to 1 and shown in "
        "percent; an estimate is [value, low, high] with a 95 % interval.\n\n"
        "| key | name | unit | meaning |\n|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n\n## Of a step\n\nWhat a step's line in the terminal is made of, and a line of `metrics.jsonl` (kind "
        "`step`), which has `record_s`, `distributions`, `peak_memory_mb` and `time`, too; `Run.steps()` is the table. "
        "Shares are in [0, 1], lengths in tokens, times in seconds; unless it says sampled, a figure is of the groups "
        "that were kept, which with `grpo.refill_rounds` are fewer.\n\n| field | meaning |\n|---|---|\n"
        + "\n".join(step)
        + "\n"
    )


OF_A_STEP = {
    "step": "Its number, from 0.",
    "num_steps": "`run.num_steps`.",
    "reward": "Mean reward of the judged completions.",
    "correct": "Share of the judged completions that are correct.",
    "length_correct": "Mean number of sampled tokens of the correct ones; None where there is none.",
    "length_wrong": "The same of the other judged ones.",
    "length": "Mean number of sampled tokens of all completions.",
    "truncated": "Share of completions that ran into the token limit.",
    "verdict_errors": "Completions that the verifier failed on.",
    "no_verdict": "Completions of which it has none to give, as where a reward function returns None.",
    "grad_norm": "Norm of the policy's gradient before clipping, mean over the step's updates.",
    "lr": "Learning rate.",
    "clipped": "Share of tokens at which a bound of the policy loss held.",
    "kl": "Mean estimate of KL(π ‖ reference), nats per token; 0 without a reference.",
    "sampled_tokens": "Tokens of all completions, kept or not.",
    "kept_tokens": "Tokens of the completions of kept groups.",
    "sampled_groups": "Groups, kept or not.",
    "refilled_groups": "Those of them that were not kept.",
    "value_loss": "Mean value loss per token; 0 without a critic.",
    "tokens_per_second": "Sampled tokens over the time of the three phases that follow.",
    "generate_s": "Sampling.",
    "verify_s": "Verifying, reward models included.",
    "train_s": "Updates, with the forwards that they need, and publishing the weights.",
    "processor_s": "Processor time of this process.",
}
"""Fields without a text of their own."""


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
    meanings = dict(fields_of(records, "Row")) | COLUMNS
    rows = [f"| `{field.name}` | {field.type} | {meanings[field.name]} |" for field in SCHEMA]
    version = (SCHEMA.metadata or {})[b"groupwise_schema"].decode()
    return (
        f"# Files\n\n{NOTE} from `runs/`. Everything that looks at a run reads these files and nothing else.\n\n"
        f"## A run directory\n\n```text\n{tree}\n```\n\n"
        "`finished.json` is there when the run has nothing left to do, and `report.html` is its page.\n\n"
        "`ledger.jsonl`: one JSON object a line, the same on every repeat and after every resume, each with the hash "
        "of the line before. `metrics.jsonl`: lines of the same form without hashes, `kind` says of what; "
        "[metrics](metrics.md) explains the keys. Both are only ever appended to, and cut back to the checkpoint on a "
        "resume.\n\n"
        f"## rollouts/*.parquet, schema {version}\n\n"
        "A row for each completion, a row group for each group; pandas, polars and DuckDB read it. A value that "
        "nothing measured is null, never 0.\n\n"
        "| column | type | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n\n"
        '## Problems of your own (`task.kind = "jsonl"`)\n\nIn any form that [your own data](do/data.md) lists, a '
        "problem a row: `question` and `answer`, or the fields that `task.question_field` and `task.answer_field` "
        "name; every field reaches a reward function by its name.\n\n"
        "## Labelled cases (`groupwise audit --cases`), probes (`--probes`), labelled steps\n\nJSON lines; "
        "[attacks](do/reward.md#attacks-on-verifiers-and-the-sandbox), [process supervision](do/prm.md).\n\n"
        "## Checkpoints\n\nA plain Hugging Face directory that transformers and vLLM load unchanged, with the "
        "trainer's state and `manifest.json` (the hash of every file) beside it; with `[lora]` peft's own "
        "directory ([LoRA](do/lora.md)).\n"
    )


COLUMNS = {
    "step": "Training step, from 0; 0 in evaluations, whose files are named after theirs.",
    "problem": "Its id.",
    "difficulty": "The problem's, in the words of its task.",
    "language": "The question's (ISO 639-1).",
    "question": "What was asked.",
    "reference": "The reference answer.",
    "open_ended": "True where no rule can judge an answer.",
    "prompt": "The text that the model read.",
    "prefill": "The end of the prompt that belongs to the answer.",
    "sample": "Position within the group, from 0.",
    "text": "What was sampled, results of tools included.",
    "finish_reason": "Why it ended: `stop`, `length` (the token limit), `stop_text`, or as "
    "[tools](do/tools.md#how-a-completion-may-end) and "
    "[episodes](do/environments.md#what-is-read-and-what-is-trained) say.",
    "outcome": "`correct`, `wrong`, `unparsable`; `none`: no verdict; `timeout`, `crashed`: the verifier failed.",
    "answer": "The answer that the verifier read.",
    "evidence": "Why it judged so.",
    "reward": "Null where the completion was not judged.",
    "token_advantages": "One for each token; null where all have `advantage`.",
    "policy_version": "Updates behind the weights that sampled.",
    "prompt_token_ids": "Tokens of the prompt.",
    "token_ids": "(T,) tokens of the completion, the stop token and those of tools' results included.",
    "sampling_logprobs": "The sampler's log-probabilities, nats, temperature included.",
    "sampled": "False at tokens of tools' results; null where there is none.",
    "num_tokens": "Tokens that the policy sampled.",
    "discarded": "Why its group was sampled and not trained on: `right`, `wrong`, `equal`, `failed` (no signal) or "
    "`surplus`; null where it was kept.",
    "bound": "(T,) the bound that held in that update: 1 the lower, 2 the upper one of the policy loss, 3 the "
    "importance weight was cut down to 0; 0 none.",
    "old": "Source of π_old in `ratio`: `trainer` or `sampler`.",
    "prompt_token_ends": "End of each token in `prompt`, in code points.",
    "ref_logprobs": "The frozen reference's, from the last update.",
    "values": "The critic's values when sampled; null without one.",
    "returns": "Targets of the values.",
}
"""Columns whose field has no text of its own, or one for readers of the code."""


# -------------------------------------------------------------------------------------------------------------- keys


def keys() -> str:
    """Return the page of all keys of recipes."""
    document = reference()
    return f"""# Every key of a recipe

{NOTE} from the docstrings of the fields; `groupwise keys loss` prints one
section of it, `groupwise keys data --kind jsonl` one kind of a section.

A recipe is a TOML file. `extends = ["other.toml"]` lays it over other recipes, whose paths are relative to it.
`--set section.key=value` changes a key on the command line. A key that nothing reads is refused, and so is a value
without effect. Wherever a `kind` or an `algorithm` is read, `"my_file.py:name"` loads your own.

{markdown(document, document.headings)}"""


PAGES = {"recipe": keys, "commands": commands, "errors": error_page, "metrics": metrics, "api": api, "files": files}


def write() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (DOCS / f"{name}.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write()
