"""Pipelines, test-time compute and process reward models: what the pages show is what the files say, or why not."""

import json
from pathlib import Path

import pytest
from written_results import lines, write_budget, write_process
from written_run import CONFIG, HOSTILE, write_run

from groupwise.errors import GroupwiseError
from groupwise.explorer.export import page_of
from groupwise.explorer.opened import NotThereError
from groupwise.explorer.pipeline.data import load_pipeline
from groupwise.explorer.pipeline.tables import lineage_table
from groupwise.explorer.views import Views
from groupwise.explorer.wire import encoded


def write_training(path: Path, name: str = "train", kind: str = "train") -> Path:
    """A pipeline with one stage of training, whose run is under way."""
    stage = {"name": name, "kind": kind, "algorithm": "grpo", "makes": "model", "inputs": ["base"]}
    path.mkdir(parents=True)
    (path / "lineage.json").write_text(json.dumps({"name": path.name, "base": "base", "stages": [stage]}))
    write_run(path / "stages" / "train" / "run", steps=1)
    return path


def test_what_a_directory_holds_is_found_by_its_files(tmp_path: Path) -> None:
    paths = [write_training(tmp_path / "mine"), write_budget(tmp_path / "budget"), write_run(tmp_path / "own"),
             write_process(tmp_path / "judged"), tmp_path / "mine" / "stages" / "train" / "run"]  # fmt: skip
    views = Views(paths)
    assert [run["name"] for run in views.runs()] == ["mine · train", "own"]  # named twice, shown once
    found = [(one["kind"], one["name"]) for one in views.results()]
    assert found == [("pipeline", "mine"), ("budget", "budget"), ("pipeline", "judged"), ("process", "judged · judges")]


def test_a_stage_of_a_pipeline_leads_to_its_run_even_if_it_begins_later(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    write_training(path)
    run = path / "stages" / "train" / "run"
    run.rename(tmp_path / "later")
    views = Views([path])
    assert views.runs() == []
    assert views.result(0)["stages"][-1] == {"name": "train", "state": "not run", "run": None, "budget": None}
    (tmp_path / "later").rename(run)
    assert [one["name"] for one in views.runs()] == ["mine · train"]
    assert views.result(0)["stages"][-1]["run"] == 0
    assert views.result(0)["done"] is False


def test_a_pipelines_tables_are_those_of_its_report(tmp_path: Path) -> None:
    path = write_process(tmp_path / "judged")
    shown = {table["title"]: table for table in Views([path]).result(0)["tables"]}
    expected = lineage_table(load_pipeline(path))
    assert [line["name"] for line in shown["Lineage"]["lines"]] == [line.name for line in expected.lines]
    assert [[cell["value"] for cell in line["cells"]] for line in shown["Lineage"]["lines"]] == [
        [cell.value for cell in line.cells] for line in expected.lines
    ]


def test_test_time_compute_has_the_figures_of_its_file(tmp_path: Path) -> None:
    path = write_budget(tmp_path / "budget")
    records = [json.loads(line) for line in (path / "budget.jsonl").read_text().splitlines()]
    shown = Views([path]).result(0)
    points = [record for record in records if record["kind"] == "point"]
    assert [{name: one[name] for name in point} for one, point in zip(shown["points"], points, strict=True)] == points
    assert [one["seconds"] for one in shown["points"]] == [0.0125, 0.05, 0.2] * 8
    assert (shown["settings"]["checkpoint"], shown["settings"]["problems"]) == ("base", "40")
    assert (len(shown["optimal"]), len(shown["flips"]), shown["notices"]) == (1, 1, [])
    assert [one["against"] for one in shown["equal_tokens"]] == ["best_of_n/prm_last"]


def test_figures_are_read_again_when_they_have_changed(tmp_path: Path) -> None:
    path = write_budget(tmp_path / "budget")
    views = Views([path])
    assert len(views.result(0)["points"]) == 24
    records = [json.loads(line) for line in (path / "budget.jsonl").read_text().splitlines()]
    lines(path / "budget.jsonl", records[:3])
    assert len(views.result(0)["points"]) == 2


def test_process_reward_models_stand_side_by_side(tmp_path: Path) -> None:
    shown = Views([write_process(tmp_path / "judged")]).result(1)
    assert shown["judges"] == ["controls", "exact", "rollouts"]
    figures = {figure["name"]: figure["values"] for figure in shown["figures"]}
    assert figures["auc"] == [None, [0.93], [0.84]]
    assert figures["f1"] == [None, [0.81], None]  # not measured is no 0
    assert figures["best of 4 by min"][1] == [0.75, 0.7, 0.8]


@pytest.mark.parametrize("name", ["../train", "/etc", "", "a/b", "..", "<script>", None, 7])
def test_a_stage_whose_name_is_a_path_is_not_followed(tmp_path: Path, name: object) -> None:
    path = write_training(tmp_path / "mine", name=name)  # type: ignore[arg-type]
    views = Views([path])
    assert views.runs() == []
    assert "is no name of a stage" in views.results()[0]["notices"][0]
    with pytest.raises(GroupwiseError, match="is no name of a stage"):
        views.result(0)


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"stages": 3}', '{"stages": [3]}', "[" * 100_000])
def test_a_damaged_lineage_is_named(tmp_path: Path, text: str) -> None:
    path = write_training(tmp_path / "mine")
    (path / "lineage.json").write_text(text)
    assert "is not the lineage of a pipeline" in Views([path]).results()[0]["notices"][0]


