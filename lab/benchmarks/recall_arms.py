"""Measure the worth of a corpus: the same model trained on the same number of steps of text from different corpora.

    python lab/benchmarks/recall_arms.py  # three seeds, 500 steps, then 40 of GRPO; goes on after a kill
    python lab/benchmarks/recall_arms.py --seeds 1 --steps 10 --pages 1500 --domains 40 --problems 10 --grpo 2 # a trial

Arms: `none` (the model as it is), `random web`, `seed repeated`, `round 1`, `last round`, `truth` (every page that is
mathematics). All have the same replay beside them and the same tokens in expectation. Afterwards: pass@1 on held-out
problems with the interval over problems, and the loss in nats per token on held-out pages, mathematical (of another
web) and general (of the replay, where it shows what was forgotten). Then the same GRPO from each, and pass@1 again.

At the end, by arm and over seeds: the mean difference from `none` with Student's 95 % interval, and how many seeds
would tell it from 0 if mean and spread stayed.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from groupwise_lab.claims.decision import Bounds, seeds_needed

from groupwise.algorithms.statistics import mean_over_seeds
from groupwise.config import parse
from groupwise.evaluation.metrics import summary
from groupwise.models.config import ModelConfig
from groupwise.models.loading import quiet_transformers
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy, load_policy
from groupwise.randomness import Draws, Purpose
from groupwise.recall.config import RecallConfig
from groupwise.recall.page import write_lines
from groupwise.recall.rounds import Prepared
from groupwise.recall.run import Recall
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.row import rows_of
from groupwise.tasks import make_task
from groupwise.trainers import load_recipe, train
from groupwise.trainers.documents import cut, encoded, replayed
from groupwise.verifiers import make_verifier

ARMS = ("none", "random web", "seed repeated", "round 1", "last round", "truth")
TASKS = {"products": {"kind": "arithmetic"}, "stories": {"kind": "word_problems"}}
HELD_OUT = 100
"""Held-out pages of each kind."""


def config(options: argparse.Namespace, seed: int) -> RecallConfig:
    """The web of a seed."""
    web = {"kind": "worlds/web.py:MadeWeb", "num_pages": options.pages, "num_domains": options.domains}
    return parse(RecallConfig, {"seed": seed, "sources": {"web": web}, "decontaminate": {"tasks": TASKS}})


def corpora(options: argparse.Namespace, seed: int, folder: Path) -> dict[str, Path]:
    """The documents of every arm; decontamination is the last round's alone, so others hold what it would remove."""
    recall = Recall(config(options, seed), folder)
    facts = recall.run()
    pages, unique = recall.pages, recall.unique
    rounds = [json.loads((folder / f"round-{n}.json").read_text())["kept"] for n in (1, len(facts["rounds"]))]
    texts = {
        "random web": [pages[number].text for number in unique],
        "seed repeated": recall.seed_texts,
        "round 1": [pages[number].text for number in rounds[0]],
        "last round": [row["text"] for row in _rows(folder / "corpus.jsonl")],
        "truth": [pages[n].text for n in unique if (truth := pages[n].truth) and truth.is_mathematics],
    }
    for name, of_arm in texts.items():
        write_lines(folder / f"{name.replace(' ', '-')}.documents.jsonl", ({"text": text} for text in of_arm))
    return {name: folder / f"{name.replace(' ', '-')}.documents.jsonl" for name in texts}


