import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "lab" / "benchmarks"
TRIAL = ["--device", "cpu", "--tiny", "--live", "2", "4", "--group", "2", "--prompt", "5", "--tokens", "4"]


@pytest.fixture
def grpo_step(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("grpo_step")


@pytest.fixture
def gpu(grpo_step: ModuleType) -> ModuleType:
    return importlib.import_module("gpu")


def test_our_side_runs_as_planned(grpo_step: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    grpo_step.main(["--shape", "tiny", "--ours-only", "--no-memory", "--repeats", "1", "--json", str(file)])
    (row,) = json.loads(file.read_text())["results"]
    assert len(row["ours"]) == len(row["tokens"]) == 1
    assert row["ours"][0]["train"] > 0
    assert row["gemm_share"] > 0


def test_work_counts_each_prompt_once_and_no_silent_group(grpo_step: ModuleType) -> None:
    workload = importlib.import_module("workload")
    import numpy as np

    plan = workload.StepPlan(("abcd", "efgh"), np.array([[2, 3], [4, 5]]), np.array([[1.0, 0.0], [0.0, 0.0]]))
    body, head = 100, 10
    decode, train = 2 * 14 * (body + head), 6 * 5 * (body + head)
    assert workload.necessary_work(plan, workload.Parameters(body, head)) == decode + train + (2 * 8 + 6 * 4) * body


def test_half_of_the_groups_of_shape_c_are_silent(grpo_step: ModuleType) -> None:
    workload = importlib.import_module("workload")
    rewards = workload.Workload(workload.SHAPES["c"]).plan(0).rewards
    assert (rewards.min(1) < rewards.max(1)).sum() == 8


def test_steps_with_the_ranks_and_without_give_the_same_weights(
    grpo_step: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = importlib.import_module("alone")
    alone.main(["--shape", "tiny", "--repeats", "2"])
    out = capsys.readouterr().out
    assert out.startswith("shape tiny, 2 pairs")
    places, asked = (int(line.split()[at]) for line, at in [(out.splitlines()[1], 0), (out.splitlines()[1], -2)])
    assert places > 20
    assert asked > 0


SHORT_SIDE = """
import json, sys
print(0.1, flush=True)
for line in sys.stdin:
    print(json.dumps({part: 0.1 + int(line) for part in sys.argv[2:]}), flush=True)
"""
"""A side's program that computes nothing; a real one takes seconds to begin."""


@pytest.mark.parametrize("is_real", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["short", "real"])
def test_two_checkouts_take_turns(
    is_real: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    root = str(BENCHMARKS.parents[1])
    before_after = importlib.import_module("before_after")
    if not is_real:
        monkeypatch.setattr(before_after, "SIDE", SHORT_SIDE)
    before_after.main([root, root, "--shape", "tiny", "--repeats", "2"])
    out, progress = capsys.readouterr()
    assert out.startswith("shape tiny, 2 pairs")
    assert progress.count(" s before, ") == 3
    total = next(line for line in out.splitlines() if line.strip().startswith("total"))
    ratio, _, interval = total.partition("after / before ")[2].partition(" ")
    low, high = json.loads(interval)
    assert low <= float(ratio) <= high


def test_the_table_of_padding_is_the_one_on_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    importlib.import_module("padding").main()
    printed = capsys.readouterr().out.splitlines()
    page = (BENCHMARKS.parents[1] / "docs" / "do" / "prm.md").read_text(encoding="utf-8").replace("**", "")
    assert len(printed) == 6
    assert [row for row in printed if row not in page] == []


def test_moves_of_blackjack_lose_what_they_are_worth_less(grpo_step: ModuleType) -> None:
    optimum, games = importlib.import_module("optimum"), importlib.import_module("games")
    config = games.EnvironmentConfig(kind="blackjack")
    hit, stand = games.of_hit((16, False), 10), games.of_stand(16, 10)  # perfect play hits, by a little
    cases = [
        ((["16 10"], "16 against 20", True), hit - stand),
        ((["16 10"], "bust with 23", True), 0.0),
        ((["s18 6", "18 6"], "18 against 17", True), games.of_stand(18, 6) - games.of_hit((18, True), 6)),
        ((["16 10"], "", False), hit + 1.0),  # cut: the game is lost
        ((["20 6"], "'x' is neither h nor s", True), games.of_stand(20, 6) + 1.0),
    ]
    for played, lost in cases:
        assert optimum.lost(optimum.Played(*played), config) == pytest.approx(lost)
    assert optimum.turns(optimum.Played(["a"] * 3, "", False), config) == config.max_turns


def test_the_trial_runs_to_its_end(gpu: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    gpu.main([*TRIAL, "--train-groups", "1", "--repeats", "1", "--json", str(file)])
    result = json.loads(file.read_text())
    assert [row["live"] for row in result["decoding"]] == [2, 4]
    assert all(len(row["ratios"]) == len(row["without_graphs"]) == 1 for row in result["decoding"])
    assert not any(row["with_graphs"] for row in result["decoding"])
    assert result["training"]["completion_tokens"] == 2 * 4
    assert result["training"]["mfu"] > 0


@pytest.mark.parametrize(("arguments", "sentence"), [([], "No CUDA device"), (["--device", "cpu"], "add --tiny")])
def test_without_a_gpu_it_ends_with_a_sentence(
    gpu: ModuleType, arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        gpu.main(arguments)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


def test_bytes_of_a_step_are_weights_and_each_prompt_and_completion_once(gpu: ModuleType) -> None:
    bench = gpu.make_bench(gpu.parse(TRIAL))
    layers, kv_heads, width = 2, 2, 56 // 14
    per_token = 2 * 2 * layers * kv_heads * width  # keys and values, two bytes each
    assert gpu.bytes_per_step(bench, 4) == 2 * bench.parameters.total + per_token * (2 * 5 + 4 * 4 / 2)


def test_a_part_that_fails_or_hangs_costs_no_other(
    gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = importlib.import_module("card")
    told = tmp_path / "told.json"
    work = [
        card.Part("hangs", ["-c", "import time; time.sleep(60)"], 0.5),
        card.Part("fails", ["-c", "raise SystemExit(3)"], 20, lambda: json.loads(told.read_text())),
        card.Part("tells", ["-c", f"open({str(told)!r}, 'w').write('[1]')"], 20, lambda: json.loads(told.read_text())),
    ]
    monkeypatch.setattr(card, "parts", lambda *_: work)
    card.main(["--out", str(tmp_path / "out"), "--device", "cpu", "--tiny"])
    found = json.loads((tmp_path / "out" / "card.json").read_text())
    assert [found[part.name]["status"] for part in work] == ["too late", 3, 0]
    assert [found[part.name]["figures"] for part in work] == [None, None, [1]]


def test_the_first_fact_that_differs_is_named(gpu: ModuleType) -> None:
    card = importlib.import_module("card")
    ours, theirs = ({"facts": [{"step": 0}, {"step": 1, "loss": loss}]} for loss in (2.0, 2.5))
    assert card.parted(ours, theirs) == {"line": 1, "fact": "loss", "card": "2.0", "processor": "2.5"}
    assert card.parted(ours, ours) == {}
