"""Programs, judged by hidden tests in a sandbox, or by what they print, which is the answer (programs of thought).

What is expected never enters the sandbox that holds the program.

A program that crashes, hangs, floods or lies is WRONG; only a sandbox that fails is CRASHED, and tests that are broken.
`problem.data["form"]` names one of four forms of tests. The `tolerance` of the first two is the difference allowed
between numbers that are not both whole, relative above 1.

- `calls`: `entry_point`, and `calls`, each with `args` (a tuple) and `expected` as Python literals, or as JSON where
  `values` is `json` (they run with the library at hand, as methods are judged); `or` is a second right answer. Each
  call has the time of a run. Only arguments enter the sandbox; answers leave it as plain data and are compared here,
  with == but for NaN, which equals itself, and `tolerance`.
- `stdio`: `tests`, each with `input` and `output`. Only the input enters; output is compared here, token by token, so
  that spaces and ends of lines, whichever they are, separate and are nothing else.
- `python`: `setup`, `names` and `tests` (sources). They run in a second sandbox, the tester's, which asks the first.
- `reference`: `entry_point`, `inputs` (a list of arguments each), and `reference`, a program whose answers are
  right; it runs in a sandbox of its own, and what it cannot answer counts for nobody. `also` is a second such program.
  Floats are compared as EvalPlus does, within `atol`; `around` is put behind each program, to change what the function
  returns; with `root` every root of the polynomial that is asked about is right. The measure `base` says whether the
  first `base` inputs, those of the original benchmark, are passed.
"""

import ast
import contextlib
import json
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, field_validator

from groupwise.runs.progress import counted
from groupwise.sandbox.base import OUTPUT_KB, Program, RunResult, Sandbox, SandboxConfig, Status
from groupwise.sandbox.functions import Answer, read_answers, read_findings, solver_program, tester_program
from groupwise.sandbox.opening import LazySandbox
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.base import Finding, Request, Verifier, VerifierConfig, verdict
from groupwise.verifiers.extraction import Extracted, extract_program, sanitised
from groupwise.verifiers.table import VERIFIERS

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
_WORDS = {"+nan": "nan", "-nan": "nan", "+inf": "inf", "infinity": "inf", "+infinity": "inf", "-infinity": "-inf"}
_MAX_SHOWN = 200
_AT_A_LIMIT = (-signal.SIGXCPU, -signal.SIGKILL, -signal.SIGSEGV)  # of time, of memory, of the stack


class SandboxFailedError(Exception):
    """The sandbox failed, so nothing is known about the program."""


class Tests(NamedTuple):
    """The tests of one problem."""

    number: int
    faults: Callable[[str, Sandbox, bool], list[str]]
    """Return each test's fault, empty for one that passed, of a source in a sandbox (SandboxFailedError); fewer where
    an early stop is allowed."""


def call_tests(data: Mapping[str, Any]) -> Tests:
    """Calls of one function (arguments, and the answers that are right)."""
    entry, as_json, tolerance = data["entry_point"], data.get("values") == "json", float(data.get("tolerance", 0.0))
    read: Callable[[str], Any] = json.loads if as_json else ast.literal_eval
    calls = [
        (tuple(read(call["args"])), [read(call[key]) for key in ("expected", "or") if key in call])
        for call in data["calls"]
    ]

    def faults(source: str, sandbox: Sandbox, stop_early: bool) -> list[str]:
        def program(rest: Calls) -> Program:
            size = OUTPUT_KB + (len(ascii(data["calls"])) >> 8)  # for four times as much
            return replace(solver_program(source, rest, with_library=as_json), output_kb=size)

        faults, asked = list[str](), [(entry, args) for args, _ in calls]
        for answers in answered(program, asked, sandbox, len(calls)):
            for (args, right), answer in zip(calls[len(faults) :], answers, strict=False):
                value = _as_json(answer.value) if as_json else answer.value  # tuples are lists, and keys are text
                is_right = not answer.fault and any(same_value(value, expected, tolerance) for expected in right)
                faults.append("" if is_right else _call_fault(entry, args, answer))
            if stop_early and any(faults):
                break
        return faults

    return Tests(len(calls), faults)


Calls = Sequence[tuple[str, Sequence[Any]]]


