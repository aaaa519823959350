import importlib
import json
from pathlib import Path
from types import ModuleType

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
    gpu: ModuleType,
    arguments: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
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
