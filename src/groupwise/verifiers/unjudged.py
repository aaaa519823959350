"""Verifiers of what no rule judges: texts that a student imitates, answers to open-ended problems, and episodes."""

from collections.abc import Sequence

from groupwise.types import FinishReason, Outcome, Verdict
from groupwise.verifiers.base import Finding, Request, Verifier, verdict
from groupwise.verifiers.extraction import after_thinking, thought_once


class Unjudged(Verifier):
    """Says that no completion was judged."""

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        return [Verdict(Outcome.NONE, {}, "not judged") for _ in requests]


class AnsweredVerifier(Verifier):
    """Every completion with an answer after its closed reasoning is correct; without any tags, so is every text."""

    accepts_references = False

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        verdicts = []
        for request in requests:
            text, answer, tags_right = request.text, after_thinking(request.text), thought_once(request.text)
            if answer is None:
                finding = Finding(Outcome.UNPARSABLE, "<think> was opened and not closed")
            elif ("<think>" in text or "</think>" in text) and not tags_right:
                fault = "the tags of the reasoning are not one <think> and one </think> after it"
                finding = Finding(Outcome.UNPARSABLE, fault)
            elif not any(character.isalnum() for character in answer):
                finding = Finding(Outcome.UNPARSABLE, "no answer after the reasoning: no letter and no digit")
            else:
                evidence = "there is an answer; the problem is open-ended, and no rule can judge more"
                finding = Finding(Outcome.CORRECT, evidence)
            verdicts.append(verdict(finding, self.config, tags_right=tags_right))
        return verdicts


ENDINGS = (
    FinishReason.DONE, FinishReason.TURN_LIMIT, FinishReason.LENGTH, FinishReason.FAULT_LIMIT,
    FinishReason.MALFORMED_CALL,
)  # fmt: skip
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
        rewards = [turn.reward for turn in completion.turns if turn.reward is not None]
        measures = {"episode/turns": float(len(completion.turns))}
        measures |= {f"ended/{reason}": float(completion.finish_reason is reason) for reason in ENDINGS}
        if any(turn.calls is not None for turn in completion.turns):
            measures["episode/calls"] = float(sum(turn.calls or 0 for turn in completion.turns))
            measures["episode/faults"] = float(sum(turn.faults or 0 for turn in completion.turns))
        if not rewards:
            why = f": {last.evidence}" if last.evidence else ""
            return Verdict(Outcome.NONE, {}, f"the environment gave no reward{why}", measures=measures)
        decided = next((turn.outcome for turn in reversed(completion.turns) if turn.outcome), "")
        is_correct = decided == "correct" if decided else sum(rewards) > 0
        outcome = Outcome.CORRECT if is_correct else Outcome.WRONG
        ending = f"{len(completion.turns)} turns, {completion.finish_reason}"
        evidence = f"{ending}: {last.evidence}" if last.evidence else ending
        return Verdict(outcome, {"environment": sum(rewards)}, evidence, measures=measures)