@pytest.mark.parametrize(
    "part", ["stages/train/facts.json", "stages/train/run/metrics.jsonl", "stages/train", "stages"]
)
def test_links_out_of_a_pipeline_are_not_followed(tmp_path: Path, part: str) -> None:
    path = write_training(tmp_path / "mine")
    target = tmp_path / "outside"
    if (path / part).exists():
        (path / part).rename(target)
    else:
        target.write_text("secret")
    (path / part).symlink_to(target)
    views = Views([path])
    assert "leads out of the directory" in views.results()[0]["notices"][0]
    with pytest.raises(NotThereError, match="leads out of the directory"):
        views.result(0)


def test_hostile_and_damaged_figures_are_left_out_and_named(tmp_path: Path) -> None:
    path = write_budget(tmp_path / "budget")
    bad = [
        {"kind": "point", "method": HOSTILE[0], "budget": "many", "policy_tokens": 1, "accuracy": [1, 1, 1]},
        {"kind": "point", "method": "majority", "budget": 1, "policy_tokens": 1, "accuracy": ["a", "b", "c"]},
        {"kind": HOSTILE[1]}, {"kind": "point"},
    ]  # fmt: skip
    with (path / "budget.jsonl").open("a") as file:
        file.write("".join(json.dumps(one) + "\n" for one in bad) + 'not json\n[]\n{"kind": "poi')
    shown = Views([path]).result(0)
    assert len(shown["points"]) == 24
    assert [notice.split(":")[0] for notice in shown["notices"]] == [
        f"budget.jsonl, line {number}" for number in (33, 34, 35)
    ]
    assert b"<script>" not in encoded(shown)
    (path / "budget.jsonl").write_text("")
    assert Views([path]).result(0)["notices"] == ["budget.jsonl has no figures of any method"]


def test_an_exported_page_holds_the_results(tmp_path: Path) -> None:
    broken = write_training(tmp_path / "broken")
    (broken / "lineage.json").write_text("{}")
    page = page_of([write_process(tmp_path / "judged"), write_budget(tmp_path / "budget"), broken])
    assert "best_of_n/orm" in page
    assert "best of 4 by min" in page
    assert "is not the lineage of a pipeline" in page


def test_there_is_no_other_result(tmp_path: Path) -> None:
    views = Views([write_budget(tmp_path / "budget"), write_run(tmp_path / "run", config=CONFIG)])
    for number in (1, -1, 99):
        with pytest.raises(NotThereError, match=f"there is no result {number}; there are 1"):
            views.result(number)


def test_the_directory_of_a_stage_is_the_run_inside_it(tmp_path: Path) -> None:
    path = write_training(tmp_path / "mine")
    views = Views([path / "stages" / "train"])
    assert [run["name"] for run in views.runs()] == ["mine · train"]
    assert views.start() == "/run/0"
    budget = write_budget(tmp_path / "other" / "stages" / "compute" / "budget")
    views = Views([budget.parent])
    assert [(one["kind"], one["name"]) for one in views.results()] == [("budget", "budget · compute")]
    outside = tmp_path / "linked"
    outside.mkdir()
    (outside / "run").symlink_to(path / "stages" / "train" / "run")
    assert "is not a run directory" in Views([outside]).runs()[0]["notices"][0]


def test_one_thing_is_opened_at_once_and_several_are_listed(tmp_path: Path) -> None:
    pipeline, run = write_training(tmp_path / "mine"), write_run(tmp_path / "run")
    starts = [Views(paths).start() for paths in ([pipeline], [run], [pipeline, run], [])]
    assert starts == ["/pipeline/0", "/run/0", "/", "/"]
