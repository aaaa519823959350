"""A run's newest checkpoint as a plain model directory, with its model card and the record of how it was made."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from groupwise import __version__
from groupwise.algorithms.statistics import Estimate
from groupwise.config import read_toml
from groupwise.errors import CheckpointError
from groupwise.models.checkpoint import write_plain
from groupwise.models.gguf_write import Precision, write_gguf
from groupwise.runs.atomic import check_directory, new_directory, refuse_to_replace, write_file
from groupwise.runs.directory import PROVENANCE, RunDirectory, find_run
from groupwise.runs.inputs import located
from groupwise.runs.records import Records
from groupwise.tasks.jsonl import PRESETS

CARD = "README.md"
PARTS = ("seconds", "generate_s", "verify_s", "train_s")
"""Keys of a step's time in the metrics: the whole, or its parts."""
CURVE_POINTS = 100
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def export(run_path: str | Path, directory: str | Path, gguf: Precision | None = None) -> None:
    """Write a run's newest checkpoint as a plain Hugging Face directory, with `provenance.json` and a model card.

    Adapters (LoRA) are added, in fp32, to the weights that they stand on.

    Args:
        run_path: a run directory.
        directory: of the model; one that was written in this way is replaced.
        gguf: precision of a GGUF file that is written beside the weights, for llama.cpp and what builds on it.

    Raises:
        ConfigError: there is no run at this path, or a package is missing.
        ModelError: the model has no form in a GGUF file.
        CheckpointError: the run has no checkpoint, it is damaged, or something else is in the directory.
    """
    run, target = find_run(Path(run_path)), Path(directory)
    if not run.steps():
        raise CheckpointError(f"{run.path} has no checkpoint yet")
    newest = run.checkpoint(run.steps()[-1])
    check_directory(newest)
    refuse_to_replace(target)
    record = provenance(run)
    text = card(target.resolve().name, record, run, run.steps()[-1])
    with new_directory(target) as folder:
        write_plain(newest, folder)
        if gguf:
            write_gguf(folder, folder / f"{target.resolve().name}-{gguf.upper()}.gguf", gguf)
        write_file(folder / PROVENANCE, json.dumps(record, indent=1, ensure_ascii=False).encode())
        write_file(folder / CARD, text.encode())


