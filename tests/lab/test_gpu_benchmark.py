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
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu")


def test_the_trial_runs_to_its_end(gpu: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    gpu.main([*TRIAL, "--train-groups", "1", "--repeats", "1", "--json", str(file)])
    out = capsys.readouterr().out
    assert "transformers / ours" in out
    assert "MFU" in out
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
