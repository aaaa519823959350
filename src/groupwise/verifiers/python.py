"""A user's own reward: `verifier.kind = "rewards.py:reward"`, or `"package.module:reward"`.

    def reward(completion, reference, **fields) -> float | dict[str, float] | Verdict | None: ...

Arguments are given by name: `completion` (with the prompt's prefill before it), `reference`, `question`, `prompt`,
`id`, `difficulty`, `language`, and every field of the problem's data, which takes precedence where names are equal. A
dict is the reward's parts; None is no verdict. A function with an argument `completions` is called as TRL calls it:
with the lists of a problem's completions, prompts and columns, for a list of `float | None`.

The function runs in separate processes whose deadline is kept here; this process never imports it. The file is trusted
like any program that the user runs.
"""

import ast
import difflib
import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from groupwise.config.places import Place, written_in
from groupwise.errors import ConfigError
from groupwise.types import Outcome, Problem, StepReward, Verdict
from groupwise.verifiers.base import Asks, Request, Verifier, WorkersConfig, refuse_settings
from groupwise.verifiers.workers import START_S, Reply, WorkerPool

OWN = ("completion", "reference", "question", "prompt", "id", "difficulty", "language")
"""Arguments that every problem has."""


MEMORY_BYTES = 16 << 30  # address space of one worker process; the function may import large libraries


class PythonConfig(WorkersConfig):
    """Settings for the values of a user's function."""

    correct_above: float = Field(default=0.5, allow_inf_nan=False)
    """A reward above this counts as a correct answer: in pass@k, in majority votes and for gates."""
    repeatable: bool = True
    """True when equal completions always get equal values; `false` switches off repeated checks of a few."""

    @model_validator(mode="after")
    def _check_pay(self) -> Self:
        refuse_settings(self, ("correct_reward", "format_reward"), "verifier", f"{self.kind} says itself what it pays")
        return self


def adopt(place: Place) -> type[Verifier]:
    """The verifier at a place: a user's class as it is, else a user's function in worker processes (ConfigError)."""
    if not isinstance(place.definition(), ast.FunctionDef | ast.AsyncFunctionDef):
        target = place.load()
        if isinstance(target, type) and issubclass(target, Verifier):
            return target
        if not callable(target) or (isinstance(target, type) and "__call__" not in vars(target)):
            raise ConfigError(f"{place} is not a verifier: a function or a subclass of Verifier is needed")
    return type(place.name, (PythonVerifier,), {"place": place, "__doc__": f"Judges by {place}."})


