"""The judge as a verifier: for answers that no rule can judge, a model says whether they agree with the reference.

It is the weakest verifier there is: a policy trained on it learns what sways it. Prefer a rule where there is one.
What the judge cannot judge, or does not say as it must, is CRASHED and earns nothing, neither reward nor blame.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from groupwise.types import Outcome, Verdict
from groupwise.verifiers.base import Finding, Request, Verifier, VerifierConfig, verdict
from groupwise.verifiers.extraction import after_thinking, thought_once
from groupwise.verifiers.judge.config import JudgeConfig
from groupwise.verifiers.judge.endpoint import Endpoint, Failure
from groupwise.verifiers.judge.opinion import Opinion, rule
from groupwise.verifiers.judge.prompt import render


class JudgeVerifierConfig(VerifierConfig):
    """Settings of the verifier that asks a model."""

    judge: JudgeConfig = JudgeConfig()
    """The model that is asked."""


class JudgeVerifier(Verifier):
    """Asks a model. Reward part `accuracy` or `rubric`; measure `cannot_judge` is 1 where its reply has no verdict."""

    Config = JudgeVerifierConfig
    repeatable = False
    config: JudgeVerifierConfig

    def __init__(self, config: JudgeVerifierConfig | None = None) -> None:
        super().__init__(config)
        self._endpoint = Endpoint(self.config.judge)

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        """One verdict per request, in the same order; equal prompts are sent once.

        Raises:
            VerifierError: the budget is spent, or the cache cannot be used.
        """
        prompts = [self._prompt(request) for request in requests]
        asked = list(dict.fromkeys(prompt for prompt in prompts if isinstance(prompt, str)))
        with ThreadPoolExecutor(self.config.judge.max_concurrency) as threads:
            replies = dict(zip(asked, threads.map(self._endpoint.ask, asked), strict=True))
        return [
            self._verdict(replies[prompt], request.text)
            if isinstance(prompt, str)
            else verdict(prompt, self.config, tags_right=False)
            for prompt, request in zip(prompts, requests, strict=True)
        ]

    def _prompt(self, request: Request) -> str | Finding:
        """What to send, or the finding that needs no judge."""
        judge, problem = self.config.judge, request.problem
        if "{reference}" in judge.prompt and not problem.reference.strip():
            return Finding(Outcome.CRASHED, f"problem {problem.id} has no reference answer for the judge")
        seen = _answer(request.text) if judge.see == "answer" else request.text.strip()
        return render(judge, problem, seen) if seen else Finding(Outcome.UNPARSABLE, "no answer after the reasoning")

    def _verdict(self, reply: Opinion | Failure, text: str) -> Verdict:
        if isinstance(reply, Failure):
            return Verdict(reply.outcome, {}, reply.evidence)
        judge = self.config.judge
        share, evidence = rule(reply, judge.mode)
        if share is None:
            return Verdict(Outcome.CRASHED, {}, f"the judge cannot judge: {evidence}", measures={"cannot_judge": 1.0})
        needed = 1.0 if judge.mode == "correctness" else judge.accept_score / 10
        finding = Finding(Outcome.CORRECT if share >= needed else Outcome.WRONG, f"the judge: {evidence}")
        judged = verdict(finding, self.config, tags_right=thought_once(text) and bool(_answer(text)))
        return self._with_rubric(judged, share) if judge.mode == "rubric" else _counted(judged, {})

    def _with_rubric(self, judged: Verdict, share: float) -> Verdict:
        parts = {"rubric": self.config.correct_reward * share, "format": judged.parts["format"]}
        return _counted(replace(judged, parts=parts), {"rubric": share})


def _answer(text: str) -> str:
    """What follows the reasoning; empty while the reasoning is still open."""
    return (after_thinking(text) or "").strip()


def _counted(judged: Verdict, measures: dict[str, float]) -> Verdict:
    return replace(judged, measures={"cannot_judge": 0.0, **measures})
