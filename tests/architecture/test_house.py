"""No file tells where it was made: a path of one machine is wrong on every other."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCANNED = ("src", "docs", "benchmarks", "recipes", "README*", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "*.toml")
MACHINE_PATH = re.compile(rb"(?<![\w.:/-])/(?:work|root|home/\w+|Users/\w+)/")


def files() -> Iterator[Path]:
    """Every file that is published, byte code and build outputs excepted."""
    for pattern in SCANNED:
        for path in ROOT.glob(pattern):
            inside = path.rglob("*") if path.is_dir() else [path]
            yield from (p for p in inside if p.is_file() and not re.search(r"__pycache__|\.egg-info", str(p)))


def test_no_file_contains_a_machine_path() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match.group().decode()}"
        for path in sorted(files())
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1)
        if (match := MACHINE_PATH.search(line))
    ]
    assert not found, "machine paths:\n" + "\n".join(found)


@pytest.mark.parametrize("place", ["work", "root", "home/ann", "Users/ann"])
def test_a_machine_path_is_seen(place: str) -> None:
    assert MACHINE_PATH.search(f"see '/{place}/data'".encode())


@pytest.mark.parametrize("text", ["https://example.org/work/a", "docs/work/a", "./work/a", "a/root/b", "/rooted/tree"])
def test_other_text_is_not_taken_for_one(text: str) -> None:
    assert not MACHINE_PATH.search(text.encode())
