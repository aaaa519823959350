"""Opening a run directory: a new run, an interrupted one, and everything that must be refused."""

import json
from pathlib import Path

import pytest

from groupwise.errors import CheckpointError, ConfigError
from groupwise.runs import directory as module
from groupwise.runs.atomic import MANIFEST, new_directory, write_file
from groupwise.runs.directory import RunDirectory, begin_run, find_run, hold_run, open_run
from groupwise.runs.inputs import Input

RECIPE = 'algorithm = "grpo"\n\n[run]\nseed = 0\nnum_steps = 5\n\n[loss]\naggregation = "constant"\n'


def add_checkpoint(run: RunDirectory, step: int) -> Path:
    with new_directory(run.checkpoint(step)) as directory:
        (directory / "model.safetensors").write_bytes(b"weights")
    return run.checkpoint(step)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return open_run(tmp_path / "run", RECIPE)[0]


def test_a_new_run_records_recipe_and_environment(tmp_path: Path) -> None:
    run, checkpoint = open_run(tmp_path / "deep" / "run", RECIPE)
    assert checkpoint is None
    assert run.config.read_text() == RECIPE
    environment = json.loads((run.path / "environment.json").read_text())
    names = {"versions", "python", "platform", "processor", "cores", "torch_threads", "gpu", "commit"}
    assert names <= environment.keys()
    assert environment["versions"]["torch"] != "not installed"
    (tmp_path / "empty").mkdir()
    assert open_run(tmp_path / "empty", RECIPE)[0].config.exists()


def test_a_directory_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for start in (open_run, begin_run, lambda path, recipe: hold_run(path)):
        with pytest.raises(CheckpointError, match="not a run directory"):
            start(tmp_path, RECIPE)
    for own in (RECIPE, "[package]\n"):  # a recipe of the user's own, or another program's
        (tmp_path / "config.toml").write_text(own)
        with pytest.raises(CheckpointError, match="not a run directory"):
            begin_run(tmp_path, RECIPE)
        assert {path.name for path in tmp_path.iterdir()} >= {"config.toml"}
        (tmp_path / "thesis.tex").unlink(missing_ok=True)


def test_an_interrupted_run_goes_on_from_its_newest_checkpoint(run: RunDirectory, tmp_path: Path) -> None:
    assert open_run(run.path, RECIPE) == (run, None)
    for step in (2, 10, 9):
        add_checkpoint(run, step)
    run.mark_best(2)
    (run.checkpoints / ".step-000011.tmp").mkdir()  # being written
    (run.checkpoints / "step-000012 (copy)").mkdir()
    assert run.steps() == [2, 9, 10]
    assert open_run(run.path, RECIPE) == (run, run.checkpoint(10))
    moved = run.path.rename(tmp_path / "elsewhere")
    assert open_run(moved, RECIPE)[1] == moved / "checkpoints" / run.checkpoint(10).name


@pytest.mark.parametrize("stage", ["environment", "write_file"])
def test_a_run_killed_while_it_was_begun_can_be_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, stage, killed)
    with pytest.raises(KeyboardInterrupt):
        open_run(tmp_path / "run", RECIPE)
    monkeypatch.undo()
    run, checkpoint = open_run(tmp_path / "run", RECIPE)
    assert checkpoint is None
    assert run.config.read_text() == RECIPE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seed = 0", "seed = 1", "run.seed was 0 and is 1"),
        ('"constant"', '"token"', "loss.aggregation was 'constant' and is 'token'"),
        ("seed = 0\n", "", "run.seed was 0 and is None"),
    ],
)
def test_a_changed_recipe_is_refused_and_named(run: RunDirectory, old: str, new: str, message: str) -> None:
    add_checkpoint(run, 1)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_run(run.path, RECIPE.replace(old, new))
    assert "num_steps" not in str(caught.value)
    assert run.config.read_text() == RECIPE


def test_other_versions_are_told_where_a_run_goes_on(run: RunDirectory) -> None:
    add_checkpoint(run, 1)
    record = run.path / "environment.json"
    then = json.loads(record.read_text())
    then["versions"]["torch"], then["processor"] = "1.0", "Another CPU"
    record.write_text(json.dumps(then))
    with pytest.warns(
        UserWarning, match=r"begun with versions\.torch 1\.0, now .*; processor Another CPU, now .* last bits"
    ):
        open_run(run.path, RECIPE)
    for damaged in ("{", "[]"):
        record.write_text(damaged)
        assert open_run(run.path, RECIPE) == (run, run.checkpoint(1))


def test_a_damaged_checkpoint_is_named_with_the_way_out(run: RunDirectory) -> None:
    add_checkpoint(run, 1)
    newest = add_checkpoint(run, 2)
    (newest / "model.safetensors").write_bytes(b"weighty")
    with pytest.raises(CheckpointError, match=r"step-000002 is damaged: model\.safetensors .*; delete .*step-000002"):
        open_run(run.path, RECIPE)
    for path in newest.iterdir():
        path.unlink()
    newest.rmdir()
    assert open_run(run.path, RECIPE) == (run, run.checkpoint(1))
    (add_checkpoint(run, 3) / MANIFEST).unlink()
    with pytest.raises(CheckpointError, match="step-000003 is not a finished checkpoint"):
        open_run(run.path, RECIPE)


def test_restart_deletes_the_old_run(run: RunDirectory) -> None:
    add_checkpoint(run, 1)
    run.ledger.append({"step": 0})
    run.rollouts(99).parent.mkdir()
    run.rollouts(99).touch()
    changed = RECIPE.replace("seed = 0", "seed = 1")
    again = begin_run(run.path, changed)
    assert again.steps() == []
    assert (again.ledger.size, again.rollouts(99).exists()) == (0, False)
    assert again.config.read_text() == changed


@pytest.mark.parametrize("last", ["ledger.jsonl", "environment.json", "config.toml"])
def test_a_run_killed_while_it_was_deleted_can_be_begun_again(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    run.ledger.append({"step": 0})
    run.metrics.append({"step": 0})
    unlink = Path.unlink

    def killed_behind(path: Path, **options: bool) -> None:
        unlink(path, **options)
        if path.name == last:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed_behind)
        with pytest.raises(KeyboardInterrupt):
            begin_run(run.path, RECIPE)
    again = begin_run(run.path, RECIPE)
    assert (again.ledger.size, again.config.read_text()) == (0, RECIPE)


def test_old_checkpoints_are_dropped_but_never_the_best(run: RunDirectory) -> None:
    for step in range(1, 6):
        add_checkpoint(run, step)
    run.mark_best(2)
    run.drop_old_checkpoints(keep=2)
    assert run.steps() == [2, 4, 5]
    assert run.best.resolve() == run.checkpoint(2)
    run.mark_best(5)
    run.drop_old_checkpoints(keep=2)
    assert run.steps() == [4, 5]


def test_a_run_is_found_by_its_recipe(run: RunDirectory, tmp_path: Path) -> None:
    assert find_run(run.path) == run
    with pytest.raises(ConfigError, match="not a run directory"):
        find_run(tmp_path)


def test_a_place_may_be_said_in_other_words(run: RunDirectory) -> None:
    add_checkpoint(run, 1)
    write_file(run.config, RECIPE.replace("seed = 0", 'folder = "data"').encode())
    wanted = RECIPE.replace("seed = 0", 'folder = "../data"')
    with pytest.raises(CheckpointError, match=r"run\.folder was 'data' and is '\.\./data'"):
        open_run(run.path, wanted)
    open_run(run.path, wanted, [Input.named("run.folder", "../data", "place")])
