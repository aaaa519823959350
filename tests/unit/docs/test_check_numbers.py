"""The script that reruns numbers of the documents: what it calls the same, what it picks, and that it resumes."""

import importlib
import re
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "lab"))
        return importlib.import_module("check_numbers")


@pytest.fixture
def number(script: ModuleType) -> Any:
    """number(text, printed="", **more): one whose command prints something."""

    def make(text: str, printed: str = "", **more: Any) -> Any:
        command = f"python -c 'print(\"{printed}\")'"
        return script.Number("page.md", text, command, r"is ([\d.,]+)", 0.1, **more)

    return make


@pytest.mark.parametrize(
    ("text", "value", "digits", "bounds"),
    [
        ("0.930** [0.905, 0.949]", 0.93, 3, (0.905, 0.949)),
        ("1.60 × [1.55..1.65]", 1.6, 2, (1.55, 1.65)),
        ("4.64 × as long (4.16 to 4.86)", 4.64, 2, (4.16, 4.86)),
        ("5,090 of 5,090", 5090, 0, None),
        ("-3.1 points", -3.1, 1, None),
        ("8.2e-6 nats", 8.2e-6, 1, None),
    ],
)
def test_a_figure_is_read_as_it_stands(number: Any, text: str, value: float, digits: int, bounds: Any) -> None:
    one = number(text)
    assert (one.value, one.digits, one.bounds) == (value, digits, bounds)


def test_the_same_inside_and_outside(number: Any) -> None:
    one = number("0.930 [0.905, 0.949]")
    assert [one.judged(found) for found in (0.9304, 0.9306, 0.905, 0.9489, 0.95, 0.1)] == [
        "the same", "inside", "inside", "inside", "outside", "outside",
    ]  # fmt: skip
    assert number("0.93").judged(0.94) == "outside"
    assert number("+49.8 points", interval=(40.0, 60.0)).judged(41.0) == "inside"


def test_numbers_are_had_again_and_outputs_are_kept(
    script: ModuleType, number: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    numbers = [
        number("0.50 [0.4, 0.6]", "it is 0.55"), number("50 %", "it is 0.5", factor=100.0), number("3", "it is 4"),
        number("3", "nothing"),
    ]  # fmt: skip
    assert script.check(numbers, tmp_path) == 2
    said = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert said == ["inside", "the", "outside", "failed"]
    monkeypatch.setattr(subprocess, "run", None)  # nothing is run twice
    assert script.check(numbers[:2], tmp_path) == 0


def test_a_command_that_fails_is_told_and_not_kept(script: ModuleType, tmp_path: Path, capsys: Any) -> None:
    bad = script.Number("page.md", "1", "python -c 'raise SystemExit(\"no such thing\")'", "(1)", 0.1)
    assert script.check([bad], tmp_path) == 1
    assert "failed  page.md: 1 -> no such thing" in capsys.readouterr().out
    assert not (tmp_path / "outputs").exists()


def test_registered_numbers_stand_on_their_pages_beside_their_commands(script: ModuleType) -> None:
    numbers = script.registered()
    assert len(numbers) >= 100
    pages = {one.page: (ROOT / one.page).read_text(encoding="utf-8") for one in numbers}
    assert [one for one in numbers if one.text not in pages[one.page]] == []
    named = [(one.page, one.command.removesuffix(" --json").partition(" --section")[0]) for one in numbers]
    parts = [(page, part) for page, words in named for part in re.split(r" (?=--set run\.seed=)", words)]
    assert [one for one in parts if one[1] not in pages[one[0]]] == []
    assert [one for one in numbers if re.compile(one.pattern).groups != 1] == []


def test_every_measured_claim_is_among_the_numbers(script: ModuleType) -> None:
    found = list(script.of_claims())
    page = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    assert len(found) > 20
    for one in found:
        name = one.command.split()[2]
        assert f"### {name}\n" in page
        assert one.bounds is None or one.bounds[0] <= one.bounds[1]
    by_name = {one.command.split()[2]: one for one in found}
    one = by_name["grpo_lifts"]
    printed = f"a: 1\ngrpo_lifts - not yet measured: {one.text}, 1 seeds"
    assert re.search(one.pattern, printed, re.MULTILINE)[1] in one.text  # type: ignore[index]
    assert one.bounds is not None
    assert one.bounds[0] < one.value < one.bounds[1]
