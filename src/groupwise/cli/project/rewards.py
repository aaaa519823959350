"""The reward of a completion. `groupwise train recipe.toml` calls `reward` for every one that is sampled."""

import re


def reward(completion: str, reference: str) -> dict[str, float]:
    """Pay for the right answer, and a little more for a short one.

    Arguments are given by name: completion, reference, question, prompt, id, difficulty, language, and every field of
    data.jsonl (try `terms`). The parts are added up; a single number will do, and None leaves a completion out.
    """
    boxes = re.findall(r"\\boxed\{([^{}]*)\}", completion)
    right = float(len(boxes) == 1 and boxes[0].strip() == reference)  # two boxes would be two guesses
    # only a right answer can be short: paid for alone, shortness would soon be all there is
    return {"right": right, "short": 0.2 * right * max(0.0, 1 - len(completion) / 200)}
