"""Recall as a stage, and the road of DeepSeekMath that begins with it."""

import json
from pathlib import Path

import pytest

from groupwise.pipeline import load_pipeline, run_pipeline
from groupwise.pipeline.base import Workplace
from groupwise.pipeline.directory import StageDirectory, content_hash
from groupwise.tasks import make_task

RECIPE = Path(__file__).parents[3] / "recipes" / "deepseekmath.toml"
TINY = (
    "stages.recall.sources.web.num_pages=150", "stages.recall.sources.web.num_domains=20",
    "stages.recall.begin.num_texts=40", "stages.recall.rounds.max_rounds=1",
)  # fmt: skip


def test_every_stage_of_the_road_reads_what_came_before() -> None:
    _, stages = load_pipeline(RECIPE)
    inputs = {stage.name: stage.inputs for stage in stages}
    assert inputs == {
        "recall": (), "pretraining": ("recall",), "chains": (), "programs": (), "calls": (),
        "sft": ("pretraining", "chains", "programs", "calls"), "outcome": ("sft",),
        "labels": ("sft",), "step_judge": ("sft", "labels"), "process": ("sft", "step_judge"),
        "labels_again": ("process",), "step_judge_again": ("process", "labels_again", "labels"),
        "iteration": ("process", "step_judge_again"),
    }  # fmt: skip
    assert stages[0].makes == "data"


def test_the_same_problems_are_asked_for_in_three_forms() -> None:
    recipe, _ = load_pipeline(RECIPE)
    tasks = {name: make_task(options) for name, options in recipe.tasks.items()}
    one, *others = (task.problems("test") for task in tasks.values())
    assert all([problem.id for problem in other] == [problem.id for problem in one] for other in others)
    assert len({task.template.prompt for task in tasks.values()}) == 3
    assert tasks["programs"].verifier_config.kind == "program"
    assert {name: list(tools) for name, tools in recipe.measure.tools.items()} == {"with_tool": ["calculator"]}
    assert not (recipe.measure.sampling or recipe.sampling).tools


def test_the_stage_makes_documents_and_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, stages = load_pipeline(RECIPE, TINY)
    stage, seen = stages[0], list[str]()
    monkeypatch.setattr("groupwise.pipeline.recall.say", lambda what, done, total: seen.append(what))
    work = Workplace(StageDirectory(tmp_path), pytest.fail)
    made = stage.run(stage.config, work)
    rows = [json.loads(line) for line in made.output.read_text("utf-8").splitlines()]
    assert len(rows) == made.statistics["rows"] > 0
    assert all(row["text"] and row["url"] for row in rows)
    assert made.output_hash == content_hash(made.output)
    rounds = json.loads((tmp_path / "recall" / "recall.json").read_text("utf-8"))["rounds"]
    found, there = rounds[0]["recall"]
    assert made.statistics["found"] == {"round 1": round(found / there, 6), "last": round(found / there, 6)}
    assert made.statistics["known share"]["last"] == rounds[0]["known_share"]
    assert {"near copies", "n-grams", "rounds", "decontamination"} <= set(seen)
    assert stage.run(stage.config, work) == made


@pytest.mark.slow
def test_the_corpus_is_trained_on(tmp_path: Path) -> None:
    short = [
        f"pipeline.directory={tmp_path / 'road'}", "measure.num_problems=2", "measure.num_samples=1",
        "measure.sampling.max_tokens=16", *TINY, "stages.pretraining.run.num_steps=2",
        "stages.pretraining.sft.sequences_per_step=2", "stages.pretraining.data.max_tokens=64",
    ]  # fmt: skip
    recipe, stages = load_pipeline(RECIPE, short)
    assert run_pipeline(recipe, stages[:2])
    facts = json.loads((tmp_path / "road" / "stages" / "pretraining" / "facts.json").read_text())
    assert facts["statistics"]["steps"] == 2
    assert facts["tokens"]["trained"] > 100
