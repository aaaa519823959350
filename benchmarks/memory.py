"""Peak memory of GRPO and PPO steps at a size where parameters dominate, beside what `groupwise memory` predicts.

    python benchmarks/memory.py

Each step runs in a process of its own, because a process only knows its own peak; what Python and the libraries hold
before the model is loaded is measured there too and taken off.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from groupwise.config import parse
from groupwise.health.memory import MIB, plan
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.loading import quiet_transformers
from groupwise.models.new_model import NewModel, byte_tokenizer, new_policy
from groupwise.models.policy import load_policy
from groupwise.tasks import make_task
from groupwise.trainers import TRAINERS
from groupwise.verifiers import make_verifier

WIDTHS = {"hidden_size": 768, "num_hidden_layers": 8, "num_attention_heads": 12, "num_key_value_heads": 4,
          "intermediate_size": 2560, "context_length": 512}  # fmt: skip
VARIANTS = {
    "grpo": {"algorithm": "grpo"},
    "grpo with reference": {"algorithm": "grpo", "loss": {"kl_coef": 0.01}},
    "ppo, shared backbone": {"algorithm": "ppo", "critic": {"backbone": "shared"}},
    "ppo, own backbone": {"algorithm": "ppo", "critic": {"backbone": "own"}},
    "ppo with reference": {"algorithm": "ppo", "critic": {"backbone": "own"}, "loss": {"kl_coef": 0.01}},
}


def make_recipe(name: str, model: str):
    """The recipe of a variant: a small batch, so that the parameters are what counts."""
    values = dict(VARIANTS[name])
    batch = {"prompts_per_step": 2, "group_size": 4}
    values |= {
        "run": {"directory": "unused", "num_steps": 2},
        "model": {"path": model},
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
    policy = load_policy(recipe.model)
    task = make_task(recipe.task)
    with make_verifier(recipe.verifier) as verifier:
        learner = TRAINERS.find(recipe.algorithm).learner(recipe, policy, verifier)
        learner.publish()
        for step in range(2):
            done = learner.step(step, task.problems("train")[2 * step : 2 * step + 2])
            assert done.update.num_updates >= 1, "nothing was trained"
    print(json.dumps({"mib": watch.peak()}))


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
    """Resident memory of this process now, MiB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def main() -> None:
    """Measure every variant and print it beside the prediction."""
    if len(sys.argv) == 4 and sys.argv[1] == "measure":
        return measure(sys.argv[2], sys.argv[3])
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
            command = [sys.executable, __file__, "measure", name, model]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])["mib"]
            print(f"{name:24s} measured {found:7,.0f}   predicted {predicted:7,.0f}   {predicted / found - 1:+.0%}")


if __name__ == "__main__":
    main()
