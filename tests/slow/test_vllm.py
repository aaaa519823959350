"""vLLM's build for processors, as it is: what the fake server of the unit tests claims, shown on the real one.

`make vllm` makes the environment; VLLM_ENVIRONMENT may name another. A server starts once for the module.
"""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from groupwise.cli.main import app
from groupwise.errors import InvariantError
from groupwise.models.checkpoint import changing_a_little, serving_weights
from groupwise.models.config import LoraConfig, ModelConfig
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy, start_policy
from groupwise.randomness import Draws, Purpose, key
from groupwise.rollout.engine import EngineConfig, Request, Sampled
from groupwise.rollout.in_process import InProcessEngine
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tool_rounds import generate_with_tools
from groupwise.rollout.tools.calculator import Calculator
from groupwise.rollout.vllm import engine, launch
from groupwise.rollout.vllm.canary import trainer_logprobs
from groupwise.rollout.vllm.config import VllmConfig
from groupwise.rollout.vllm.engine import VllmEngine
from groupwise.rollout.vllm.fleet import State
from groupwise.rollout.vllm.loading import Asker
from groupwise.tasks import make_task
from groupwise.trainers.replay import replay
from groupwise.types import CallOutcome, Completion, Prompt
from groupwise.verifiers import make_verifier

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


GUESS = {"kind": "guess", "max_turns": 12, "max_turn_tokens": 6}
CALLS = {"kind": "tools", "tools": ["calculator"], "calls": "hermes", "max_turns": 4, "max_turn_tokens": 100}
KINDS = {
    "guess": {"kind": "episodes", "environment": GUESS},
    "tools": {"kind": "episodes", "environment": CALLS, "problems": {"kind": "arithmetic", "kinds": ["sum"]}},
}
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "%s"}}\n</tool_call>'


@pytest.fixture(scope="module")
def agent(policy: Policy) -> Policy:
    """The shipped model after it has imitated four episodes, each a question, then turns and replies."""
    shown = [["1 to 31\n", "16", ">\n", "24", "<\n", "20", ">\n", "22"], ["1 to 31\n", "16", "<\n", "8", "<\n", "4"]]
    shown += [[f"What is {a} + {b}?\n", CALL % f"{a}+{b}", f"{a + b}\n", f"{a + b}"] for a, b in ((31, 46), (85, 12))]
    encode, end = policy.tokenizer, policy.tokenizer.eos_token
    sequences = []
    for question, *turns in shown:
        parts = [
            encode(turn + ("" if i % 2 else end), add_special_tokens=False)["input_ids"] for i, turn in enumerate(turns)
        ]
        drawn = np.repeat([not i % 2 for i in range(len(parts))], [len(ids) for ids in parts])
        prompt = tuple(encode(question)["input_ids"])
        sequences.append(Sequences(prompt, [np.concatenate(parts)], [drawn]))
    imitating = policy.copy()
    optimizer = torch.optim.Adam([weight for _, weight in imitating.trainable()], 1e-3)
    for _ in range(30):
        loss = -imitating.token_logprobs(pack(sequences)).logprobs.mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    print(f"imitates to {loss.item():.2f} nats")
    return imitating


def played(engine: Any, policy: Policy, kind: str, temperature: float = 1.0) -> list[tuple[Prompt, Completion]]:
    task = make_task(KINDS[kind] | {"num_problems": 40})
    with make_verifier("episode") as verifier:
        sampling, draws = SamplingConfig(max_tokens=240, temperature=temperature), Draws(0, Purpose.TRAIN)
        scored = sample_and_score(
            Actors(policy, engine, task.template, verifier), task.problems("train")[:8], 4, sampling, draws
        )
    return [(group.group.prompt, one) for group in scored for one in group.group.completions]


