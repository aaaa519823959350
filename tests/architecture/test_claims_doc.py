"""docs/claims.md is what the ledger says today, and results go with recipes, base model and, where it shows, code."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from groupwise_lab.claims.config import Ledger, load_ledger
from groupwise_lab.claims.document import write_document
from groupwise_lab.claims.results import Result, Results, read_results
from groupwise_lab.claims.runner import arm_run, stale

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "lab" / "claims"


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    return load_ledger(FOLDER)


@pytest.fixture(scope="module")
def results(ledger: Ledger) -> Results:
    return read_results(FOLDER, ledger.arms.arms)


def test_no_result_is_stale(ledger: Ledger) -> None:
    assert stale(ledger) == []


def test_the_page_is_what_would_be_written(ledger: Ledger, results: Results, tmp_path: Path) -> None:
    write_document(ledger, results, tmp_path / "claims.md")
    written, today = (ROOT / "docs" / "claims.md").read_bytes(), (tmp_path / "claims.md").read_bytes()
    assert written == today, "run `groupwise claims --page`"


def test_every_result_belongs_to_an_arm_of_the_ledger(ledger: Ledger) -> None:
    files = {path.stem for path in (FOLDER / "results").glob("*.jsonl")}
    assert sorted(files - set(ledger.arms.arms)) == []


MEASURED_BEFORE = ("model", "task", "verifier", "sampling", "behaviour", "evaluation")
"""Sections of a recipe that decide what is measured before training, beside the seed."""
OF_MEASURING = "before."


def alike(ledger: Ledger, results: Results) -> Iterator[list[Result]]:
    """Results that measured one model before training on the same problems, with the same draws, on one machine."""
    groups: dict[tuple[str, ...], list[Result]] = defaultdict(list)
    sections = {}
    for (arm, seed), result in results.items():
        if arm not in sections:
            recipe = arm_run(ledger, arm, 0).recipe() if ledger.arms.arms[arm].kind == "train" else None
            tables = recipe.model_dump(mode="json") if recipe else {}
            sections[arm] = json.dumps({name: tables.get(name) for name in MEASURED_BEFORE}, sort_keys=True)
        if any(name.startswith(OF_MEASURING) for name in result.metrics):
            groups[sections[arm], str(seed), result.base, result.machine].append(result)
    yield from (group for group in groups.values() if len({result.code for result in group}) > 1)


def differing(group: list[Result]) -> list[str]:
    """Measurements that are not the same in all of these results."""
    first, *others = [
        {name: value for name, value in result.metrics.items() if name.startswith(OF_MEASURING)} for result in group
    ]
    return sorted({name for other in others for name in first.keys() & other.keys() if first[name] != other[name]})


def test_versions_of_the_code_measured_the_same_model_alike(ledger: Ledger, results: Results) -> None:
    groups = list(alike(ledger, results))
    assert len({result.code for group in groups for result in group}) > 3
    faults = [
        (name, group[0].seed, sorted({(result.arm, result.code, result.metrics.get(name)) for result in group}))
        for group in groups for name in differing(group)
    ]  # fmt: skip
    assert faults == []


def test_a_measurement_that_came_out_otherwise_is_seen(results: Results) -> None:
    one = results["reference", 0]
    other = one.model_copy(update={"code": "c", "metrics": one.metrics | {"before.pass_at_1": 0.0, "after.x": 1.0}})
    assert differing([one, one, other]) == ["before.pass_at_1"]
