"""What counts as the code of a stage: what is imported and chosen, as syntax; not how it is written down."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from groupwise.pipeline import fingerprint
from groupwise.pipeline.fingerprint import code_of, code_version
from groupwise.pipeline.train import Train

MAIN = '''"""A stage."""

from mine.rates import rate
from mine.table import PARTS

LIMIT = 3


class Settings:
    """What can be set."""

    share: float = 0.5
    """Of the whole."""


def run(amount, times=2):
    """Do it."""
    return rate(amount) * times  # as often
'''
FILES = {
    "__init__.py": "",
    "main.py": MAIN,
    "rates.py": "from . import deep\n\n\ndef rate(amount):\n    return deep.share * amount\n",
    "deep.py": "share = 0.25\n",
    "other.py": "x = 1\n",
    "table.py": 'from groupwise.config.kinds import Choices\n\nHERE = "mine"\n'
    'PARTS = Choices("part", {name: f"{HERE}.{name}:Part" for name in ("plain", "late")})\n',
    "plain.py": "class Part: ...\n",
    "late.py": "class Part: ...\n",
}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small package that stands in place of ours."""
    (tmp_path / "mine").mkdir()
    for name, text in FILES.items():
        (tmp_path / "mine" / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(fingerprint, "ROOT", tmp_path / "mine")
    fingerprint._kinds.cache_clear()
    yield tmp_path / "mine"
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]


def test_a_table_beside_a_file_that_names_it_counts(mine: Path) -> None:
    (mine / "deep.py").write_text("share = read('shares.toml')\n")
    before = version()
    (mine / "shares.toml").write_text("share = 0.25\n")
    assert version() != before


def version(*chosen: str) -> str:
    return code_version(["mine.main"], chosen=chosen)


def edited(folder: Path, name: str, before: str, after: str) -> None:
    text = (folder / name).read_text()
    assert before in text
    (folder / name).write_text(text.replace(before, after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"""A stage."""', '"""A stage of a pipeline."""'),
        ('    """What can be set."""\n\n', ""),
        ('"""Of the whole."""', '"""Share of the whole, 0 to 1."""'),
        ('    """Do it."""\n', ""),
        ("  # as often", ""),
        ("\n\n\n", "\n\n\n\n\n"),
        ("rate(amount) * times", "(\n        rate(amount)\n        * times\n    )"),
        ("LIMIT = 3", "LIMIT = 0x3"),
    ],
)
def test_how_it_is_written_down_does_not_count(mine: Path, before: str, after: str) -> None:
    known = version()
    edited(mine, "main.py", before, after)
    assert version() == known


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("main.py", "LIMIT = 3", "LIMIT = 4"),
        ("main.py", "times=2", "times=3"),
        ("main.py", "share: float = 0.5", "share: float = 0.6"),
        ("main.py", "def run", "def begin"),
        ("main.py", "LIMIT = 3", "LIMIT = 3\nimport math"),
        ("main.py", "* times", "+ times"),
        ("deep.py", "0.25", "0.75"),
    ],
)
def test_what_it_computes_counts(mine: Path, name: str, before: str, after: str) -> None:
    known = version()
    edited(mine, name, before, after)
    assert version() != known


def test_what_is_not_imported_counts_from_its_import_on(mine: Path) -> None:
    known = version()
    edited(mine, "other.py", "x = 1", "x = 2")
    assert version() == known
    edited(mine, "deep.py", "share", "def late():\n    from mine import other\nshare")
    imported = version()
    edited(mine, "other.py", "x = 2", "x = 3")
    assert len({known, imported, version()}) == 3


def test_of_a_table_counts_what_is_chosen(mine: Path) -> None:
    unchosen, chosen = version(), version("late")
    assert version("plain") not in (unchosen, chosen)
    edited(mine, "late.py", "...", "x = 1")
    assert version() == unchosen
    assert version("late") != chosen
    edited(mine, "deep.py", "share", 'kind = "late"\nshare')  # the code chooses it
    assert version() == version("late")


def test_a_users_file_counts_with_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(
        '"""Mine."""\nimport json\nimport helper\n\n\ndef reward(x): return helper.y\n'
    )
    (tmp_path / "helper.py").write_text("y = 1\n")
    (tmp_path / "unused.py").write_text("y = 1\n")
    settings = {"verifier": {"kind": f"{tmp_path / 'rewards.py'}:reward"}}
    known, without = code_of("groupwise.errors", settings), code_of("groupwise.errors", {})
    (tmp_path / "unused.py").write_text("y = 2\n")
    (tmp_path / "rewards.py").write_text((tmp_path / "rewards.py").read_text().replace('"""Mine."""', "# mine"))
    assert code_of("groupwise.errors", settings) == known
    (tmp_path / "helper.py").write_text("y = 2\n")
    assert len({known, without, code_of("groupwise.errors", settings)}) == 3


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, object], set[str]]:
    """The modules that count for a stage of ours."""
    names: set[str] = set()
    real = fingerprint._source
    monkeypatch.setattr(fingerprint, "_source", lambda name, *rest: names.add(name) or real(name, *rest))

    def closure(module: str, settings: object) -> set[str]:
        names.clear()
        code_of(module, settings)
        return {name.removeprefix("groupwise.") for name in names}

    return closure


def test_every_table_of_ours_is_seen() -> None:
    for path in fingerprint.ROOT.rglob("*.py"):
        text = path.read_text()
        if re.search(r"^[A-Z_]+ = (Kinds|Choices)\(", text, re.MULTILINE):
            name = ".".join(("groupwise", *path.relative_to(fingerprint.ROOT).with_suffix("").parts))
            name = name.removesuffix(".__init__")
            assert fingerprint._source(name, path.name == "__init__.py", path.read_bytes()).has_tables, name
            assert all(part and part.path.is_file() for _, part in fingerprint._kinds(name)), name


def test_training_reads_what_its_settings_choose(read: Callable[[str, object], set[str]]) -> None:
    settings = {"algorithm": "grpo", "task": {"kind": "arithmetic"}, "verifier": {"kind": "math"}}
    found = read(Train.__module__, settings | {"loss": {"policy_loss": {"kind": "clipped_ratio"}}})
    step = {"training.update", "algorithms.policy_losses", "rollout.in_process", "models.packed", "trainers.grpo"}
    judges = {"verifiers.math", "verifiers.math.symbolic", "verifiers.workers"}  # the last two by name alone
    assert found >= step | judges | {"tasks.arithmetic"}
    others = ("cli", "oracle", "pages.run", "tasks.statements", "trainers.ppo", "verifiers.judge")
    assert not [name for name in found if name.startswith(others)]
    assert "tasks.statements" in read(Train.__module__, {"task": {"kind": "minif2f"}})
    assert "word_problems" in read(Train.__module__, {"task": {"kind": "general"}})  # beside it among the recipes
