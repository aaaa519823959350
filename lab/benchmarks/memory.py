"""Peak memory of GRPO and PPO steps where parameters dominate, beside what `groupwise preflight --memory` predicts.

    python lab/benchmarks/memory.py
    python lab/benchmarks/memory.py long    # forward and backward of long completions, layers kept and computed again
    python lab/benchmarks/memory.py shapes  # steps of the shapes of grpo_step.py whose completions are long
    python lab/benchmarks/memory.py real MODEL [VARIANT ...]   # a real model: a directory, a name of the hub, GGUF

Each step runs in a process of its own, because a process only knows its own peak; what Python and the libraries hold
before the model is loaded is measured there too and taken off. Pages of files, such as the model's while it is read, do
not count: the kernel takes them back when it needs them.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sides import Ours
from workload import SHAPES, Workload

from groupwise.checks.memory import MIB, plan
from groupwise.config import parse
from groupwise.models.backbone import fingerprint
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.loading import quiet_transformers
from groupwise.models.new_model import NewModel, byte_tokenizer, new_policy
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import start_policy
from groupwise.tasks import make_task
from groupwise.trainers import TRAINERS
from groupwise.training.gradient import accumulate
from groupwise.verifiers import make_verifier

WIDTHS = {"hidden_size": 768, "num_hidden_layers": 8, "num_attention_heads": 12, "num_key_value_heads": 4,
          "intermediate_size": 2560, "context_length": 512}  # fmt: skip
VARIANTS = {
    "grpo": {"algorithm": "grpo"},
    "grpo with reference": {"algorithm": "grpo", "loss": {"kl_coef": 0.01}},
    "ppo, shared backbone": {"algorithm": "ppo", "critic": {"backbone": "shared"}},
    "ppo, own backbone": {"algorithm": "ppo", "critic": {"backbone": "own"}},
    "ppo with reference": {"algorithm": "ppo", "critic": {"backbone": "own"}, "loss": {"kl_coef": 0.01}},
    "grpo, LoRA": {"algorithm": "grpo", "lora": {"rank": 8}},
    "grpo with reference, LoRA": {"algorithm": "grpo", "lora": {"rank": 8}, "loss": {"kl_coef": 0.01}},
    "ppo with reference, LoRA": {
        "algorithm": "ppo",
        "lora": {"rank": 8},
        "critic": {"backbone": "own"},
        "loss": {"kl_coef": 0.01},
    },
}

BF16 = {"compute_dtype": "bfloat16"}
REAL = {
    "LoRA, base in bf16": {"algorithm": "grpo", "lora": {"rank": 16}, "model": BF16 | {"weights_dtype": "bfloat16"}},
    "LoRA": {"algorithm": "grpo", "lora": {"rank": 16}, "model": BF16},
    "full, weights in bf16, 8-bit AdamW": {
        "algorithm": "grpo",
        "model": BF16 | {"weights_dtype": "bfloat16"},
        "optimizer": {"kind": "adamw_8bit"},
    },
    "full, 8-bit AdamW": {"algorithm": "grpo", "model": BF16, "optimizer": {"kind": "adamw_8bit"}},
    "full": {"algorithm": "grpo", "model": BF16},
}


def make_recipe(name: str, model: str):
    """The recipe of a variant: a small batch, so that the parameters are what counts."""
    values = dict((VARIANTS | REAL)[name])
    batch = {"prompts_per_step": 2, "group_size": 4}
    values |= {
        "run": {"directory": "unused", "num_steps": 2},
        "model": {"path": model, **values.get("model", {})},
        "task": {"kind": "arithmetic", "num_problems": 8},
        "sampling": {"max_tokens": 16},
        # with an entropy bonus every completion has a gradient, whatever a random model earns
        "loss": {**values.get("loss", {}), "tokens_per_micro_batch": 256, "entropy_coef": 1e-3},
        values["algorithm"]: batch,
    }
    return parse(TRAINERS.find(values["algorithm"]).recipe, values)


def measure(name: str, model: str) -> None:
    """Run two steps and print the peak; the second step has the optimizer's moments from the beginning."""
    quiet_transformers()
    watch = Watch()
    recipe = make_recipe(name, model)
    policy = start_policy(recipe.model, recipe.lora, recipe.run.seed)
    task = make_task(recipe.task)
    with make_verifier(recipe.verifier) as verifier:
        learner = TRAINERS.find(recipe.algorithm).learner(recipe, policy, verifier)
        learner.publish()
        for step in range(2):
            done = learner.step(step, task.problems("train")[2 * step : 2 * step + 2])
            assert done.update.num_updates >= 1, "nothing was trained"
    print(json.dumps({"mib": watch.peak()}))


LONG = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 576, "context_length": 8448}  # fmt: skip
"""1.8 M parameters: shape (a) of grpo_step.py with a longer context."""
PROMPT_TOKENS = 16
LONG_CASES = ((8, 1024, 1), (8, 1024, 8), (8, 2048, 1), (8, 2048, 8), (1, 8192, 1))
"""Completions of one prompt, tokens of each, and completions in a micro-batch."""


