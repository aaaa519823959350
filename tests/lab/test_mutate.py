"""The mutation run itself: mutants are valid and different, and a formula that no test checks is found."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from mutants import mutants

ROOT = Path(__file__).parents[2]
ALGORITHMS = ROOT / "src/groupwise/algorithms"


def changed(statement: str) -> set[str]:
    """What the mutants of one statement look like."""
    return {mutant.source for mutant in mutants(statement)}


@pytest.mark.parametrize("name", ["policy_losses.py", "kl.py"])
def test_mutants_are_valid_different_and_of_one_line(name: str) -> None:
    source = (ALGORITHMS / name).read_text()
    found = mutants(source)
    texts = [mutant.source for mutant in found]
    original = ast.unparse(ast.parse(source))
    assert len(found) > 10
    assert len({*texts, original}) == len(texts) + 1
    for mutant in found:
        compile(mutant.source, name, "exec")
        assert mutant.before in original
        assert mutant.after in mutant.source
        assert 1 <= mutant.line <= len(source.splitlines())


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("x = a + b", {"x = a - b", "x = a", "x = b"}),
        ("x = a * b", {"x = a / b", "x = a", "x = b"}),
        ("x = -a", {"x = a"}),
        ("x = a < b", {"x = a <= b", "x = a >= b"}),
        ("x = a and b", {"x = a or b", "x = a", "x = b"}),
        ("x = f(a, correction=0)", {"x = f(a, correction=1)", "x = f(a, correction=-1)", "x = f(a)"}),
        ("x = a.detach()", {"x = a"}),
        ("x = torch.exp(a)", {"x = torch.expm1(a)", "x = a"}),
        ("x = torch.maximum(a, b)", {"x = torch.minimum(a, b)"}),
        ("x = abs(a)", {"x = a"}),
        ("x = a.clamp(b, c)", {"x = a", "x = a.clamp(min=b)", "x = a.clamp(max=c)", "x = a.clamp(c, b)"}),
        ("x = torch.where(c, a, b)", {"x = a", "x = b", "x = torch.where(a, c, b)", "x = torch.where(c, b, a)"}),
        ("x = a if c else b", {"x = a", "x = b", "x = b if c else a"}),
        ("x = [a for a in b if c]", {"x = [a for a in b if not c]", "x = [a for a in b if True]"}),
        ("x = {'f': f, 'g': g}", {"x = {'f': g, 'g': f}"}),
        ("x += a", {"x -= a", "x = a", "pass"}),
        ("x: list[int | None] = True", {"x: list[int | None] = False"}),
        ("raise ValueError(1 + 1)", set()),
        ("'''A docstring.'''", set()),
    ],
)
def test_what_is_changed(statement: str, expected: set[str]) -> None:
    assert changed(statement) == expected


def test_a_condition_is_negated_and_forced() -> None:
    assert changed("if a:\n    b") == {"if not a:\n    b", "if True:\n    b", "if False:\n    b"}


FORMULAS = '''
def half(x):
    """Checked by a test."""
    return x / 2


def shifted(x):
    """Checked where a sign does not show."""
    return 0 - x
'''
TESTS = """
from planted.formulas import half, shifted


def test_half():
    assert half(3) == 1.5


def test_shifted():
    assert shifted(0) == 0
"""
PLANTED = "formulas.py:9 shifted\n    - return 0 - x\n    + return 0 + x\n"


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        ROOT / "lab/mutation/mutate.py",
        folder / "planted",
        "--tests",
        folder,
        "--survivors",
        folder / "s.toml",
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120)


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted/__init__.py").touch()
    (tmp_path / "planted/formulas.py").write_text(FORMULAS)
    (tmp_path / "test_formulas.py").write_text(TESTS)
    return tmp_path


def explain(folder: Path, *changed: str) -> None:
    entry = '[[survivor]]\nfile = "formulas.py"\nbefore = "return (0-x)"\nafter = "{}"\nwhy = "so"\n'
    (folder / "s.toml").write_text("".join(entry.format(after) for after in changed))


def test_a_planted_survivor_is_found_and_can_be_explained(planted: Path) -> None:
    found = run(planted)
    assert PLANTED in found.stdout, found.stdout + found.stderr
    assert "return x * 2" not in found.stdout
    assert found.returncode == 1
    survivors = ["return 0 + x", "return 0", "return x"]
    explain(planted, *survivors)
    assert run(planted).returncode == 0
    explain(planted, *survivors, "return x / 3")
    stale = run(planted)
    assert "explained, but no survivor: formulas.py \n    - return 0 - x\n    + return x / 3" in stale.stdout
    assert stale.returncode == 1


def test_one_explanation_does_not_cover_the_same_line_of_another_function(planted: Path) -> None:
    survivors = ["return 0 + x", "return 0", "return x"]
    explain(planted, *survivors)
    with (planted / "planted/formulas.py").open("a") as file:
        file.write("\n\ndef other(x):\n    return 0 - x\n")
    with (planted / "test_formulas.py").open("a") as file:
        file.write("\n\ndef test_other():\n    from planted.formulas import other\n    assert other(0) == 0\n")
    found = run(planted)
    assert PLANTED in found.stdout
    assert "formulas.py:13 other" in found.stdout
    assert found.returncode == 1
    text = (planted / "s.toml").read_text()
    both = [text.replace("file =", f'where = "{name}"\nfile =') for name in ("shifted", "other")]
    (planted / "s.toml").write_text("".join(both))
    assert run(planted).returncode == 0


def test_tests_that_fail_without_a_change_stop_the_run(planted: Path) -> None:
    (planted / "test_formulas.py").write_text(TESTS.replace("1.5", "2.5"))
    found = run(planted)
    assert "do not pass without any change" in found.stderr
    assert found.returncode == 1
