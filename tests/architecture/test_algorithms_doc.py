"""docs/algorithms.md is what the code and the oracle say today."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from groupwise_lab.oracle.document import document, formula_and_source, groups
from groupwise_lab.oracle.published import published_algorithms
from groupwise_lab.oracle.report import FINDINGS, Section
from groupwise_lab.oracle.sections import SECTIONS
from groupwise_lab.oracle.toys import Dials

from groupwise.algorithms.advantages import ADVANTAGES
from groupwise.algorithms.kl import KL_ESTIMATORS
from groupwise.algorithms.objective import AGGREGATIONS
from groupwise.algorithms.policy_losses import POLICY_LOSSES
from groupwise.config import merged, read_toml
from groupwise.trainers import TRAINERS, load_recipe

PUBLISHED = published_algorithms()
ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def sections() -> dict[str, Section]:
    return {name: make(Dials()) for name, make in SECTIONS.items()}


def test_it_is_what_would_be_written(sections: dict[str, Section]) -> None:
    written, today = DOCUMENT.splitlines(), document(sections).splitlines()
    stale = [line for line in today if line not in written]
    assert written == today, "run `groupwise oracle --write docs/algorithms.md`; it would say\n" + "\n".join(stale)


def test_every_entry_of_every_table_is_in_it() -> None:
    names = [*ADVANTAGES.table, *POLICY_LOSSES.table, *AGGREGATIONS, *KL_ESTIMATORS]
    functions = ["advantages.gae", "kl.importance_corrected", "importance.importance_weights"]
    functions += ["objective.clipped_value_loss", "step_advantages.Process"]
    assert [name for name in names if f"\n| `{name}` |" not in DOCUMENT] == []
    assert [name for name in functions if f"`{name}`" not in DOCUMENT] == []
    assert [name for name in PUBLISHED if f"\n| {name} |" not in DOCUMENT] == []


def test_every_named_test_exists() -> None:
    named = set(re.findall(r"`((?:oracle/)?test_\w+\.py(?:::\w+)?)`", DOCUMENT))
    assert len(named) > 10
    assert [name for name in sorted(named) if not exists(name)] == []


def exists(name: str) -> bool:
    """Whether there is a file, and a test in it, of that name."""
    file, _, test = name.partition("::")
    path = ROOT / "tests" / (f"lab/{file}" if "/" in file else f"unit/algorithms/{file}")
    if not path.exists():
        return False
    defined = {node.name for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}
    return not test or test in defined


def test_a_missing_test_is_seen() -> None:
    assert exists("oracle/test_kl.py::test_what_each_estimator_is_unbiased_for")
    assert not exists("oracle/test_kl.py::test_that_is_not_there")
    assert not exists("test_that_is_not_there.py")


def test_formulas_and_sources_are_those_of_the_docstrings() -> None:
    def told() -> None:
        """Âᵢ = rᵢ: a paper (arXiv:2402.03300, eq. 3)."""

    def told_below() -> None:
        """L = 1. Nothing more.

        From elsewhere (arXiv:1707.06347, eq. 7; arXiv:2503.14476, §3.2).
        """

    link = "[arXiv:{0}](https://arxiv.org/abs/{0})"
    assert formula_and_source(told) == ("Âᵢ = rᵢ", f"a paper ({link.format('2402.03300')}, eq. 3)")
    cited = f"{link.format('1707.06347')}, eq. 7; {link.format('2503.14476')}, §3.2"
    assert formula_and_source(told_below) == ("L = 1", f"Nothing more; {cited}")


def test_every_entry_has_a_formula() -> None:
    assert all(formula_and_source(entry.function)[0] for entries in groups().values() for entry in entries)


@pytest.mark.parametrize("file", sorted(path.name for path in (ROOT / "recipes" / "algorithms").iterdir()))
def test_published_settings_are_recipes(file: str) -> None:
    own = read_toml(ROOT / "recipes" / "algorithms" / file)
    below = {"grpo": "arithmetic.toml", "ppo": "ppo.toml"}[own["algorithm"]]
    recipe = load_recipe(ROOT / "recipes" / below, extends=[f"algorithms/{file}"])
    assert isinstance(recipe, TRAINERS.find(own["algorithm"]).recipe)
    found = recipe.model_dump(mode="json")
    assert merged(found, own) == found  # every value stands


def test_recipe_keys_in_the_document_are_toml() -> None:
    table = DOCUMENT.partition("## Published")[2]
    lines = re.findall(r"`([\w.]+ = [^`]+)`", table)
    assert len(lines) > 50
    for line in lines:
        tomllib.loads(line)


def test_the_defaults_are_dr_grpo() -> None:
    below = ROOT / "recipes" / "arithmetic.toml"
    assert load_recipe(below, extends=["algorithms/dr_grpo.toml"]) == load_recipe(below)


def test_group_sizes_that_the_prose_names_are_those_of_the_sections(sections: dict[str, Section]) -> None:
    assert "at G = 4" in FINDINGS[0]
    assert "groups of 4" in sections["advantages"].world
    assert "at G = 8" in FINDINGS[1]
    assert "groups of 8" in sections["prompts"].world
