"""Process reward models: where scores are read, the loss against eager sequences one at a time, and a whole run."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from groupwise.cli.train import show_reports
from groupwise.config import parse
from groupwise.errors import ConfigError, DataError, ModelError
from groupwise.evaluation.steps import evaluate_steps
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy
from groupwise.models.reward_model import RewardModel, load_reward_model, start_reward_model
from groupwise.models.steps import READS_CHAT, EncodedSteps, ImplicitRewardModel, encode_steps, score_rows
from groupwise.tasks.step_rows import StepRow
from groupwise.trainers.process_reward_model import (
    ProcessRewardModelRecipe,
    process_reward_model_gradient,
    step_rows,
    train_process_reward_model,
)

ROWS = [
    StepRow("2+2?", ("2+2=4. ", "So 4."), (1.0, 0.7)),
    StepRow("3×5 is?", ("3×5=1", "6. ", "x", "No."), (0.0, None, 0.25, 0.0)),
    StepRow("?", ("a",), (1.0,)),
]


@pytest.fixture
def start(tiny_policy: Callable[..., Policy], tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "policy", tiny_policy())
    return tmp_path / "policy"


@pytest.fixture
def model(start: Path) -> RewardModel:
    made = start_reward_model(ModelConfig(path=str(start), device="cpu"))
    with torch.no_grad():
        made.head.weight.copy_(0.3 * torch.randn(made.head.weight.shape, generator=torch.Generator().manual_seed(0)))
    return made


def eager(model: RewardModel, rows: list[EncodedSteps]) -> tuple[Any, list[list[torch.Tensor]]]:
    """A twin in float64, and each step's logit from the text up to its end alone, by transformers."""
    twin = copy.deepcopy(model.model).double()
    twin.set_attn_implementation("eager")

    def logit(row: EncodedSteps, end: int) -> torch.Tensor:
        ids = torch.tensor([[*row.prompt, *row.completion[:end]]])
        return twin.score(twin.base_model(ids, use_cache=False).last_hidden_state[0, -1])[0]

    return twin, [[logit(row, end) for end in row.ends] for row in rows]


def test_steps_are_encoded_one_by_one(model: RewardModel) -> None:
    row = encode_steps(model, ROWS[1])
    pieces = [row.completion[a:b] for a, b in zip([0, *row.ends], row.ends, strict=False)]
    assert [model.tokenizer.decode(piece) for piece in pieces] == list(ROWS[1].steps)
    assert row.ends[-1] == len(row.completion)
    assert row.labels == [0.0, None, 0.25, 0.0]
    assert encode_steps(model, ROWS[1], "outcome").labels == [None, None, None, 0.0]


def test_a_score_reads_the_text_up_to_its_step_and_nothing_behind(model: RewardModel) -> None:
    rows = [encode_steps(model, row) for row in ROWS]
    _, logits = eager(model, rows)
    for scores, expected in zip(score_rows(model, rows), logits, strict=True):
        assert scores == pytest.approx([logit.sigmoid().item() for logit in expected], abs=1e-5)
    changed = encode_steps(model, StepRow("2+2?", ("2+2=4. ", "Nothing of the kind", "!"), (1.0, 1.0, 1.0)))
    assert score_rows(model, [changed])[0][0] == pytest.approx(score_rows(model, rows[:1])[0][0], abs=1e-6)


@pytest.mark.parametrize("budget", [1, 30, 100_000])
def test_the_gradient_is_that_of_the_mean_over_labelled_steps(model: RewardModel, budget: int) -> None:
    rows = [encode_steps(model, row) for row in ROWS]
    twin, logits = eager(model, rows)
    losses = []
    for row, of_row in zip(rows, logits, strict=True):
        for logit, label in zip(of_row, row.labels, strict=True):
            if label is not None:
                chance = logit.sigmoid()
                losses.append(-label * chance.log() - (1 - label) * (1 - chance).log())
    assert len(losses) == 6
    expected = torch.stack(losses).sum() / 6
    expected.backward()
    want = {name: weight.grad for name, weight in twin.named_parameters()}
    loss, scores, labels = process_reward_model_gradient(model, rows, budget)
    assert loss == pytest.approx(expected.item(), abs=1e-6)
    assert len(scores) == len(labels) == 6
    for name, weight in model.trainable():
        torch.testing.assert_close(weight.grad.double(), want[name], rtol=1e-3, atol=1e-6)


