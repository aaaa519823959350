import json
from typing import Any

import pytest

from groupwise.errors import CheckpointError, ConfigError
from groupwise.pipeline import base, fingerprint
from groupwise.tasks.jsonl import PRESETS


def test_nothing_has_run(fake: Any) -> None:
    assert fake.actions() == dict.fromkeys(fake.values["stages"], "run")
    assert {one.why for one in fake.plan().values()} == {"not run yet"}
    assert not fake.path.exists()  # looking leaves nothing behind


def test_finished_stages_are_skipped(fake: Any) -> None:
    assert fake.run() == ["first", "second", "other", "third"]
    begun, found = json.loads((fake.stage("second").path / "begun.json").read_text()), fake.plan()
    assert begun["fingerprint"] == found["second"].fingerprint
    assert begun["inputs"] == {"first": found["first"].fingerprint}
    assert begun["settings"] == {"path": "{first}"}
    assert fake.actions() == dict.fromkeys(fake.values["stages"], "skip")
    assert {one.why for one in fake.plan().values()} == {"finished with the same settings, inputs and code"}
    before = fake.contents()
    assert fake.run() == []
    assert fake.contents() == before


def test_a_changed_setting_is_named_and_runs_what_stands_on_it(fake: Any) -> None:
    fake.run()
    fake.values["stages"]["first"]["nested"]["deep"] = [1, 3]
    found = fake.plan()
    assert found["first"].why == "nested.deep was [1, 2] and is [1, 3]"
    assert found["second"].why == "first changed"
    assert found["third"].why == "second changed"
    assert fake.actions() == {"first": "run", "second": "run", "other": "skip", "third": "run"}
    fake.values["stages"]["first"]["number"] = 2
    assert fake.plan()["first"].why == "nested.deep was [1, 2] and is [1, 3] and 1 more"
    assert fake.run() == ["first", "second", "third"]


def test_a_changed_file_is_named(fake: Any) -> None:
    fake.run()
    (fake.folder / "mine.jsonl").write_text('{"other": 1}\n')
    assert fake.actions() == {"first": "skip", "second": "skip", "other": "run", "third": "skip"}
    assert fake.plan()["other"].why == f"{fake.folder / 'mine.jsonl'} changed"


def test_a_stage_of_a_changed_file_begins_anew_finished_or_not(fake: Any) -> None:
    """No result is of two inputs, so nothing is there to be accepted: stages that read the same are kept."""
    fake.run()
    (fake.stage("other").path / "facts.json").unlink()  # interrupted
    (fake.stage("other").path / "samples.jsonl").write_text("of the old file")
    kept = {name: fake.stage(name).facts for name in ("first", "second", "third")}
    (fake.folder / "mine.jsonl").write_text('{"other": 1}\n')
    assert fake.run() == ["other"]
    assert not (fake.stage("other").path / "samples.jsonl").exists()
    assert {name: fake.stage(name).facts for name in kept} == kept


def test_a_missing_file_deletes_nothing(fake: Any) -> None:
    fake.run()
    before = fake.contents()
    (fake.folder / "mine.jsonl").unlink()
    with pytest.raises(CheckpointError, match=r"the stage other read .*mine\.jsonl, which is missing now: put it back"):
        fake.run()
    assert fake.contents() == before


def test_files_in_lists_and_of_benchmarks_count(fake: Any) -> None:
    data = fake.folder / "data"
    for source in (PRESETS["gsm8k"].train, PRESETS["gsm8k"].test):
        (data / str(source.path)).parent.mkdir(parents=True, exist_ok=True)
        (data / str(source.path)).write_text("one")
    more = fake.folder / "more.jsonl"
    more.write_text("one")
    fake.values["stages"]["first"] = {"include": [str(more)]}
    fake.values["stages"]["other"] = {"task": {"kind": "jsonl", "preset": "gsm8k", "data_dir": str(data)}}
    fake.run()
    more.write_text("two")
    assert fake.actions() == {"first": "run", "second": "run", "other": "skip", "third": "run"}
    (data / "gsm8k" / "test.jsonl").write_text("two")
    assert fake.actions()["other"] == "run"