def answered(
    program: Callable[[Calls], Program], calls: Calls, sandbox: Sandbox, most_runs: int
) -> Iterator[list[Answer]]:
    """Yield the answers of each run, together those to all calls: what a limit of one leaves out, another answers.

    A call that takes a whole run to its limit has no answer, and neither has what comes after the runs, or after two
    runs in a row that answered nothing.
    """
    rest, runs, silent, goes_on = calls, 0, 0, True
    while goes_on:
        runs += 1
        result = _require_run(sandbox.run(program(rest)))
        given, number = read_answers(result, len(rest)), result.stdout.count(b"\n")
        silent, number = 0 if number else silent + 1, max(1, number)
        is_limited = result.status in (Status.FLOODED, Status.TIMEOUT) or result.exit_code in _AT_A_LIMIT
        goes_on = is_limited and runs < most_runs and number < len(rest) and silent < 2
        yield given[:number] if goes_on else given
        rest = rest[number:]


def _call_fault(entry_point: str, args: Sequence[Any], answer: Answer) -> str:
    call = f"{entry_point}({', '.join(map(_shown, args))})"[:_MAX_SHOWN]
    return f"{call}: {answer.fault or f'it returned {_shown(answer.value)}'[:_MAX_SHOWN]}"


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # Python prints no integer that is longer than this
        return f"a value with an integer of more than {sys.get_int_max_str_digits()} digits"


