"""Programs of thought: a completion is a program, and what it prints is the answer.

Another verifier judges what was printed. The program runs in the sandbox: one that crashes, hangs or prints nothing has
no answer; only a sandbox that fails is CRASHED.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, field_validator

from groupwise.sandbox.base import Program, Sandbox, SandboxConfig, Status
from groupwise.sandbox.opening import LazySandbox
from groupwise.types import Outcome, Verdict
from groupwise.verifiers.base import Finding, Request, Verifier, VerifierConfig, verdict
from groupwise.verifiers.extraction import extract_program
from groupwise.verifiers.table import VERIFIERS

MAX_PRINTED = 500  # most characters that are an answer


class ProgramConfig(VerifierConfig):
    """Settings of the verifier of programs of thought."""

    answer: Annotated[VerifierConfig, VERIFIERS] = Field(default_factory=lambda: VERIFIERS.read("number"))
    """The verifier that judges what was printed, as if a completion said it in a box: its kind or its section. What
    answers earn is set here, not there."""
    sandbox: SandboxConfig = SandboxConfig()
    """Sandbox in which programs of completions run."""

    @field_validator("answer")
    @classmethod
    def _reads_boxes(cls, answer: VerifierConfig) -> VerifierConfig:
        if getattr(answer, "extraction", "boxed") != "boxed":
            raise ValueError("what is printed is judged as a boxed answer; extraction = 'boxed' is allowed")
        return answer


class ProgramVerifier(Verifier):
    """Runs the fenced program of a completion, and lets another verifier judge what it prints."""

    Config = ProgramConfig
    accepts_references = False  # a template's ideal answer is no program
    repeatable = False  # a program is timed
    config: ProgramConfig

    def __init__(self, config: ProgramConfig | None = None, sandbox: Sandbox | None = None) -> None:
        super().__init__(config)
        self._sandbox = LazySandbox(self.config.sandbox, sandbox)
        self._judge: Verifier = VERIFIERS.find(self.config.answer.kind)(self.config.answer)

    def check(self, problems: Sequence[Any], template: Any) -> None:
        self._judge.check(problems, template)

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        programs = [extract_program(request.text) for request in requests]
        sources = list(dict.fromkeys(program.answer for program in programs if program.answer is not None))
        ends = dict(zip(sources, self._sandbox.run_many([Program(source) for source in sources]), strict=True))
        results = []
        for program in programs:
            end = None if program.answer is None else ends[program.answer]
            text = "" if end is None else end.stdout.decode("utf-8", "replace").strip()
            if end is None:
                result = Finding(Outcome.UNPARSABLE, program.reason)
            elif end.status is Status.FAILED:
                result = Finding(Outcome.CRASHED, f"the sandbox failed: {end.evidence}")
            elif end.status is not Status.EXITED or end.exit_code:
                last = (end.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [end.evidence])[0]
                result = Finding(Outcome.UNPARSABLE, f"the program did not end well: {last[:200]}")
            elif not text or len(text) > MAX_PRINTED or any(mark in text for mark in "{}\\"):
                result = Finding(Outcome.UNPARSABLE, f"the program printed no answer: {text[:80]!r}")
            else:
                result = Finding(Outcome.NONE, "", text)
            results.append(result)
        printed = [i for i, result in enumerate(results) if result.outcome is Outcome.NONE]
        texts = ["\\boxed{" + str(results[i].answer) + "}" for i in printed]
        boxed = [requests[i]._replace(text=text, prefill="") for i, text in zip(printed, texts, strict=True)]
        for i, judged in zip(printed, self._judge.verify_many(boxed) if boxed else (), strict=True):
            evidence = f"the program printed {results[i].answer!r}: {judged.evidence}"
            results[i] = Finding(judged.outcome, evidence, judged.answer)
        return [verdict(result, self.config, tags_right=False) for result in results]

    def close(self) -> None:
        self._judge.close()
        self._sandbox.close()
