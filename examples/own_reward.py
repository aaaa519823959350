"""A reward of your own: pay for the right answer, and a little more for a short one.

    python examples/own_reward.py        # about a minute on two cores

`reward` is called for every completion that is sampled, in a process of its own, so whatever it does cannot hurt the
training. Its arguments are given by name: ask for what you need.
"""

import os
import re

import groupwise as gw

STEPS = int(os.environ.get("EXAMPLE_STEPS", "12"))  # the tests make do with 1


def reward(completion: str, reference: str) -> dict[str, float]:
    r"""The parts of the reward by name; they are added up. A single number will do, None leaves a completion out."""
    boxes = re.findall(r"\\boxed\{([^{}]*)\}", completion)
    right = float(boxes == [reference])  # exactly one box: two would be two guesses
    # only a right answer can be short: paid for alone, shortness would soon be all there is
    return {"right": right, "short": 0.2 * right * max(0.0, 1 - len(completion) / 200)}


def main() -> None:
    """Train with it, and look at what it paid."""
    recipe = gw.load_recipe(
        {
            "algorithm": "grpo",
            "run": {"directory": "runs/own-reward", "num_steps": STEPS},
            "task": {"kind": "arithmetic", "kinds": ["product"], "digits": [2, 2]},
            "verifier": {"kind": f"{__file__}:reward"},  # this file's function
            "grpo": {"prompts_per_step": 16, "group_size": 8},
            "sampling": {"max_tokens": 96},
            "optimizer": {"lr": 3e-4},
            "evaluation": {"every": STEPS, "num_problems": 32, "num_samples": 2, "test_problems": 0},
        }
    )
    run = gw.train(recipe, restart=True)

    for line in run.steps():
        right, short = line["part/right/mean"], line["part/short/mean"]
        print(f"step {line['step']}: {right:.2f} for being right, {short:.3f} for being short")
    best = max(run.completions(STEPS - 1), key=lambda row: row["reward"])
    print(f"\n{best['question']} earned {best['reward']:.3f} with\n{best['text']}")


if __name__ == "__main__":  # the processes that call `reward` import this file
    main()