def _as_json(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        converted = {}
        for key, item in value.items():
            with contextlib.suppress(ValueError):  # an integer of more digits than any key of JSON
                key = json.dumps(key) if isinstance(key, int | float | None) else key
            converted[key] = _as_json(item)
        return converted
    return value


def same_value(value: Any, expected: Any, tolerance: float) -> bool:
    """Compare plain data with ==, but NaN equals itself, and numbers that are not both whole may differ."""
    if value == expected:
        return True
    if isinstance(value, Fraction):
        value = Decimal(value.numerator) / value.denominator
    kinds = (float, int, Decimal)
    numbers = [item for item in (value, expected) if isinstance(item, kinds) and not isinstance(item, bool)]
    if len(numbers) == 2 and not (isinstance(value, int) and isinstance(expected, int)):
        if value != value or expected != expected:
            return bool(value != value and expected != expected)
        return bool(tolerance) and is_close(Decimal(value), Decimal(expected), tolerance)
    if type(value) is not type(expected) or not isinstance(value, list | tuple | dict) or len(value) != len(expected):
        return False
    if isinstance(value, dict):
        return value.keys() == expected.keys() and all(same_value(value[k], expected[k], tolerance) for k in value)
    return all(same_value(*pair, tolerance) for pair in zip(value, expected, strict=True))


def is_close(number: Decimal, other: Decimal, tolerance: float) -> bool:
    """True where two numbers differ by the tolerance at most, relative above 1; infinite ones differ from others."""
    if not (number.is_finite() and other.is_finite()):
        return number == other
    return abs(number - other) <= Decimal(tolerance) * max(Decimal(1), abs(number), abs(other))


def stdio_tests(data: Mapping[str, Any]) -> Tests:
    """Inputs, with the outputs they must give."""
    tests, tolerance = [(test["input"], test["output"]) for test in data["tests"]], float(data.get("tolerance", 0.0))
    if wrong := next((text for test in tests for text in test if not isinstance(text, str)), None):
        raise TypeError(f"{wrong!r:.60} is no text")

    def faults(source: str, sandbox: Sandbox, stop_early: bool) -> list[str]:
        faults = list[str]()
        for stdin, expected in tests:
            program = Program(source, stdin=stdin.encode(), output_kb=OUTPUT_KB + (len(expected.encode()) >> 8))
            result = _require_run(sandbox.run(program))
            output = result.stdout.decode("utf-8", errors="replace")
            if result.status is not Status.EXITED or result.exit_code != 0:
                faults.append(result.ending)
            else:
                faults.append("" if same_tokens(output, expected, tolerance) else f"it printed {output[:_MAX_SHOWN]!r}")
            if stop_early and faults[-1]:
                break
        return faults

    return Tests(len(tests), faults)


def python_tests(data: Mapping[str, Any]) -> Tests:
    """Tests that are Python themselves."""
    setup, names, tests = data["setup"], tuple(data["names"]), tuple(data["tests"])

    def faults(source: str, sandbox: Sandbox, _: bool) -> list[str]:
        ((tester, solver),) = sandbox.run_all([(tester_program(setup, names, tests), solver_program(source))])
        faults = read_findings(_require_run(tester), len(tests))
        return [fault and f"{fault}; {_require_run(solver).ending}" for fault in faults]

    return Tests(len(tests), faults)


def reference_tests(data: Mapping[str, Any]) -> Tests:
    """Inputs on which a function must return what a reference program returns; EvalPlus's way to compare."""
    entry, inputs = data["entry_point"], tuple(map(tuple, data["inputs"]))
    references = [data[key] for key in ("reference", "also") if key in data]
    around, atol = data.get("around", ""), float(data.get("atol", 0.0))

    def faults(source: str, sandbox: Sandbox, _: bool) -> list[str]:
        def answers_of(text: str, most_runs: int) -> tuple[list[Answer], int]:
            calls = [(entry, args) for args in inputs]
            runs = list(answered(lambda rest: solver_program(text + around, rest), calls, sandbox, most_runs))
            return [answer for answers in runs for answer in answers], len(runs)

        right, runs = zip(*(answers_of(each, len(inputs)) for each in references), strict=True)
        if all(answer.fault for answer in right[0]):
            raise ValueError(f"its reference program gives no answer: {right[0][0].fault}")
        answers, _runs = answers_of(source, 2 * max(runs))
        faults = []
        for args, answer, *expected in zip(inputs, answers, *right, strict=True):
            is_right = not answer.fault and (
                is_root(answer.value, args[0])
                if data.get("root")
                else any(same_output(answer.value, each.value, atol) for each in expected)
            )
            # too large an answer of the reference, or none of plain data: nothing is known of this input
            is_open = bool(expected[0].fault)
            faults.append("" if is_right or is_open else _call_fault(entry, args, answer))
        return faults

    return Tests(len(inputs), faults)


def is_root(value: Any, coefficients: Sequence[float]) -> bool:
    """True for a number at which a polynomial, lowest power first, is 0 within 1e-4."""
    if not isinstance(value, int | float | complex | Fraction):
        return False
    try:
        number = value if isinstance(value, complex) else float(value)
        return bool(abs(sum(factor * number**power for power, factor in enumerate(coefficients))) <= 1e-4)
    except OverflowError:
        return False


def same_output(value: Any, expected: Any, atol: float) -> bool:
    """Compare as EvalPlus 0.3.1 does: ==, or floats of the same type and length within `atol`, at least 1e-6."""
    if value == expected:
        return True
    items = list(expected) if isinstance(expected, list | tuple) else [expected]
    if not atol and not (items and all(isinstance(item, float) for item in items)):
        return False
    if type(value) is not type(expected) or (isinstance(expected, list | tuple) and len(value) != len(expected)):
        return False
    pairs = zip(value if isinstance(value, list | tuple) else [value], items, strict=True)
    return all(_is_near(number, right, atol or 1e-6) for number, right in pairs)


def _is_near(number: Any, right: Any, atol: float) -> bool:
    try:
        if number != number and right != right:
            return False  # as numpy.allclose, to which NaN equals nothing
        return bool(number == right or abs(number - right) <= atol + 1e-7 * abs(right))
    except (TypeError, OverflowError):
        return False


def _require_run(result: RunResult) -> RunResult:
    if result.status is Status.FAILED:
        raise SandboxFailedError(result.evidence)
    return result


_FORMS = {"calls": call_tests, "stdio": stdio_tests, "python": python_tests, "reference": reference_tests}


def read_tests(data: Mapping[str, Any]) -> Tests:
    """The tests of a problem (ValueError: there are none, or they cannot be read)."""
    try:
        tests = _FORMS[data["form"]](data)
    except (KeyError, TypeError, SyntaxError, ValueError) as error:
        raise ValueError(f"its tests cannot be read: {error!r}") from None
    if tests.number == 0:
        raise ValueError("it has no tests")
    return tests


def same_tokens(output: str, expected: str, tolerance: float) -> bool:
    """Compare two texts token by token; numbers that are not both whole may differ by the tolerance."""
    tokens, targets = output.split(), expected.split()
    if len(tokens) != len(targets):
        return False
    for token, target in zip(tokens, targets, strict=True):
        if token == target:
            continue
        if not tolerance:
            return False
        if _NUMBER.fullmatch(token) and _NUMBER.fullmatch(target):
            number, right = Decimal(token), Decimal(target)
            are_whole = token.lstrip("+-").isdigit() and target.lstrip("+-").isdigit()
            if number != right and (are_whole or not is_close(number, right, tolerance)):
                return False
        else:
            words = {_WORDS.get(word.lower(), word.lower()) for word in (token, target)}
            if len(words) == 2 or words.isdisjoint(("nan", "inf", "-inf")):
                return False
    return True


class CodeConfig(VerifierConfig):
    """Settings of the verifier of programs."""

    partial_credit: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Reward part `partial`: this times the share of hidden tests passed. 0: no such part, and tests after the first
    failure may be left out."""
    program: Literal["fenced", "first", "sanitised", "continued", "whole"] = "fenced"
    """The program of a completion: the last closed `python` block (`fenced`); the first block, without one the text
    (`first`); what EvalPlus's sanitiser makes of the text (`sanitised`), or of the problem's stub with the text behind
    it (`continued`); the text as it is (`whole`)."""
    sandbox: SandboxConfig = SandboxConfig()
    """Sandbox in which programs of completions run."""


class CodeVerifier(Verifier):
    """Runs the fenced program of a completion against `problem.data`. The sandbox opens when first needed."""

    Config = CodeConfig
    one_right = True  # of an attack; a right program is any that passes
    repeatable = False  # a program is timed
    config: CodeConfig

    def __init__(self, config: CodeConfig | None = None, sandbox: Sandbox | None = None) -> None:
        super().__init__(config)
        self._sandbox = LazySandbox(self.config.sandbox, sandbox)

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        programs = [self._program(request) for request in requests]
        jobs = {
            (request.problem.id, program.answer): request.problem
            for request, program in zip(requests, programs, strict=True)
            if program.answer is not None
        }
        with ThreadPoolExecutor(self.config.sandbox.num_workers) as threads:
            results = threads.map(lambda job: self._judge(jobs[job], job[1]), jobs)
            findings = dict(zip(jobs, counted("programs judged", results, len(jobs)), strict=True))
        return [
            verdict(Finding(Outcome.UNPARSABLE, program.reason), self.config, tags_right=False)
            if program.answer is None
            else self._verdict(findings[request.problem.id, program.answer], program)
            for request, program in zip(requests, programs, strict=True)
        ]

    def _program(self, request: Request) -> Extracted:
        form, text, data = self.config.program, request.text, request.problem.data
        if form == "fenced":
            return extract_program(text)
        if form == "first":
            text = re.sub(r"(?s)^.*?```(?:python)?(.*?)```.*", r"\1", text).strip()
        elif form != "whole":
            text = data.get("stub", "") + text if form == "continued" else text
            # tabs as EvalPlus has them, whose decoder writes four spaces
            text = sanitised(text.replace("\t", "    "), data.get("entry_point", ""))
        return Extracted(text, "", False) if text.strip() else Extracted(None, "it is empty", False)

    def _judge(self, problem: Problem, source: str) -> Finding:
        """Return a finding and, where all tests were run, measures: the share of tests passed, and `base`."""
        try:
            tests = read_tests(problem.data)
            faults = tests.faults(source, self._sandbox, self.config.partial_credit == 0)
        except ValueError as error:
            return Finding(Outcome.CRASHED, f"problem {problem.id}: {error}")
        except SandboxFailedError as error:
            return Finding(Outcome.CRASHED, f"the sandbox failed: {error}")
        measures = {"tests_passed": faults.count("") / tests.number} if len(faults) == tests.number else {}
        if "base" in problem.data:
            measures["base"] = float(not any(faults[: problem.data["base"]]))
        if (failure := next((index for index, fault in enumerate(faults) if fault), None)) is None:
            return Finding(Outcome.CORRECT, f"it passes {tests.number} tests", source, measures)
        # the first that did not pass, without what it expected
        return Finding(Outcome.WRONG, f"test {failure + 1} of {tests.number}: {faults[failure]}", source, measures)

    def _verdict(self, finding: Finding, program: Extracted) -> Verdict:
        result = verdict(finding, self.config, tags_right=program.tags_right)
        if not self.config.partial_credit or "tests_passed" not in finding.measures:
            return result
        partial = self.config.partial_credit * finding.measures["tests_passed"]
        return replace(result, parts={**result.parts, "partial": partial})

    def close(self) -> None:
        self._sandbox.close()


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
    """Runs the fenced program of a completion, and lets another verifier judge what it prints.

    A program that crashes, hangs or prints nothing has no answer; only a sandbox that fails is CRASHED.
    """

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
