"""Episodes of a checkpoint beside perfect play of the same problems: turns of `guess`, worth of `blackjack`.

    python lab/benchmarks/optimum.py runs/episodes/stages/rl/run/checkpoints/step-000060 --problems 200 --samples 4

A number that was not found counts `max_turns` turns. Blackjack is worth what perfect play is, less the mean of what its
moves lose: with the hand and the dealer's card each move's loss is exact, so the luck of the cards is not in it. The
controls play the same problems: at random, perfectly, and perfectly in one turn alone. Intervals are over problems.
"""

import argparse
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from groupwise.algorithms.statistics import paired_difference
from groupwise.config import RECIPES
from groupwise.config.places import Place
from groupwise.evaluation.measure import evaluate
from groupwise.randomness import Draw
from groupwise.tasks.environments.base import EnvironmentConfig
from groupwise.tasks.episodes import Script, scripted
from groupwise.types import Completion, FinishReason, Problem

GAMES = RECIPES / "worlds/games.py"
worth, of_hit, of_stand, optimum = (Place(GAMES, name).load() for name in ("worth", "of_hit", "of_stand", "optimum"))


class Played(NamedTuple):
    """An episode by its states: the one that each turn was taken in."""

    states: list[str]
    last: str
    """Evidence of the last reply."""
    is_done: bool


def of_model(prompt: str, completion: Completion) -> Played:
    """Return an episode that the model sampled."""
    states = [prompt.strip(), *(turn.state for turn in completion.turns[1:])]
    return Played(states, completion.turns[-1].evidence, completion.finish_reason is FinishReason.DONE)


def of_script(script: Script | None, num_turns: int) -> Played:
    """Return the first turns of an episode that nobody sampled."""
    assert script
    replies = script.replies[:num_turns]
    states = [str(script.opening.messages[0]["content"]), *(reply.state for reply in replies)]
    return Played(states[: len(replies)], replies[-1].evidence, replies[-1].done)


def turns(played: Played, config: EnvironmentConfig) -> float:
    """Count the turns."""
    return len(played.states) if played.is_done else config.max_turns


def lost(played: Played, config: EnvironmentConfig) -> float:
    """What the moves lose; who ends without a move, or with none that is allowed, loses the game."""
    losses = 0.0
    for number, state in enumerate(played.states, 1):
        text, dealer = state.removeprefix("s").split()
        hand, card = (int(text), state.startswith("s")), int(dealer)
        hits = number < len(played.states) or played.last.startswith("bust")
        stands = played.is_done and " against " in played.last
        losses += worth(hand, card) - (of_hit(hand, card) if hits else of_stand(hand[0], card) if stands else -1.0)
    return losses


FIGURES: dict[str, Callable[[Played, EnvironmentConfig], float]] = {"guess": turns, "blackjack": lost}


def say(name: str, figures: Sequence[float], kind: str) -> None:
    """Print the mean over problems with its interval."""
    mean, low, high = paired_difference([0.0] * len(figures), figures)
    if kind == "blackjack":
        best = optimum()
        print(f"{name:10} {best - mean:+.4f} [{best - high:+.4f}, {best - low:+.4f}] a game; perfect play {best:+.4f}")
    else:
        print(f"{name:10} {mean:.3f} [{low:.3f}, {high:.3f}] turns")


def main(arguments: list[str] | None = None) -> None:
    """Print the figure of the checkpoint and of the controls."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--samples", type=int, default=4)
    options = parser.parse_args(arguments)
    [scored] = evaluate(options.checkpoint, problems=options.problems, samples=options.samples).scored.values()
    problems: list[Problem] = [one.group.prompt.problem for one in scored]
    config = problems[0].environment
    assert isinstance(config, EnvironmentConfig)
    figure = FIGURES[config.kind]
    model = [
        fmean(figure(of_model(one.group.prompt.text, completion), config) for completion in one.group.completions)
        for one in scored
    ]
    say("model", model, config.kind)
    most = config.max_turns
    for name, random, limit in (("perfect", 0.0, most), ("random", 1.0, most), ("one turn", 0.0, 1)):

        def control(problem: Problem, seed: int, random: float = random, limit: int = limit) -> float:
            script = scripted(config, problem, seed, random, Draw("control", problem.id, seed))
            return figure(of_script(script, limit), config)

        seeds = range(options.samples)
        say(name, [fmean(control(problem, seed) for seed in seeds) for problem in problems], config.kind)
    print(f"{len(problems)} problems of the test split x {options.samples}")


if __name__ == "__main__":
    main()
