import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupwise.config import parse
from groupwise.errors import ConfigError, DataError
from groupwise.runs.jsonl import Record
from groupwise.tasks.data_files import answer_of
from groupwise.tasks.jsonl import Jsonl, JsonlConfig
from groupwise.types import SPLITS

DATA = Path(__file__).parents[4] / "shared" / "data"


def write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def rows(count: int, start: int = 0) -> list[str]:
    return [json.dumps({"question": f"What is {n} plus 1?", "answer": n + 1}) for n in range(start, start + count)]


def test_a_file_is_split_into_train_and_dev(tmp_path: Path) -> None:
    task = Jsonl(JsonlConfig(kind="jsonl", path=write(tmp_path / "sums.jsonl", *rows(200)), dev_fraction=0.2))
    train, dev = task.problems("train"), task.problems("dev")
    assert len(train) + len(dev) == 200
    assert 20 <= len(dev) <= 60
    assert not {problem.question for problem in train} & {problem.question for problem in dev}
    assert train[0].id.startswith("sums/train-")
    with pytest.raises(DataError, match="sums has no test split; it has: train, dev; test_fraction or test_path"):
        task.problems("test")
    with pytest.raises(DataError, match=r"none\.jsonl holds no problems$"):
        Jsonl(JsonlConfig(kind="jsonl", path=write(tmp_path / "none.jsonl"))).problems("train")


def test_questions_that_differ_in_spaces_are_in_one_split(tmp_path: Path) -> None:
    spread = [line.replace(" plus", "  plus") for line in rows(100)]

    def split(*lines: str) -> dict[str, list[str]]:
        path = write(tmp_path / "sums.jsonl", *lines)
        task = Jsonl(JsonlConfig(kind="jsonl", path=path, dev_fraction=0.3, test_fraction=0.3))
        return {name: [problem.reference for problem in task.problems(name)] for name in SPLITS}

    alone = split(*rows(100))
    assert split(*rows(100), *spread) == {name: found * 2 for name, found in alone.items()}
    assert split(*spread) != alone, "the hash is that of the question as it stands"


def test_json_list_and_test_file(tmp_path: Path) -> None:
    trained = write(tmp_path / "a.json", f"[{','.join(rows(30))}]")
    task = Jsonl(JsonlConfig(kind="jsonl", path=trained, test_path=write(tmp_path / "b.jsonl", *rows(5, 30))))
    assert [problem.reference for problem in task.problems("test")] == ["31", "32", "33", "34", "35"]


def test_a_question_in_train_and_test_is_refused(tmp_path: Path) -> None:
    config = JsonlConfig(
        kind="jsonl", path=write(tmp_path / "a.jsonl", *rows(9)), test_path=write(tmp_path / "b.jsonl", *rows(2, 8))
    )
    with pytest.raises(DataError, match=r"a: 1 training questions that are also test .*a/train-9 is a/test-1"):
        Jsonl(config).problems("train")


def test_known_repeats_are_left_out_of_training(tmp_path: Path) -> None:
    trained, tested = write(tmp_path / "a.jsonl", *rows(9)), write(tmp_path / "b.jsonl", *rows(2, 8))
    task = Jsonl(JsonlConfig(kind="jsonl", path=trained, test_path=tested, repeated_questions=1, dev_fraction=0))
    assert [problem.reference for problem in task.problems("train")] == [str(n + 1) for n in range(8)]
    assert len(task.problems("test")) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "x"}', "no field 'question'; its fields are prompt: set question_field to"),
        ('{"question": "x"}', r"a.jsonl, line 3 has no field 'answer'; its fields are question"),
        ('{"question": "x", "answer": " "}', r"1 records without an answer, exactly 0 are allowed.*a.jsonl, line 3"),
        ('{"question": "x", "answer": null}', r"1 records without an answer, exactly 0 are allowed.*a.jsonl, line 3"),
        ('{"question": "", "answer": 1}', r"a.jsonl, line 3: the question in field 'question' is empty"),
        ('{"question": "x", "answer": true}', r"a.jsonl, line 3: field 'answer' is True; text or a number"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "a.jsonl", *rows(1), "", line, *rows(3, 5))
    with pytest.raises(DataError, match=message):
        Jsonl(JsonlConfig(kind="jsonl", path=path)).problems("train")


def test_a_difficulty_that_is_not_there_is_named_by_its_key(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *rows(2))
    with pytest.raises(DataError, match=r"line 1 has no field 'level'; .*: set difficulty_field to that of the diff"):
        Jsonl(JsonlConfig(kind="jsonl", path=path, difficulty_field="level")).problems("train")
    task = Jsonl(JsonlConfig(kind="jsonl", preset="aime", path=path, question_field="question", difficulty_field=""))
    assert {problem.difficulty for problem in task.problems("train")} == {""}


def test_an_answer_that_does_not_match_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *rows(2))
    with pytest.raises(DataError, match=r"line 1: .*'answer'.* answer_pattern '#### "):
        Jsonl(JsonlConfig(kind="jsonl", path=path, answer_pattern="#### (.+)")).problems("train")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no problems: set `preset`"),
        ({"preset": "aime"}, "for `aime`"),
        ({"path": "a.jsonl", "answer_pattern": "####"}, "has 0 groups; exactly one is allowed"),
        ({"path": "a.jsonl", "answer_pattern": "("}, "is not a regular expression"),
        ({"path": "a.jsonl", "test_path": "b.jsonl", "test_fraction": 0.1}, "only where there is no `test_path`"),
    ],
)
def test_contradictions_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(JsonlConfig, {"kind": "jsonl", **options})


