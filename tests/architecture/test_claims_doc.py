"""docs/claims.md is what the ledger says today, and no result belongs to another recipe or base model."""

from pathlib import Path

import pytest

from groupwise.claims.config import Ledger, load_ledger
from groupwise.claims.document import document
from groupwise.claims.results import Results, read_results
from groupwise.claims.runner import stale

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "claims"


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    return load_ledger(FOLDER)


@pytest.fixture(scope="module")
def results(ledger: Ledger) -> Results:
    return read_results(FOLDER, ledger.arms.arms)


def test_no_result_is_stale(ledger: Ledger) -> None:
    assert stale(ledger) == []


def test_the_page_is_what_would_be_written(ledger: Ledger, results: Results) -> None:
    written = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8").splitlines()
    missing = [line for line in document(ledger, results).splitlines() if line not in written]
    assert missing == [], "run `groupwise claims --page`; it would say\n" + "\n".join(missing)


def test_every_result_belongs_to_an_arm_of_the_ledger(ledger: Ledger) -> None:
    files = {path.stem for path in (FOLDER / "results").glob("*.jsonl")}
    assert sorted(files - set(ledger.arms.arms)) == []