def alike(first: Sequence[tuple[Prompt, Completion]], second: Sequence[tuple[Prompt, Completion]]) -> None:
    for (_, a), (_, b) in zip(first, second, strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        assert a.sampled.tolist() == b.sampled.tolist()
        assert a.finish_reason is b.finish_reason
        assert [turn.reward for turn in a.turns] == [turn.reward for turn in b.turns]


def hits(on: VllmEngine) -> float:
    """Tokens that the servers found in their prefix caches."""
    lines = [line for server in on.crew.servers for line in urlopen(f"{server}/metrics").read().decode().split("\n")]
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:prefix_cache_hits_total"))


@pytest.mark.parametrize(("kind", "temperature"), [("guess", 2.0), ("tools", 1.0)])
def test_episodes_are_those_of_the_process_and_the_prefix_cache_is_read(
    one: VllmEngine, agent: Policy, kind: str, temperature: float
) -> None:
    one.publish(agent, 70)
    before = hits(one)
    episodes = played(one, agent, kind, temperature)
    found = hits(one) - before
    ends = Counter(str(done.finish_reason) for _, done in episodes)
    turns = Counter(len(done.turns) for _, done in episodes)
    difference = max(
        np.abs(ours - done.sampling_logprobs)[done.sampled].max()
        for prompt, done in episodes
        for ours in [trainer_logprobs(agent, prompt.token_ids, tuple(done.token_ids.tolist()), temperature)]
    )
    num_tokens = sum(done.num_tokens for _, done in episodes)
    print(f"{kind}: {difference:.1e} nats over {num_tokens} tokens; turns {turns}; {ends}; {found:.0f} tokens found")
    print(episodes[0][1].text)
    assert difference < 1e-4
    assert sum(turns.values()) - turns[1] > 8
    assert len(ends) > 1
    assert found > 0
    greedy, ours = played(one, agent, kind, 0.0), played(InProcessEngine(EngineConfig(), agent), agent, kind, 0.0)
    assert any(len(done.turns) > 1 for _, done in greedy)
    alike(greedy, ours)


def test_fifty_publishes_and_no_growth_of_memory(one: VllmEngine, policy: Policy) -> None:
    memory, seconds = [], []
    for version in range(1, 51):
        with changing_a_little(policy, 0.001 * (1 + version % 2)):
            one.publish(policy, version)
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
        with changing_a_little(policy), pytest.raises(InvariantError, match="does not have the weights"):
            one.publish(policy, 60)
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


@pytest.fixture(scope="module")
def both(policy: Policy) -> Iterator[VllmEngine]:
    launch.end_all()
    yield VllmEngine(VllmConfig.model_validate({**SETTINGS, "launch": 2, "rehearse": False}), policy)
    launch.end_all()


def test_a_server_is_killed_in_the_middle_of_episodes(
    both: VllmEngine, agent: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.publish(agent, 0)
    quiet = played(both, agent, "guess")
    victim, plain, asked = next(iter(both.crew.servers)), Asker.sample, count()

    def sample(*args: Any, **settings: Any) -> Sampled:
        if next(asked) == 50:  # the first turns are 32
            kill_server(victim)
        return plain(*args, **settings)

    monkeypatch.setattr(Asker, "sample", sample)
    alike(played(both, agent, "guess"), quiet)
    assert both.crew.fleet.states[victim] is not State.HEALTHY
    assert both.facts["reissued"]


def test_of_two_servers_one_is_killed(both: VllmEngine, policy: Policy) -> None:
    """Nothing is lost or doubled, no draw changes, and it comes back."""
    both.publish(policy, 1)
    while len(both.crew.fleet.having(State.HEALTHY)) < 2:  # the other is on its way back
        both.crew.look_after(1.0)
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


def test_a_pipeline_of_episodes_with_servers(tmp_path: Path) -> None:
    """Collected, imitated and reinforced through servers, which get new weights at every stage and step."""
    changes = {
        "pipeline.directory": tmp_path / "pipeline", "measure.num_problems": 4, "measure.num_samples": 2,
        "stages.play.num_rows": 100, "stages.sft.run.num_steps": 20, "stages.sft.sft.sequences_per_step": 8,
        "stages.rl.run.num_steps": 2, "stages.rl.grpo.prompts_per_step": 4, "stages.rl.grpo.group_size": 4,
        "stages.rl.evaluation.num_problems": 4, "stages.rl.evaluation.test_problems": 0,
        "engine.kind": "vllm", "engine.launch": 1, "engine.environment": ENVIRONMENT, "engine.kv_cache_gib": 0.5,
        "engine.start_s": 1200,
    }  # fmt: skip
    sets = [word for name, value in changes.items() for word in ("--set", f"{name}={value}")]
    recipe = Path(__file__).parents[2] / "recipes" / "episodes.toml"
    done = CliRunner().invoke(app, ["pipeline", str(recipe), *sets])
    assert done.exit_code == 0, done.output
    [run] = (tmp_path / "pipeline").glob("stages/rl/run")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    print([(line["engine"]["version"], line["logprob_difference"]) for line in steps])
    assert [line["engine"]["version"] for line in steps] == [1, 2]
    assert max(line["logprob_difference"] for line in steps) < 1e-4
    row = pq.read_table(run / "rollouts" / "step-000001.parquet").to_pylist()[0]
    again = replay(run, 1, row["problem"], row["sample"])
    assert again.same_tokens
    print(f"replayed: {again.logprob_difference:.1e} nats")
    assert again.logprob_difference < 1e-4
