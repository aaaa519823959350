"""Files and directories are whole or absent, whatever happens while they are written."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from groupwise.errors import CheckpointError
from groupwise.runs.atomic import MANIFEST, Hold, check_directory, new_directory, replace_symlink, write_file
from groupwise.runs.directory import hold_run


def fill(directory: Path, text: str = "weights") -> None:
    (directory / "model.bin").write_text(text)
    (directory / "inner").mkdir()
    (directory / "inner" / "tokens.txt").write_text("tokens")


def make(path: Path, text: str = "weights") -> Path:
    with new_directory(path) as directory:
        fill(directory, text)
    return path


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def test_a_directory_appears_whole_and_passes_its_check(tmp_path: Path) -> None:
    with new_directory(tmp_path / "deep" / "step-1") as directory:
        fill(directory)
        assert not (tmp_path / "deep" / "step-1").exists()
    assert names(tmp_path / "deep") == {"step-1"}
    assert names(tmp_path / "deep" / "step-1") == {"model.bin", "inner", MANIFEST}
    check_directory(tmp_path / "deep" / "step-1")
    assert json.loads((tmp_path / "deep/step-1" / MANIFEST).read_text()).keys() == {"model.bin", "inner/tokens.txt"}


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt()])
@pytest.mark.parametrize("before", [set(), {"step-1"}])
def test_an_exception_inside_leaves_all_as_it_was(tmp_path: Path, error: BaseException, before: set[str]) -> None:
    if before:
        make(tmp_path / "step-1", "old")

    def fail() -> None:
        with new_directory(tmp_path / "step-1") as directory:
            fill(directory, "new")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert names(tmp_path) == before
    if before:
        assert (tmp_path / "step-1" / "model.bin").read_text() == "old"
        check_directory(tmp_path / "step-1")


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    left = tmp_path / ".step-1.tmp"
    left.mkdir()
    (left / "half.bin").write_text("half")
    make(tmp_path / "step-1", "old")
    assert names(tmp_path) == {"step-1"}
    assert "half.bin" not in names(tmp_path / "step-1")
    (tmp_path / "step-1" / "extra").write_text("left over")
    make(tmp_path / "step-1", "new")
    assert (tmp_path / "step-1" / "model.bin").read_text() == "new"
    assert "extra" not in names(tmp_path / "step-1")
    check_directory(tmp_path / "step-1")


def test_a_kill_while_replacing_leaves_a_whole_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "step-1", "old")

    class KilledError(BaseException):
        pass

    deleted = []

    def unlink_once_then_die(path: Any, *args: Any, **keywords: Any) -> None:
        """Deletion gets as far as one file, as when the process is killed."""
        if deleted:
            raise KilledError
        deleted.append(path)
        remove(path, *args, **keywords)

    remove = os.unlink

    def killed() -> None:
        with new_directory(tmp_path / "step-1") as directory:
            fill(directory, "new")
            monkeypatch.setattr(os, "unlink", unlink_once_then_die)

    with pytest.raises(KilledError):
        killed()
    monkeypatch.undo()
    if (tmp_path / "step-1").exists():
        check_directory(tmp_path / "step-1")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("model.bin", b"weighus", r"step-1 is damaged: model\.bin does not have the hash"),
        ("inner/tokens.txt", b"tokdns", r"step-1 is damaged: inner/tokens\.txt does not have the hash"),
        ("model.bin", b"weight", r"model\.bin"),
        ("inner/tokens.txt", None, r"inner/tokens\.txt is missing"),
        (MANIFEST, None, "not a finished checkpoint"),
    ],
)
def test_damage_is_found_and_named(tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    path = make(tmp_path / "step-1")
    (path / name).unlink() if content is None else (path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=said):
        check_directory(path)


@pytest.mark.parametrize("position", range(0, 200, 7))
def test_a_changed_manifest_is_found(tmp_path: Path, position: int) -> None:
    path = make(tmp_path / "step-1")
    manifest = path / MANIFEST
    content = bytearray(manifest.read_bytes())
    if position >= len(content) or content[position] in b" \n":
        position = content.index(b"model")
    content[position] ^= 1
    manifest.write_bytes(content)
    with pytest.raises(CheckpointError):
        check_directory(path)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '"text"'])
def test_a_manifest_that_is_no_table_is_found(tmp_path: Path, content: str) -> None:
    path = make(tmp_path / "step-1")
    (path / MANIFEST).write_text(content)
    with pytest.raises(CheckpointError, match="step-1"):
        check_directory(path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOLCK])
def test_a_full_disk_is_one_sentence_and_keeps_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    make(tmp_path / "step-1", "old")
    write_file(tmp_path / "file", b"old")

    def full(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    for write in (lambda: make(tmp_path / "step-1", "new"), lambda: write_file(tmp_path / "file", b"new")):
        with pytest.raises(CheckpointError, match=os.strerror(code)) as caught:
            write()
        assert "intact" in str(caught.value)
        assert "\n" not in str(caught.value)
    monkeypatch.undo()
    assert names(tmp_path) == {"step-1", "file"}
    assert (tmp_path / "step-1" / "model.bin").read_text() == "old"
    assert (tmp_path / "file").read_bytes() == b"old"
    check_directory(tmp_path / "step-1")


def test_other_errors_keep_their_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="input/output"):
        write_file(tmp_path / "file", b"new")


def test_a_file_is_replaced_at_once(tmp_path: Path) -> None:
    write_file(tmp_path / "file", b"old")
    write_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert names(tmp_path) == {"file"}


def test_a_symbolic_link_is_moved_at_once(tmp_path: Path) -> None:
    for target in ("step-1", "step-2"):
        (tmp_path / target).mkdir()
        replace_symlink(tmp_path / "best", target)
        assert (tmp_path / "best").resolve() == tmp_path / target
    (tmp_path / "best").unlink()
    (tmp_path / "best" / "deep").mkdir(parents=True)  # as in a copy that followed the link
    with pytest.raises(CheckpointError, match="best cannot be written: Is a directory"):  # it may be the only copy
        replace_symlink(tmp_path / "best", "step-3")
    assert (tmp_path / "best" / "deep").is_dir()
    replace_symlink(tmp_path / "best", "step-1")
    assert (tmp_path / "best").resolve() == tmp_path / "step-1"
    assert names(tmp_path) == {"best", "step-1", "step-2"}


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_every_file_has_the_mode_that_the_umask_leaves(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with new_directory(tmp_path / "model") as directory:
            fill(directory)
            save_file({"w": torch.zeros(2)}, directory / "model.safetensors")  # 0600, whatever the umask
            shutil.copy(directory / "model.safetensors", directory / "copy.safetensors")
        write_file(tmp_path / "model" / "model.bin", b"replaced")
    finally:
        os.umask(before)
    files = [file for file in (tmp_path / "model").rglob("*") if file.is_file()]
    assert len(files) == 5
    assert {file.stat().st_mode & 0o777 for file in files} == {0o666 & ~mask}


@pytest.mark.parametrize("place", ["n" * 300, "file/below", "file"])
def test_a_place_that_cannot_be_written_is_named_in_a_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("in the way")
    for write in (lambda path: Hold(path, "run.directory"), hold_run, lambda path: write_file(path / "x", b"")):
        with pytest.raises(CheckpointError, match=r"cannot be written|is a file"):
            write(tmp_path / place)
    with pytest.raises(CheckpointError, match=r"x cannot be written: there is no directory .*no$"):
        write_file(tmp_path / "no" / "x", b"")
    assert (tmp_path / "file").read_text() == "in the way"
