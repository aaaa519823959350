"""Optimizers: first steps by hand, schedules, clipping, refusal of broken gradients, going on from saved moments."""

import math
from itertools import pairwise
from typing import Any, Literal

import pytest
import torch

from groupwise.errors import ConfigError, InvariantError
from groupwise.ranks.group import RANKS
from groupwise.training.optimizer import Optimizer, OptimizerConfig, learning_rate_share


def small_model() -> torch.nn.Module:
    model = torch.nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.arange(6.0).view(2, 3) - 2.5)
        model.bias.copy_(torch.tensor([0.5, -0.5]))
    return model


def set_gradient(model: torch.nn.Module, seed: int, scale: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = scale * torch.randn(parameter.shape, generator=generator)


def test_three_steps_by_hand() -> None:
    model = small_model()
    config = OptimizerConfig(lr=0.1, betas=(0.8, 0.9), eps=1e-8, weight_decay=0.5, max_grad_norm=0)
    optimizer = Optimizer(model.named_parameters(), config, num_steps=10)
    expected = {name: p.detach().clone() for name, p in model.named_parameters()}
    mean = {name: torch.zeros_like(p) for name, p in expected.items()}
    square = {name: torch.zeros_like(p) for name, p in expected.items()}
    for step in range(3):
        set_gradient(model, step)
        for name, parameter in model.named_parameters():
            g = parameter.grad
            mean[name] = 0.8 * mean[name] + 0.2 * g
            square[name] = 0.9 * square[name] + 0.1 * g * g
            direction = mean[name] / (1 - 0.8 ** (step + 1)) / ((square[name] / (1 - 0.9 ** (step + 1))).sqrt() + 1e-8)
            decay = 0.5 if name == "weight" else 0.0  # vectors are never decayed
            expected[name] = expected[name] * (1 - 0.1 * decay) - 0.1 * direction
        optimizer.update(step)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.detach(), expected[name], atol=1e-6, rtol=1e-5)
            assert parameter.grad is None
    assert optimizer.updates_done == 3


def shares(num_steps: int, **config: Any) -> list[float]:
    return [learning_rate_share(OptimizerConfig(**config), step, num_steps) for step in range(num_steps)]


def test_warm_up_rises_linearly_and_reaches_the_peak() -> None:
    assert shares(6, warmup_steps=4) == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


def test_a_constant_rate_has_no_final_share() -> None:
    assert shares(3) == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match=r"final_lr_share = 0\.1 has no effect here: .* a schedule that falls"):
        shares(3, final_lr_share=0.1)


def test_steps_are_those_of_deepseekmath() -> None:
    """2,000 steps of warm-up, then the peak; 31.6 % of it from 80 % of the steps on, 10 % from 90 % on."""
    found = shares(20, schedule="steps", warmup_steps=4)
    assert found == pytest.approx([0.25, 0.5, 0.75] + [1.0] * 13 + [0.316] * 2 + [0.1] * 2)
    assert shares(4, schedule="steps", drops=((0.5, 0.2),)) == [1, 1, 0.2, 0.2]


@pytest.mark.parametrize("drops", [((0.9, 0.1), (0.8, 0.3)), ((0.5, 1.5),), ((0.5, 0.2), (0.5, 0.1))])
def test_drops_that_are_none_are_refused(drops: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match="allowed are pairs of shares from 0 to 1, the first ones rising"):
        OptimizerConfig(schedule="steps", drops=drops)
    with pytest.raises(ValueError, match=r"drops = .* has no effect here"):
        OptimizerConfig(schedule="cosine", drops=((0.5, 0.2),))


def test_linear_decay_falls_in_equal_parts() -> None:
    found = shares(8, schedule="linear", warmup_steps=2)
    assert found[:3] == pytest.approx([0.5, 1.0, 1.0])
    steps = [a - b for a, b in pairwise(found[2:])]
    assert steps == pytest.approx([steps[0]] * 5)
    assert steps[0] > 0.1


