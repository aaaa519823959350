"""The report: every section in worlds of other sizes, and `groupwise oracle` as a person uses it."""

import json
import math
from itertools import product
from pathlib import Path

import pytest
from groupwise_lab.oracle.report import FIGURES, shown
from groupwise_lab.oracle.sections import COMBINATIONS, OF_REWARDS, SECTIONS
from groupwise_lab.oracle.toys import Dials
from typer.testing import CliRunner, Result

from groupwise.algorithms.objective import AGGREGATIONS
from groupwise.algorithms.policy_losses import POLICY_LOSSES
from groupwise.cli.main import app
from groupwise.errors import ConfigError


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["oracle", *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.mark.parametrize("prompts", [1, 2])
@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_takes_other_sizes(name: str, prompts: int) -> None:
    section = SECTIONS[name](Dials(3, 2, 2, prompts, seed=1))
    assert section.key == name
    assert section.world.startswith("3 tokens, at most 2 per completion, groups of 2, mean reward")
    names = [row.name for row in section.rows]
    assert len(set(names)) == len(names) > 2
    assert all(len(row.values) == len(section.columns) for row in section.rows)
    assert all(math.isfinite(value) for row in section.rows for value in row.values)


def test_combinations_are_all_combinations() -> None:
    section = COMBINATIONS["combinations"](Dials(2, 2, 2))
    expected = {" · ".join(names) for names in product(OF_REWARDS, POLICY_LOSSES.table, AGGREGATIONS)}
    assert {row.name for row in section.rows} == expected
    assert section.row("none · reinforce · constant")["bias"] == pytest.approx(0, abs=1e-7)


def test_the_same_seed_prints_the_same_and_another_one_does_not() -> None:
    small = ("--section", "advantages", "--length", "2", "--json")
    assert run(*small).stdout == run(*small).stdout != run(*small, "--seed", "1").stdout


def test_json_holds_the_figures() -> None:
    found = json.loads(run("--section", "advantages", "--section", "kl", "--length", "2", "--json").stdout)
    assert [section["section"] for section in found["sections"]] == ["advantages", "kl"]
    rows = {row["setting"]: row for row in found["sections"][0]["rows"]}
    assert rows["leave_one_out"]["bias"] == pytest.approx(0, abs=1e-7)
    assert rows["group_mean"]["scale"] == pytest.approx(0.75, abs=1e-7)
    assert set(FIGURES) < set(rows["none"])


def test_the_terminal_shows_section_world_and_legend() -> None:
    output = run("--section", "prompts", "--group-size", "3").stdout
    assert "--section prompts" in output
    assert "2 tokens, at most 2 per completion, groups of 3, mean reward 0.10, 0.50" in output
    assert "group_normalised" in output
    assert "E[g]" in output  # not taken for a style


def test_help_teaches_the_columns() -> None:
    output = " ".join(run("--help").stdout.split())
    assert all(name in output for name in FIGURES)
    assert "|E[g] - ∇J| / |∇J|" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--section", "prompt"), "there is no section 'prompt'; known are advantages, losses"),
        (("--section", "losses", "--group-size", "12"), "9,657,700 batches are too many"),
        (("--section", "kl", "--tokens", "30", "--length", "8"), "too many sequences"),
        (("--write", "x.md", "--seed", "1"), "--write writes the default report"),
    ],
)
def test_mistakes_are_said(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(*arguments)


def test_nothing_is_written_on_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        run("--write", str(tmp_path / "x.md"), "--all")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1e-9, "0.000"), (0.0, "0.000"), (-0.4956, "-0.496"), (math.nan, "–"), (12.3456, "12.346"),
        (0.0625 - 1e-9, "0.062"), (0.0625 + 1e-9, "0.062"),
    ],
)  # fmt: skip
def test_figures_as_shown(value: float, text: str) -> None:
    assert shown(value) == text