def provenance(run: RunDirectory) -> list[dict[str, Any]]:
    """Return recipe, environment, tokens and loss curve of a run and of those it started from, oldest first."""
    recipe = read_toml(run.config)
    start = Path(located(recipe, run.config)["model"]["path"])  # as it was when the run began, wherever this works
    parent = start.parent.parent
    ancestors: list[dict[str, Any]] = []
    if not recipe.get("new_model") and (start / PROVENANCE).is_file():  # it was exported
        ancestors = json.loads((start / PROVENANCE).read_text())
    elif not recipe.get("new_model") and start.is_dir() and (parent / "config.toml").exists():
        ancestors = provenance(find_run(parent))
    lines = list(run.metrics.lines())
    losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    size = max(1, len(losses) // CURVE_POINTS)
    windows = [losses[start : start + size] for start in range(0, len(losses), size)]
    entry = {
        "recipe": recipe,
        "environment": json.loads((run.path / "environment.json").read_text()),
        "trained_tokens": sum(line.get("num_tokens", 0) for line in lines),
        "sampled_tokens": sum(line.get("sampled_tokens", 0) for line in lines),
        "seconds": round(sum(line.get(part, 0.0) for line in lines for part in PARTS), 1),
        # mean loss over windows, as (last step of the window, nats per trained token)
        "loss_curve": [(w[-1][0], round(sum(loss for _, loss in w) / len(w), 4)) for w in windows],
    }
    return [*ancestors, entry]


def card(name: str, record: Sequence[Mapping[str, Any]], run: RunDirectory, step: int) -> str:
    """Return the Markdown card of a run's checkpoint after `step` steps, with the front matter that the hub reads."""
    newest, base = record[-1]["recipe"], record[0]["recipe"]
    start = "random weights" if base.get("new_model") else base.get("model", {}).get("path", "")
    on_hub = HUB_NAME.fullmatch(start) and not Path(start).exists()
    held_out = [line for line in run.metrics.lines() if line.get("kind") == "held_out"]
    steps = newest.get("process_reward_model", {})
    is_classifier = newest["algorithm"] == "reward_model" or steps.get("supervision", "implicit") != "implicit"
    template = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    return template.from_string((resources.files(__package__) / "card.md.jinja").read_text()).render(
        name=name, record=record, step=step, recipe=newest, start=start, base_model=start if on_hub else None,
        version=__version__, is_reward_model=is_classifier,
        data=list(dict.fromkeys(data for entry in record for data in _data(entry["recipe"]))),
        hub_data=list(dict.fromkeys(
            path.split(":")[1] for entry in record for path in _strings(entry["recipe"], ("path", "test_path"))
            if path.startswith("hub:")
        )),
        measured=list(_evaluations(run, newest, step)), held_out=held_out[-1] if held_out else None,
        prompt=newest.get("task", {}).get("template", {}).get("prompt"),
        toml=run.config.read_text().strip(), json=json.dumps,
    )  # fmt: skip


def _strings(value: Any, keys: Sequence[str]) -> Iterator[str]:
    """The texts under these keys, at any depth."""
    for key, inner in value.items() if isinstance(value, Mapping) else ():
        if key in keys and isinstance(inner, str):
            yield inner
        yield from _strings(inner, keys)


def _data(recipe: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The files, data sets and generators of a recipe's tasks and data, each with its licence; empty: not recorded."""
    sections = [recipe[key] for key in ("task", "data") if isinstance(recipe.get(key), Mapping)]
    for section in sections:
        parts = [part["task"] for part in section.get("parts", {}).values()] or [section]
        for part in parts:
            preset = PRESETS.get(part.get("preset", ""))
            files = [source.path for source in (preset.train, preset.test) if source.path] if preset else []
            paths = [f"{part.get('data_dir', '.')}/{file}" for file in files]
            paths += [part[key] for key in ("path", "test_path") if part.get(key)]
            for path in paths:
                name = path.split(":")[1] if path.startswith("hub:") else ""
                hub = f"[{name}](https://huggingface.co/datasets/{name})", ""
                yield hub if name else (f"`{path}`", _licence(Path(path)))
            if not paths:
                text = part.get("text")  # of a program that the recipe names
                maker = f"{text.get('kind') if isinstance(text, Mapping) else text}, generated by a program"
                ours = f"{part.get('kind') or part.get('source')}, generated by Groupwise's program"
                yield maker if text else ours, "none needed"


def _licence(path: Path) -> str:
    """Beginning of the LICENSE file beside the data; empty without one."""
    files = [file for file in sorted(path.parent.glob("LICEN[SC]E*")) if file.is_file()]
    lines = files[0].read_text(encoding="utf-8", errors="replace").splitlines() if files else []
    first, *others = [line.strip() for line in lines if line.strip()] or [""]
    return f"{first}, {others[0]}" if others and others[0].startswith("Version") else first


def _evaluations(run: RunDirectory, recipe: Mapping[str, Any], step: int) -> Iterator[dict[str, Any]]:
    """The test split before and after training, and the dev split for this very checkpoint."""
    best = Records.of(run).best_step
    subjects = {
        "dev": "this model",
        "test-before": "before training",
        "test-after": "this model" if best == step else f"its best checkpoint by dev, after {best} steps",
    }
    for line in run.metrics.lines():
        kind = line.get("kind", "step")
        if kind in subjects and (kind != "dev" or line["step"] == step):
            split = kind.partition("-")[0]
            names = ("num_problems", "num_samples") if split == "dev" else ("test_problems", "test_samples")
            problems, samples = (recipe["evaluation"][name] for name in names)
            size = f"at most {problems} × {samples}"
            figures = {"pass_at_1": Estimate(*line["pass_at_1"]), "length": line["length"]}
            yield {"of": subjects[kind], "split": split, "size": size, **figures}
