"""Episodes, as their environments judged them."""

from collections.abc import Sequence

from groupwise.types import FinishReason, Outcome, Verdict
from groupwise.verifiers.base import Request, Verifier

ENDINGS = (FinishReason.DONE, FinishReason.TURN_LIMIT, FinishReason.LENGTH)
"""Endings of episodes whose environment did not fail; each is counted."""


class EpisodeVerifier(Verifier):
    """Pays the rewards of the turns; correct is what the environment says is, else an episode that earned something.

    An episode in which no reward was given is not judged: there is no default.
    """

    accepts_references = False

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        return [self._judged(request) for request in requests]

    def _judged(self, request: Request) -> Verdict:
        completion = request.completion
        if completion is None or not completion.turns:
            return Verdict(Outcome.NONE, {}, "no episode: only its environment can judge it")
        last = completion.turns[-1]
        if completion.finish_reason is FinishReason.ENVIRONMENT_FAILED:
            outcome = Outcome.TIMEOUT if last.evidence.startswith("timeout: ") else Outcome.CRASHED
            return Verdict(outcome, {}, f"the environment failed at turn {len(completion.turns)}: {last.evidence}")
        rewards = [turn.reward for turn in completion.turns if turn.reward is not None]
        measures = {"episode/turns": float(len(completion.turns))}
        measures |= {f"ended/{reason}": float(completion.finish_reason is reason) for reason in ENDINGS}
        if not rewards:
            return Verdict(Outcome.NONE, {}, "the environment gave no reward", measures=measures)
        decided = next((turn.outcome for turn in reversed(completion.turns) if turn.outcome), "")
        is_correct = decided == "correct" if decided else sum(rewards) > 0
        outcome = Outcome.CORRECT if is_correct else Outcome.WRONG
        ending = f"{len(completion.turns)} turns, {completion.finish_reason}"
        evidence = f"{ending}: {last.evidence}" if last.evidence else ending
        return Verdict(outcome, {"environment": sum(rewards)}, evidence, measures=measures)
