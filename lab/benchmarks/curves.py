"""Draw measures of training over the steps of one run or several, from their metrics.

    python lab/benchmarks/curves.py docs/strict_json.png lab/runs/json_seed*.metrics.jsonl --measures valid values

A line is the mean of five steps; each run has its shade.
"""

import argparse
import json
from pathlib import Path

import numpy as np

WINDOW = 5


def curve(path: Path, measure: str) -> tuple[list[int], np.ndarray]:
    """Return the steps of a run and a measure's means over windows of steps, in percent."""
    steps = [line for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == "step"]
    values = np.array([100 * line["parts"][f"measure/{measure}/mean"] for line in steps])
    return [line["step"] for line in steps][WINDOW - 1 :], np.convolve(values, np.ones(WINDOW) / WINDOW, "valid")


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("metrics", type=Path, nargs="+")
    parser.add_argument("--measures", nargs="+", required=True)
    options = parser.parse_args()

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.2))
    for color, measure in enumerate(options.measures):
        for number, path in enumerate(options.metrics):
            label = measure if number == 0 else None
            axes.plot(*curve(path, measure), color=f"C{color}", alpha=1 - 0.3 * number, label=label)
    axes.set(xlabel="step", ylabel="completions of training, %", ylim=(0, 102))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(options.picture, dpi=110)


if __name__ == "__main__":
    main()
