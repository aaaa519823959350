"""What a run reads by path: found by type, hashed, compared; and meant alike from any working directory."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.config import Section, parse
from groupwise.config.kinds import KindSection
from groupwise.config.schema import DataRef, ModelRef, PlaceRef
from groupwise.errors import CheckpointError, ConfigError
from groupwise.runs.inputs import INPUTS, check_names, compare, keep, located, recorded, references


class Judge(KindSection):
    """Chosen by kind."""


class Settings(Section):
    """A recipe."""

    start: ModelRef = "model"
    rows: tuple[DataRef, ...] = ("a.jsonl", "b.jsonl")
    judge: Judge = Judge(kind="rewards.py:reward")
    cache: PlaceRef = "cache"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run in a working directory with its inputs, begun."""
    monkeypatch.chdir(tmp_path)
    for name in ("model", "cache", "elsewhere", "run"):
        (tmp_path / name).mkdir()
    for name, text in {
        "a.jsonl": "a", "b.jsonl": "b", "rewards.py": "from words import w\n", "words.py": "w = 1\n",
        "model/tokenizer.json": "{}", "model/model.safetensors": "weights", "model/README.md": "read me",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    keep(tmp_path / "run", [item.taken() for item in references(Settings())])
    return tmp_path / "run"


def resume(run: Path, *accept: str, settings: Settings | None = None) -> None:
    inputs = references(settings or Settings())
    check_names(inputs, accept)
    compare(run, inputs, accept, "Way out.")


def test_the_record_says_path_size_and_hash_of_everything(run: Path) -> None:
    facts = {item.name: item for item in recorded(run)[0]}
    assert list(facts) == ["start", "rows", "rows[2]", "judge.kind", "cache"]
    assert set(facts["start"].files) == {"tokenizer.json", "model.safetensors"}
    assert (facts["start"].size, facts["rows"].size) == (9, 1)
    assert facts["rows"].sha256 == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"  # of "a"
    assert facts["rows[2]"].path == str(run.parent / "b.jsonl")
    assert (run / facts["judge.kind"].copy).with_name("words.py").read_text() == "w = 1\n"


def again(path: Path) -> None:
    os.utime(path, (1, 1))


def by_a_link(path: Path) -> None:
    path.symlink_to(shutil.move(path, Path("elsewhere", path.name).absolute()))


@pytest.mark.parametrize("harmless", [again, by_a_link])
def test_time_and_links_are_no_change(run: Path, harmless: Callable[[Path], None]) -> None:
    before = (run / INPUTS).read_bytes()
    harmless(run.parent / "a.jsonl")
    harmless(run.parent / "model" / "model.safetensors")
    (run.parent / "model" / "README.md").write_text("other words")
    resume(run)
    assert (run / INPUTS).read_bytes() == before


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("a.jsonl", "A", r"rows, .*a\.jsonl, was changed \(1 bytes, now 1; sha256 ca978112, now 559aead0\)"),
        ("b.jsonl", None, r"rows\[2\], .*b\.jsonl, is missing"),
        ("model/tokenizer.json", "[]", r"start, .*model, was changed in tokenizer\.json \("),
        ("model/chat_template.jinja", "new", r"start, .*model, was changed in chat_template\.jinja \("),
        ("model/model.safetensors", None, r"start, .*model, was changed in model\.safetensors \("),
        ("words.py", "w = 2\n", r"judge\.kind, .*rewards\.py, was changed in words\.py \("),
    ],
)
def test_a_change_ends_the_resume_and_may_be_accepted(run: Path, file: str, text: str | None, said: str) -> None:
    path = run.parent / file
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(CheckpointError, match=rf"cannot go on, since of what it reads {said}.*\. Way out\."):
        resume(run)
    if text is None and file == "b.jsonl":  # nothing can be accepted where there is nothing
        with pytest.raises(CheckpointError, match="is missing"):
            resume(run, "b.jsonl")
        return
    name = said.partition(",")[0].replace("\\", "")
    resume(run, name)
    [change] = recorded(run)[1]
    assert (change["input"], change["number"]) == (name, 1)
    assert change["was"] != change["is"]
    resume(run)  # it is known now
    resume(run, name)
    assert recorded(run)[1] == [change]


def test_an_unknown_name_is_refused(run: Path) -> None:
    with pytest.raises(ConfigError, match=r"--accept-changed c\.jsonl: no input .* inputs are start, rows, rows\[2\]"):
        resume(run, "c.jsonl")


def test_a_recorded_recipe_means_the_same_files_from_anywhere(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, tables = run.parent, json.loads(Settings().model_dump_json())
    (home / "elsewhere" / "a.jsonl").write_text("another")
    monkeypatch.chdir(home / "elsewhere")
    (home / "words.py").write_text("w = 2\n")
    (home / "b.jsonl").unlink()
    meant = located(tables, run / "config.toml")
    assert meant["rows"] == [str(home / "a.jsonl"), "b.jsonl"]
    assert (meant["start"], meant["cache"]) == (str(home / "model"), str(home / "cache"))
    copied = Path(meant["judge"]["kind"].removesuffix(":reward"))
    assert (copied.parent.parent, copied.with_name("words.py").read_text()) == (run / "sources", "w = 1\n")
    assert located(tables, run / "other.toml") == tables
    parse(Settings, meant)


def test_adapters_bring_the_model_that_they_stand_on(run: Path) -> None:
    folder = run.parent / "adapters"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(run.parent / "model")}))
    settings = Settings(start="adapters")
    keep(run, [item.taken() for item in references(settings)])
    shutil.copy(run.parent / "a.jsonl", run.parent / "model" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"start\.base_model, .*model, was changed in model\.safetensors"):
        resume(run, settings=settings)


def test_a_run_of_before_is_recorded_with_a_warning(run: Path) -> None:
    (run / INPUTS).unlink()
    with pytest.warns(UserWarning, match=r"has no inputs\.json: nobody knows"):
        resume(run)
    assert len(recorded(run)[0]) == 5
