"""TRL's own reward functions run unchanged, by their names or in a file, and give the numbers that they give there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.tasks.base import Template
from groupwise.types import Completion, FinishReason, Group, Problem, Prompt
from groupwise.verifiers import make_verifier, part_statistics, score

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")]
FILE = """
from trl.rewards import accuracy_reward, get_cosine_scaled_reward, get_repetition_penalty_reward
from trl.rewards import get_soft_overlong_punishment
cosine = get_cosine_scaled_reward(max_len=12)
repetition = get_repetition_penalty_reward(ngram_size=2)
overlong = get_soft_overlong_punishment(max_completion_len=12, soft_punish_cache=8)
"""
NAMES = ["trl.rewards:accuracy_reward", "trl.rewards:reasoning_accuracy_reward", "trl.rewards:think_format_reward",
         "accuracy_reward", "cosine", "repetition", "overlong"]  # fmt: skip
TEXTS = [r"It is \boxed{\frac{1}{3}}", r"\boxed{\frac{1}{2}}", "<think>\nhm\n</think>\nso \\boxed{\\frac{1}{3}}",
         "<think>never closed", "", "$\\frac13$ </think> $\\frac{1}{3}$"]  # fmt: skip
SOLUTIONS = [r"$\frac{1}{3}$", r"\frac{1}{3}", "no formula"]
RNG = np.random.default_rng(0)
TOKENS = [RNG.integers(0, 3, size).tolist() for size in (1, 3, 6, 9, 12, 15)]


@pytest.mark.parametrize("name", NAMES)
def test_the_reward_functions_of_trl(name: str, tmp_path: Path) -> None:
    rewards = pytest.importorskip("trl.rewards", reason="needs TRL: pip install -e '.[peers]'")
    (tmp_path / "mine.py").write_text(FILE)
    namespace: dict[str, Any] = {}
    exec(FILE, namespace)
    theirs = getattr(rewards, name.partition(":")[2]) if ":" in name else namespace[name]
    problems = [Problem(str(i), "q", "", data={"solution": text}) for i, text in enumerate(SOLUTIONS)]
    groups = []
    for problem in problems:
        completions = [
            Completion(i, np.array(ids), np.zeros(len(ids), np.float32), None, FinishReason.STOP, text)
            for i, (ids, text) in enumerate(zip(TOKENS, TEXTS, strict=True))
        ]
        groups.append(Group(Prompt(problem, "q", (1,)), tuple(completions), 0, 0))
    kind = name if ":" in name else f"{tmp_path}/mine.py:{name}"
    with make_verifier({"kind": kind, "timeout_s": 60.0}) as verifier:
        verifier.check(problems, Template(chat=True))
        scored = score(groups, verifier)
    messages = [[{"role": "assistant", "content": text}] for text in TEXTS]
    for result, solution in zip(scored, SOLUTIONS, strict=True):
        assert [verdict.reward for verdict in result.verdicts] == theirs(
            completions=messages, completion_ids=TOKENS, solution=[solution] * len(TEXTS), prompts=[[]] * len(TEXTS)
        )
    if "accuracy" in name:  # log_extra
        assert r"gold_parsed: [1/3, " in scored[0].verdicts[2].evidence
    assert len(part_statistics(scored)) == 2
