"""The stage `step_evaluation`: choices among k equal a loop over all subsets, and a run with tiny judges."""

import itertools
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from groupwise.errors import DataError
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy
from groupwise.models.reward_model import start_reward_model
from groupwise.pipeline.base import ComputeConfig, Workplace
from groupwise.pipeline.directory import StageDirectory
from groupwise.pipeline.step_evaluation import StepEvaluation, StepEvaluationConfig, StepJudgeConfig, chosen, controls
from groupwise.tasks.step_rows import StepRow


def row(problem: str, answer: str | None, right: bool, error: int | None = None) -> StepRow:
    labels = tuple(1.0 if error is None or i < error else 0.0 for i in range(3))
    return StepRow(f"{problem}?", ("a ", "b ", "c"), labels, problem, "dev", "", right, {"answer": answer})


ROWS = [
    row("p", "4", True), row("p", "4", True, 1), row("p", "5", False, 2), row("p", None, False, 0),
    row("q", "7", False, 1), row("q", "8", True),
]  # fmt: skip
SCORES = [[0.9, 0.5, 0.8], [0.9, 0.1, 0.9], [0.8, 0.8, 0.9], [0.1, 0.2, 0.3], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]


def of_subsets(right: list[bool], joined: list[float], k: int) -> float:
    found = []
    for subset in itertools.combinations(range(len(right)), k):
        best = max(joined[i] for i in subset)
        top = [right[i] for i in subset if joined[i] == best]
        found.append(Fraction(sum(top), len(top)))
    return float(sum(found) / len(found))


def test_choices_equal_a_loop_over_subsets() -> None:
    found = chosen(ROWS, SCORES, (2, 3, 9))
    assert "best of 9 by last" not in found  # no pool has nine
    joins = {"last": lambda s: s[-1], "min": min, "mean": lambda s: sum(s) / 3, "product": lambda s: s[0] * s[1] * s[2]}
    for how, join in joins.items():
        joined = [join(scores) for scores in SCORES]
        of_p = of_subsets([True, True, False, False], joined[:4], 2)
        assert found[f"best of 2 by {how}"][0] == pytest.approx((of_p + 0.5) / 2)  # q's two tie
        assert found[f"best of 3 by {how}"][0] == pytest.approx(of_subsets([True, True, False, False], joined[:4], 3))


def votes_of_subsets(pool: list[tuple[str | None, float, bool]], k: int) -> float:
    """Sums of scores by answer, subset by subset; an answer is right if one of the pool that gave it was."""
    right = {answer for answer, _, is_right in pool if is_right}
    found = []
    for subset in itertools.combinations(pool, k):
        sums = {a: sum(s for b, s, _ in subset if b == a) for a, _, _ in subset if a is not None}
        top = [a for a in sums if sums[a] == max(sums.values())]
        found.append(Fraction(sum(a in right for a in top), len(top)) if top else Fraction(0))
    return float(sum(found) / len(found))


def test_weighted_votes_equal_a_loop_over_subsets() -> None:
    found = chosen(ROWS, SCORES, (2, 3))
    p = [("4", 0.8, True), ("4", 0.9, True), ("5", 0.9, False), (None, 0.3, False)]  # the last score of each
    assert found["vote of 2 by last"][0] == pytest.approx((votes_of_subsets(p, 2) + 0.5) / 2)
    assert found["vote of 3 by last"][0] == pytest.approx(votes_of_subsets(p, 3))
    # two that agree outvote one that scores higher: 4, 4, 5 by the least score is 0.5 + 0.1 against 0.8
    assert found["vote of 3 by min"][0] < found["vote of 3 by last"][0]


def test_controls_by_hand() -> None:
    found = controls(ROWS, (2,))
    assert found["pass@1"][0] == pytest.approx(0.5)
    assert found["pass@2"][0] == pytest.approx((5 / 6 + 1) / 2)
    # of p's six pairs: 4 4; 4 5 twice (a tie each); 4 and nothing twice; 5 and nothing
    assert found["majority@2"][0] == pytest.approx(((1 + 0.5 + 0.5 + 1 + 1 + 0) / 6 + 0.5) / 2)


def test_judges_stand_side_by_side(tiny_policy: Callable[..., Policy], tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "policy", tiny_policy())
    save_checkpoint(tmp_path / "other", tiny_policy(seed=1))
    save_checkpoint(tmp_path / "prm", start_reward_model(ModelConfig(path=str(tmp_path / "policy"), device="cpu")))
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(one.record()) for one in ROWS))
    judges = {
        "constant": StepJudgeConfig(path=str(tmp_path / "prm")),
        "implicit": StepJudgeConfig(path=str(tmp_path / "other"), reference=str(tmp_path / "policy"), beta=0.5),
    }
    file, model = str(tmp_path / "rows.jsonl"), ComputeConfig(device="cpu")
    settings = StepEvaluationConfig(model=model, judges=judges, file=file, choices=(2,))
    stage = StepEvaluation("judges", "step_evaluation", settings)
    (tmp_path / "stage").mkdir()
    work = Workplace(StageDirectory(tmp_path / "stage"), pytest.fail)
    made = stage.run(settings, work)
    control, constant, implicit = (json.loads(line) for line in made.output.read_text().splitlines())
    assert constant["auc"] == 0.5  # a new head scores everything 1/2, so its choice is any
    assert constant["best of 2 by min"] == control["pass@1"]
    assert implicit["auc"] != 0.5
    assert made.statistics["implicit"]["auc"] == implicit["auc"]
    assert made.statistics["problems"] == {"all": 2, "with 2 completions": 2}
    large = settings.model_copy(update={"choices": (2, 5)})
    with pytest.raises(DataError, match=r"choices = 2, 5: no problem of .*rows.jsonl has 5 completions; 1 to 4 are"):
        stage.run(large, work)
    again = settings.model_copy(update={"dev": settings.file})
    with pytest.raises(DataError, match="share 2 problems"):
        stage.run(again, work)
