r"""Answers read as published harnesses read them, so that a score is measured with the rule that its name stands for.

    lm_eval_strict    lm-eval 0.4.13, gsm8k: the first `#### n`; equality of texts
    lm_eval_flexible  lm-eval 0.4.13, gsm8k: the last thing like a number; equality of texts
    verl_strict       verl 0.9.1, gsm8k: the last `#### n` of the last 300 characters; equality of texts
    verl_flexible     verl 0.9.1, gsm8k: the last thing like a number there
    qwen              Qwen2.5-Math: Minerva's phrase, else the last box, else behind "answer is", else the last number
    minerva           lm-eval 0.4.13, minerva_math: what stands in "Final Answer: The final answer is ... ."

The equality of the last two is that of the verifier `math`. They are for evaluation: they pay for numbers that merely
occur.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from groupwise.types import Outcome, Verdict
from groupwise.verifiers.base import Finding, Request, Verifier, VerifierConfig, verdict
from groupwise.verifiers.extraction import boxes
from groupwise.verifiers.math import MathVerifier

_MARKED = re.compile(r"#### (-?[0-9.,]+)")
_NUMBER = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
_MINERVA = r"Final Answer: The final answer is(.*?). I hope it is correct."


def qwen(text: str) -> str:
    """Return the answer that `extract_answer` of the harness reads."""
    if "final answer is $" in text and "$. I hope" in text:
        answer = text.split("final answer is $", 1)[1].split("$. I hope", 1)[0]
    elif "boxed" in text:
        tail = "boxed" + text.split("boxed")[-1]
        whole = boxes("\\" + tail) if tail.startswith("boxed{") else []
        answer = whole[0] if whole else tail.removeprefix("boxed").removeprefix("{").split("$")[0]
    else:
        phrase = next((phrase for phrase in ("he answer is", "final answer is") if phrase in text), None)
        numbers = re.findall(r"-?\d*\.?\d+", text.replace(",", ""))
        answer = text.split(phrase)[-1] if phrase else (numbers or [""])[-1]
    return re.sub(r"\n\s*", "", answer.strip()).removeprefix(":").removesuffix(".").removesuffix("/").strip()


RULES: Mapping[str, Callable[[str], list[str]]] = {
    "lm_eval_strict": lambda text: _MARKED.findall(text)[:1],
    "lm_eval_flexible": _NUMBER.findall,
    "verl_strict": lambda text: _MARKED.findall(text[-300:]),
    "verl_flexible": lambda text: [n for n in re.findall(r"-?[0-9.,]+", text[-300:]) if n != "."],
    "qwen": lambda text: [qwen(text)],
    "minerva": lambda text: re.findall(_MINERVA, text + "I hope it is correct.")[:1],
}  # fmt: skip
"""Name of a rule to what finds answers in a completion, of which the last one counts."""


def read_answer(rule: str, text: str) -> str:
    """Return the answer of a completion; empty where there is none."""
    return ["", *RULES[rule](text)][-1].strip()


class HarnessConfig(VerifierConfig):
    """Settings of the verifier that reads as a harness does."""

    rule: Literal["lm_eval_strict", "lm_eval_flexible", "verl_strict", "verl_flexible", "qwen", "minerva"] = "qwen"
    """The harness, and which of its readings."""


class HarnessVerifier(Verifier):
    """Reads and compares answers by the rule of a published harness."""

    Config = HarnessConfig
    mathematical = True
    accepts_references = False  # some rules want their own mark before the answer
    config: HarnessConfig

    def __init__(self, config: HarnessConfig | None = None) -> None:
        super().__init__(config)
        self._math = MathVerifier()

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        answers = [read_answer(self.config.rule, request.text) for request in requests]
        if self.config.rule not in ("qwen", "minerva"):
            pairs = zip(requests, answers, strict=True)
            findings = [self._compared(request.problem.reference, answer) for request, answer in pairs]
            return [verdict(finding, self.config, tags_right=False) for finding in findings]
        boxed = [
            request._replace(text=f"\\boxed{{{answer}}}" if answer else "", own=None)
            for request, answer in zip(requests, answers, strict=True)
        ]
        judged = self._math.verify_many(boxed)
        return [verdict(Finding(v.outcome, v.evidence, v.answer), self.config, tags_right=False) for v in judged]

    def _compared(self, reference: str, answer: str) -> Finding:
        rule = self.config.rule
        if not answer:
            return Finding(Outcome.UNPARSABLE, f"the rule {rule} finds no answer")
        final = r"\.$" if rule.startswith("lm_eval") else r"(?!)"
        bare, right = (re.sub(final, "", re.sub(r"[,$]", "", text)) for text in (answer, reference))
        outcome = Outcome.CORRECT if bare == right else Outcome.WRONG
        return Finding(outcome, f"{bare!r} {'equals' if bare == right else 'is not'} {right!r} ({rule})", bare)

    def close(self) -> None:
        self._math.close()
