"""The file of people's answers: what is written can be read, and nobody deletes it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import CheckpointError, DataError, WaitingError
from groupwise.recall.config import Asked, File, read_answers
from groupwise.recall.page import Page
from groupwise.recall.run import run_recall

ODD = st.text(st.characters() | st.sampled_from("\x00\x01\x0b\x1c\x7f\x85\u2028\ud800\udfff\"'\\#\r\n= "), max_size=12)


def asked(*names: tuple[str, str]) -> list[Asked]:
    return [Asked(pattern, [Page(url, "text", "here")], 0) for pattern, url in names]


@given(st.lists(st.tuples(ODD, ODD), min_size=1, max_size=5, unique_by=lambda one: one[0]))
def test_whatever_the_addresses_are_the_file_can_be_read_back(
    tmp_path_factory: pytest.TempPathFactory, names: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("odd") / "patterns.toml"
    annotator = File(kind="file", path=str(path))
    for _ in range(2):  # asked once, and known the second time
        with pytest.raises(WaitingError):
            annotator.answers(asked(*names), 1, 0)
    assert list(read_answers(path).values()) == ["?"] * len(read_answers(path))
    assert path.read_bytes().count(b"# round") == 1
    with pytest.raises(WaitingError):
        annotator.answers(asked(*names, ("one.more/", "https://one.more/")), 2, 0)
    path.write_bytes(path.read_bytes().replace(b'= "?"  #', b'= "yes"  #'))
    assert annotator.answers(asked(*names), 3, 0) == {pattern: True for pattern, _ in names}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'"a/" = "yes"\nbroken line\n', "line 2"), (b'"a/" = "yes"\n\n"b\xff/" = "no"\n', "line 3 is not UTF-8"),
        (b'"a/" = ' + b"[" * 100_000, "cannot be read"), (b'"a/" = ' + b"9" * 5000, "cannot be read"),
        (b'"a/" = "maybe"\n', "'maybe'; allowed are yes, no and"), (b'["a/"]\nb = "yes"\n', "allowed are yes, no and"),
    ],
)  # fmt: skip
def test_a_broken_line_is_named_and_the_file_stays(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "patterns.toml"
    path.write_bytes(content)
    with pytest.raises(DataError, match=why):
        File(kind="file", path=str(path)).answers(asked(("c/", "https://c/")), 1, 0)
    assert path.read_bytes() == content
    with pytest.raises(DataError, match="cannot be read"):
        read_answers(tmp_path)


def test_lines_may_end_as_on_other_systems(tmp_path: Path) -> None:
    path = tmp_path / "patterns.toml"
    path.write_bytes(b'"a/" = "yes"\r\n"b/" = "no"\r"c/" = "?"\n')
    assert read_answers(path) == {"a/": "yes", "b/": "no", "c/": "?"}


TINY = (
    "sources.web.num_pages=200", "sources.web.num_domains=10", "rounds.max_rounds=2", "decontaminate.tasks={}",
    "annotator.kind=file",
)  # fmt: skip


def silent(what: str, done: int, total: int) -> None:
    pass


@pytest.mark.parametrize("place", ["web/patterns.toml", "web/answers/mine.toml", "beside.toml"])
def test_answers_outlive_a_restart(tmp_path: Path, make_small: Any, place: str) -> None:
    directory, path = tmp_path / "web", tmp_path / place
    settings = (*TINY, f"annotator.path={path}")
    with pytest.raises(WaitingError):
        run_recall(make_small(directory, *settings), silent)
    written = path.read_text("utf-8").replace('"?"', '"no"')
    path.write_text(written, "utf-8")
    (directory / "other").mkdir()
    (directory / "other" / "left").write_text("")
    (directory / "link").symlink_to(tmp_path)
    facts = run_recall(make_small(directory, *settings), silent, restart=True)
    assert facts["rounds"][0]["yes"] == 0 < facts["rounds"][0]["asked"]
    assert path.read_text("utf-8") == written
    assert not (directory / "other").exists()
    assert not (directory / "link").is_symlink()
    run_recall(make_small(directory, *TINY[:-1]), silent, restart=True)  # nobody is asked any more
    assert path.read_text("utf-8") == written


def test_a_restart_that_was_killed_leaves_the_answers_and_goes_on(tmp_path: Path, make_small: Any) -> None:
    directory = tmp_path / "web"
    path = directory / "answers" / "patterns.toml"
    path.parent.mkdir(parents=True)
    path.write_text("# mine\n")
    recipe = make_small(directory, *TINY, f"annotator.path={path}")
    with pytest.raises(WaitingError):
        run_recall(recipe, silent)
    assert path.read_text("utf-8").startswith("# mine\n")
    (directory / "settings.json").unlink()
    with pytest.raises(CheckpointError, match="holds no recall"):
        run_recall(recipe, silent)
