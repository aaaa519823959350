import errno
import json
import multiprocessing
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import CheckpointError, ConfigError, DataError
from groupwise.pipeline import load_pipeline, runner
from groupwise.pipeline.base import Interrupted, Workplace
from groupwise.pipeline.directory import StageDirectory
from groupwise.pipeline.runner import Display, run_pipeline
from groupwise.runs.atomic import Hold


def test_facts_and_lineage_say_what_was_made_of_what(fake: Any) -> None:
    fake.run()
    found = fake.plan()
    facts = fake.stage("third").facts
    assert facts | {"evaluation": None, "evaluation_fingerprint": None} == {
        "name": "third", "kind": "fake", "algorithm": None, "makes": "model",
        "fingerprint": found["third"].fingerprint, "inputs": {"second": found["second"].fingerprint},
        "output": "data.jsonl", "output_hash": facts["output_hash"], "tokens": {"sampled": 3, "trained": 4},
        "statistics": {"rows": 1}, "evaluation": None, "evaluation_fingerprint": None,
    }  # fmt: skip
    assert facts["evaluation"]["task"]["pass_at_1"] == [0.5, 0.4, 0.6]
    assert fake.stage("second").facts["evaluation"] is None
    lineage = json.loads((fake.path / "lineage.json").read_text())
    inputs = {"first": [], "second": ["first"], "other": [str(fake.folder / "mine.jsonl")], "third": ["second"]}
    assert [(one["name"], one["inputs"]) for one in lineage["stages"]] == list(inputs.items())
    for one in lineage["stages"]:
        assert one["status"] == "finished"
        assert (fake.path / one["output"]).exists()
        assert one["output_hash"] == fake.stage(one["name"]).facts["output_hash"]


def test_one_of_several_processes_of_a_launcher_runs_no_pipeline(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="a pipeline runs in one process, and a launcher started 2"):
        fake.run()
    assert not fake.path.exists()


def test_the_base_model_is_measured_again_when_it_changed(fake: Any, measured: list[str]) -> None:
    fake.run()
    base = fake.stage("base").facts
    assert base["output"] == str(fake.folder / "base")
    fake.run()
    assert len(measured) == 2  # base and third
    (fake.folder / "base" / "weights").write_text("4 5 6")
    fake.run()
    assert measured[2:] == [str(fake.folder / "base")]
    assert fake.stage("base").facts["output_hash"] != base["output_hash"]


def test_facts_and_rows_say_nothing_of_where_they_are(fake: Any) -> None:
    fake.values["stages"].pop("other")
    fake.values["model"] = {"path": "base"}
    names = ["facts.json", "data.jsonl", "begun.json", "lineage.json"]
    found = []
    for folder in ("here", "there"):
        fake.values["pipeline"]["directory"] = str(fake.folder / folder / "r1")
        fake.run()
        assert fake.stage("base").facts["output"] == "base"  # as in the recipe
        found.append({name: text for name, text in fake.contents().items() if Path(name).name in names})
    assert found[0] == found[1]
    assert len(found[0]) == 3 * 3 + 2


def test_a_moved_pipeline_is_the_same_pipeline(fake: Any) -> None:
    fake.run()
    fake.path.rename(fake.folder / "moved")
    fake.values["pipeline"]["directory"] = str(fake.folder / "moved")
    assert set(fake.actions().values()) == {"skip"}
    assert fake.run(start="third") == ["third"]


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise error

    return fail


Hooks = dict[str, Callable[[Workplace], None]]


@pytest.mark.parametrize("error", [Interrupted(), KeyboardInterrupt()])
def test_an_interrupt_ends_the_call_and_the_next_one_goes_on(
    fake: Any, before_end: Hooks, error: BaseException
) -> None:
    before_end["second"] = raising(error)
    assert run_pipeline(*fake.read(), Display(pytest.fail)) is False
    assert fake.actions() == {"first": "skip", "second": "resume", "other": "run", "third": "run"}
    before_end.clear()
    assert fake.run() == ["second", "other", "third"]


