"""A user's own reward: `verifier.kind = "rewards.py:reward"`, or `"package.module:reward"`.

    def reward(completion, reference, **fields) -> float | dict[str, float] | Verdict | None: ...

Arguments are given by name: `completion` (with the prompt's prefill before it), `reference`, `question`, `prompt`,
`id`, `difficulty`, `language`, and every field of the problem's data, which takes precedence where names are equal. A
dict is the reward's parts; None is no verdict. A function with an argument `completions`, `completion_ids` or `prompts`
is called as TRL calls it, with lists: the completions of a group, prompts, tokens and columns, for `float | None` each.
Both may be `async`, and get TRL's `trainer_state`, `log_metric` and `log_extra` where they take them.

The function runs in separate processes whose deadline is kept here; this process never imports it. The file is trusted
like any program that the user runs.
"""

import ast
import difflib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from groupwise.config.places import Place, written_in
from groupwise.errors import ConfigError
from groupwise.runs.progress import counted
from groupwise.types import Outcome, Problem, StepReward, Verdict
from groupwise.verifiers.base import Asks, Request, Verifier, WorkersConfig, refuse_settings
from groupwise.verifiers.workers import START_S, Reply, WorkerPool

OWN = ("completion", "reference", "question", "prompt", "id", "difficulty", "language")
"""Arguments that every problem has."""
LISTS = frozenset(("completions", "prompts", "completion_ids"))
"""Arguments of a function that is called as TRL calls it."""
LIVE = "environments"  # what TRL gives there: instances
BESIDE = ("trainer_state", "log_extra", "log_metric")
"""Arguments that the worker makes."""
MEMORY_BYTES = 16 << 30  # address space of one worker process; the function may import large libraries


