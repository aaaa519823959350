"""The table of abilities of a base model: every family by pass@k, what each way earns, and whether checking pays.

    python lab/benchmarks/abilities.py base
    python lab/benchmarks/abilities.py runs/base-second-2/checkpoints/step-000400 --problems 100 --samples 16

The families are those of recipes/tasks/families.toml, their test problems; temperature 1. A completion's way is read
from its text alone. Intervals are over problems, 95 %. The last lines say how English words are spelt.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from groupwise_lab.checking import checking_gain

from groupwise.config import RECIPES, read_toml
from groupwise.config.places import Place
from groupwise.evaluation.behaviour import Behaviour, row_behaviours
from groupwise.evaluation.metrics import summary
from groupwise.models.config import ModelConfig
from groupwise.models.loading import quiet_transformers
from groupwise.models.policy import Policy, load_policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.row import Row, rows_of
from groupwise.tasks import make_task
from groupwise.types import Outcome
from groupwise.verifiers import make_verifier

FAMILIES = Path(__file__).parents[2] / "recipes" / "tasks" / "families.toml"


def way(row: Row) -> str:
    """Return the way in which a completion works on its problem; the first that fits."""
    behaviours = row_behaviours(row)
    if Behaviour.UNFINISHED in behaviours:
        return "unfinished"
    if "<<" in row.text:
        return "calls"
    if Behaviour.CHECKS in behaviours:
        return "checks"
    if re.search(r", (?:no|fits)\.|\. Yes\.</think>", row.text):
        return "tries"
    return "works out" if Behaviour.WORKS_OUT in behaviours else "at once"


def sampled(policy: Policy, section: object, num_problems: int, num_samples: int, seed: int) -> tuple[Row, ...]:
    """Completions of a task's first test problems."""
    task = make_task(section)  # type: ignore[arg-type]
    with make_verifier(task.verifier_config) as verifier:
        actors = Actors.of(policy, task.template, verifier)
        problems = task.problems("test")[:num_problems]
        sampling = SamplingConfig(max_tokens=192)
        return rows_of(sample_and_score(actors, problems, num_samples, sampling, Draws(seed, Purpose("test"))))


def abilities(name: str, rows: Sequence[Row]) -> str:
    """The row of a family."""
    measured = summary(rows)
    cells = [str(measured.get(f"pass_at_{k}", "")) for k in (1, 4, 16)]
    return f"| {name} | {len({row.problem for row in rows})} | {' | '.join(cells)} | {_mean_length(rows):.1f} |"


def ways(name: str, rows: Sequence[Row]) -> list[str]:
    """The rows of a family's ways: share, accuracy, tokens."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(way(row), []).append(row)
    return [
        f"| {name} | {label} | {len(group) / len(rows):.3f} | "
        f"{sum(row.outcome is Outcome.CORRECT for row in group) / len(group):.3f} | {_mean_length(group):.1f} |"
        for label, group in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]


def _mean_length(rows: Sequence[Row]) -> float:
    return sum(row.length for row in rows) / len(rows)


def checking(name: str, rows: Sequence[Row]) -> str:
    """The row of a family's checks."""
    gain = checking_gain(rows)
    if gain is None:
        return f"| {name} | | | | | |"
    return (
        f"| {name} | {gain.share:.3f} | {gain.checked:.3f} | {gain.unchecked:.3f} | {gain.extra_tokens:.1f} | "
        f"{gain.per_100_tokens} |"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="base or a checkpoint directory")
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    quiet_transformers()
    policy = load_policy(ModelConfig(path=arguments.model))
    size = (arguments.problems, arguments.samples, arguments.seed)
    parts = read_toml(FAMILIES)["task"]["parts"]
    rows = {name: sampled(policy, part["task"], *size) for name, part in parts.items()}
    print("| family | problems | pass@1 | pass@4 | pass@16 | tokens |\n|---|---|---|---|---|---|")
    print("\n".join(abilities(name, group) for name, group in rows.items()))
    print("\n| family | way | share | accuracy | tokens |\n|---|---|---|---|---|")
    print("\n".join(line for name, group in rows.items() for line in ways(name, group)))
    print(
        "\n| family | checks | accuracy with | without | tokens more | gain per 100 tokens |\n|---|---|---|---|---|---|"
    )
    print("\n".join(checking(name, group) for name, group in rows.items()))
    talk = [row for row in sampled(policy, "general", *size) if row.language == "en"]
    spelt_right = Place(RECIPES / "worlds/diet_puzzles.py", "spelt_right").load()
    counts = [spelt_right(row.text) for row in talk]
    right, number = sum(right for right, _ in counts), sum(number for _, number in counts)
    print(f"\nEnglish words of {len(talk)} general answers spelt as in the corpus: {right} of {number}")


if __name__ == "__main__":
    main()
