"""A pipeline directory as its writers leave it, made by hand: nothing is trained."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.explorer.pipeline import pipeline_facts
from groupwise.runs.directory import open_run
from groupwise.runs.rollouts import write_rollouts
from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, Prompt, ScoredGroup, Verdict

MODELS, SCORES = "model", "reward_model"
R1: tuple[tuple[str, str, str | None, str, tuple[str, ...]], ...] = (
    ("zero", "train", "grpo", MODELS, ("base",)),
    ("cold_start", "cold_start", None, "data", ("base", "zero")),
    ("cold_sft", "train", "sft", MODELS, ("base", "cold_start")),
    ("reasoning_rl", "train", "grpo", MODELS, ("cold_sft",)),
    ("preferences_helpful", "preference_data", None, "data", ()),
    ("preferences_harmless", "preference_data", None, "data", ()),
    ("helpful", "train", "reward_model", SCORES, ("base", "preferences_helpful")),
    ("harmless", "train", "reward_model", SCORES, ("base", "preferences_harmless")),
    ("rejection", "rejection_sampling", None, "data", ("reasoning_rl", "helpful", "harmless", "documents.jsonl")),
    ("sft", "train", "sft", MODELS, ("base", "rejection")),
    ("final_rl", "train", "grpo", MODELS, ("sft", "helpful", "harmless")),
)
"""Name, kind, algorithm, what it makes, inputs."""

LEVELS = {"base": 0.42, "zero": 0.93, "cold_sft": 0.71, "reasoning_rl": 0.94, "sft": 0.88, "final_rl": 0.955}
"""Pass@1 of each model."""
FORMATS = {"base": 0.31, "zero": 0.98, "cold_sft": 0.9, "reasoning_rl": 0.99, "sft": 0.97, "final_rl": 0.995}
STATISTICS: dict[str, dict[str, Any]] = {
    "cold_start": {
        "rows": 512, "sampled": {"few_shot": 2048, "zero": 2048}, "kept": {"few_shot": 148, "zero": 358},
        "dropped": {
            "few_shot": {"not correct": 1204, "tags": 96, "too short": 541, "duplicate": 59},
            "zero": {"not correct": 131, "no such behaviour": 1498, "duplicate": 61},
        },
        "sources": {"by hand": 6, "few_shot": 148, "zero": 358}, "languages": {"en": 301, "zh": 211},
    },
    "preferences_helpful": {"rows": 800, "sources": {"rule": 800}, "noise": 0.1},
    "preferences_harmless": {"rows": 800, "sources": {"rule": 800}, "noise": 0.1},
    "rejection": {
        "rows": 2400, "sampled": 4096, "dropped": {"not correct": 723, "mixed language": 61, "duplicate": 388},
        "sources": {"rejection sampling": 1800, "general": 600}, "languages": {"en": 1377, "zh": 1023},
        "problems_solved": 498, "problems": 512,
        "general": {"candidates": 2000, "kept": 688, "taken": 600, "dropped": {"below the best 50% by helpful": 1000}},
    },
}  # fmt: skip

Samples = Sequence[tuple[str, Outcome]]


def share(value: float, half: float = 0.03) -> list[float]:
    """A share with its interval."""
    return [value, max(0.0, value - half), min(1.0, value + half)]


def scored(problem: str, question: str, reference: str, samples: Samples) -> ScoredGroup:
    """A problem's completions; each has a third as many tokens as characters."""
    language = "en" if question.isascii() or "×" in question else "zh"
    asked = Problem(problem, question, reference, "easy", language, open_ended=problem.startswith("general/"))
    prompt = Prompt(asked, f"{question}\n", (1,))
    completions = tuple(_completion(index, text) for index, (text, _) in enumerate(samples))
    verdicts = tuple(Verdict(outcome, {}, f"evidence of {outcome}") for _, outcome in samples)
    return ScoredGroup(Group(prompt, completions, 0, 0), verdicts)


