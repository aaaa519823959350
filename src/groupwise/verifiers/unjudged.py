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
        return [
            verdict(_finding(request.text), self.config, tags_right=thought_once(request.text)) for request in requests
        ]


def _finding(text: str) -> Finding:
    answer = after_thinking(text)
    if answer is None:
        return Finding(Outcome.UNPARSABLE, "<think> was opened and not closed")
    if ("<think>" in text or "</think>" in text) and not thought_once(text):
        return Finding(Outcome.UNPARSABLE, "the tags of the reasoning are not one <think> and one </think> after it")
    if not any(character.isalnum() for character in answer):
        return Finding(Outcome.UNPARSABLE, "no answer after the reasoning: no letter and no digit")
    return Finding(Outcome.CORRECT, "there is an answer; the problem is open-ended, and no rule can judge more")