def test_hub_without_the_library_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"pip install 'groupwise\[data\]'"):
        Jsonl(JsonlConfig(kind="jsonl", test_path="hub:openai/gsm8k:main:test", preset="gsm8k")).problems("train")


@pytest.mark.parametrize("text", ["none", r"\boxed{1}, or \boxed{never closed"])
def test_a_solution_whose_last_box_is_not_whole_is_refused(text: str) -> None:
    with pytest.raises(DataError, match=r"has nothing that matches \\boxed"):
        answer_of(Record("here", 1, {"answer": text}), "answer", "boxed")


def test_default_template_asks_for_thought_and_box(tmp_path: Path) -> None:
    task = Jsonl(JsonlConfig(kind="jsonl", test_path=write(tmp_path / "a.jsonl", *rows(1))))
    prompt = task.template.render(task.problems("test")[0])
    assert all(part in prompt for part in ("<think>", "</think>", "\\boxed{}", "What is 0 plus 1?"))
    given = parse(JsonlConfig, {"kind": "jsonl", "path": "a", "template": {"prefill": "<think>"}}).template
    assert (given.prompt, given.prefill) == (task.template.prompt, "<think>")


@pytest.mark.skipif(not DATA.is_dir(), reason="benchmark files are not beside the repository")
@pytest.mark.parametrize(
    ("preset", "counts"),
    [("gsm8k", (7079, 394, 1319)), ("math", (7122, 347, 5000)), ("math500", (0, 0, 500)), ("svamp", (684, 42, 274))],
)
def test_presets_read_their_files(preset: str, counts: tuple[int, int, int]) -> None:
    task = Jsonl(parse(JsonlConfig, {"kind": "jsonl", "preset": preset, "data_dir": str(DATA)}))
    for split, count in zip(SPLITS, counts, strict=True):
        if count:
            problems = task.problems(split)
            assert len(problems) == count
            assert all(problem.reference and problem.question for problem in problems)
        else:
            with pytest.raises(DataError, match=f"{preset} has no {split} split; it has: test"):
                task.problems(split)


def test_arguments_of_a_chat_template_in_plain_rows_are_refused(tmp_path: Path) -> None:
    row = {"question": "What?", "answer": 1, "chat_template_kwargs": {"enable_thinking": False}}
    task = Jsonl(JsonlConfig(kind="jsonl", path=write(tmp_path / "a.jsonl", json.dumps(row))))
    with pytest.raises(DataError, match="line 1: field 'chat_template_kwargs' would be read by nothing"):
        task.problems("train")
    for none in ({"enable_thinking": None}, "{}", {}, None):  # of tables, which give every row the fields of all
        path = write(tmp_path / "b.jsonl", json.dumps({**row, "chat_template_kwargs": none}))
        assert len(Jsonl(JsonlConfig(kind="jsonl", path=path, dev_fraction=0)).problems("train")) == 1


def test_all_fields_are_data(tmp_path: Path) -> None:
    line = json.dumps({"question": "q", "answer": "1", "terms": [1, {"a": None}], "level": 3})
    (problem,) = Jsonl(JsonlConfig(kind="jsonl", path=write(tmp_path / "a.jsonl", line), dev_fraction=0)).problems(
        "train"
    )
    assert problem.data == {"question": "q", "answer": "1", "terms": [1, {"a": None}], "level": 3}


def test_problems_without_references(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", json.dumps({"question": "Tell a joke.", "topic": "cats"}))
    with pytest.raises(DataError, match=r"no field 'answer'; its fields are question, topic: set answer_field"):
        Jsonl(JsonlConfig(kind="jsonl", path=path, dev_fraction=0)).problems("train")
    (problem,) = Jsonl(JsonlConfig(kind="jsonl", path=path, dev_fraction=0, answer_field="")).problems("train")
    assert problem.reference == ""


def test_parquet_and_saved_data_sets_are_read_like_lines(tmp_path: Path) -> None:
    records = [json.loads(line) for line in rows(3)]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
    saved = tmp_path / "saved" / "train"
    saved.mkdir(parents=True)
    for number, part in enumerate((records[:2], records[2:])):
        table = pa.Table.from_pylist(part)
        with pa.ipc.new_stream(saved / f"data-{number}.arrow", table.schema) as stream:
            stream.write_table(table)
    files = [{"filename": "data-0.arrow"}, {"filename": "data-1.arrow"}]
    (saved / "state.json").write_text(json.dumps({"_data_files": files}))
    for path in (tmp_path / "a.parquet", saved):
        problems = Jsonl(JsonlConfig(kind="jsonl", path=str(path), dev_fraction=0)).problems("train")
        assert [problem.data for problem in problems] == records
    with pytest.raises(ConfigError, match="holds the splits train; name one"):
        Jsonl(JsonlConfig(kind="jsonl", path=str(saved.parent))).problems("train")


def test_the_library_saves_what_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    records = [json.loads(line) for line in rows(3)]
    datasets.Dataset.from_list(records).save_to_disk(str(tmp_path / "saved"))
    problems = Jsonl(JsonlConfig(kind="jsonl", path=str(tmp_path / "saved"), dev_fraction=0)).problems("train")
    assert [problem.data for problem in problems] == records