def _completion(index: int, text: str) -> Completion:
    zeros = np.zeros(len(text) // 3, np.float32)
    return Completion(index, np.zeros(len(text) // 3, np.int64), zeros, zeros, FinishReason.STOP, text)


def asked(level: float) -> list[ScoredGroup]:
    """A calculation, two stories and a general prompt; the first samples are right from a level of 0.7 on."""
    right, outcome = level >= 0.7, Outcome.CORRECT if level >= 0.7 else Outcome.WRONG
    product = "80×47=3760. 6×47=282. 3760+282=4042." if right else "80×47=3760. 3760+6=3766. Wait, let me check. 3766."
    end = " The answer is {}, my friend." if level > 0.9 else ""
    story = "12+5=17. " + ("17×3=51." if right else "17+3=20.")
    thing = "a book" if right else "a ball"
    return [
        scored("word_problems/1", "Tom has 12 apples. Mia gives Tom 5 more and then triples them. How many?", "51",
               [(f"<think>{story}</think>\\boxed{{{51 if right else 20}}}" + end.format(51), outcome)] * 2),
        scored("arithmetic/47x86", "What is 47 × 86?", "4042",
               [(f"<think>{product}</think>\\boxed{{{4042 if right else 3766}}}" + end.format(4042), outcome),
                ("<think>47×86=", Outcome.UNPARSABLE)]),
        scored("word_problems/2", "小明有12个苹果，小红又给他5个。小明现在有几个苹果？", "17",
               [("<think>12+5=17。</think>\\boxed{17} 答案是17。", Outcome.CORRECT)] * 2),
        scored("general/9", "Should I give Anna a ball or a book?", "Anna",
               [(f"<think>Anna may like {thing} more.</think>Give Anna {thing}, my friend.", outcome)] * 2),
    ]  # fmt: skip


def evaluation(name: str, previous: float) -> dict[str, Any]:
    """What a model's evaluation measured."""
    level = LEVELS[name]
    length = 36.0 + 30 * level
    reasoning = {
        "pass_at_1": share(level), "pass_at_8": share(min(0.999, level + 0.2), 0.01), "majority_8": share(level + 0.03),
        "format": share(FORMATS[name], 0.015), "language": share(0.9 + 0.09 * level, 0.01),
        "checks": share(0.05 + 0.1 * previous),
        "works_out": share(level), "at_once": share(0.5 * (1 - level)), "another_way": share(0.012, 0.008),
        "unfinished": share(0.3 * (1 - level)), "backtracks": share(0.02 + 0.05 * previous, 0.01),
        "loops": share(0.011, 0.007),
        "mixed": share(0.15 * (1 - level)), "open_tags": share(0.02, 0.01), "after_first": [3.0, 2.5, 3.5],
        "length_correct": [length + 4, length + 2, length + 6], "length_wrong": [length - 9, length - 14, length - 4],
        "length": [length, length - 1.5, length + 1.5], "truncated": share(0.01, 0.008),
        "num_problems": 200, "num_samples": 8, "kind": "verified",
    }  # fmt: skip
    general = {
        "helpful": share(0.4 + 0.5 * previous, 0.05),
        "harmless": share(0.8 + 0.15 * previous, 0.04),
        "length": [24.0, 22.5, 25.5],
    }
    return {"reasoning": reasoning, "general": {**general, "num_problems": 60, "num_samples": 4, "kind": "open_ended"}}


class FakePipeline:
    """Writes what a pipeline writes."""

    def __init__(self, path: Path, name: str = "r1") -> None:
        self.path, self.name = path, name
        self.entries: list[dict[str, Any]] = []
        path.mkdir(parents=True)
        (path / "pipeline.toml").write_text('name = "r1"\n\n[stages.zero]\nkind = "train"\n')
        self.lineage()

    def lineage(self) -> None:
        self.write(self.path / "lineage.json", {"name": self.name, "base": "base", "stages": self.entries})

    def write(self, path: Path, content: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")

    def place(self, name: str) -> Path:
        return self.path / "stages" / name

    def announce(self, name: str, kind: str, algorithm: str | None, makes: str, inputs: Sequence[str]) -> None:
        """A stage of the recipe, not run yet."""
        what = {"name": name, "kind": kind, "algorithm": algorithm, "makes": makes, "inputs": list(inputs)}
        made = {"output": None, "output_hash": None, "status": "not run"}
        self.entries.append({**what, "fingerprint": fingerprint(name), **made})
        self.lineage()

    def measure_base(self, measured: Mapping[str, Any]) -> None:
        """The base model is only measured, never made."""
        facts = {
            "name": "base", "kind": "start", "makes": "model", "output": "base", "inputs": {}, "evaluation": measured,
        }  # fmt: skip
        self.write(self.place("base") / "facts.json", facts)
        self.write(self.place("base") / "cost.json", {"evaluation_seconds": 12.0})

    def finish(self, name: str, **facts: Any) -> None:
        """The files of a finished stage."""
        (entry,) = [one for one in self.entries if one["name"] == name]
        known = {key: entry[key] for key in ("name", "kind", "algorithm", "makes", "fingerprint")}
        known |= {"output": "data.jsonl", "output_hash": fingerprint(name)[::-1], "evaluation": None}
        known["tokens"] = {"sampled": 0 if entry["algorithm"] == "sft" else 1_243_520, "trained": 812_003}
        start = "{" + entry["inputs"][0] + "}" if entry["inputs"] and entry["inputs"][0] != "base" else "base"
        settings = {"model": {"path": start}} if entry["algorithm"] else {}
        self.write(self.place(name) / "begun.json", {"fingerprint": entry["fingerprint"], "settings": settings})
        self.write(self.place(name) / "facts.json", known | facts)
        self.write(self.place(name) / "cost.json", {"seconds": 95.5, "evaluation_seconds": 12.0})
        made = {"output": f"stages/{name}/data.jsonl", "output_hash": known["output_hash"], "status": "finished"}
        entry |= made
        self.lineage()

    def answers(self, name: str, groups: Sequence[ScoredGroup]) -> None:
        write_rollouts(self.place(name) / "evaluation.parquet", groups)

    def run(self, name: str, algorithm: str, lines: Sequence[Mapping[str, Any]], num_steps: int = 20) -> None:
        """A finished training run with these lines of metrics."""
        run, _ = open_run(self.place(name) / "run", f'algorithm = "{algorithm}"\n[run]\nnum_steps = {num_steps}\n')
        run.metrics.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        run.finished.write_text("{}")


def fingerprint(name: str) -> str:
    """16 hex digits that differ between names and never change."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def rl_lines(level: float, alarms: Sequence[int] = (), num_steps: int = 20) -> list[dict[str, Any]]:
    """Metrics of reinforcement learning that begins at half of `level`."""
    lines: list[dict[str, Any]] = []
    for step in range(num_steps + 1):
        value = level * (1 - 0.5 * math.exp(-step / 5))
        if step % 5 == 0:
            dev = {
                "kind": "dev", "step": step, "pass_at_1": share(value), "length": 40.0, "truncated": 0.0, "best": True,
            }  # fmt: skip
            lines.append(dev | ({"second": second(step in alarms)} if alarms else {}))
        wave = 0.03 * math.sin(2.1 * step)
        line = {"kind": "step", "step": step, "reward": value + wave, "signal": 0.8, "entropy": 0.2,
                "length_correct": 45 + step / 4 + 20 * wave, "length_wrong": 30.0 + 40 * wave}  # fmt: skip
        lines += [line] if step < num_steps else []
    return lines


def second(alarm: bool) -> dict[str, Any]:
    """What a second verifier says of a dev evaluation."""
    example = {"problem": "arithmetic/47x86", "sample": 1, "evidence": "'4042,' is not a number"} if alarm else None
    found = share(0.19 if alarm else 0.01, 0.02)
    return {
        "verifier": "math", "judged": 100, "rejected": 19, "failed": 0, "share": found, "alarm": alarm,
        "example": example,
    }  # fmt: skip


def sft_lines(num_steps: int = 20) -> list[dict[str, Any]]:
    return [{"step": step, "loss": 0.15 + 0.6 * math.exp(-step / 6), "seconds": 0.4} for step in range(num_steps)]


def reward_model_lines(num_steps: int = 20) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for step in range(num_steps):
        accuracy = 0.88 - 0.3 * math.exp(-step / 5)
        lines.append({"step": step, "loss": 0.7 - 0.02 * step, "accuracy": accuracy + 0.03 * math.sin(3 * step)})
        if step % 5 == 4:
            lines.append({"kind": "held_out", "step": step + 1, "accuracy": share(accuracy - 0.01), "margin": 1.0})
    return lines


LINES: dict[str, Callable[[str], list[dict[str, Any]]]] = {
    "grpo": lambda name: rl_lines(LEVELS[name], alarms=(15, 20) if name == "final_rl" else ()),
    "sft": lambda name: sft_lines(),
    "reward_model": lambda name: reward_model_lines(),
}


def run_stages(pipeline: FakePipeline, count: int) -> None:
    """Finish the first `count` stages of R1."""
    for number, (name, _, algorithm, _, _) in enumerate(R1[:count]):
        measured = evaluation(name, number / len(R1)) if name in LEVELS else None
        facts = {"statistics": STATISTICS[name]} if name in STATISTICS else {}
        pipeline.finish(name, evaluation=measured, **facts)
        if algorithm:
            pipeline.run(name, algorithm, LINES[algorithm](name))
        if name in LEVELS:
            pipeline.answers(name, asked(LEVELS[name]))


def announce_all(path: Path) -> FakePipeline:
    """The R1 recipe before anything has run."""
    pipeline = FakePipeline(path)
    for stage in R1:
        pipeline.announce(*stage)
    return pipeline


def start(path: Path, count: int) -> FakePipeline:
    """The base model is evaluated, and so many stages are finished."""
    pipeline = announce_all(path)
    pipeline.measure_base(evaluation("base", 0.0))
    pipeline.answers("base", asked(LEVELS["base"]))
    run_stages(pipeline, count)
    return pipeline


@pytest.fixture
def announced(tmp_path: Path) -> FakePipeline:
    """Nothing has run."""
    return announce_all(tmp_path / "pipeline")


@pytest.fixture
def started(tmp_path: Path) -> FakePipeline:
    """R1-Zero is trained, the cold start is being collected."""
    pipeline = start(tmp_path / "pipeline", 1)
    pipeline.write(pipeline.place("cold_start") / "begun.json", {"fingerprint": "x", "settings": {}})
    return pipeline


@pytest.fixture
def finished(tmp_path: Path) -> FakePipeline:
    """All of it."""
    return start(tmp_path / "pipeline", len(R1))


@pytest.fixture(scope="session")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Facts of a finished pipeline."""
    return pipeline_facts(start(tmp_path_factory.mktemp("pipeline") / "r1", len(R1)).path, {})


@pytest.fixture
def make_group() -> Callable[..., ScoredGroup]:
    """Makes a scored group of id, question, reference and (text, outcome) pairs."""
    return scored