def test_cosine_decay_is_half_way_down_at_half_time() -> None:
    found = shares(1000, schedule="cosine", final_lr_share=0.2)
    assert found[0] == 1.0
    assert found[500] == pytest.approx(0.6, abs=2e-3)
    assert found[250] == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2, abs=2e-3)
    assert all(a > b for a, b in pairwise(found))


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("num_steps", [5, 100])
def test_the_step_after_the_last_would_have_the_final_share(schedule: str, num_steps: int) -> None:
    config = OptimizerConfig(schedule=schedule, final_lr_share=0.25)  # type: ignore[arg-type]
    assert learning_rate_share(config, num_steps, num_steps) == pytest.approx(0.25)
    assert learning_rate_share(config, num_steps - 1, num_steps) > 0.25


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_no_step_has_a_rate_of_zero(schedule: str) -> None:
    assert all(0 < share <= 1 for share in shares(7, schedule=schedule, warmup_steps=3))


def test_a_warm_up_longer_than_the_run_is_no_division_by_zero() -> None:
    assert shares(2, warmup_steps=4, schedule="linear") == pytest.approx([0.25, 0.5])


def test_the_rate_of_a_step_is_used_in_that_step() -> None:
    model = small_model()
    optimizer = Optimizer(
        model.named_parameters(), OptimizerConfig(lr=0.1, warmup_steps=4, eps=1e-12, max_grad_norm=0), num_steps=10
    )
    assert [optimizer.lr(step) for step in range(5)] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1])
    before = model.weight.detach().clone()
    set_gradient(model, 0)
    optimizer.update(1)
    # AdamW's first step has the size of the rate
    torch.testing.assert_close((model.weight - before).abs(), torch.full((2, 3), 0.05), atol=1e-5, rtol=0)


def test_the_norm_is_reported_before_clipping_and_cut_to_the_limit() -> None:
    model = small_model()
    optimizer = Optimizer(
        model.named_parameters(), OptimizerConfig(lr=1.0, betas=(0.0, 0.0), eps=1e6, max_grad_norm=0.5), num_steps=1
    )
    set_gradient(model, 0, scale=10)
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    before = torch.cat([p.detach().flatten().clone() for p in model.parameters()]).double()
    assert optimizer.update(0) == pytest.approx(gradient.norm().item(), rel=1e-5)
    # with so large an eps the step is the clipped gradient over eps; the moments keep the clipped gradient
    moments = torch.cat([state["exp_avg"].flatten() for state in optimizer.optimizers[0].state.values()])
    assert moments.norm().item() == pytest.approx(0.5, rel=1e-4)
    torch.testing.assert_close(moments / moments.norm(), gradient / gradient.norm(), atol=1e-5, rtol=0)
    assert (torch.cat([p.detach().flatten() for p in model.parameters()]).double() - before).abs().max() < 1e-5


@pytest.mark.parametrize("limit", [0, 1e6])
def test_a_gradient_below_the_limit_is_left_alone(limit: float) -> None:
    model = small_model()
    optimizer = Optimizer(
        model.named_parameters(), OptimizerConfig(lr=0.1, betas=(0.0, 0.0), max_grad_norm=limit), num_steps=1
    )
    set_gradient(model, 0)
    gradient = torch.cat([p.grad.flatten().clone() for p in model.parameters()])
    optimizer.update(0)
    moments = torch.cat([state["exp_avg"].flatten() for state in optimizer.optimizers[0].state.values()])
    torch.testing.assert_close(moments, gradient)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("limit", [0.0, 1.0])
def test_a_gradient_that_is_not_finite_changes_nothing(value: float, limit: float) -> None:
    model = small_model()
    optimizer = Optimizer(model.named_parameters(), OptimizerConfig(lr=0.1, max_grad_norm=limit), num_steps=2)
    set_gradient(model, 0)
    optimizer.update(0)
    weights = [p.detach().clone() for p in model.parameters()]
    moments = optimizer.state()
    moments = {name: tensor.clone() for name, tensor in moments.items()}
    set_gradient(model, 1)
    model.weight.grad[1, 1] = value
    with pytest.raises(InvariantError, match=r"norm of the gradient is .* the weights are unchanged"):
        optimizer.update(1)
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    assert all(torch.equal(tensor, moments[name]) for name, tensor in optimizer.state().items())
    assert optimizer.updates_done == 1


