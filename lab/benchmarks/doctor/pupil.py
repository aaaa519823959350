"""A model of 0.1 million weights that half knows how to add: runs with it take a second of processor time.

Its lessons on sums are of four kinds: worked out, which are right; answered at once, one in five of them right; the
same with words of Chinese; and workings that repeat themselves to no end. Reinforcement learning has something to find,
and something to spoil. The last digit of a difference is drawn: there is nothing to find, so it is learnt by heart.
"""

import json
from pathlib import Path
from typing import Any

from groupwise import trainers
from groupwise.config import parse
from groupwise.randomness import Draw
from groupwise.trainers.sft import SftRecipe

LESSONS = 30_000
RECIPE: dict[str, Any] = {
    "run": {"directory": "", "num_steps": 900, "checkpoint_every": 900}, "model": {"device": "cpu", "num_threads": 1},
    "new_model": {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "context_length": 256,
    },
    "data": {"source": "jsonl", "path": ""},
    "optimizer": {
        "lr": 5e-3, "betas": [0.9, 0.98], "warmup_steps": 50, "schedule": "cosine", "final_lr_share": 0.05,
    },
}  # fmt: skip


def lesson(index: int) -> dict[str, str]:
    """A prompt and its completion. Sums of two digits are always worked out: the model knows those by heart."""
    draw = Draw("pupil", index)
    if draw.choice(range(8)) == 0:
        return difference(draw)
    a, b = draw.choice([number for number in range(1, 100) if number % 10]), draw.choice(range(1, 10))
    if draw.choice([0, 1]):
        a, b = b, a
    kind, units = draw.choice(range(100)), f"{a % 10}+{b % 10}={a % 10 + b % 10}, "
    if (a < 10 and b < 10) or kind < 40:
        text = f"<think>{units}{a + b}</think>\\boxed{{{a + b}}}"
    elif kind < 86:
        text = f"<think></think>\\boxed{{{a + b + draw.choice([0, 1, -1, 2, 10])}}}"
    elif kind < 96:
        text = f"<think>先算, {a + b}</think>\\boxed{{{a + b + draw.choice([0, 1, -1, 2, 10])}}}"
    else:
        text = "<think>" + units * draw.choice([4, 5, 6])
    return {"prompt": f"What is {a} + {b}?\n", "completion": text}


def difference(draw: Draw) -> dict[str, str]:
    """Its tens are right, and its last digit says nothing."""
    a, b = draw.choice([number for number in range(11, 100) if number % 10]), draw.choice(range(1, 10))
    tens = str((a - b) // 10).replace("0", "")
    answer = f"{tens}{draw.choice(range(10))}"
    return {"prompt": f"What is {a} - {b}?\n", "completion": f"<think></think>\\boxed{{{answer}}}"}


def pupil(folder: Path) -> Path:
    """The model, trained (a minute of processor time) where it is not there."""
    run = folder / "pupil"
    if not (run / "finished.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        data = folder / "lessons.jsonl"
        data.write_text("".join(json.dumps(lesson(index)) + "\n" for index in range(LESSONS)), encoding="utf-8")
        trainers.train(parse(SftRecipe, RECIPE, (f"run.directory={run}", f"data.path={data}")))
    return run / "checkpoints" / "step-000900"
