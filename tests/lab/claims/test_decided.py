"""From results to verdicts and to the page."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from groupwise_lab.claims.config import Ledger, Statistic
from groupwise_lab.claims.decided import decided, value_of
from groupwise_lab.claims.document import claimed, document, missing_lines
from groupwise_lab.claims.results import Result, keep_result, read_results
from groupwise_lab.claims.runner import codes_of_today

A, B = "plain.after.x", "other.after.x"


@pytest.mark.parametrize(
    ("statistic", "value"),
    [  # plain: x = 0.8, y = 0.5; other: x = 0.4, y = 0.3
        (Statistic(kind="level", of=A, than=0.5, claimed="above"), 0.3),
        (Statistic(kind="difference", of=A, minus=B, claimed="above"), 0.4),
        (Statistic(kind="difference_of_differences", of=(A, "plain.after.y"), minus=(B, "other.after.y"),
                   claimed="above"), 0.2),  # (0.8 - 0.4) - (0.5 - 0.3)
        (Statistic(kind="ratio", of=A, minus=B, claimed="above", margin=1.5), math.log(2)),
        # 0.8 at 2, 0.4 at 8: two doublings
        (Statistic(kind="slope", points=({"at": 2, "of": A}, {"at": 8, "of": B}), claimed="below"), -0.2),
    ],
)  # fmt: skip
def test_the_number_of_a_seed(statistic: Statistic, value: float, result: Callable[..., Result]) -> None:
    results = {
        "plain": result("plain", 0, after__x=0.8, after__y=0.5),
        "other": result("other", 0, after__x=0.4, after__y=0.3),
    }
    assert value_of(statistic, results) == pytest.approx(value)


def test_a_ratio_is_ruled_on_by_its_logarithm(result: Callable[..., Result], ledger: Ledger) -> None:
    statistic = Statistic(kind="ratio", of=A, minus=B, claimed="below", margin=1.25)
    claim = ledger.claims["better"].model_copy(update={"statistic": statistic})
    pairs = [(0.5, 1.0), (0.55, 1.0), (0.6, 1.0)]
    results = {("plain", s): result("plain", s, after__x=x) for s, (x, _) in enumerate(pairs)}
    results |= {("other", s): result("other", s, after__x=y) for s, (_, y) in enumerate(pairs)}
    one = decided(claim, results)
    assert one.verdict == "holds here"
    assert math.exp(one.decision.estimate.value) == pytest.approx((0.5 * 0.55 * 0.6) ** (1 / 3))
    assert "is below 1/1.25" in claimed(statistic)


def test_only_seeds_that_every_arm_has_count(result: Callable[..., Result], ledger: Ledger) -> None:
    results = {("plain", s): result("plain", s, after__pass_at_1=0.5) for s in (0, 1, 2)}
    results |= {("other", s): result("other", s, after__pass_at_1=0.8) for s in (1, 2, 3)}
    results["other", 0] = result("other", 0, before__pass_at_1=0.1)  # not what is named
    one = decided(ledger.claims["better"], results)
    assert (one.seeds, one.values, one.verdict) == ((1, 2), (0.3, 0.3), "not yet measured")
    results["plain", 3] = result("plain", 3, after__pass_at_1=0.5)
    assert decided(ledger.claims["better"], results).verdict == "holds here"


def test_without_results_nothing_is_said(folder: Path, ledger: Ledger) -> None:
    page = document(ledger, {})
    assert "**1 claims**: 1 not yet measured." in page
    assert "`groupwise claims better`, about 1 minutes of one core" in page
    assert "holds here: " not in page


def test_the_page_says_value_interval_seeds_and_how_many_would_decide(
    folder: Path, ledger: Ledger, result: Callable[..., Result]
) -> None:
    for seed, (plain, other) in enumerate([(0.5, 0.6), (0.5, 0.7), (0.5, 0.8)]):
        keep_result(folder, result("plain", seed, after__pass_at_1=plain))
        keep_result(folder, result("other", seed, after__pass_at_1=other))
    page = document(ledger, read_results(folder, ["plain", "other"]))
    # differences 0.1, 0.2, 0.3: 20 ± 4.303 · 10 / √3 = 20 ± 24.8; t s / √n < d = 10 first at n = 7
    assert "Not decided by this evidence: +20.0 points [-4.8, +44.8], seeds +10.0, +20.0, +30.0; about 7 seeds" in page
    assert "measured at code c.\n" in page
    assert "Code: in 0 of 1 claims with results it changed between the seeds." in page


def both(result: Callable[..., Result], seeds: int) -> dict[tuple[str, int], Result]:
    """Results of both arms, at each seed the same."""
    numbers = {"after__pass_at_1": 0.5, "whole__processor_s": 2.0}
    return {(arm, seed): result(arm, seed, **numbers) for arm in ("plain", "other") for seed in range(seeds)}


def test_below_three_seeds_a_claim_is_not_yet_measured(ledger: Ledger, result: Callable[..., Result]) -> None:
    page = document(ledger, both(result, 2))
    assert "**1 claims**: 1 not yet measured." in page
    assert "| – | 2 | not yet measured |" in page
    assert "**Not yet measured: 2 of at least 3 seeds**: `groupwise claims better`, about 1 minutes" in page
    assert "Measured so far at code c.\n" in page
    assert "not decided by this evidence: " not in page.lower()


def test_a_cost_of_mixed_machines_is_not_yet_measured(ledger: Ledger, result: Callable[..., Result]) -> None:
    own, other = "plain.whole.processor_s", "other.whole.processor_s"
    statistic = Statistic(kind="ratio", of=other, minus=own, claimed="above", margin=1.5)
    claims = {"better": ledger.claims["better"].model_copy(update={"statistic": statistic})}
    results = both(result, 3)
    results["other", 1] = results["other", 1].model_copy(update={"machine": "there"})
    page = document(ledger.model_copy(update={"claims": claims}), results)
    told = "**Not yet measured: 2 of at least 3 seeds**, as 1 of 3 were run on more than one kind of machine"
    assert f"{told}: `groupwise claims better --rerun`" in page
    assert decided(claims["better"], results | both(result, 3)).verdict == "does not hold here"


def test_where_the_code_changed_between_seeds_is_said(ledger: Ledger, result: Callable[..., Result]) -> None:
    results = both(result, 3)
    of_arm = {key: one.model_copy(update={"code": "d"}) for key, one in results.items() if key[0] == "other"}
    page = document(ledger, results | of_arm)  # every arm has the code that it uses
    assert "measured at code c, d.\n" in page
    results["other", 2] = of_arm["other", 2]
    page = document(ledger, results)
    assert "measured at code c, d; the code changed between its seeds.\n" in page
    assert "Code: in 1 of 1 claims with results it changed between the seeds." in page


def test_the_list_counts_runs_of_other_code(ledger: Ledger, result: Callable[..., Result]) -> None:
    codes = codes_of_today(ledger, ledger.claims)
    assert codes == {"other": "c", "plain": "c"}
    lines = list(missing_lines(ledger, ledger.claims, {}, 0, codes))
    assert lines == [("better", "not yet measured", "6 runs, 1 minutes", "-")]
    results = both(result, 3)
    results["other", 1] = results["other", 1].model_copy(update={"code": "commit 0123456789"})
    ((*_, missing, other),) = missing_lines(ledger, ledger.claims, results, 0, codes)
    assert (missing, other) == ("nothing", "1 of 6 runs")


def test_a_cost_is_compared_between_runs_of_one_machine_and_accuracy_between_any(
    ledger: Ledger, result: Callable[..., Result]
) -> None:
    def ruled(metric: str) -> tuple[int, ...]:
        statistic = Statistic(kind="difference", of=f"other.{metric}", minus=f"plain.{metric}", claimed="above")
        return decided(ledger.claims["better"].model_copy(update={"statistic": statistic}), results).seeds

    numbers = {"whole__processor_s": 1.0, "whole__peak_memory_mb": 2.0, "whole__correct": 0.5}
    results = {(arm, seed): result(arm, seed, **numbers) for arm in ("plain", "other") for seed in range(3)}
    results["other", 1] = results["other", 1].model_copy(update={"machine": "there"})
    assert ruled("whole.processor_s") == ruled("whole.peak_memory_mb") == (0, 2)
    assert ruled("whole.correct") == (0, 1, 2)


def test_the_page_names_every_machine_with_its_runs(ledger: Ledger, result: Callable[..., Result]) -> None:
    results = {("plain", seed): result("plain", seed, after__pass_at_1=0.5) for seed in range(3)}
    assert "Machine: here; fp32" in document(ledger, results)
    results["plain", 1] = results["plain", 1].model_copy(update={"machine": "there"})
    assert "Machines: here (2 runs); there (1 runs); fp32" in document(ledger, results)