class PythonConfig(WorkersConfig):
    """Settings for the values of your own function, `kind = "rewards.py:reward"`; what it gives is the reward."""

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
        if not callable(target) or (
            isinstance(target, type) and not any("__call__" in vars(base) for base in target.__mro__)
        ):
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
        self._num_steps: int | None = None

    @property
    def name(self) -> str:
        return str(self.place)

    @property
    def repeatable(self) -> bool:
        return self.config.repeatable

    @property
    def in_groups(self) -> bool:
        return not LISTS.isdisjoint(self._signature.get("needs", ()))

    @classmethod
    def sources(cls) -> tuple[Path, ...]:
        return written_in(cls.place.file)

    def begin(self, num_steps: int) -> None:
        self._num_steps = num_steps

    def check(self, problems: Sequence[Problem], template: Asks) -> None:
        self._template = template
        arguments = self._read_signature()["needs"]
        fields = [*OWN, *sorted(set.intersection(*(set(problem.data) for problem in problems)))] if problems else [*OWN]
        if not self.in_groups and not self._signature["takes_any"] and arguments.keys().isdisjoint(fields):
            raise ConfigError(
                f"{self.place} takes no argument that is given here ({', '.join([*fields, *sorted(LISTS)])}); where it "
                f"makes a reward function, give a name to what it returns: reward = {self.place.name}(...)"
            )
        given = {*BESIDE, *(LISTS if self.in_groups else ())}
        needs = [name for name, required in arguments.items() if name not in given and (required or name == LIVE)]
        for name in needs:
            example = next((problem for problem in problems if name not in (*OWN, *problem.data)), None)
            if example is not None:
                suggestions = difflib.get_close_matches(name, fields, n=1)
                hint = f" (did you mean {suggestions[0]!r}?)" if suggestions else ""
                hint = " (instances live elsewhere; their class may have get_reward())" if name == LIVE else hint
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
        if not self.in_groups:
            return self._judge_alone(requests)
        batches = [list(batch) for _, batch in groupby(requests, key=lambda each: (each.problem.id, id(each.group)))]
        with ThreadPoolExecutor(self.config.num_workers) as threads:
            verdicts = counted("judged", threads.map(self._judge_together, batches), len(batches))
            return list(chain.from_iterable(verdicts))

    def _judge_alone(self, requests: Sequence[Request]) -> list[Verdict]:
        replies = self._pool.map([self._call([request]) for request in requests], self.config.timeout_s)
        return [self._verdicts([request], reply)[0] for request, reply in zip(requests, replies, strict=True)]

    def _judge_together(self, batch: Sequence[Request]) -> list[Verdict]:
        """Judge a group as lists; if that fails, without those that fail alone, and if none does, not at all."""
        reply = self._pool.call(self._call(batch), self.config.timeout_s * len(batch))
        verdicts = self._verdicts(batch, reply)
        if len(batch) == 1 or (reply.status == "ok" and ("fault" not in reply.value or "of_function" in reply.value)):
            return verdicts
        alone = self._judge_alone(batch)
        others = [index for index, verdict in enumerate(alone) if not verdict.outcome.failed]
        if len(others) == len(batch):
            return verdicts
        by_index = dict(zip(others, self._judge_together([batch[i] for i in others]) if others else (), strict=True))
        return [by_index.get(index, verdict) for index, verdict in enumerate(alone)]

    def _call(self, batch: Sequence[Request]) -> dict[str, Any]:
        columns = [self._fields(request) for request in batch]
        ids = [request.completion.token_ids.tolist() for request in batch if request.completion is not None]
        arguments: dict[str, Any] = columns[0]
        if self.in_groups:
            arguments = {name: [fields[name] for fields in columns] for name in columns[0]}
            texts, prompts = arguments.pop("completion"), arguments.pop("prompt")
            if self._template is not None and self._template.chat:
                texts = [[{"role": "assistant", "content": text}] for text in texts]
                prompts = [self._template.messages(request.problem) for request in batch]
            arguments |= {"completions": texts, "prompts": prompts}
            if len(ids) == len(batch):
                arguments["completion_ids"] = ids
        group = batch[0].group
        known = {"global_step": 0 if group is None else group.step, "max_steps": self._num_steps}
        needs, takes_any = self._signature["needs"], self._signature["takes_any"]
        return {
            **self._request,
            "arguments": self._arguments(arguments),
            "count": len(batch) if self.in_groups else None,
            "beside": [name for name in BESIDE if name in needs or takes_any],
            "without_tokens": needs.get("completion_ids", takes_any) and not ids,
            "state": {name: number for name, number in known.items() if number is not None},
        }

    def _fields(self, request: Request) -> dict[str, Any]:
        problem = request.problem
        prompt = self._template.render(problem) if self._template else problem.question
        values = (request.text, problem.reference, problem.question, prompt, problem.id, problem.difficulty,
               problem.language)  # fmt: skip
        fields = {**dict(zip(OWN, values, strict=True)), **problem.data, "completion": request.text}
        return fields | ({"reference": problem.reference} if problem.reference else {})

    def _arguments(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        names = fields if self._signature["takes_any"] else self._signature["needs"]
        return {name: fields[name] for name in names if name in fields}

    def _read_signature(self) -> Mapping[str, Any]:
        if not self._signature:
            reply = self._pool.call(self._request, START_S)
            if reply.status != "ok":
                raise ConfigError(f"{self.place} cannot be used: {reply.evidence.removeprefix('ConfigError: ')}")
            self._signature = reply.value
        return self._signature

    def _verdicts(self, requests: Sequence[Request], reply: Reply) -> list[Verdict]:
        text, count = requests[0].text, len(requests)
        context = f"{text[:80]!r}{'...' if len(text) > 80 else ''}"
        context = f"for the completion {context}" if count == 1 else f"for {count} completions, the first {context}"
        if reply.status != "ok":
            return [Verdict(Outcome(reply.status), {}, f"{self.place} {context}: {reply.evidence}")] * count
        result = reply.value
        if "abstains" in result:
            return [Verdict(Outcome.NONE, {}, f"{self.place} {result['abstains']}")] * count
        if "fault" in result:
            evidence = f"{self.place} {result['fault']} {context}{result.get('allowed', '')}"
            return [Verdict(Outcome.CRASHED, {}, evidence)] * count
        verdicts = []
        for index, value in enumerate(result["found"]):
            verdict = self._verdict(value, requests[index].text)
            logged = {name: column[index] for name, column in result["columns"].items()}
            words = "".join(f"; {name}: {item[:200]}" for name, item in logged.items() if isinstance(item, str))
            numbers = {name: item for name, item in logged.items() if isinstance(item, float)}
            measures = {**result["metrics"], **numbers, **verdict.measures}
            verdicts.append(replace(verdict, evidence=verdict.evidence + words, measures=measures))
        return verdicts

    def _verdict(self, result: Mapping[str, Any], text: str) -> Verdict:
        if not result:
            return Verdict(Outcome.NONE, {}, f"{self.place} returned None: no verdict")
        if "fault" in result:
            what = f"{result['fault']} for the completion {text[:80]!r}{result['allowed']}"
            return Verdict(Outcome.CRASHED, {}, f"{self.place} {what}")
        if "outcome" in result:
            return Verdict(**{**result, "outcome": Outcome(result["outcome"]),
                              "steps": tuple(StepReward(*step) for step in result["steps"])})  # fmt: skip
        parts = result["parts"]
        outcome = Outcome.CORRECT if sum(parts.values()) > self.config.correct_above else Outcome.WRONG
        is_single = list(parts) == ["reward"]
        values = ", ".join(f"{value:g}" if is_single else f"{name} {value:g}" for name, value in parts.items())
        return Verdict(outcome, parts, f"{self.place} returned {values}")

    def close(self) -> None:
        self._pool.close()
