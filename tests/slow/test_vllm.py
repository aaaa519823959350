"""vLLM's build for processors, as it is: what the fake server of the unit tests claims, shown on the real one.

`make vllm` makes the environment; VLLM_ENVIRONMENT may name another. A server starts once for the module.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.errors import InvariantError
from groupwise.models.checkpoint import changed_a_little, serving_weights
from groupwise.models.config import LoraConfig, ModelConfig
from groupwise.models.policy import Policy, load_policy, start_policy
from groupwise.randomness import key
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tool_rounds import generate_with_tools
from groupwise.rollout.tools.calculator import Calculator
from groupwise.rollout.vllm import engine, launch
from groupwise.rollout.vllm.canary import trainer_logprobs
from groupwise.rollout.vllm.config import VllmConfig
from groupwise.rollout.vllm.engine import VllmEngine
from groupwise.rollout.vllm.fleet import State
from groupwise.trainers import load_recipe, train
from groupwise.types import CallOutcome

ENVIRONMENT = Path(os.environ.get("VLLM_ENVIRONMENT", Path(__file__).parents[2] / ".venv-vllm"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (ENVIRONMENT / "bin" / "python").exists(), reason=f"{ENVIRONMENT} is not there: `make vllm` makes it"
    ),
]
SETTINGS: dict[str, Any] = {"kind": "vllm", "environment": str(ENVIRONMENT), "kv_cache_gib": 0.5, "start_s": 1200.0}
PROMPTS = [f"What is {a} + {b}?\n" for a in (12, 7, 30, 45, 81) for b in (5, 9)]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(ModelConfig(device="cpu"))


@pytest.fixture(scope="module")
def one(policy: Policy) -> Iterator[VllmEngine]:
    found = VllmEngine(VllmConfig.model_validate({**SETTINGS, "launch": 1}), policy)
    found.publish(policy, 0)
    yield found
    launch.end_all()


def requests(policy: Policy, size: int) -> list[Request]:
    encoded = [tuple(policy.tokenizer(prompt)["input_ids"]) for prompt in PROMPTS]
    return [Request(ids, tuple(key("vllm", ids[i % 3], i, k) for i in range(size))) for k, ids in enumerate(encoded)]


def sample(on: VllmEngine, wanted: list[Request], **settings: Any) -> dict[int, list[Sampled]]:
    found: dict[int, list[Sampled]] = {}
    on.generate(wanted, SamplingConfig(max_tokens=64, **settings), lambda index, group: found.update({index: group}))
    return found


def moved(policy: Policy, share: float) -> Policy:
    return changed_a_little(policy, share)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_of_a_hundred_completions_are_ours(
    one: VllmEngine, policy: Policy, temperature: float, record_property: Callable[[str, object], None]
) -> None:
    wanted = requests(policy, 10)
    groups = sample(one, wanted, temperature=temperature)
    differences = np.concatenate([
        np.abs(sampled.logprobs - trainer_logprobs(policy, request.token_ids, tuple(sampled.token_ids), temperature))
        for request, group in zip(wanted, (groups[i] for i in range(len(wanted))), strict=True)
        for sampled in group
    ])  # fmt: skip
    print(f"T = {temperature}: {differences.max():.2e} over {len(differences)} tokens")
    assert sum(map(len, groups.values())) == 100
    assert differences.max() < 1e-4


def test_calculator_calls_stop_get_their_results_and_go_on(one: VllmEngine, policy: Policy) -> None:
    numbers = [(4821 + 97 * i, 7306 - 61 * i) for i in range(24)]
    encoded = [tuple(policy.tokenizer(f"What is {a} × {b}?\n")["input_ids"]) for a, b in numbers]
    wanted = [Request(ids, tuple(key("tools", i, k) for i in range(4))) for k, ids in enumerate(encoded)]
    sampling = SamplingConfig.model_validate({"max_tokens": 64, "tools": {"calculator": {"kind": "calculator"}}})
    groups: dict[int, list[Sampled]] = {}
    generate_with_tools(one, policy, wanted, sampling, groups.__setitem__)
    found = [(request, done) for i, request in enumerate(wanted) for done in groups[i]]
    answered = [
        (call, policy.tokenizer.decode(done.token_ids.tolist()))
        for _, done in found
        for call in done.calls
        if call.outcome is CallOutcome.DONE
    ]
    print(f"{len(answered)} results in {len(found)} completions")
    assert len(answered) > 3
    for call, text in answered:
        assert f"<<{call.content}={Calculator().run(call.content).text}>>" in text
    for request, done in found:
        assert done.sampled is not None
        assert done.sampled.sum() <= 64
        ours = trainer_logprobs(policy, request.token_ids, tuple(done.token_ids.tolist()))
        assert np.abs(ours - done.logprobs)[done.sampled].max() < 1e-4


def test_fifty_publishes_and_no_growth_of_memory(one: VllmEngine, policy: Policy) -> None:
    memory, seconds = [], []
    changed = [moved(policy, 0.001 * (1 + i)) for i in range(2)]
    for version in range(1, 51):
        one.publish(changed[version % 2], version)
        memory.append(memory_of_servers_mib())
        seconds.append(one.facts["publish_s"])
        [proof] = one.facts["servers"].values()
        assert proof["is_clear"]
        assert proof["text"] < 1e-4
    print(
        f"{np.median(seconds):.2f} s a publish (median); memory {memory[9]:.0f} MiB after 10, {memory[-1]:.0f} after 50"
    )
    assert memory[-1] < memory[9] * 1.02
    one.publish(policy, 51)


def test_without_the_heads_own_tensor_the_old_head_stays_and_the_canary_says_so(
    one: VllmEngine, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_head(policy: Policy) -> dict[str, torch.Tensor]:
        return {name: weight for name, weight in whole(policy).items() if name != "lm_head.weight"}

    whole = serving_weights
    with monkeypatch.context() as patch:
        patch.setattr(engine, "serving_weights", without_head)
        patch.setattr(launch.WeightsFolder, "_check", lambda self, file: None)
        with pytest.raises(InvariantError, match="does not have the weights that were published"):
            one.publish(moved(policy, 0.05), 60)
    one.publish(policy, 61)


def test_adapters_alone(policy: Policy, tmp_path: Path) -> None:
    """New names for new versions, which a server adds to the model that it has."""
    pytest.importorskip("peft", reason="needs peft: pip install 'groupwise[lora]'")
    launch.end_all()  # memory for one server at a time
    adapted = start_policy(ModelConfig(device="cpu"), LoraConfig(rank=8), seed=0)
    two = VllmEngine(VllmConfig.model_validate({**SETTINGS, "launch": 1, "adapters": "native"}), adapted)
    seconds = []
    for version in range(6):
        two.publish(adapted, version)
        seconds.append(two.facts["publish_s"])
        wanted = requests(policy, 2)
        groups = sample(two, wanted)
        differences = np.concatenate([
            np.abs(one.logprobs - trainer_logprobs(adapted, request.token_ids, tuple(one.token_ids)))
            for index, request in enumerate(wanted) for one in groups[index]
        ])  # fmt: skip
        [proof] = two.facts["servers"].values()
        print(f"version {version}: {seconds[-1]:.2f} s a publish, {differences.max():.1e} nats, canary {proof}")
        assert differences.max() < 1e-4
        with torch.no_grad():
            for _, weight in adapted.trainable():
                weight.add_(0.02 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(version)))
    assert proof["is_clear"]
    [server] = two.crew.servers.values()
    assert len(server.models()) == 2  # the model, and the newest adapters
    launch.end_all()


def test_of_two_servers_one_is_killed(policy: Policy) -> None:
    """Last but one in this file: nothing is lost or doubled, no draw changes, and it comes back."""
    both = VllmEngine(VllmConfig.model_validate({**SETTINGS, "launch": 2, "rehearse": False}), policy)
    both.publish(policy, 0)
    wanted = requests(policy, 6)
    quiet = sample(both, wanted)
    victim = next(iter(both.crew.servers))
    killer = threading.Timer(0.5, kill_server, [victim])
    killer.start()
    disturbed = sample(both, wanted)
    killer.join()
    while not both.facts["reissued"]:  # it was quicker than the killer
        disturbed = sample(both, wanted)
    assert both.crew.fleet.states[victim] is not State.HEALTHY
    began = time.perf_counter()
    while both.crew.fleet.states[victim] is not State.HEALTHY:  # started, with the weights of the day and the canary
        assert time.perf_counter() - began < SETTINGS["start_s"]
        both.crew.look_after(1.0)
    print(f"killed and healthy again after {time.perf_counter() - began:.0f} s")
    for index, group in quiet.items():
        for before, after in zip(group, disturbed[index], strict=True):
            assert before.token_ids.tolist() == after.token_ids.tolist()
    launch.end_all()


def kill_server(address: str) -> None:
    """SIGKILL to what listens there."""
    port = int(address.rpartition(":")[2])
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and f"\0--port\0{port}\0" in command(process) and "keeper.py" not in command(process):
            os.kill(int(process.name), signal.SIGKILL)


def command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


def memory_of_servers_mib() -> float:
    """Resident memory of all processes of this process's servers."""
    total = 0
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and "VLLM" in command(process):
            lines = (process / "status").read_text().split("\n")
            total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return total / 1024


RECIPE = """
algorithm = "grpo"
run = { directory = "RUN", num_steps = 8 }
task = { kind = "arithmetic" }
grpo = { prompts_per_step = 4, group_size = 8 }
sampling = { max_tokens = 96 }
evaluation = { num_problems = 24, num_samples = 1, test_problems = 0, every = 8 }
engine = { kind = "vllm", launch = 1, environment = "ENVIRONMENT", kv_cache_gib = 0.5, start_s = 1200.0 }
"""


def test_a_run_with_a_server(tmp_path: Path) -> None:
    began = time.perf_counter()
    text = RECIPE.replace("RUN", str(tmp_path / "run")).replace("ENVIRONMENT", str(ENVIRONMENT))
    (tmp_path / "recipe.toml").write_text(text)
    train(load_recipe(tmp_path / "recipe.toml"))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    assert [line["engine"]["version"] for line in steps] == list(range(1, 9))
    largest = max(line["logprob_difference"] for line in steps)
    print(
        f"{time.perf_counter() - began:.0f} s; largest difference {largest:.1e}; {[line['reward'] for line in steps]}"
    )
    assert largest < 1e-4