def test_frozen_parameters_are_left_out() -> None:
    model = small_model()
    model.bias.requires_grad_(False)
    optimizer = Optimizer(model.named_parameters(), OptimizerConfig(lr=0.1, weight_decay=0.1), num_steps=1)
    before = model.bias.clone()
    model.weight.grad = torch.ones(2, 3)
    optimizer.update(0)
    assert torch.equal(model.bias, before)


class Layered(torch.nn.Module):
    """A matrix of a layer, an embedding of as many numbers, and a vector of the layer."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(size, size)])
        self.embedding = torch.nn.Embedding(size, size)

    def named(self) -> list[tuple[str, torch.Tensor]]:
        return [(f"model.{name}", parameter) for name, parameter in self.named_parameters()]


def test_muon_by_hand() -> None:
    """Orthogonal rows of one length stay so: their singular values, 1/2 after division by the norm, go five times
    through 3.4445 s - 4.775 s^3 + 2.0315 s^5; the step is 0.2 sqrt(4) times as long (2502.16982, eq. 4)."""
    model, s = Layered(), 0.5
    for _ in range(5):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    rows = torch.tensor([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
    config = OptimizerConfig(kind="muon", lr=0.1, eps=1e-12, weight_decay=0.5, max_grad_norm=0)
    optimizer = Optimizer(model.named(), config, 1)
    before = {name: parameter.detach().clone() for name, parameter in model.named()}
    for _, parameter in model.named():
        parameter.grad = 3 * rows if parameter.ndim == 2 else rows[1].clone()
    optimizer.update(0)
    steps = {name: parameter.detach() - before[name] for name, parameter in model.named()}
    matrix, embedding = "model.layers.0.weight", "model.embedding.weight"
    orthogonal = steps[matrix] + 0.1 * 0.5 * before[matrix]
    torch.testing.assert_close(orthogonal, -0.1 * 0.2 * 2 * s * rows / 2, atol=0, rtol=0.1)  # it multiplies in bf16
    torch.testing.assert_close(steps[embedding], -0.1 * rows - 0.1 * 0.5 * before[embedding], atol=1e-5, rtol=0)
    torch.testing.assert_close(steps["model.layers.0.bias"], -0.1 * rows[1], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "shape", "is_orthogonal", "decay"),
    [
        ("model.layers.0.mlp.up_proj.weight", (4, 2), True, 0.5),
        ("transformer.h.0.attn.c_attn.weight", (4, 2), True, 0.5),  # GPT-2
        ("model.layers.0.mlp.experts.gate_up_proj", (3, 4, 2), False, 0.5),
        ("model.layers.0.mlp.experts.gate_up_proj_bias", (3, 4), False, 0.0),  # gpt-oss: a bias of each expert
        ("transformer.wte.weight", (4, 2), False, 0.5),
        ("model.layers.0.input_layernorm.weight", (4,), False, 0.0),
    ],
)
def test_weights_go_to_muon_and_decay_by_what_they_are(
    name: str, shape: tuple[int, ...], is_orthogonal: bool, decay: float
) -> None:
    weights = [(name, torch.nn.Parameter(torch.ones(shape)))]
    for kind, expected in (("muon", torch.optim.Muon if is_orthogonal else torch.optim.AdamW), ("adamw", None)):
        config = OptimizerConfig.model_validate({"kind": kind, "weight_decay": 0.5})
        [optimizer] = Optimizer(weights, config, 1).optimizers
        assert type(optimizer) is (expected or torch.optim.AdamW)
        assert [group["weight_decay"] for group in optimizer.param_groups] == [decay]


def test_eight_bits_follow_adamw() -> None:
    """A step of the library's is within the grid of its moments of fp32's, and they take a quarter of the memory."""
    pytest.importorskip("bitsandbytes")
    models = [Layered(64), Layered(64)]
    models[1].load_state_dict(models[0].state_dict())
    kinds: tuple[Literal["adamw", "adamw_8bit"], ...] = ("adamw", "adamw_8bit")
    both = [
        Optimizer(model.named(), OptimizerConfig(kind=kind, lr=0.01), 3)
        for model, kind in zip(models, kinds, strict=True)
    ]
    before = models[0].layers[0].weight.detach().clone()
    for step in range(3):
        for model, optimizer in zip(models, both, strict=True):
            set_gradient(model, step)
            optimizer.update(step)
    exact, coarse = (model.layers[0].weight.detach() - before for model in models)
    assert torch.nn.functional.cosine_similarity(exact.flatten(), coarse.flatten(), dim=0) > 0.98
    sizes = [sum(t.nbytes for name, t in o.state().items() if "qmap" not in name) for o in both]
    assert sizes[1] < 0.3 * sizes[0]


def test_a_large_weight_steps_in_pieces_as_it_would_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bitsandbytes")
    models = [Layered(72), Layered(72)]  # 5,184 numbers: the last piece of 512 is cut short, and so is a block
    models[1].load_state_dict(models[0].state_dict())
    both = [Optimizer(m.named(), OptimizerConfig(kind="adamw_8bit", lr=0.01, weight_decay=0.1), 3) for m in models]
    for step in range(3):
        for model, optimizer, piece in zip(models, both, (1 << 22, 512), strict=True):
            monkeypatch.setattr("groupwise.training.optimizer.PIECE", piece)
            set_gradient(model, step)
            optimizer.update(step)
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))
    whole, pieces = (optimizer.state() for optimizer in both)
    assert whole.keys() == pieces.keys()
    assert all(torch.equal(whole[name], pieces[name]) for name in whole)


@pytest.mark.parametrize("kind", ["adamw_8bit", "muon"])
def test_what_needs_whole_matrices_is_refused_with_ranks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RANKS, "size", 2)
    with pytest.raises(ConfigError, match=rf'optimizer.kind = "{kind}" works on whole matrices'):
        Optimizer(Layered().named(), OptimizerConfig(kind=kind), 1)


@pytest.mark.parametrize("kind", ["adamw", "adamw_8bit", "muon"])
def test_saved_moments_go_on_exactly(kind: str) -> None:
    if kind == "adamw_8bit":
        pytest.importorskip("bitsandbytes")
    config = OptimizerConfig(kind=kind, lr=0.1, schedule="cosine", warmup_steps=2, weight_decay=0.1)
    whole, first = Layered(64), Layered(64)
    first.load_state_dict(whole.state_dict())
    optimizer, half = Optimizer(whole.named(), config, 6), Optimizer(first.named(), config, 6)
    for step in range(3):
        for model, one in ((whole, optimizer), (first, half)):
            set_gradient(model, step)
            one.update(step)
    second = Layered(64)
    second.load_state_dict(first.state_dict())
    resumed = Optimizer(second.named(), config, 6)
    resumed.load_state({name: tensor.clone() for name, tensor in half.state().items()}, half.updates_done)
    for step in range(3, 6):
        for model, one in ((whole, optimizer), (second, resumed)):
            set_gradient(model, step)
            one.update(step)
        assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), second.parameters(), strict=True))
    assert resumed.updates_done == 6
    without = Optimizer(second.named(), config, 6)
    set_gradient(second, 9)
    set_gradient(whole, 9)
    without.update(1)
    optimizer.update(1)
    assert not torch.equal(whole.layers[0].weight, second.layers[0].weight)  # the moments do matter


def test_an_optimizer_that_has_not_stepped_has_no_moments() -> None:
    model = small_model()
    optimizer = Optimizer(model.named_parameters(), OptimizerConfig(), 1)
    assert optimizer.state() == {}
    optimizer.load_state({}, 0)
    set_gradient(model, 0)
    optimizer.update(0)


@pytest.mark.parametrize(
    "values",
    [
        {"lr": -1.0},
        {"eps": -1e-8},
        {"betas": (0.9, 1.5)},
        {"warmup_steps": -1},
        {"max_grad_norm": -1.0},
        {"weight_decay": -0.1},
    ],
    ids=str,
)
def test_impossible_values_are_refused_when_the_recipe_is_read(values: dict[str, Any]) -> None:
    from groupwise.config import parse
    from groupwise.errors import ConfigError

    with pytest.raises(ConfigError, match=next(iter(values))):
        parse(OptimizerConfig, values)