def _rows(path: Path) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def trained(options: argparse.Namespace, seed: int, name: str, documents: Path, folder: Path) -> str:
    """A model after continued pre-training; a finished one is not trained again."""
    directory = folder / "runs" / name.replace(" ", "-")
    steps = options.steps
    recipe = load_recipe({
        "algorithm": "sft",
        "run": {"directory": str(directory), "num_steps": steps, "seed": seed, "checkpoint_every": steps},
        "data": {"source": "documents", "max_tokens": 512, "parts": {
            "corpus": {"share": 0.56, "path": str(documents)},
            "replay": {"share": 0.44, "replay": "base/second-3.toml"}}},
        "sft": {"sequences_per_step": 16, "loss_on": "all"},
        "optimizer": {"lr": 5e-4, "weight_decay": 0.1, "warmup_steps": max(1, steps // 30), "schedule": "steps"},
    })  # fmt: skip
    checkpoint = directory / "checkpoints" / f"step-{steps:06d}"
    if not checkpoint.exists():
        train(recipe)
    return str(checkpoint)


@torch.no_grad()
def mean_loss(policy: Policy, texts: Sequence[str]) -> float:
    """Nats per token over documents, each on its own; unknown characters are left as they are."""
    pieces = [piece for ids in encoded(policy, texts) for piece in cut(ids, 512)]
    total, count = 0.0, 0
    for piece in pieces:
        packed = pack([Sequences(piece[:1], [piece[1:]])], policy.device)
        total -= policy.token_logprobs(packed).logprobs.sum().item()
        count += len(piece) - 1
    return total / count


def measured(options: argparse.Namespace, path: str, held_out: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """pass@1 by task, and losses."""
    policy = load_policy(ModelConfig(path=path))
    found: dict[str, Any] = {f"loss, {name}": mean_loss(policy, texts) for name, texts in held_out.items()}
    for name, section in TASKS.items():
        task = make_task(section)
        with make_verifier(task.verifier_config) as verifier:
            actors = Actors.of(policy, task.template, verifier)
            problems = task.problems("test")[: options.problems]
            sampling, draws = SamplingConfig(max_tokens=160), Draws(0, Purpose.TEST)
            rows = rows_of(sample_and_score(actors, problems, 4, sampling, draws))
        found[f"pass@1, {name}"] = list(summary(rows)["pass_at_1"])
    return found


def reinforced(options: argparse.Namespace, seed: int, name: str, path: str, folder: Path) -> str:
    """The model after GRPO on both tasks."""
    directory, steps = folder / "grpo" / name.replace(" ", "-"), options.grpo
    parts = {task: {"task": section} for task, section in TASKS.items()}
    checkpoint = directory / "checkpoints" / f"step-{steps:06d}"
    if not checkpoint.exists():
        train(load_recipe({
            "algorithm": "grpo", "model": {"path": path}, "task": {"kind": "mixture", "parts": parts},
            "run": {"directory": str(directory), "num_steps": steps, "seed": seed, "checkpoint_every": 10},
            "grpo": {"prompts_per_step": 12, "group_size": 16}, "sampling": {"max_tokens": 160},
            "optimizer": {"lr": 1.5e-4, "warmup_steps": max(1, steps // 10)},
            "evaluation": {"every": steps, "test_problems": 0},
        }))  # fmt: skip
    return str(checkpoint)


def of_arm(
    options: argparse.Namespace, seed: int, name: str, documents: Mapping[str, Path], folder: Path,
    held_out: Mapping[str, Sequence[str]],
) -> dict[str, Any]:  # fmt: skip
    """Figures of an arm, before GRPO and after it."""
    path = "base" if name == "none" else trained(options, seed, name, documents[name], folder)
    found = measured(options, path, held_out)
    if options.grpo:
        after = measured(options, reinforced(options, seed, name, path, folder), {})
        found |= {f"{key}, after GRPO": value for key, value in after.items()}
    return found


def show(results: Sequence[Mapping[str, Any]]) -> None:
    """Differences from the arm `none`."""
    by_arm = {(one["arm"], one["seed"]): one for one in results}
    seeds = [seed for seed in sorted({one["seed"] for one in results}) if all((arm, seed) in by_arm for arm in ARMS)]
    for key in [key for key in results[0] if key not in ("seed", "arm")]:
        for arm in ARMS[1:]:
            pairs = [(_number(by_arm[arm, seed][key]), _number(by_arm["none", seed][key])) for seed in seeds]
            differences = [one - other for one, other in pairs]
            mean, needed = mean_over_seeds(differences), seeds_needed(differences, Bounds(0, math.inf))
            interval = mean.signed
            print(f"{key}: {arm} {interval}, {len(seeds)} seeds; {needed} needed")


def _number(value: Any) -> float:
    """A figure, which may stand with its interval."""
    return float(value[0] if isinstance(value, list) else value)


def held_out_pages(options: argparse.Namespace, folder: Path) -> dict[str, list[str]]:
    """Mathematical pages of another web, and text such as the replay's."""
    pages = Prepared(config(options, 10**6), folder).pages
    mathematics = [page.text for page in pages if page.truth and page.truth.is_mathematics][:HELD_OUT]
    text = replayed("base/second-3.toml")
    return {"mathematics": mathematics, "replay": ["".join(text.text(10**6, index)) for index in range(HELD_OUT)]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--pages", type=int, default=12_000)
    parser.add_argument("--domains", type=int, default=200)
    parser.add_argument("--grpo", type=int, default=40, help="steps of GRPO from each; 0: none")
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--directory", type=Path, default=Path("runs/recall_arms"))
    options = parser.parse_args(arguments)
    quiet_transformers()
    (options.directory / "held-out").mkdir(parents=True, exist_ok=True)
    held_out = held_out_pages(options, options.directory / "held-out")
    file = options.directory / "results.jsonl"
    results = [*_rows(file)] if file.exists() else []
    there = {(one["seed"], one["arm"]) for one in results}
    for seed in range(options.seeds):
        folder = options.directory / f"seed-{seed}"
        documents = corpora(options, seed, folder / "recall")
        for name in [arm for arm in ARMS if (seed, arm) not in there]:
            results.append({"seed": seed, "arm": name, **of_arm(options, seed, name, documents, folder, held_out)})
            print(json.dumps(results[-1]), flush=True)
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(results[-1]) + "\n")
    show(results)


if __name__ == "__main__":
    main()