class PythonVerifier(Verifier):
    """Judges by a user's function; `adopt` makes a subclass for a place."""

    Config: ClassVar[type[PythonConfig]] = PythonConfig
    place: ClassVar[Place]
    accepts_references: ClassVar[bool] = False
    config: PythonConfig

    def __init__(self, config: PythonConfig | None = None) -> None:
        super().__init__(config or PythonConfig(kind=str(self.place)))
        self._request = {"place": [str(self.place.file.resolve()), self.place.name, self.place.module]}
        self._pool = WorkerPool(
            "groupwise.verifiers._python:judge", self.config.num_workers, MEMORY_BYTES,
            prepare=self._request, inherit=True,
        )  # fmt: skip
        self._template: Asks | None = None
        self._signature: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        return str(self.place)

    @property
    def repeatable(self) -> bool:
        return self.config.repeatable

    @classmethod
    def sources(cls) -> tuple[Path, ...]:
        return written_in(cls.place.file)

    def check(self, problems: Sequence[Problem], template: Asks) -> None:
        self._template = template
        arguments = self._read_signature()["needs"]
        lists = ("completions", "prompts") if self._takes_lists else ()
        needs = [name for name, is_required in arguments.items() if is_required and name not in lists]
        fields = [*OWN, *sorted(set.intersection(*(set(problem.data) for problem in problems)))] if problems else OWN
        for name in needs:
            example = next((problem for problem in problems if name not in (*OWN, *problem.data)), None)
            if example is not None:
                suggestions = difflib.get_close_matches(name, fields, n=1)
                hint = f" (did you mean {suggestions[0]!r}?)" if suggestions else ""
                raise ConfigError(
                    f"{self.place} needs the argument {name!r}, which is not a field of problem {example.id}{hint}; "
                    f"every problem has {', '.join(fields)}"
                )
        for problem in problems:
            for name, value in self._arguments(self._fields(Request(problem, ""))).items():
                try:
                    json.dumps(value)
                except (TypeError, ValueError):
                    raise ConfigError(
                        f"{self.place} cannot be given the field {name!r} of problem {problem.id}: it is a "
                        f"{type(value).__name__}; only what JSON can hold is allowed"
                    ) from None

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        try:
            self._read_signature()
        except ConfigError as error:
            return [Verdict(Outcome.CRASHED, {}, str(error)) for _ in requests]
        if self._takes_lists:
            batches = [list(batch) for _, batch in groupby(requests, key=lambda request: request.problem.id)]
            return [verdict for batch in batches for verdict in self._judge_together(batch)]
        calls = [
            {**self._request, "arguments": self._arguments(self._fields(request)), "count": None}
            for request in requests
        ]
        replies = self._pool.map(calls, self.config.timeout_s)
        return [self._verdicts([request], reply)[0] for request, reply in zip(requests, replies, strict=True)]

    def _judge_together(self, batch: Sequence[Request]) -> list[Verdict]:
        """Judge completions of one problem as lists; if that fails, one by one, so that only the culprit fails."""
        reply = self._pool.call(self._call_with_lists(batch), self.config.timeout_s)
        if len(batch) == 1 or (reply.status == "ok" and "found" in reply.value):
            return self._verdicts(batch, reply)
        replies = self._pool.map([self._call_with_lists([request]) for request in batch], self.config.timeout_s)
        return [self._verdicts([request], reply)[0] for request, reply in zip(batch, replies, strict=True)]

    def _call_with_lists(self, batch: Sequence[Request]) -> dict[str, Any]:
        columns = [self._fields(request) for request in batch]
        chat = self._template is not None and self._template.chat
        texts, prompts = [fields.pop("completion") for fields in columns], [fields.pop("prompt") for fields in columns]
        lists: dict[str, Any] = {name: [fields[name] for fields in columns] for name in columns[0]}
        lists["completions"] = [[{"role": "assistant", "content": text}] for text in texts] if chat else texts
        lists["prompts"] = [self._messages(prompt) for prompt in prompts] if chat else prompts
        return {**self._request, "arguments": self._arguments(lists), "count": len(batch)}

    def _messages(self, prompt: str) -> list[dict[str, str]]:
        assert self._template is not None  # only with a chat template
        system = [{"role": "system", "content": self._template.system}] if self._template.system else []
        return [*system, {"role": "user", "content": prompt}]

    def _fields(self, request: Request) -> dict[str, Any]:
        problem = request.problem
        prompt = self._template.render(problem) if self._template else problem.question
        values = (request.text, problem.reference, problem.question, prompt, problem.id, problem.difficulty,
               problem.language)  # fmt: skip
        return {**dict(zip(OWN, values, strict=True)), **problem.data, "completion": request.text}

    def _arguments(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        names = fields if self._signature["takes_any"] else self._signature["needs"]
        return {name: fields[name] for name in names if name in fields}

    @property
    def _takes_lists(self) -> bool:
        return "completions" in self._signature["needs"]

    def _read_signature(self) -> Mapping[str, Any]:
        if not self._signature:
            reply = self._pool.call(self._request, START_S)
            if reply.status != "ok":
                raise ConfigError(f"{self.place} cannot be used: {reply.evidence.removeprefix('ConfigError: ')}")
            self._signature = reply.value
        return self._signature

    def _verdicts(self, requests: Sequence[Request], reply: Reply) -> list[Verdict]:
        text = requests[0].text
        context = f"for the completion {text[:80]!r}{'...' if len(text) > 80 else ''}"
        if reply.status != "ok":
            return [Verdict(Outcome(reply.status), {}, f"{self.place} {context}: {reply.evidence}")] * len(requests)
        if "fault" in reply.value:
            evidence = f"{self.place} {reply.value['fault']} {context}{reply.value['allowed']}"
            return [Verdict(Outcome.CRASHED, {}, evidence)] * len(requests)
        return [self._verdict(result) for result in reply.value["found"]]

    def _verdict(self, result: Mapping[str, Any]) -> Verdict:
        if not result:
            return Verdict(Outcome.NONE, {}, f"{self.place} returned None: no verdict")
        if "outcome" in result:
            return Verdict(**{**result, "outcome": Outcome(result["outcome"]),
                              "steps": tuple(StepReward(*step) for step in result["steps"])})  # fmt: skip
        parts = result["parts"]
        outcome = Outcome.CORRECT if sum(parts.values()) > self.config.correct_above else Outcome.WRONG
        values = ", ".join(
            f"{value:g}" if list(parts) == ["reward"] else f"{n} {value:g}" for n, value in parts.items()
        )
        return Verdict(outcome, parts, f"{self.place} returned {values}")

    def close(self) -> None:
        self._pool.close()
