"""Faults between the completion and its advantage."""

from collections.abc import Sequence

import pytest
from faults_of_sampling import DISAGREE
from lab import Fault, Lab, fails, stops
from planting import Edit

from groupwise.errors import VerifierError
from groupwise.types import Outcome, Verdict
from groupwise.verifiers import ComposedVerifier, Request

SPOT_CHECK = stops("verifiers.score:spot_check", "but alone it is")
NUMBER = stops("verifiers.score:score", "the verifier returned", VerifierError)
ORDER = stops("trainers.advantages:_check_order", "smaller where more was earned")


def timeouts(lab: Lab, patch: pytest.MonkeyPatch) -> None:
    """Every verdict on a sampled completion is a timeout."""
    real = ComposedVerifier.verify_many

    def verify_many(self: ComposedVerifier, requests: Sequence[Request]) -> list[Verdict]:
        is_sampled = any(request.num_tokens is not None for request in requests)
        return [Verdict(Outcome.TIMEOUT, {}, "no result") for _ in requests] if is_sampled else real(self, requests)

    patch.setattr(ComposedVerifier, "verify_many", verify_many)


FAULTS = (
    Fault(
        6,
        "Verdicts are shifted by one completion",
        SPOT_CHECK,
        (Edit("verifiers.score:score", "iter(verdicts)", "iter([*verdicts[1:], verdicts[0]])"),),
    ),
    Fault(
        6,
        "Verdicts of one group are given to another",
        SPOT_CHECK,
        (
            Edit(
                "verifiers.overlap:OverlappedScoring.result",
                "return [self._scored[id(group)] for group in groups]",
                "found = [self._scored[id(group)].verdicts for group in groups]\n"
                "    return list(map(ScoredGroup, groups, found[::-1]))",
            ),
        ),
    ),
    Fault(
        6,
        "Completions are filed under the prompt of another group",
        DISAGREE,
        (Edit("rollout.collect:collect", "Group(prompts[place],", "Group(prompts[place - 1],"),),
    ),
    Fault(
        7,
        "One completion gets two verdicts",
        NUMBER,
        (Edit("verifiers.score:score", "verify_many(requests)", "verify_many([*requests, requests[0]])"),),
    ),
    Fault(
        7,
        "A verdict is lost",
        NUMBER,
        (Edit("verifiers.score:score", "verify_many(requests)", "verify_many(requests[1:])"),),
    ),
    Fault(
        7,
        "Groups are never scored",
        stops("verifiers.overlap:OverlappedScoring.result", "they were never submitted"),
        (Edit("verifiers.overlap:OverlappedScoring.submit", "self._arrived.put(group)", "pass"),),
    ),
    Fault(
        8,
        "The verifier times out again and again",
        stops("verifiers.score:check_failures", "the verifier failed on", VerifierError),
        (timeouts,),
    ),
    Fault(
        8,
        "A timeout of the verifier is swallowed and counts as a wrong answer",
        fails("unit/verifiers/test_workers.py", "test_failures_become_verdicts_without_reward_and_are_not_cached"),
        (
            Edit(
                "verifiers.workers:_failure",
                'Reply("timeout", evidence=',
                'Reply("ok", {"outcome": "wrong", "evidence": "sleep"}, evidence=',
            ),
        ),
    ),
    Fault(
        11,
        "The reference answer does not pass its verifier through the template",
        stops("tasks.base:Task.validate", "rejects the reference answer of", VerifierError),
        settings=("task.template.gold=It is {reference}.",),
    ),
    Fault(
        0,
        "Advantages of one group are given to the next",
        ORDER,
        (Edit("trainers.advantages:advantaged", "zip(scored, found,", "zip(scored, found[1:] + found[:1],"),),
    ),
    Fault(
        0,
        "The advantage has the wrong sign",
        ORDER,
        (Edit("algorithms.advantages:group_mean", "rewards - rewards.mean()\n", "rewards.mean() - rewards\n"),),
    ),
)
