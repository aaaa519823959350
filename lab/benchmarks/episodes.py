"""An episode of several turns against a single completion of as many tokens.

    python lab/benchmarks/episodes.py --turns 8 --turn 16 --reply 16 --repeats 5

Every turn says the same script and ends; an environment of this file answers with a reply of the same length. The
single completion draws as many tokens, replies included. `kept` is the in-process engine, `anew` the same engine
asked for each turn as for a new prompt. Arms alternate, and time is processor time of this process (the environments'
workers apart), so that other programs on the machine count little; ratios are those of each round of the arms, with
Student's 95 % interval.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from groupwise.algorithms.statistics import mean_over_seeds
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy, load_policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout import in_process
from groupwise.rollout.engine import EngineConfig, Request, Sampled
from groupwise.rollout.environments import Crews
from groupwise.rollout.episodes import Episodes
from groupwise.rollout.sampling import Drawn, SamplingConfig, draw
from groupwise.tasks import make_task
from groupwise.tasks.environments.base import Environment, Opening, Reply, Turn
from groupwise.types import Problem

ASKED = 32
ARMS = ("single", "kept", "anew")


class Answers(Environment):
    """Answers every turn but the last by as many letters as the problem says."""

    def start(self, problem: Problem, seed: int) -> Opening:
        self.reply, self.turns = "b" * (int(problem.reference.split()[0]) - 1), int(problem.reference.split()[1])
        return Opening.of(problem.question)

    def step(self, turn: Turn) -> Reply:
        self.turns -= 1
        return Reply.of(self.reply, reward=0.0, done=not self.turns)


class Anew:
    """An engine that keeps nothing between two calls."""

    uses_tools, version = True, 0

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def generate(self, requests: list[Request], sampling: SamplingConfig, on_finished: object) -> None:
        in_process.generate(self._policy, requests, sampling, on_finished)  # type: ignore[arg-type]


@contextmanager
def scripted(policy: Policy, turn: int | None) -> Iterator[None]:
    """Tokens are drawn as always, then replaced: a letter, and the stop token at the end of a turn."""
    letter, stop, at = policy.tokenizer.convert_tokens_to_ids("a"), min(policy.stop_ids), 0

    def drawn(logits: torch.Tensor, uniforms: torch.Tensor, config: SamplingConfig) -> Drawn:
        nonlocal at
        result, at = draw(logits, uniforms, config), at + 1
        return result._replace(tokens=torch.full_like(result.tokens, stop if turn and at % turn == 0 else letter))

    in_process.draw = drawn  # type: ignore[assignment]
    try:
        yield
    finally:
        in_process.draw = draw


def main(arguments: list[str] | None = None) -> None:
    """Print seconds of processor time of the arms, and the ratios to the single completion."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="base")
    for name, default in (("prompts", 8), ("group", 8), ("turns", 8), ("turn", 16), ("reply", 16), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    policy = load_policy(ModelConfig(path=options.model))
    turns, draws = options.turns, Draws(0, Purpose.TRAIN)
    length = turns * options.turn + (turns - 1) * options.reply
    limits = {"max_turns": turns, "max_turn_tokens": options.turn}
    template = make_task({"kind": "episodes", "environment": {"kind": "guess"}}).template
    config = Answers.Config.model_validate({"kind": f"{__file__}:Answers", **limits})
    problems = [
        Problem(f"p/{index}", "q" * (ASKED - 1), f"{options.reply} {turns}", environment=config)
        for index in range(options.prompts)
    ]
    engines = {"kept": in_process.InProcessEngine(EngineConfig(), policy), "anew": Anew(policy)}
    seconds: dict[str, list[float]] = {arm: [] for arm in ARMS}
    crews = Crews()
    for repeat in range(options.repeats + 1):
        for arm in ARMS:
            episodes = Episodes(crews, policy, template, problems, draws)
            keys = [draws.keys(problem.id, options.group) for problem in problems]
            requests = [Request(prompt.token_ids, own) for prompt, own in zip(episodes.prompts, keys, strict=True)]
            done: dict[int, list[Sampled]] = {}
            with scripted(policy, None if arm == "single" else options.turn):
                began = time.process_time()
                if arm == "single":
                    in_process.generate(policy, requests, SamplingConfig(max_tokens=length), done.__setitem__)
                else:
                    sampling = SamplingConfig(max_tokens=length)
                    episodes.generate(engines[arm], requests, sampling, done.__setitem__)  # type: ignore[arg-type]
                spent = time.process_time() - began
            sizes = {len(one.token_ids) for group in done.values() for one in group}
            assert sizes == {length}, (arm, sizes, length)
            if repeat:  # the first of each warms up
                seconds[arm].append(spent)
    print(f"{options.prompts} x {options.group} episodes of {turns} turns, {length} tokens each")
    for arm in ARMS:
        pairs = [own / single for own, single in zip(seconds[arm], seconds["single"], strict=True)]
        ratio = mean_over_seeds(pairs)
        print(f"{arm:7} {min(seconds[arm]):6.2f} s  {ratio.value:5.2f} [{ratio.low:.2f}, {ratio.high:.2f}]")


if __name__ == "__main__":
    main()
