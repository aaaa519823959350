"""The judge as a verifier: for answers that no rule can judge, a model says whether they agree with the reference.

It is the weakest verifier there is: a policy trained on it learns what sways it. Prefer a rule where there is one.
What the judge cannot judge, or does not answer in the required form, is CRASHED: neither rewarded nor penalised.
"""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from groupwise.runs.progress import counted
from groupwise.types import Outcome, Verdict
from groupwise.verifiers.base import Finding, Request, Verifier, VerifierConfig, verdict
from groupwise.verifiers.extraction import after_thinking, thought_once
from groupwise.verifiers.judge.config import ACCEPTED_SHARE, JudgeConfig, Mode, render
from groupwise.verifiers.judge.endpoint import Endpoint, Failure, Opinion

_LABEL = {"correctness": "VERDICT:", "rubric": "SCORE:"}
_LINE = {
    "correctness": re.compile(r"VERDICT: (CORRECT|WRONG|CANNOT JUDGE)"),
    "rubric": re.compile(r"SCORE: ([0-9]|10|CANNOT JUDGE)"),
}


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
        prompts = [self._prompt(request) for request in requests]
        unique_prompts = list(dict.fromkeys(prompt for prompt in prompts if isinstance(prompt, str)))
        with ThreadPoolExecutor(self.config.judge.max_concurrency) as threads:
            asked = counted("judged", threads.map(self._endpoint.ask, unique_prompts), len(unique_prompts))
            replies = dict(zip(unique_prompts, asked, strict=True))
        return [
            self._verdict(replies[prompt], request.text)
            if isinstance(prompt, str)
            else verdict(prompt, self.config, tags_right=False)
            for prompt, request in zip(prompts, requests, strict=True)
        ]

    def _prompt(self, request: Request) -> str | Finding:
        judge, problem = self.config.judge, request.problem
        if "{reference}" in judge.prompt and not problem.reference.strip():
            return Finding(Outcome.CRASHED, f"problem {problem.id} has no reference answer for the judge")
        text = _answer(request.text) if judge.see == "answer" else request.text.strip()
        return render(judge, problem, text) if text else Finding(Outcome.UNPARSABLE, "no answer after the reasoning")

    def _verdict(self, reply: Opinion | Failure, text: str) -> Verdict:
        if isinstance(reply, Failure):
            return Verdict(reply.outcome, {}, reply.evidence)
        judge = self.config.judge
        share, evidence = rule(reply, judge.mode)
        if share is None:
            return Verdict(Outcome.CRASHED, {}, f"the judge cannot judge: {evidence}", measures={"cannot_judge": 1.0})
        outcome = Outcome.CORRECT if share >= ACCEPTED_SHARE[judge.mode] else Outcome.WRONG
        finding = Finding(outcome, f"the judge: {evidence}")
        result = verdict(finding, self.config, tags_right=thought_once(text) and bool(_answer(text)))
        if judge.mode == "correctness":
            return replace(result, measures={"cannot_judge": 0.0})
        parts = {"rubric": self.config.correct_reward * share, "format": result.parts["format"]}
        return replace(result, parts=parts, measures={"cannot_judge": 0.0, "rubric": share})


def _answer(text: str) -> str:
    return (after_thinking(text) or "").strip()


def rule(opinion: Opinion, mode: Mode) -> tuple[float | None, str]:
    """The verdict in an opinion, and evidence: 1 for CORRECT, 0 for WRONG, a tenth of the score; None: not judged.

    A judge's own `<think>` part does not count.
    """
    if opinion.finish_reason != "stop":
        return None, f"its reply did not end with a stop but with {opinion.finish_reason[:40]!r}"
    *reasons, last_line = (after_thinking(opinion.content) or "").strip().split("\n")
    verdict_lines = [line for line in (*reasons, last_line) if line.strip().startswith(_LABEL[mode])]
    match = _LINE[mode].fullmatch(last_line)
    if match is None or len(verdict_lines) != 1:
        return None, f"its reply does not end with one `{_LABEL[mode]} ...` line: {opinion.content[-200:]!r}"
    share = {"CANNOT JUDGE": None, "CORRECT": 1.0, "WRONG": 0.0}
    word = match[1]
    return share[word] if word in share else int(word) / 10, f"{last_line}; {' '.join(reasons)[-300:]!r}"
