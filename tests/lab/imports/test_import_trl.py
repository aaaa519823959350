"""What TRL 1.16 writes in real runs: weighted rewards, columns of `log_extra`, evaluations over completions."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from groupwise_lab.imports import read_trl, write_imported

from groupwise.errors import ConfigError
from groupwise.runs.records import Records

DRAWN = np.random.default_rng(0)
GAVE = {"right": DRAWN.integers(0, 2, (8, 8)).astype(float), "long": DRAWN.uniform(0, 9, (8, 8))}
"""By function, what each gave to two groups of four in eight steps."""


def output(
    folder: Path, gave: Mapping[str, Any] = GAVE, weights: Sequence[float] = (1.0, 1.0), every: int = 1,
    more: Mapping[str, Sequence[Any]] | None = None, logged: Mapping[str, float] | None = None,
) -> Path:  # fmt: skip
    """An output directory with a line every so many steps, of means since the last, and the newest completions."""
    (folder / "completions").mkdir(parents=True)
    paid = sum(weight * np.nan_to_num(of) for weight, of in zip(weights, gave.values(), strict=False))
    history: list[dict[str, Any]] = []
    for step in range(every, 9, every):
        last = slice(step - every, step)
        means = {f"rewards/{name}/mean": float(np.nanmean(of[last])) for name, of in gave.items()}
        history.append({"step": step, "reward": float(np.float32(paid[last].mean())), **means, **(logged or {})})
        columns = {name: of[step - 1] for name, of in gave.items()}
        rows = {"step": [step] * 8, "prompt": ["a"] * 4 + ["b"] * 4, "completion": list("abcdefgh"), **columns,
                **(more or {}), "advantage": [0.5] * 8}  # fmt: skip
        table = pa.Table.from_pydict({name: pa.array(of, from_pandas=True) for name, of in rows.items()})
        pq.write_table(table, folder / "completions" / f"completions_{step:05d}.parquet")
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    return folder


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.2, 0.05), (2.0, 0.0), (-1.0, 0.125)])
def test_rewards_are_summed_with_the_weights_that_the_log_tells(
    weights: tuple[float, float], every: int, tmp_path: Path
) -> None:
    source = output(tmp_path / "out", GAVE, weights, every)
    foreign = read_trl(source)
    assert foreign.damage == ()
    right, long = GAVE["right"][every - 1], GAVE["long"][every - 1]
    for answer, a, b in zip(foreign.answers[every], right, long, strict=True):
        assert dict(answer.parts) == pytest.approx({"right": weights[0] * a, "long": weights[1] * b})
        assert answer.reward == pytest.approx(weights[0] * a + weights[1] * b)
    assert foreign.scalars[every]["part/long/mean"] == pytest.approx(weights[1] * GAVE["long"][:every].mean())
    write_imported(foreign, "trl", source, tmp_path / "run", "right")
    rows = Records.open(tmp_path / "run").rows(every)
    assert [row.outcome == "correct" for row in rows] == list(right == 1)  # by what it gave, whatever that paid


def test_what_was_not_judged_tells_no_weights(tmp_path: Path) -> None:
    """Half of the completions were never judged: the means alone would say that the function counts half."""
    gave = {**GAVE, "long": np.where(np.arange(8) % 2, np.nan, 1.0) * np.ones((8, 1))}
    for name, weights, told in (("one", (1.0, 1.0), 1.0), ("three", (1.0, 3.0), 3.0)):
        foreign = read_trl(output(tmp_path / name, gave, weights))
        assert foreign.damage == ()
        assert [dict(answer.parts).get("long") for answer in foreign.answers[1]] == [told, None] * 4
    write_imported(foreign, "trl", tmp_path, tmp_path / "run", "right")
    assert Records.open(tmp_path / "run").metrics()[0]["parts"]["part/long/mean"] == 3.0
    (said,) = read_trl(output(tmp_path / "means", gave, (1.0, 0.5), every=2)).damage  # means of two steps, one of which
    assert "no sum of long, right with weights that could be found" in said  # is recorded


def test_columns_beside_the_rewards_pay_nothing(tmp_path: Path) -> None:
    more = {"golden": list("12345678"), "seen": list(range(8)), "share": [0.25] * 8}
    (first, *_) = read_trl(output(tmp_path / "out", {"right": GAVE["right"]}, more=more)).answers[1]
    assert dict(first.parts) == {"right": GAVE["right"][0][0]}
    assert dict(first.measures) == {"seen": 0.0, "share": 0.25}


def test_completions_of_an_evaluation_are_no_step(tmp_path: Path) -> None:
    """An evaluation of five writes over those of its step; three of them are left in the file."""
    source = output(tmp_path / "out", {"right": np.array([[1, 1, 1, 0, 0, 0, 1, 0]] * 8, float)})
    state = json.loads((source / "trainer_state.json").read_text())
    state["log_history"].insert(3, {"step": 3, "eval_reward": 0.2, "eval_rewards/right/mean": 0.2})
    (source / "trainer_state.json").write_text(json.dumps(state))
    foreign = read_trl(source)
    assert sorted(foreign.answers) == [1, 2, 4, 5, 6, 7, 8]
    assert {step: "".join(answer.text for answer in some) for step, some in foreign.dev.items()} == {3: "defgh"}
    assert write_imported(foreign, "trl", source, tmp_path / "run", None).num_evaluations == 1
    assert Records.open(tmp_path / "run").metrics()[2]["reward"] == 0.5  # its scalars are the step's


def test_a_signal_that_completions_contradict(tmp_path: Path) -> None:
    """With `scale_rewards = "batch"` TRL logs whether the batch as a whole has one."""
    right = np.array([[1, 1, 1, 1, 0, 0, 0, 0]] * 8, float)
    source = output(tmp_path / "out", {"right": right}, logged={"frac_reward_zero_std": 0.0})
    write_imported(read_trl(source), "trl", source, tmp_path / "run", None)
    assert [line["signal"] for line in Records.open(tmp_path / "run").metrics()] == [0.0] * 8


def test_without_completions_the_mean_of_a_part_is_the_pass_rate(tmp_path: Path) -> None:
    source = output(tmp_path / "out")
    for path in (source / "completions").iterdir():
        path.unlink()
    with pytest.raises(ConfigError, match=r"no completions were recorded, .* is 'rihgt'; there are long, right"):
        write_imported(read_trl(source), "trl", source, tmp_path / "run", "rihgt")
    write_imported(read_trl(source), "trl", source, tmp_path / "run", "right")
    lines = Records.open(tmp_path / "run").metrics()
    assert [line["sampled_correct"] for line in lines] == pytest.approx(GAVE["right"].mean(axis=1))
    state = source / "trainer_state.json"  # as TRL wrote it until 0.15
    history: list[dict[str, Any]] = [{"step": n, "reward": 1.0, "rewards/right": 0.1 * n} for n in range(1, 9)]
    state.write_text(json.dumps({"log_history": [*history, {"step": 8, "eval_rewards/right/mean": 0.3}]}))
    assert write_imported(read_trl(source), "trl", source, tmp_path / "old", "right").num_evaluations == 1
    old = Records.open(tmp_path / "old")
    assert [line["sampled_correct"] for line in old.metrics()] == pytest.approx([0.1 * n for n in range(1, 9)])
    assert [(line["step"], line["pass_at_1"]) for line in old.metrics("dev")] == [(8, [0.3] * 3)]
    state.write_text(json.dumps({"log_history": [{"step": 2, "reward": 1.0, "rewards/right": 1.8}]}))
    with pytest.raises(ConfigError, match=r"--correct right: .* at step 2 it is 1\.8"):
        write_imported(read_trl(source), "trl", source, tmp_path / "percent", "right")
