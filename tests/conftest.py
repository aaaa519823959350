"""Tiny policies with random weights, made on the spot, and the slow computations that the fast ones must equal.

torch and transformers are imported where they are used: the process that hands the tests out to others reads this file
too, and needs neither.
"""

from __future__ import annotations

import copy
import gc
import logging
import os
import sys
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from groupwise.models.policy import Policy

os.environ["COLUMNS"] = "250"  # paths of temporary folders are long, and tables of the command line must not cut them
if settings.get_current_profile_name() == "default":  # one that was chosen stays
    slow = [HealthCheck.too_slow]  # no health check, and the same examples on every machine, slow or fast
    settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=slow)
    settings.load_profile("steady")


@pytest.fixture(scope="session", autouse=True)
def one_quiet_thread() -> None:
    """Several processes run tests at one time, and what transformers says is no result of a test."""
    import torch

    from groupwise.models.loading import quiet_transformers

    torch.set_num_threads(1)
    quiet_transformers()
    logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk() -> Generator[None]:
    """What was written outlives a process that is killed; no test stops the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which refuses what is not open, too
        yield


@pytest.fixture(scope="session", autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test is told of the runs of others that go on on this machine."""
    os.environ["XDG_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("runtime"))


@pytest.fixture(scope="session", autouse=True)
def few_servers() -> Generator[None]:
    """Workers that run the same function of the package come from one fork server: each imports the package anew."""
    from groupwise.verifiers import workers

    start, kept = workers.ForkServer, dict[tuple[Any, ...], Any]()
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)

    def server(command: Sequence[str], environment: dict[str, str], start_s: float) -> Any:
        if not (command[3].startswith("groupwise.") and environment["PYTHONPATH"].startswith(path)):
            return start(command, environment, start_s)
        same = environment | {"PYTEST_CURRENT_TEST": "", "PYTHONPATH": ""}  # behind the path: folders of loaded files
        key = (os.getcwd(), *command, *sorted(same.items()))
        if key not in kept or kept[key].fileno() < 0:  # closed after any trouble
            if len(kept) > 5:
                kept.clear()
            kept[key] = start(command, environment, start_s)
            kept[key].end = lambda: None
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "ForkServer", server)
        yield


def pytest_configure() -> None:
    gc.disable()  # what is imported and collected is millions of objects and no garbage


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--models", metavar="DIRECTORY", help="GGUF files of real models, for `-m real`")


@pytest.fixture(scope="module")
def policy() -> Policy:
    """The shipped model."""
    from groupwise.models.config import ModelConfig
    from groupwise.models.policy import load_policy

    return load_policy(ModelConfig(device="cpu"))


VOCABULARY = 263
"""Of the byte tokenizer: padding, end, 256 bytes, 5 tags."""


@pytest.fixture(scope="session")
def in_any_order() -> Callable[[Tensor], set[str]]:
    """in_any_order(loss) -> names of the operations in its graph that may round differently from run to run."""
    return _in_any_order


def _in_any_order(loss: Tensor) -> set[str]:
    """Operations of a graph whose backward adds in an order that differs from run to run on several CPU threads.

    Indexing with a tensor (`x[places]`) adds to equal places with atomics: (a + b) + c or a + (b + c), by chance.
    """
    found, waiting, seen = set(), [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found |= {node.name()} & {"IndexBackward0", "IndexPutBackward0", "PutBackward0"}
        waiting += [following for following, _ in node.next_functions]
    return found


@pytest.fixture(autouse=True)
def same_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """No gradient that a trainer takes, in any test, may depend on which thread came first."""
    import torch

    def checked(compute: Callable[..., Any]) -> Callable[..., Any]:
        def run(loss: Tensor, *args: Any, **options: Any) -> Any:
            if str(sys._getframe(1).f_globals.get("__name__")).startswith(("groupwise.train", "groupwise.models")):
                found = _in_any_order(loss)
                assert not found, f"a gradient would round differently from run to run: {found}"
            return compute(loss, *args, **options)

        return run

    monkeypatch.setattr(torch.Tensor, "backward", checked(torch.Tensor.backward))
    monkeypatch.setattr(torch.autograd, "grad", checked(torch.autograd.grad))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda":
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")
    return str(request.param)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    from groupwise.models.new_model import byte_tokenizer

    return byte_tokenizer()


def tiny_config(architecture: str, **changes: Any) -> Any:
    """Configuration of a model with two layers and a few thousand weights; `sliding_window` is off unless given."""
    from transformers import AutoConfig

    values = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 48,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
        "sliding_window": None,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": 1,
    }
    return AutoConfig.for_model(architecture, **(values | changes))


