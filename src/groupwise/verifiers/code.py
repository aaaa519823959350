"""Programs, judged by hidden tests in a sandbox. The verdict is made outside: see `code_tests`.

A program that crashes, hangs, floods or lies is WRONG; only a sandbox that fails is CRASHED.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pydantic import Field

from groupwise.sandbox.base import Sandbox, SandboxConfig
from groupwise.sandbox.opening import open_sandbox
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.base import Finding, Request, Verifier, VerifierConfig, verdict
from groupwise.verifiers.code_extraction import extract_program
from groupwise.verifiers.code_tests import SandboxFailedError, Tests, read_tests
from groupwise.verifiers.extraction import Extracted


class CodeConfig(VerifierConfig):
    """Settings of the verifier of programs."""

    partial_credit: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Reward part `partial`: this times the share of hidden tests passed. 0: no such part, and tests after the first
    failure may be left out."""
    sandbox: SandboxConfig = SandboxConfig()
    """Where programs of completions run."""


class CodeVerifier(Verifier):
    """Runs the fenced program of a completion against `problem.data`. The sandbox opens when first needed."""

    Config = CodeConfig
    one_right = True  # of an attack; a right program is any that passes
    repeatable = False  # a program is timed
    config: CodeConfig

    def __init__(self, config: CodeConfig | None = None, sandbox: Sandbox | None = None) -> None:
        super().__init__(config)
        self._sandbox = sandbox

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        """One verdict per request; equal programs for one problem run once.

        Raises:
            SandboxError: no sandbox is available here.
        """
        programs = [extract_program(request.text) for request in requests]
        jobs = {
            (request.problem.id, program.answer): request.problem
            for request, program in zip(requests, programs, strict=True)
            if program.answer is not None
        }
        findings = dict(
            zip(jobs, self._judge_all([(problem, source) for (_, source), problem in jobs.items()]), strict=True)
        )
        return [
            verdict(Finding(Outcome.UNPARSABLE, program.reason), self.config, tags_right=False)
            if program.answer is None
            else self._verdict(*findings[request.problem.id, program.answer], program)
            for request, program in zip(requests, programs, strict=True)
        ]

    def _judge_all(self, jobs: Sequence[tuple[Problem, str]]) -> list[tuple[Finding, float | None]]:
        if not jobs:
            return []
        sandbox = self._sandbox = self._sandbox or open_sandbox(self.config.sandbox)
        with ThreadPoolExecutor(self.config.sandbox.num_workers) as threads:
            return list(threads.map(lambda job: self._judge(job[0], job[1], sandbox), jobs))

    def _judge(self, problem: Problem, source: str, sandbox: Sandbox) -> tuple[Finding, float | None]:
        """A finding and the share of tests passed, where all were run."""
        try:
            tests = read_tests(problem.data)
            faults = tests.faults(source, sandbox, stop_early=self.config.partial_credit == 0)
        except ValueError as error:
            return Finding(Outcome.CRASHED, f"problem {problem.id}: {error}"), None
        except SandboxFailedError as error:
            return Finding(Outcome.CRASHED, f"the sandbox failed: {error}"), None
        share = faults.count("") / len(tests) if len(faults) == len(tests) else None
        return _finding(faults, tests, source), share

    def _verdict(self, finding: Finding, share: float | None, program: Extracted) -> Verdict:
        result = verdict(finding, self.config, tags_right=program.tags_right)
        if share is None:
            return result
        extra_parts = {"partial": self.config.partial_credit * share} if self.config.partial_credit else {}
        return replace(result, parts={**result.parts, **extra_parts}, measures={"tests_passed": share})

    def close(self) -> None:
        """End the sandbox; it is opened again when needed."""
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None


def _finding(faults: Sequence[str], tests: Tests, source: str) -> Finding:
    """CORRECT when every test passed; the evidence is the first that did not, without what it expected."""
    failure = next((index for index, fault in enumerate(faults) if fault), None)
    if failure is None:
        return Finding(Outcome.CORRECT, f"it passes {len(tests)} tests", source)
    return Finding(Outcome.WRONG, f"test {failure + 1} of {len(tests)}: {faults[failure]}", source)
