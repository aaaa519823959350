"""Verifiers of completions that no rule judges: those that a student imitates, and answers to open-ended problems."""

from collections.abc import Sequence

from groupwise.types import Outcome, Verdict
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