def spread_weights(model: torch.nn.Module, seed: int) -> None:
    """Weights so large that attention, norms and biases all matter; fresh ones give nearly uniform attention."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim < 2:
                parameter.add_(0.2 * noise)
            else:
                parameter.copy_(noise * (0.4 if "embed" in name else 1.5 * parameter.shape[1] ** -0.5))


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Any]:
    """make_model(architecture, seed=0, **config changes) -> a transformers model with random weights."""
    import torch
    from transformers import AutoModelForCausalLM

    def make(architecture: str = "qwen3", seed: int = 0, **changes: Any) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = AutoModelForCausalLM.from_config(tiny_config(architecture, **changes), dtype=torch.float32)
        spread_weights(model, seed)
        return model

    return make


@pytest.fixture(scope="session")
def tiny_policy(make_model: Callable[..., Any], tokenizer: Any) -> Callable[..., Policy]:
    """tiny_policy(architecture, device=..., seed=..., compute_dtype=..., **config changes) -> a policy."""
    from groupwise.models.config import ModelConfig
    from groupwise.models.policy import make_policy

    def make(
        architecture: str = "qwen3",
        *,
        device: str = "cpu",
        seed: int = 0,
        compute_dtype: str = "float32",
        **changes: Any,
    ) -> Policy:
        config = ModelConfig.model_validate({"device": device, "compute_dtype": compute_dtype})
        return make_policy(make_model(architecture, seed, **changes), tokenizer, config)

    return make


EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "tie_word_embeddings": False}
WITH_WINDOWS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3": ("gemma3_text", {"layer_types": ["sliding_attention", "full_attention"]}),
    "gemma2, with soft caps": (
        "gemma2",
        {"attn_logit_softcapping": 0.8, "final_logit_softcapping": 1.5, "query_pre_attn_scalar": 5},
    ),
    "gemma4, with fewer and wider heads where all is seen": (
        "gemma4_text",
        {
            "layer_types": ["sliding_attention", "full_attention"],
            "attention_k_eq_v": True,
            "global_head_dim": 16,
            "num_global_key_value_heads": 1,
            "hidden_size_per_layer_input": 0,
            "num_kv_shared_layers": 0,
        },
    ),
    "mistral": ("mistral", {}),
    "qwen2": ("qwen2", {"use_sliding_window": True, "max_window_layers": 1}),
    "qwen3": ("qwen3", {"use_sliding_window": True, "max_window_layers": 0}),
    "gpt-oss, with sinks and experts": (
        "gpt_oss",
        {**EXPERTS, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    ),
}


MIXTURE = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
MAMBA = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 16}
OTHER_LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_moe": ("qwen3_moe", MIXTURE),
    "mixtral": ("mixtral", MIXTURE),
    "lfm2": ("lfm2", {"layer_types": ["conv", "full_attention"], "conv_L_cache": 3}),
    "qwen3_next": ("qwen3_next", {**MIXTURE, **LINEAR, "shared_expert_intermediate_size": 24}),
    "qwen3.5": ("qwen3_5_text", LINEAR),
    "falcon_h1": ("falcon_h1", {**MAMBA, "mamba_n_groups": 1, "lm_head_multiplier": 0.5}),
    "cohere, with scaled logits": ("cohere", {"logit_scale": 0.25}),
    "granite, with scaled logits": ("granite", {"logits_scaling": 4.0}),
}


@pytest.fixture(params=OTHER_LAYERS.values(), ids=OTHER_LAYERS)
def other_layers(request: pytest.FixtureRequest) -> Any:
    """Architecture, and changes of its configuration, of a model with experts, states or scaled logits."""
    return request.param


@pytest.fixture(params=WITH_WINDOWS.values(), ids=WITH_WINDOWS)
def with_windows(request: pytest.FixtureRequest) -> Any:
    """Architecture, and changes of its configuration, of a model whose layers see `sliding_window` positions."""
    return request.param


@pytest.fixture(scope="session")
def eager_logits() -> Callable[[Policy, Sequence[Sequence[int]]], tuple[Any, Tensor]]:
    """The model in float64 with transformers' eager attention, and its logits (B, T, V) of right-padded sequences."""
    import torch

    def compute(policy: Policy, sequences: Sequence[Sequence[int]]) -> tuple[Any, Tensor]:
        model = copy.deepcopy(policy.model).double()
        model.set_attn_implementation("eager")
        if hasattr(model.config, "num_local_experts"):
            model.set_experts_implementation("eager")  # the other way has no float64
        kinds = set(getattr(model.config, "layer_types", None) or ())
        # padding whose window holds padding alone would be NaN, and in front of a state it would change it
        if getattr(model.config, "sliding_window", None) or kinds - {"full_attention"}:
            alone = [model(torch.tensor([list(s)], device=policy.device), use_cache=False).logits[0] for s in sequences]
            return model, torch.nn.utils.rnn.pad_sequence(alone, batch_first=True)
        rows = torch.nn.utils.rnn.pad_sequence([torch.tensor(list(s)) for s in sequences], batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence(
            [torch.ones(len(s), dtype=torch.long) for s in sequences], batch_first=True
        )
        rows, mask = rows.to(policy.device), mask.to(policy.device)
        return model, model(rows, attention_mask=mask, use_cache=False).logits

    return compute


@pytest.fixture(scope="session")
def eager_logprobs(eager_logits: Any) -> Callable[..., tuple[Any, Tensor, Tensor]]:
    """(model, logprobs, entropy) of every completion token, each sequence computed on its own, in float64.

    `pairs` are (prompt, completion); the results are in their order and carry gradient to the returned model.
    """
    import torch

    def compute(
        policy: Policy, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float = 1.0
    ) -> tuple[Any, Tensor, Tensor]:
        model, logits = eager_logits(policy, [[*prompt, *completion] for prompt, completion in pairs])
        logprobs, entropies = [], []
        for row, (prompt, completion) in zip(logits, pairs, strict=True):
            steps = row[len(prompt) - 1 : len(prompt) - 1 + len(completion)] / temperature
            all_logprobs = steps.log_softmax(-1)
            targets = torch.tensor(list(completion), device=row.device)
            logprobs.append(all_logprobs.gather(1, targets[:, None])[:, 0])
            entropies.append(-(all_logprobs.exp() * all_logprobs).sum(-1))
        return model, torch.cat(logprobs), torch.cat(entropies)

    return compute