def test_files_of_a_pattern_count(fake: Any) -> None:
    shards = [fake.folder / f"part-{number}.jsonl" for number in range(2)]
    for shard in shards:
        shard.write_text("one")
    fake.values["stages"]["first"] = {"path": str(fake.folder / "part-*.jsonl")}
    fake.run()
    assert fake.actions()["first"] == "skip"
    shards[1].write_text("two")
    assert fake.plan()["first"].why == f"{fake.folder / 'part-*.jsonl'} changed"
    fake.run()
    shards[1].unlink()
    assert fake.actions()["first"] == "run"
    shards[0].unlink()
    with pytest.raises(CheckpointError, match=r"the stage first read .*part-\*\.jsonl, which is missing now"):
        fake.plan()


def test_changed_code_is_said(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.run()
    monkeypatch.setattr(base, "code_of", lambda module, settings: "changed")
    assert {one.why for one in fake.plan().values()} == {"the code changed"}


def test_an_output_that_is_gone_or_changed_is_made_again(fake: Any) -> None:
    fake.run()
    output = fake.stage("first").data
    content = output.read_text()
    output.write_text(content + "\n")
    assert fake.plan()["first"][3:] == ("run", "its output was changed on disk: data.jsonl")
    output.unlink()
    assert fake.plan()["first"][3:] == ("run", "its output is missing: data.jsonl")
    assert fake.run() == ["first"]  # the others stand on the very same content
    assert output.read_text() == content


def test_what_stands_on_an_output_that_came_out_otherwise_is_made_again(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a judge behind an endpoint, which may say something else the second time."""
    fake.run()
    fake.stage("first").data.unlink()
    monkeypatch.setattr(type(fake.read()[1][0]), "luck", "another")
    assert fake.actions() == {"first": "run", "second": "skip", "other": "skip", "third": "skip"}
    assert fake.run() == ["first", "second", "third"]
    assert fake.run() == []


def test_what_stands_on_an_output_made_by_only_is_made_again(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.run()
    monkeypatch.setattr(type(fake.read()[1][0]), "luck", "another")
    assert fake.run(only="first", start="first") == ["first"]
    assert fake.plan()["second"][3:] == ("run", "first made something else")
    assert fake.run() == ["second", "third"]


def test_only_leaves_the_others_alone(fake: Any) -> None:
    said = r"the stage second reads the output of the stage first, .*\(not run yet\).*first"
    with pytest.raises(ConfigError, match=said):
        fake.plan(only="second")
    assert fake.run(only="first") == ["first"]
    assert fake.actions(only="second") == {"first": "leave", "second": "run", "other": "leave", "third": "leave"}
    assert fake.run(only="second") == ["second"]
    assert fake.run(only="second") == []
    fake.values["stages"]["first"]["number"] = 2
    with pytest.raises(ConfigError, match=r"number was 1 and is 2"):
        fake.plan(only="second")
    fake.values["stages"]["first"]["number"] = 1
    fake.stage("first").data.write_text("other")
    with pytest.raises(ConfigError, match=r"changed on disk"):
        fake.plan(only="second")
    assert fake.actions(only="other")["other"] == "run"


def test_only_touches_neither_the_base_model_nor_other_stages(fake: Any, measured: list[str]) -> None:
    fake.run()
    measured.clear()
    fake.values["measure"] = {"num_problems": 7}
    assert fake.run(only="first") == []
    assert measured == []
    assert fake.run(only="third") == []
    assert measured == [str(fake.stage("third").data)]


def test_from_runs_a_stage_and_what_stands_on_it(fake: Any) -> None:
    fake.run()
    assert fake.actions(start="second") == {"first": "skip", "second": "run", "other": "skip", "third": "run"}
    assert fake.plan(start="first")["third"].why == "second is made again"
    assert fake.plan(start="first")["first"].why == "requested again"
    assert fake.run(start="second") == ["second", "third"]
    assert fake.run(start="other") == ["other"]
    assert fake.run(only="second", start="second") == ["second"]


def test_an_interrupted_stage_goes_on_unless_something_changed(fake: Any) -> None:
    fake.run()
    (fake.stage("second").path / "facts.json").unlink()
    assert fake.plan()["second"][3:] == ("resume", "interrupted")
    assert fake.actions()["third"] == "skip"
    fake.values["stages"]["second"]["new"] = True
    assert fake.plan()["second"][3:] == ("run", "new was None and is True")
    del fake.values["stages"]["second"]["new"]
    (fake.stage("third").path / "facts.json").unlink()
    assert fake.actions()["third"] == "resume"
    assert fake.actions(start="second")["third"] == "run"


def test_the_fingerprint_covers_settings_inputs_and_code() -> None:
    known: Any = ({"a": {"b": 1, "c": [1, 2]}, "d": None}, {"x": "1", "y": "2"}, "code")
    settings, inputs, code = known
    same = fingerprint.fingerprint({"d": None, "a": {"c": [1, 2], "b": 1}}, {"y": "2", "x": "1"}, "code")
    assert same == fingerprint.fingerprint(*known)
    others: Any = [
        ({"a": {"b": 2, "c": [1, 2]}, "d": None}, inputs, code), ({"a": {"b": 1, "c": [1, 2]}}, inputs, code),
        ({"a": {"b": 1, "c": [2, 1]}, "d": None}, inputs, code), (settings, {"x": "2", "y": "1"}, code),
        (settings, {"x": "1"}, code), (settings, inputs, "other"),
    ]  # fmt: skip
    assert len({fingerprint.fingerprint(*one) for one in [known, *others]}) == 7


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("measure", {"num_samples": 3}),
        ("sampling", {"temperature": 0.5}),
        ("tasks", {"sums": {"kind": "countdown"}}),
        ("engine", {"kind": "scripted", "path": "said.jsonl"}),
    ],
)
def test_another_way_to_measure_measures_only(fake: Any, measured: list[str], section: str, value: Any) -> None:
    fake.run()
    assert measured == [str(fake.folder / "base"), str(fake.stage("third").data)]
    fake.values[section] = value
    assert fake.actions() == {"first": "skip", "second": "skip", "other": "skip", "third": "measure"}
    assert fake.plan()["third"].why == "finished, but not measured in this way"
    for _ in range(2):
        assert fake.run() == []
        assert len(measured) == 4
    fake.stage("third").evaluation.unlink()
    assert fake.actions()["third"] == "measure"


def test_the_directory_and_its_name_do_not_matter(fake: Any) -> None:
    before = {name: one.fingerprint for name, one in fake.plan().items()}
    fake.values["pipeline"]["directory"] = str(fake.folder / "elsewhere")
    assert {name: one.fingerprint for name, one in fake.plan().items()} == before


def test_servers_may_be_moved(fake: Any) -> None:
    fake.values["stages"]["first"]["engine"] = {"kind": "vllm", "addresses": ["http://a:8000"], "max_tokens": 1}
    fake.run()
    fake.values["stages"]["first"]["engine"]["addresses"] = ["http://b:8000", "http://c:8000"]
    assert fake.actions()["first"] == "skip"
    fake.values["stages"]["first"]["engine"]["max_tokens"] = 2
    assert fake.plan()["first"].why == "engine.max_tokens was 1 and is 2"


@pytest.mark.parametrize("option", ["only", "start"])
def test_unknown_stages_are_named(fake: Any, option: str) -> None:
    with pytest.raises(ConfigError, match="there is no stage sixth; the stages are first, second, other"):
        fake.plan(**{option: "sixth"})


def test_base_stands_for_the_model_of_the_recipe(fake: Any) -> None:
    fake.values["stages"]["other"] = {"model": {"path": "{base}"}}
    assert fake.plan()["other"].stage.settings == {"model": {"path": str(fake.folder / "base")}}
    assert list(fake.plan()["other"].inputs) == [str(fake.folder / "base")]
    fake.run()
    (fake.folder / "base" / "weights").write_text("4")
    assert fake.actions()["other"] == "run"