def measure_long(setting: str, num_completions: int, num_tokens: int, at_a_time: int) -> None:
    """Forward and backward of one group; print its peak, its time, and a sum over the gradient's bits."""
    quiet_transformers()
    policy = new_policy(
        parse(NewModel, {"architecture": "qwen3", **LONG}),
        byte_tokenizer(),
        ModelConfig.model_validate({"activation_checkpointing": setting, "device": "cpu"}),
    )
    random = np.random.default_rng(0)
    prompt, *completions = (
        random.integers(5, 261, length) for length in (PROMPT_TOKENS, *[num_tokens] * num_completions)
    )
    parts = [Sequences(prompt, completions[i : i + at_a_time]) for i in range(0, num_completions, at_a_time)]
    weights = [weight for _, weight in policy.trainable()]

    def loss_of(part: Sequences) -> tuple[torch.Tensor, None]:
        return policy.token_logprobs(pack([part])).logprobs.sum() / num_completions, None

    list(accumulate(loss_of, [Sequences(prompt, [prompt])] * 2, weights, policy.device))  # libraries set themselves up
    watch, began = Watch(), time.perf_counter()
    list(accumulate(loss_of, parts, weights, policy.device))
    seconds = time.perf_counter() - began
    gradient = fingerprint((name, weight.grad) for name, weight in policy.trainable() if weight.grad is not None)
    print(json.dumps({"mib": watch.peak(), "seconds": seconds, "gradient": gradient}))


def main_long() -> None:
    """Measure every case with and without checkpointing."""
    print(f"peak of forward and backward, MiB, and seconds; {torch.get_num_threads()} threads")
    for case in LONG_CASES:
        kept, again = (_child("measure-long", setting, *map(str, case)) for setting in ("off", "on"))
        assert kept["gradient"] == again["gradient"], "checkpointing changed the gradient"
        print(
            f"{case[0]} x {case[1]:5,}, {case[2]} at a time   kept {kept['mib']:7,.0f} in {kept['seconds']:5.1f} s   "
            f"computed again {again['mib']:7,.0f} in {again['seconds']:5.1f} s   "
            f"memory {again['mib'] / kept['mib']:.2f}, time {again['seconds'] / kept['seconds']:.2f}"
        )


SHAPES_MEASURED = ("e", "g")


def measure_shape(name: str) -> None:
    """Run two planned steps of a shape and print the peak."""
    quiet_transformers()
    workload = Workload(SHAPES[name])
    watch = Watch()
    ours = Ours(workload)
    for step in range(2):
        ours.step(step)
    print(json.dumps({"mib": watch.peak()}))


def main_shapes() -> None:
    """Measure every such shape and print it beside the prediction."""
    quiet_transformers()
    for name in SHAPES_MEASURED:
        ours = Ours(Workload(SHAPES[name]))
        with tempfile.TemporaryDirectory() as directory:
            ours.policy.model.save_pretrained(directory)
            recipe = ours.recipe.model_copy(update={"model": ModelConfig(path=directory)})
            planned = plan(recipe, prompt_tokens=SHAPES[name].prompt_tokens)
        found, predicted = _child("measure-shape", name)["mib"], planned.peak / MIB
        print(f"shape {name}   measured {found:7,.0f}   predicted {predicted:7,.0f}   {predicted / found - 1:+.0%}")


def _child(*arguments: str) -> dict[str, Any]:
    """Return the output of this program in a process of its own."""
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


class Watch:
    """The most memory held since it was made, sampled: the kernel's own peak holds that of the imports too."""

    def __init__(self) -> None:
        self._before = self._most = resident_mib()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while True:
            self._most = max(self._most, resident_mib())
            time.sleep(0.002)

    def peak(self) -> float:
        return self._most - self._before


def resident_mib() -> float:
    """Resident memory of this process now that is no file's, MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem"))) / 1024


def main_real(model: str, names: list[str]) -> None:
    """Measure variants of a real model and print them beside the prediction."""
    quiet_transformers()
    for name in names:
        predicted = plan(make_recipe(name, model), prompt_tokens=32).peak / MIB
        found = _child("measure", name, model)["mib"]
        print(
            f"{name:36s} measured {found:7,.0f}   predicted {predicted:7,.0f}   {predicted / found - 1:+.0%}",
            flush=True,
        )


def main() -> None:
    """Measure every variant and print it beside the prediction."""
    if len(sys.argv) == 4 and sys.argv[1] == "measure":
        return measure(sys.argv[2], sys.argv[3])
    if len(sys.argv) == 6 and sys.argv[1] == "measure-long":
        return measure_long(sys.argv[2], *map(int, sys.argv[3:]))
    if len(sys.argv) == 3 and sys.argv[1] == "measure-shape":
        return measure_shape(sys.argv[2])
    if sys.argv[1:2] == ["real"]:
        return main_real(sys.argv[2], sys.argv[3:] or list(REAL))
    if sys.argv[1:] == ["shapes"]:
        return main_shapes()
    if sys.argv[1:] == ["long"]:
        return main_long()
    quiet_transformers()
    with tempfile.TemporaryDirectory() as directory:
        model = str(Path(directory) / "model")
        policy = new_policy(parse(NewModel, {"architecture": "qwen3", **WIDTHS}), byte_tokenizer())
        count = policy.num_parameters
        save_checkpoint(Path(model), policy)
        del policy
        print(f"{count:,} parameters, fp32; peak of two steps, MiB")
        for name in VARIANTS:
            predicted = plan(make_recipe(name, model), prompt_tokens=16).peak / MIB
            found = _child("measure", name, model)["mib"]
            print(f"{name:24s} measured {found:7,.0f}   predicted {predicted:7,.0f}   {predicted / found - 1:+.0%}")


if __name__ == "__main__":
    main()
