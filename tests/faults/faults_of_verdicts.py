"""Faults between the completion and its advantage."""

from collections.abc import Sequence

import pytest
from faults_of_sampling import DISAGREE

from groupwise.errors import VerifierError
from groupwise.types import Outcome, Verdict
from groupwise.verifiers import ComposedVerifier, Request
from lab import Fault, Lab, fails, stops

SPOT_CHECK = stops("verifiers", "but alone it is")
NUMBER = stops("verifiers", "the verifier returned", VerifierError)
REQUESTS = "[_request(group, completion, max_tokens) for group, completion in completions]"
ORDER = stops("trainers", "smaller where more was earned")


def timeouts(lab: Lab, patch: pytest.MonkeyPatch) -> None:
    """Every verdict on a sampled completion is a timeout."""
    real = ComposedVerifier.verify_many

    def verify_many(self: ComposedVerifier, requests: Sequence[Request]) -> list[Verdict]:
        is_sampled = any(request.num_tokens is not None for request in requests)
        return [Verdict(Outcome.TIMEOUT, {}, "no result") for _ in requests] if is_sampled else real(self, requests)

    patch.setattr(ComposedVerifier, "verify_many", verify_many)


FAULTS = (
    Fault(6, "Verdicts are shifted by one completion", SPOT_CHECK).by(
        "verifiers:score",
        "zip(completions, verdicts, strict=True)",
        "zip(completions, [*verdicts[1:], verdicts[0]], strict=True)",
    ),
    Fault(6, "Verdicts of one group are given to another", SPOT_CHECK).by(
        "verifiers",
        "return [self._scored[id(group)] for group in groups]",
        "found = [self._scored[id(group)].verdicts for group in groups]\n"
        "return list(map(ScoredGroup, groups, found[::-1]))",
    ),
    Fault(6, "Completions are filed under the prompt of another group", DISAGREE).by(
        "rollout",
        "_group(policy, prompts[index], sampled, draws.step, actors.engine.version, sampling)",
        "_group(policy, prompts[index - 1], sampled, draws.step, actors.engine.version, sampling)",
    ),
    Fault(7, "One completion gets two verdicts", NUMBER).by(
        "verifiers:score", REQUESTS, f"(lambda all: [*all, all[0]])({REQUESTS})"
    ),
    Fault(7, "A verdict is lost", NUMBER).by("verifiers:score", REQUESTS, f"{REQUESTS}[1:]"),
    Fault(7, "Groups are never scored", stops("verifiers", "they were never submitted")).by(
        "verifiers", "self._arrived.put(group)", "pass"
    ),
    Fault(
        8,
        "The verifier times out again and again",
        stops("verifiers", "the verifier failed on", VerifierError),
        (timeouts,),
    ),
    Fault(
        8,
        "A timeout of the verifier is swallowed and counts as a wrong answer",
        fails("unit/verifiers/test_workers.py", "test_failures_become_verdicts_without_reward_and_are_not_cached"),
    ).by(
        "verifiers",
        "Reply('timeout', evidence=f'no result after {timeout_s:g} s; the worker was killed')",
        "Reply('ok', {'outcome': 'wrong', 'evidence': 'sleep'})",
    ),
    Fault(
        11,
        "The reference answer does not pass its verifier through the template",
        stops("tasks", "rejects the reference answer of", VerifierError),
        settings=("task.template.gold=It is {reference}.",),
    ),
    Fault(0, "Advantages of one group are given to the next", ORDER).by(
        "trainers", "zip(scored, values, strict=True)", "zip(scored, values[1:] + values[:1], strict=True)"
    ),
    Fault(0, "The advantage has the wrong sign", ORDER).by(
        "algorithms:GroupMean", "rewards - rewards.mean()", "rewards.mean() - rewards"
    ),
)
