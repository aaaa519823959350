import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from groupwise.errors import DataError
from groupwise.models.checkpoint import TrainerState, save_checkpoint
from groupwise.pipeline.directory import content_hash, read_rows, write_rows
from groupwise.trainers.sft import PairsData, read_pairs

HOSTILE = [
    "{zero} {} {{question}} %s $HOME \\boxed{{5}}", '"quotes" and \'these\'', "lines\nof\r\ntext\ttabs", "\x00\x1b[31m",
    "\x85next\u2028line\u2029paragraph\x0b\x0c\x1c", '"}\n{"prompt": "mine"}', "等一下，🙂 é \ufeff\ufffd",
    "</think>" * 3, "\\u2028 \\n",
]  # fmt: skip


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=5))
@example(HOSTILE)
def test_any_text_survives_a_file_of_rows(texts: list[str]) -> None:
    rows = [{"prompt": f"p {text}", "completion": text, "number": i} for i, text in enumerate(texts)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.jsonl"
        digest = write_rows(path, rows)
        assert digest == content_hash(path)
        assert read_rows(path) == rows
        assert read_pairs(PairsData(path=str(path))) == [(row["prompt"], row["completion"]) for row in rows]


def test_several_files_are_read_one_behind_the_other(tmp_path: Path) -> None:
    one, two, three = (str(tmp_path / name) for name in ("one.jsonl", "two.jsonl", "three.jsonl"))
    for path, completion in ((one, "1"), (two, "2"), (three, "2")):
        write_rows(Path(path), [{"prompt": "p", "completion": completion}])
    assert content_hash(Path(one)) != content_hash(Path(two)) == content_hash(Path(three))
    assert read_pairs(PairsData(path=(two, one))) == [("p", "2"), ("p", "1")]
    Path(one).write_text('{"prompt": 1}\n')
    with pytest.raises(DataError, match=r"one.jsonl, line 1 has no field 'prompt' or 'completion'"):
        read_pairs(PairsData(path=(two, one)))
    with pytest.raises(ValueError, match="at least 1 item"):
        PairsData(path=())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("nonsense", "line 1 is not JSON"),
        ('{"prompt": "a", "completion": "b"}\n\n[1]', "line 3 is a JSON list; an object is needed"),
        ('{"prompt": "a"}', "line 1 is not an object"),
    ],
)
def test_rows_of_other_people_are_checked(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "rows.jsonl").write_text(content)
    with pytest.raises(DataError, match=f"rows.jsonl, {said}"):
        read_rows(tmp_path / "rows.jsonl")
    with pytest.raises(DataError, match=r"none.jsonl cannot be read"):
        read_rows(tmp_path / "none.jsonl")


def test_the_hash_of_a_model_is_that_of_its_weights_not_of_its_training(tiny_policy: Any, tmp_path: Path) -> None:
    policy = tiny_policy()
    save_checkpoint(tmp_path / "plain", policy)
    save_checkpoint(tmp_path / "trained", policy, TrainerState({"step": 3}, {"moment": torch.ones(2)}))
    save_checkpoint(tmp_path / "elsewhere" / "again", policy)
    known = content_hash(tmp_path / "plain")
    assert content_hash(tmp_path / "trained") == content_hash(tmp_path / "elsewhere" / "again") == known
    with torch.no_grad():
        next(policy.model.parameters())[0, 0] += 1e-3
    save_checkpoint(tmp_path / "other", policy)
    assert content_hash(tmp_path / "other") != known
    (tmp_path / "plain" / "tokenizer_config.json").write_text("{}")
    assert content_hash(tmp_path / "plain") != known