def recipe(start: Path, folder: Path, **more: Any) -> ProcessRewardModelRecipe:
    table = {
        "algorithm": "process_reward_model", "run": {"directory": str(folder / "run"), "num_steps": 12},
        "model": {"path": str(start), "device": "cpu"}, "optimizer": {"lr": 3e-3},
        "data": {"path": str(folder / "steps.jsonl"), "held_out": str(folder / "held_out.jsonl")},
        "process_reward_model": {"rows_per_step": 4, **more},
    }  # fmt: skip
    return parse(ProcessRewardModelRecipe, table, source="test")


def write(folder: Path, **changes: Any) -> None:
    rows = [
        StepRow("q", ("right ", "wrong " if bad else "right ", "end"), (1.0, float(not bad), float(not bad)))
        for bad in (True, False)
    ]
    for name, changed in {"steps": changes, "held_out": {"problem": "another"}}.items():
        text = "\n".join(json.dumps({**row.record(), **changed}) for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def test_a_run_learns_which_steps_are_wrong(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    wanted = recipe(start, tmp_path)
    console = Console(record=True, width=200)
    monkeypatch.setattr("groupwise.cli.train.console", console)
    reports, show = list[Any](), show_reports(wanted)
    train_process_reward_model(wanted, False, lambda report: (reports.append(report), show(report)))
    assert reports[-2].loss < reports[0].loss == pytest.approx(0.6931, abs=1e-3)
    assert reports[-1].auc > 0.9
    shown = console.export_text()
    assert "step     0  loss 0.6931" in shown
    assert "held out after 12 steps: loss 0." in shown
    [newest] = (tmp_path / "run" / "checkpoints").glob("step-*")
    saved = load_reward_model(ModelConfig(path=str(newest), device="cpu"))
    assert saved.tokenizer.init_kwargs[READS_CHAT] is False
    row = encode_steps(saved, StepRow("q", ("right ", "wrong ", "end"), (1.0, 0.0, 0.0)))
    first, second, _ = score_rows(saved, [row])[0]
    assert first > second


def test_rows_that_cannot_be_learnt_from_are_named(model: RewardModel, start: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row that begins 'long'"):
        encode_steps(model, StepRow("long", ("a" * 10_000,), (1.0,)))
    write(tmp_path, split="dev")
    with pytest.raises(DataError, match="of the dev split"):
        train_process_reward_model(recipe(start, tmp_path), False, print)
    assert not (tmp_path / "run").exists()  # before anything is made
    write(tmp_path, labels=[1.0, 1.0, None])
    with pytest.raises(DataError, match="no last step has a label"):
        train_process_reward_model(recipe(start, tmp_path, supervision="outcome"), False, print)
    write(tmp_path, rendered=True)  # and not those that are measured
    with pytest.raises(DataError, match="a chat template wrote some prompts and not others"):
        train_process_reward_model(recipe(start, tmp_path), False, print)
    write(tmp_path, labels=[None] * 3, problem="another")
    (tmp_path / "steps.jsonl").rename(tmp_path / "measured.jsonl")
    write(tmp_path)
    chosen = recipe(start, tmp_path).with_changes({"data.held_out": f"{tmp_path}/measured.jsonl"})
    with pytest.raises(DataError, match=r"measured.jsonl: no step has a label"):
        train_process_reward_model(chosen, False, print)
    chosen = recipe(start, tmp_path).with_changes({"data.held_out": f"{tmp_path}/steps.jsonl"})
    with pytest.raises(DataError, match=r"steps.jsonl share 1 problems .*: what is learnt is no measure"):
        train_process_reward_model(chosen, False, print)


def log_ratio(eager: Any, own: Policy, reference: Policy, row: EncodedSteps, end: int) -> tuple[Any, torch.Tensor]:
    """Σ log π/π_ref of the first tokens, by eager forwards of the one sequence in float64."""
    model, logprobs, _ = eager(own, [(row.prompt, row.completion[:end])])
    _, other, _ = eager(reference, [(row.prompt, row.completion[:end])])
    return model, (logprobs - other.detach()).sum()


def test_an_implicit_score_is_the_log_ratio_up_to_the_step(
    tiny_policy: Callable[..., Policy], eager_logprobs: Any
) -> None:
    own, reference = tiny_policy(seed=1), tiny_policy(seed=2)
    model = ImplicitRewardModel(own, reference.freeze(), 0.02)
    rows = [encode_steps(model, row) for row in ROWS]
    for row, scores in zip(rows, score_rows(model, rows), strict=True):
        ratios = [log_ratio(eager_logprobs, own, reference, row, end)[1] for end in row.ends]
        expected = [(0.02 * ratio).sigmoid().item() for ratio in ratios]
        assert scores == pytest.approx(expected, abs=1e-5)


def test_its_gradient_is_that_of_the_cross_entropy_of_outcomes(
    tiny_policy: Callable[..., Policy], eager_logprobs: Any
) -> None:
    own, reference = tiny_policy(seed=1), tiny_policy(seed=2)
    model = ImplicitRewardModel(own, reference.freeze(), 0.02)
    rows = [encode_steps(model, row, "implicit") for row in ROWS]
    assert [row.labels[-1] for row in rows] == [0.7, 0.0, 1.0]
    want: dict[str, torch.Tensor] = {}
    total = 0.0
    for row in rows:
        twin, ratio = log_ratio(eager_logprobs, own, reference, row, len(row.completion))
        chance, label = (0.02 * ratio).sigmoid(), row.labels[-1]
        assert label is not None
        loss = -(label * chance.log() + (1 - label) * (1 - chance).log()) / 3
        loss.backward()
        total += loss.item()
        for name, weight in twin.named_parameters():
            want[name] = want.get(name, 0.0) + weight.grad
    loss, _, _ = process_reward_model_gradient(model, rows, 40)
    assert loss == pytest.approx(total, abs=1e-5)
    for name, weight in model.trainable():
        torch.testing.assert_close(weight.grad.double(), want[name], rtol=1e-3, atol=1e-5)


def test_an_implicit_one_learns_and_is_read_back_with_its_reference(start: Path, tmp_path: Path) -> None:
    write(tmp_path)
    reports: list[Any] = []
    train_process_reward_model(recipe(start, tmp_path, supervision="implicit", beta=0.5), False, reports.append)
    assert reports[-2].loss < reports[0].loss == pytest.approx(0.6931, abs=1e-3)
    [newest] = (tmp_path / "run" / "checkpoints").glob("step-*")
    found = evaluate_steps(newest, tmp_path / "steps.jsonl", reference=str(start), beta=0.5)
    assert found.auc == pytest.approx(reports[-1].auc, abs=1e-6)
    with pytest.raises(ModelError, match="is a language model, not a reward model"):
        evaluate_steps(newest, tmp_path / "steps.jsonl")
    with pytest.raises(ConfigError, match="has no effect here"):
        recipe(start, tmp_path, beta=0.2)


def test_a_tenth_of_a_step_is_replayed_and_every_row_has_its_turn() -> None:
    new, old = ([EncodedSteps([1], [kind, i], [2], [1.0]) for i in range(20)] for kind in (7, 8))
    tables = {"run": {"directory": "x", "num_steps": 9}, "process_reward_model": {"rows_per_step": 20}}
    recipe = parse(ProcessRewardModelRecipe, {**tables, "data": {"path": "new", "replay": "old"}})
    steps = [step_rows(new, old, recipe, number) for number in range(10)]
    assert [sum(row.completion[0] == 8 for row in rows) for rows in steps] == [2] * 10
    seen = [row.completion[1] for rows in steps for row in rows if row.completion[0] == 8]
    assert sorted(seen) == list(range(20))
    with pytest.raises(ConfigError, match=r"rows_per_step = 5 leaves data\.replay no row"):
        recipe.with_changes(["process_reward_model.rows_per_step=5"])
    alone = parse(ProcessRewardModelRecipe, {**tables, "data": {"path": "new"}})
    assert sorted(row.completion[1] for row in step_rows(new, [], alone, 3)) == list(range(20))
