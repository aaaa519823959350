"""The generators of the library `reasoning-gym` as one task, each problem scored as its own generator says.

[task]
kind = "reasoning_gym"
datasets = ["leg_counting", "spell_backward"]
settings = { leg_counting = { max_animals = 4 } }
"""

import ast
import json
import random
import sys
from collections.abc import Iterator
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, JsonValue

from groupwise.config.places import Place
from groupwise.errors import ConfigError
from groupwise.randomness import key
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask, Template
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.extraction import extract
from groupwise.verifiers.python import MEMORY_BYTES, PythonConfig, PythonVerifier
from groupwise.verifiers.workers import WorkerPool

SEED = 0
BATCH = 8  # problems of a generator that are asked for together
TIMEOUT_S = 600.0  # of a batch; some generators search for seconds
ANSWERS_IN_TAGS = Template(
    prompt=(
        "The user asks a question and the assistant answers it. The assistant first thinks inside <think> </think> and "
        "then gives only the answer inside <answer> </answer>.\nUser: {question}\nAssistant:"
    ),
    gold="<think></think><answer>{reference}</answer>",
)


class ReasoningGymConfig(GeneratedConfig):
    """The generators, and their dials."""

    template: Template = ANSWERS_IN_TAGS
    """Makes the prompt of a problem; answers are read from the one `<answer></answer>`."""
    datasets: tuple[str, ...] = Field(min_length=1)
    """Names of generators of `reasoning-gym`; their problems take turns."""
    settings: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Dials of generators by their names, as the library documents them."""


class ReasoningGym(GeneratedTask):
    """Problems of reasoning-gym; a split is a function of the question alone."""

    Config: ClassVar[type[GeneratedConfig]] = ReasoningGymConfig
    name: ClassVar[str] = "reasoning_gym"
    verifier: ClassVar[str] = "reasoning_gym"
    answers_any_question: ClassVar[bool] = False
    config: ReasoningGymConfig

    def __init__(self, config: ReasoningGymConfig) -> None:
        super().__init__(config)
        for name in config.settings:
            if name not in config.datasets:
                raise ConfigError(f"task.settings.{name}: not one of task.datasets = {', '.join(config.datasets)}")

    def candidates(self) -> Iterator[Candidate]:
        # not made here: many generators choose from a set, whose order differs between two runs of Python
        pool = WorkerPool(f"{__file__}:asked", 1, MEMORY_BYTES, inherit=True)
        parts = [self._of(name, pool) for name in dict.fromkeys(self.config.datasets)]
        return chain.from_iterable(zip(*parts, strict=True))

    def _of(self, name: str, pool: WorkerPool) -> Iterator[Candidate]:
        dials = json.dumps(self.config.settings.get(name, {}), sort_keys=True)
        source = {"dataset": name, "seed": SEED, "settings": dials}
        for begin in count(0, BATCH):
            reply = pool.call({"of": source, "indices": list(range(begin, begin + BATCH))}, TIMEOUT_S)
            if reply.status != "ok":
                raise ConfigError(f"task.datasets: {reply.evidence.removeprefix('ConfigError: ')}")
            for index, (question, reference) in enumerate(reply.value, begin):
                content = f"{name}\n{question}"
                identity = f"{name}/{key('reasoning-gym', content):016x}"
                yield content, Problem(identity, question, reference, name, data={**source, "index": index})


MOST = 1_000_000  # problems that a generator is asked for; it makes each one on demand


class ScoresConfig(PythonConfig):
    """Settings for the scores of reasoning-gym, 0 to 1; the score is the reward."""

    correct_above: float = 0.99
    """A score above this counts as a correct answer: many generators give a little for a well-formed wrong one."""


class ReasoningGymVerifier(PythonVerifier):
    """Asks the generator of the problem, in worker processes. Answers that some generators would run are not run."""

    Config = ScoresConfig
    place: ClassVar[Place] = Place(Path(__file__), "score")
    accepts_references: ClassVar[bool] = True


def score(completion: str, question: str, dataset: str, seed: int, settings: str, index: int) -> float | Verdict:
    """Score the answer by its generator (ConfigError: that asks something else); runs in a worker process."""
    extraction = extract(completion, "tag")
    if extraction.answer is None:
        return Verdict(Outcome.UNPARSABLE, {"reward": 0.0}, extraction.reason)
    entry = made(dataset, seed, settings, index)
    if entry["question"] != question:
        raise ConfigError(f"reasoning-gym makes another problem {index} of {dataset!r} than the one that was asked")
    return float(generator(dataset, seed, settings).score_answer(extraction.answer, entry))


def asked(request: dict[str, Any]) -> list[list[str]]:
    """Make the problems `indices` as pairs of question and reference; runs in a worker process."""
    entries = [made(**request["of"], index=index) for index in request["indices"]]
    return [[each["question"], "" if each["answer"] is None else str(each["answer"])] for each in entries]


def made(dataset: str, seed: int, settings: str, index: int) -> Any:
    """Return a problem as the library has it; the same in all workers, where the order of a set's members is fixed."""
    random.seed(index)  # some generators also draw from it
    return generator(dataset, seed, settings)[index]


_MATHEMATICS = (
    "Symbol", "Integer", "Float", "Rational", "Abs", "abs", "sqrt", "exp", "log", "ln", "sin", "cos", "tan", "cot",
    "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh", "Integral",  # as answers of the library have it
)  # fmt: skip
"""Names that may be called."""
_DATA = (
    ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Name, ast.Load, ast.Call, ast.keyword,
    ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.BoolOp, ast.boolop, ast.Compare, ast.cmpop,
)  # fmt: skip


def evaluated(source: str, *names: Any) -> Any:
    """Stand in for `eval` in a library that hands it what a model wrote: data and mathematics (ValueError: other code).

    >>> evaluated("[1, 2 + 3]"), evaluated("sqrt(4)", {"sqrt": abs})
    ([1, 5], 4)
    """
    tree = ast.parse(source.strip(), mode="eval")
    for node in ast.walk(tree):
        is_other = isinstance(node, ast.Call) and getattr(node.func, "id", "") not in _MATHEMATICS
        if is_other or not isinstance(node, _DATA):
            raise ValueError(f"{source[:60]!r} is more than data and mathematics")
    return eval(compile(tree, "answer", "eval"), *(names or ({},)))


@cache
def generator(name: str, seed: int, settings: str) -> Any:
    """A generator of the library; `settings` are its dials as JSON (ConfigError: names what is missing)."""
    try:
        import reasoning_gym
    except ImportError:
        raise ConfigError("the task reasoning_gym needs a library: pip install 'groupwise[reasoning-gym]'") from None
    try:
        source = reasoning_gym.create_dataset(name, seed=seed, size=MOST, **json.loads(settings))
    except (ValueError, TypeError, AssertionError) as error:
        raise ConfigError(f"reasoning-gym cannot make {name!r} with the settings {settings}: {error}") from None
    for place, module in list(sys.modules.items()):
        if place == "sympy.parsing.sympy_parser" or place.partition(".")[0] == "reasoning_gym":
            vars(module)["eval"] = evaluated
    return source
