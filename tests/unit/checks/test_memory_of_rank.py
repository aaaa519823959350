"""Weights of large models among many ranks: what FSDP2 itself puts where, on no memory at all, beside the plan's count.

The models are built without numbers (device "meta"), and the ranks are a process group that sends nothing.
"""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM

from groupwise.checks import memory
from groupwise.checks.memory import REHEARSAL, plan, plan_of_rank
from groupwise.config import parse
from groupwise.config.schema import resolve
from groupwise.errors import ConfigError
from groupwise.models.activations import layers_of
from groupwise.models.size import language_model_size
from groupwise.ranks.group import RANKS
from groupwise.ranks.sharding import shard
from groupwise.trainers.grpo import GrpoRecipe
from groupwise.trainers.ppo import PpoRecipe

AsRank = Callable[[int, int], AbstractContextManager[None]]
SHAPES: dict[str, dict[str, Any]] = {
    "Qwen2.5-0.5B": {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "Qwen3-8B": {
        "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288,
        "vocab_size": 151936, "tie_word_embeddings": False,
    },
    "Llama-3-8B": {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
        "tie_word_embeddings": False,
    },
}  # fmt: skip
KNOWN = {"Qwen2.5-0.5B": 494_032_768, "Qwen3-8B": 8_190_735_360, "Llama-3-8B": 8_030_261_248}
"""Numbers of weights that the model cards say."""


@pytest.fixture(params=SHAPES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A directory with the configuration of a model, named after it."""
    directory = tmp_path / str(request.param)
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(SHAPES[request.param]))
    return str(directory)


class Causal(nn.Module):
    """A root module, as those of policies are."""

    def __init__(self, path: str) -> None:
        super().__init__()
        with torch.device("meta"):
            self.model: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(resolve(path)))

    def forward(self) -> None:
        """Never called."""


def sharded(path: str) -> Causal:
    root = Causal(path)
    shard(root, layers_of(root.model), (), torch.device("cpu"))
    return root


def rows_here(root: nn.Module) -> dict[str, torch.Size]:
    found: dict[str, torch.Size] = {}
    for name, weight in root.named_parameters():
        assert isinstance(weight, DTensor)
        assert [placement.is_shard(0) for placement in weight.placements] == [True]
        found[name] = weight.to_local().shape
    return found


def units(root: nn.Module) -> list[int]:
    """Weights that are gathered together: the root's first, then those of every layer."""
    groups = [unit._get_fsdp_state()._fsdp_param_group for unit in root.modules() if isinstance(unit, FSDPModule)]
    return [sum(one._orig_size.numel() for one in group.fsdp_params) for group in groups if group is not None]


@pytest.mark.parametrize("ranks", [8, 64])
def test_every_rank_has_its_rows_and_the_plan_says_how_many(
    path: str, ranks: int, as_rank: AsRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = language_model_size(path)
    assert size.total == KNOWN[Path(path).name]
    here: list[dict[str, torch.Size]] = []
    for rank in (0, ranks - 1):
        with as_rank(ranks, rank):
            root = sharded(path)
            here.append(rows_here(root))
            found = units(root)
    whole = {f"model.{name}": weight.shape for name, weight in Causal(path).model.named_parameters()}
    assert here[0].keys() == whole.keys()  # a tied head is there once
    for name, shape in whole.items():
        assert here[0][name] == (-(-shape[0] // ranks), *shape[1:])
        assert here[1][name][0] <= here[0][name][0]
    assert found[0] == size.outside
    assert set(found[1:]) == {size.layer}
    assert sum(found) == size.total
    first = sum(shape.numel() for shape in here[0].values())
    found_plan = plan_of_rank(recipe(path), ranks=ranks)
    assert found_plan.weights["policy"] == pytest.approx(4 * first, rel=1e-6)
    assert found_plan.weights["optimizer"] == pytest.approx(8 * first, rel=1e-6)
    assert found_plan.training["gradients"] == pytest.approx(4 * first, rel=1e-6)
    assert found_plan.training["gathered weights"] == 4 * (found[0] + 2 * found[1])
    assert found_plan.sampling["gathered weights"] == 4 * size.total
    monkeypatch.setattr(memory, "device_of", lambda model: "cuda")
    elsewhere = plan_of_rank(recipe(path, "ranks.offload=true"), ranks=ranks)
    assert elsewhere.offloaded.keys() == {"policy", "optimizer", "gradients"}
    assert sum(elsewhere.offloaded.values()) == pytest.approx(16 * first, rel=1e-6)


@pytest.mark.parametrize("offloads", [False, True])
def test_the_setting_reaches_every_unit(offloads: bool, monkeypatch: pytest.MonkeyPatch, as_rank: AsRank) -> None:
    monkeypatch.setattr(RANKS, "offloads", offloads)
    with as_rank(8, 3):
        root = sharded("base")
        groups = [unit._get_fsdp_state()._fsdp_param_group for unit in root.modules() if isinstance(unit, FSDPModule)]
        assert [isinstance(group.offload_policy, CPUOffloadPolicy) for group in groups if group] == [offloads] * (
            1 + language_model_size("base").num_layers
        )
        assert len(rows_here(root)) == len(language_model_size("base").shapes)


def recipe(path: str, *overrides: str, kind: Any = GrpoRecipe) -> Any:
    values = {
        "run": {"directory": "unused", "num_steps": 1}, "task": {"kind": "arithmetic"},
        kind.model_fields["algorithm"].default: {"prompts_per_step": 64, "group_size": 8},
        "model": {"path": path, "device": "cpu"},
    }  # fmt: skip
    return parse(kind, values, overrides)


def test_one_rank_is_one_process() -> None:
    one = recipe("base")
    assert plan_of_rank(one, 32, 1) == plan(one, 32)


@pytest.mark.parametrize("kind", [GrpoRecipe, PpoRecipe])
def test_ranks_share_what_stays_and_what_they_compute(kind: Any) -> None:
    one = recipe("base", "loss.kl_coef=0.1", kind=kind)
    alone, two, four = (plan_of_rank(one, 64, ranks) for ranks in (1, 2, 4))
    for name, part in alone.weights.items():
        assert two.weights[name] == pytest.approx(part / 2, rel=0.01), name
        assert four.weights[name] == pytest.approx(part / 4, rel=0.01), name
    assert four.sampling["keys and values"] < 0.6 * two.sampling["keys and values"]


def test_of_servers_the_first_rank_holds_everything_and_its_rows_while_they_rehearse() -> None:
    one = recipe("base", "engine.kind=vllm", "engine.launch=1")
    alone, two = (plan_of_rank(one, 64, ranks) for ranks in (1, 2))
    for name in ("servers' weights", "servers' keys and values"):
        assert two.weights[name] == alone.weights[name]
    assert two.sampling[REHEARSAL] == pytest.approx(alone.sampling[REHEARSAL] / 2, rel=0.01)


def test_a_rank_that_waits_with_its_sums_holds_the_whole_gradient() -> None:
    at_once, later = (plan_of_rank(recipe("base", f"ranks.partial_sums={sums}"), 64, 2) for sums in (2, 4))
    assert "gradients not yet added up" not in at_once.training
    assert later.training["gradients not yet added up"] == 4 * language_model_size("base").total


def test_of_adapters_little_is_shared_and_sent() -> None:
    whole, adapted = recipe("base"), recipe("base", "lora.rank=8")
    alone, two = (plan_of_rank(adapted, 64, ranks) for ranks in (1, 2))
    assert two.weights["adapters"] == pytest.approx(alone.weights["adapters"] / 2, rel=0.01)
    assert two.weights["policy"] == plan_of_rank(whole, 64, 2).weights["policy"]
    assert two.training["gathered weights"] == plan_of_rank(whole, 64, 2).training["gathered weights"]
    num_layers = language_model_size("base").num_layers
    assert two.training["gradients on their way"] == 2 * alone.training["gradients"] // num_layers


def test_what_pays_a_part_of_the_reward_is_whole_on_every_rank(reward_model: Callable[[], str]) -> None:
    one = recipe("base", f"reward_models.mine.path={reward_model()}")
    alone, two = (plan_of_rank(one, 64, ranks) for ranks in (1, 2))
    assert two.weights["reward model mine"] == alone.weights["reward model mine"]


@pytest.fixture
def reward_model(tmp_path: Path) -> Callable[[], str]:
    def make() -> str:
        config = SHAPES["Qwen2.5-0.5B"] | {"architectures": ["Qwen2ForSequenceClassification"], "num_labels": 1}
        (tmp_path / "config.json").write_text(json.dumps(config))
        return str(tmp_path)

    return make


@pytest.mark.parametrize("engine", [(), ("engine.kind=vllm", "engine.launch=1")])
def test_rows_that_are_offloaded_leave_the_card(engine: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "device_of", lambda model: "cuda")
    settings = ("loss.kl_coef=0.1", *engine)
    here, there = (plan_of_rank(recipe("base", *settings, *more), 64, 2) for more in ((), ("ranks.offload=true",)))
    rows = {name: here.weights[name] for name in ("policy", "optimizer", "reference")}
    rows |= {"gradients": here.training["gradients"]}
    if engine:
        rows |= {name: here.sampling[name] for name in ("gathered weights", REHEARSAL)}
    assert there.offloaded == rows
    for phase in ("weights", "sampling", "training"):
        assert getattr(there, phase).keys() <= getattr(here, phase).keys()
    assert there.training["gathered weights"] == here.training["gathered weights"]
    assert ("gathered weights" in there.sampling) == (not engine)
    assert here.offloaded == {}
    assert there.peak < here.peak


def test_on_processors_offloaded_rows_stay_where_they_are() -> None:
    plain, offloaded = (plan_of_rank(recipe("base", *more), 64, 2) for more in ((), ("ranks.offload=true",)))
    assert offloaded == plain


@pytest.mark.parametrize(
    ("overrides", "ranks", "said"),
    [
        (("ranks.offload=true",), 1, r"ranks\.offload = true is for several ranks, and this is one process"),
        (("model.compute_dtype=bfloat16", "model.weights_dtype=bfloat16"), 2, 'weights_dtype = "bfloat16"'),
        ((), 65, r"65 ranks are more than grpo\.prompts_per_step = 64"),
    ],
)
def test_what_ranks_cannot_do_is_said_by_the_plan_too(overrides: tuple[str, ...], ranks: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_of_rank(recipe("base", *overrides), 64, ranks)