def test_an_error_names_its_stage_and_leaves_what_was_done(
    fake: Any, before_end: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(runner, "evaluate_model", raising(DataError("no")))
        with pytest.raises(DataError, match=r"^stage base: no$"):
            fake.run()
    before_end["second"] = raising(DataError("line 3 is empty"))
    with pytest.raises(DataError, match=r"^stage second: line 3 is empty$"):
        fake.run()
    lineage = json.loads((fake.path / "lineage.json").read_text())
    assert [one["status"] for one in lineage["stages"]] == ["finished", "not run", "not run", "not run"]
    before_end.clear()
    assert fake.run() == ["second", "other", "third"]


def test_a_full_disk_is_said_in_a_sentence(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.run(only="first")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", raising(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(CheckpointError, match="cannot be written: No space left on device"):
            fake.run()
    assert fake.run() == ["second", "other", "third"]


def test_a_foreign_directory_is_left_alone(fake: Any) -> None:
    fake.path.mkdir()
    (fake.path / "thesis.tex").write_text("")
    with pytest.raises(CheckpointError, match="exists and is not a pipeline"):
        fake.run()
    assert [entry.name for entry in fake.path.iterdir()] == ["thesis.tex"]
    (fake.path / "pipeline.toml").write_text("# mine")  # a recipe of the user's own
    with pytest.raises(CheckpointError, match="exists and is not a pipeline"):
        fake.run()
    assert (fake.path / "pipeline.toml").read_text() == "# mine"
    (fake.path / "pipeline.toml").unlink()
    (fake.path / "thesis.tex").unlink()
    fake.path.rmdir()
    fake.path.write_text("")
    with pytest.raises(CheckpointError, match="exists and is not a pipeline"):
        fake.run()
    fake.path.unlink()
    fake.path.mkdir()
    (fake.path / runner.LOCK).write_text("")  # what a kill at the very beginning leaves is not foreign
    (fake.path / ".pipeline.toml.tmp").write_text("half")
    assert fake.run() == ["first", "second", "other", "third"]


def test_an_unknown_stage_changes_nothing(fake: Any) -> None:
    fake.run()
    before = fake.contents()
    fake.values["measure"] = {"num_problems": 9}
    with pytest.raises(ConfigError):
        fake.run(only="sixth")
    assert fake.contents() == before


def hold(path: str, started: Any, end: Any) -> None:
    with Hold(Path(path), "pipeline.directory"):
        started.set()
        end.wait(30)


def test_a_second_process_is_refused_as_long_as_the_first_one_lives(fake: Any) -> None:
    context = multiprocessing.get_context("fork")
    started, end = context.Event(), context.Event()
    process = context.Process(target=hold, args=(str(fake.path), started, end), daemon=True)
    process.start()
    assert started.wait(30)
    with pytest.raises(CheckpointError, match=r"another process works in .*pipeline: wait for its end"):
        fake.run()
    process.kill()
    process.join()
    assert fake.run() == ["first", "second", "other", "third"]


def test_results_on_old_results_are_deleted_last_stage_first(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.run()
    deleted: list[str] = []

    def discard(self: StageDirectory) -> None:
        deleted.append(self.path.name)
        raise KeyboardInterrupt

    monkeypatch.setattr(StageDirectory, "discard", discard)
    with pytest.raises(KeyboardInterrupt):
        run_pipeline(*fake.read(), Display(pytest.fail), start="first")
    assert deleted == ["third"]


def test_a_half_deleted_stage_counts_as_deleted(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.run()

    def killed(path: Path) -> None:
        next(iter(sorted(path.iterdir()))).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            fake.stage("second").discard()
    assert fake.plan()["second"][3:] == ("run", "not run yet")
    assert fake.run() == ["second"]
    there = {entry.name for entry in (fake.path / "stages").iterdir()}
    assert there == {"base", "first", "other", "second", "third"}


def test_cost_counts_attempts_that_were_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PERIOD_S", 0.01)
    place = StageDirectory(tmp_path / "stage")
    place.write("cost", {"seconds": 100.0, "processor_seconds": 40.0, "evaluation_seconds": 7.0})
    with runner.timed(place, "seconds"):
        until = time.monotonic() + 20
        while place.cost["seconds"] < 100.02 and time.monotonic() < until:
            time.sleep(0.005)
        assert 100.02 <= place.cost["seconds"] < 120  # what a kill now would leave
    assert 100.02 <= place.cost["seconds"] < 120
    assert place.cost["evaluation_seconds"] == 7.0


def test_processor_seconds_count_what_is_computed_and_no_waiting(tmp_path: Path) -> None:
    place = StageDirectory(tmp_path / "stage")
    place.write("cost", {"processor_seconds": 40.0})
    with runner.timed(place, "seconds"):
        began = time.process_time()
        while time.process_time() < began + 0.05:
            pass
        time.sleep(1.0)
    assert 40.05 <= place.cost["processor_seconds"] < 40.5 + place.cost["seconds"] - 1.0


def test_a_killed_measurement_leaves_no_old_numbers_beside_new_completions(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.run()

    def killed(recipe: Any, model: str, place: StageDirectory) -> Any:
        place.evaluation.write_text("of another setting")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner, "evaluate_model", killed)
        fake.values["measure"] = {"num_samples": 3}
        assert not run_pipeline(*fake.read(), Display(lambda recipe: None), only="third")
    assert fake.stage("third").facts["evaluation"] is None
    del fake.values["measure"]
    assert fake.actions()["third"] == "measure"


def test_damaged_facts_are_named(fake: Any) -> None:
    fake.run()
    (fake.stage("second").path / "facts.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"second/facts.json is not readable .*; delete its stage's directory"):
        fake.plan()


def test_the_recorded_recipe_can_be_read_back(tmp_path: Path, fake: Any) -> None:
    example = {"question": 'What "is" {zero}?', "completion": "a\n\\boxed{3} 等一下\u2028", "language": "zh"}
    fake.values["stages"]["first"] = {"examples": [example, {"question": "q", "completion": "c"}], "empty": []}
    fake.run()
    recorded = tmp_path / "pipeline" / "pipeline.toml"
    with pytest.raises(ConfigError, match=r"stages.first.algorithm = None"):
        load_pipeline(recorded)  # it is read up to the stages, which are fake
    assert tomllib.loads(recorded.read_text())["stages"] == fake.values["stages"]
