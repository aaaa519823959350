"""A task of your own: products of two numbers next to each other, such as 23 × 24.

    python examples/own_task.py          # under a minute on two cores

A task knows problems and their answers. Who judges, how a prompt looks and how completions are drawn is said by the
recipe; here the verifier `number`, which compares numbers, is the task's own choice.
"""

import os
from collections.abc import Sequence
from typing import ClassVar

import groupwise as gw

STEPS = int(os.environ.get("EXAMPLE_STEPS", "8"))  # the tests make do with 1


class NeighboursConfig(gw.TaskConfig):
    """What can be set in the section [task]. An unknown key is an error that names the nearest of these."""

    smallest: int = 11
    """Smallest first factor."""
    largest: int = 98
    """Largest first factor."""


class Neighbours(gw.Task):
    """What is n × (n + 1)?"""

    Config = NeighboursConfig
    config: NeighboursConfig
    verifier: ClassVar[str] = "number"

    def problems(self, split: gw.Split) -> Sequence[gw.Problem]:
        """Always the same problems in the same order; no problem is in two splits.

        The id is what a resume and a replay find the problem by: never change what it stands for.
        """
        every = range(self.config.smallest, self.config.largest + 1)
        held_out = {"dev": 3, "test": 7}  # by the last digit, so that nothing of a split is seen in another
        wanted = [n for n in every if (n % 10 == held_out[split] if split in held_out else n % 10 not in (3, 7))]
        return [gw.Problem(f"neighbours/{n}", f"What is {n} × {n + 1}?", reference=str(n * (n + 1))) for n in wanted]


def main() -> None:
    """Train on it. Before the first step every reference answer must pass the verifier."""
    recipe = gw.load_recipe(
        {
            "algorithm": "grpo",
            "run": {"directory": "runs/own-task", "num_steps": STEPS},
            "task": {"kind": f"{__file__}:Neighbours", "largest": 88},
            "grpo": {"prompts_per_step": 16, "group_size": 8},
            "sampling": {"max_tokens": 96},
            "optimizer": {"lr": 3e-4},
            "evaluation": {"every": STEPS, "num_problems": 8, "num_samples": 4, "test_problems": 0},
        }
    )
    run = gw.train(recipe, restart=True)

    for line in run.evaluations():
        print(f"after {line['step']} steps: pass@1 {line['pass_at_1']:.2f} on numbers that end in 3")
    for group in run.groups(0):
        print(f"{group['question']}  {group['correct']:.0%} of {group['num_completions']} completions correct")


if __name__ == "__main__":
    main()
