"""Two algorithms on the same problems, with the same seeds: is one of them better, or only luckier?

    python examples/compare_algorithms.py      # under two minutes on two cores

Dr. GRPO takes the mean off the rewards of a group; GRPO divides by their standard deviation, too, and averages over the
tokens of a completion. A difference is believed only where its 95 % interval, paired by seed, excludes zero: with two
short runs each it will hardly do so, and the table says that as well. `seeds = 5` and more steps make it a measurement
(docs/results.md).
"""

import os
from pathlib import Path

import groupwise as gw

STEPS = int(os.environ.get("EXAMPLE_STEPS", "5"))  # the tests make do with 1
SEEDS = min(2, STEPS)

RECIPE = """
algorithm = "grpo"

[task]
kind = "arithmetic"
kinds = ["product"]
digits = [2, 2]

[grpo]
prompts_per_step = 4
group_size = 8

[sampling]
max_tokens = 80

[optimizer]
lr = 1.5e-4

[evaluation]
num_problems = 4
num_samples = 1
test_problems = 24
test_samples = 1
"""


def main() -> None:
    """Run what is not there yet, and print the table."""
    folder = Path("runs/compare-algorithms")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    table = gw.compare(
        {
            "recipe": str(folder / "recipe.toml"),
            "directory": str(folder / f"{STEPS}-steps"),  # finished runs in it are not run again
            "seeds": SEEDS,
            "jobs": 2,  # at a time, each with its share of the processor
            "overrides": [f"run.num_steps={STEPS}", f"evaluation.every={STEPS}"],
            "variants": {
                "dr_grpo": {"extends": ["algorithms/dr_grpo.toml"]},  # shipped: settings to put over your own recipe
                "grpo": {"extends": ["algorithms/grpo.toml"], "overrides": ["loss.kl_coef=0"]},
            },
        },
        on_run=lambda done, total: print(f"{done} of {total} runs are done", flush=True),
    )
    print(table.as_markdown())
    for row in table.rows[1:]:
        print(f"{row.name} against {table.rows[0].name}: {row.verdict}, {row.difference}")


if __name__ == "__main__":
    main()
