"""One pool of samples for each problem, from which every method without a search draws; their scores; and the store.

A part holds the results of a few problems: one that exists is read, one that does not is made, so a kill loses one
part. A folder is named by the hash of everything that its content depends on; other settings use another folder. Time
is stored beside the parts, because it differs between repeats.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar

from groupwise.algorithms.step_metrics import aggregated
from groupwise.errors import ConfigError, DataError
from groupwise.models.config import ModelConfig
from groupwise.models.prompts import encode_prompt
from groupwise.models.reward_model import RewardModel, check_number
from groupwise.models.steps import EncodedSteps, ScoresSteps, check_reads, encode_steps, load_scorer, score_rows
from groupwise.randomness import Draws
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.atomic import write_file
from groupwise.runs.progress import say
from groupwise.runs.rollouts import read_rows, write_rollouts
from groupwise.runs.row import Row
from groupwise.tasks.step_rows import StepRow
from groupwise.types import FinishReason, Outcome, Problem
from groupwise.verifiers.steps import steps_after

T = TypeVar("T")
PROBLEMS_PER_PART = 16


class Store(NamedTuple):
    """A folder of parts."""

    folder: Path
    title: str

    @classmethod
    def of(cls, directory: Path, name: str, identity: Mapping[str, Any], title: str = "problems") -> Self:
        text = json.dumps(identity, indent=1, sort_keys=True, ensure_ascii=False)
        folder = directory / f"{name}-{sha256(text.encode()).hexdigest()[:12]}"
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "identity.json").exists():
            write_file(folder / "identity.json", text.encode())
        return cls(folder, title)

    def parts(self, items: Sequence[T]) -> Iterator[tuple[int, Sequence[T]]]:
        for start in range(0, len(items), PROBLEMS_PER_PART):
            say(self.title, start, len(items))
            yield start // PROBLEMS_PER_PART, items[start : start + PROBLEMS_PER_PART]
        say(self.title, 1, 1)

    def file(self, number: int, suffix: str, make: Callable[[Path], None]) -> tuple[Path, float]:
        file, clock = self.folder / f"part-{number:06d}{suffix}", self.folder / f"seconds-{number:06d}.json"
        if not (file.exists() and clock.exists()):
            start = time.perf_counter()
            made = file.with_name(f".{file.name}.made")
            make(made)
            write_file(clock, json.dumps(time.perf_counter() - start).encode())
            made.replace(file)  # last: a part that exists has its seconds
        return file, float(_read_json(clock))

    def values(
        self, items: Sequence[T], make: Callable[[Sequence[T]], Sequence[Any]]
    ) -> Iterator[tuple[T, Any, float]]:
        for number, part in self.parts(items):

            def write(path: Path, part: Sequence[T] = part) -> None:
                write_file(path, json.dumps(make(part)).encode())

            file, seconds = self.file(number, ".json", write)
            for item, value in zip(part, _read_json(file), strict=True):
                yield item, value, seconds / len(part)


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read ({error}): delete it, and it is made again") from None


class Sample(NamedTuple):
    """A judged completion."""

    text: str
    prefill: str
    finished: bool
    """True where it ended with a stop token; one that was cut off is no answer, and no model scores it."""
    answer: str | None
    right: bool
    num_tokens: int
    num_put_in: int = 0

    @classmethod
    def of(cls, row: Row) -> Self:
        finished, right = row.finish_reason is FinishReason.STOP, row.outcome is Outcome.CORRECT
        return cls(row.text, row.prefill, finished, row.answer, right, row.length, row.num_put_in)


class Pool(NamedTuple):
    """The judged samples of one problem."""

    problem: Problem
    prompt: str
    prompt_tokens: int
    samples: tuple[Sample, ...]
    seconds: float

    @property
    def right(self) -> list[bool]:
        return [sample.right for sample in self.samples]

    @property
    def answers(self) -> list[str | None]:
        return [sample.answer for sample in self.samples]

    @property
    def pass_rate(self) -> float:
        return sum(self.right) / len(self.samples)

    @property
    def mean_tokens(self) -> float:
        return sum(sample.num_tokens for sample in self.samples) / len(self.samples)


@dataclass(frozen=True, slots=True)
class Sampler:
    """Samples pools and stores them."""

    actors: Actors
    sampling: SamplingConfig
    draws: Draws
    directory: Path
    identity: Mapping[str, Any]

    def pools(self, problems: Sequence[Problem], num_samples: int, name: str = "pool") -> list[Pool]:
        store = self.store(name, num_samples)
        pools: list[Pool] = []
        for number, part in store.parts(problems):

            def write(path: Path, part: Sequence[Problem] = part) -> None:
                scored = sample_and_score(self.actors, part, num_samples, self.sampling, self.draws)
                write_rollouts(path, scored, tokens="sampled")

            file, seconds = store.file(number, ".parquet", write)
            rows = read_rows(file)
            if [row.problem for row in rows[::num_samples]] != [problem.id for problem in part]:
                raise DataError(f"{file} holds other problems than the settings name: delete it, and it is made again")
            for problem in part:
                prompt = encode_prompt(self.actors.policy, self.actors.template, problem)
                judged = tuple(Sample.of(row) for row in rows if row.problem == problem.id and row.outcome.judged)
                pools.append(Pool(problem, prompt.text, len(prompt.token_ids), judged, seconds / len(rows)))
        return pools

    def greedy(self, problems: Sequence[Problem]) -> list[Pool]:
        sampling = self.sampling.model_copy(update={"temperature": 0.0, "top_k": 0, "top_p": 1.0})
        return replace(self, sampling=sampling).pools(problems, 1, "greedy")

    def drawing(self, detail: str) -> Self:
        return replace(self, draws=replace(self.draws, detail=detail))

    def store(self, name: str, num_samples: int, more: Mapping[str, Any] | None = None, title: str = "") -> Store:
        return Store.of(self.directory, name, {**self.identity_of(num_samples), **(more or {})}, title or name)

    def identity_of(self, num_samples: int) -> dict[str, Any]:
        # the number of completions in flight and CUDA graphs do not change what is drawn
        sampling = self.sampling.model_dump(exclude={"max_live_completions", "cuda_graphs"})
        draws = {"seed": self.draws.seed, "purpose": self.draws.name}
        return {**self.identity, "samples": num_samples, "sampling": sampling, **draws}


def check_budgets(budgets: Sequence[int], num_samples: int) -> tuple[int, ...]:
    """Return the budgets in order, each once."""
    if not budgets or min(budgets) < 1 or max(budgets) > num_samples:
        raise ConfigError(
            f"budgets {', '.join(map(str, budgets)) or 'none'} from a pool of {num_samples} samples: 1 to "
            f"{num_samples} are allowed; more need --samples {max([*budgets, 1])} or above"
        )
    return tuple(sorted(set(budgets)))


def enough(pools: Sequence[Pool], largest: int) -> tuple[list[int], list[str]]:
    """Return the places of the problems with at least `largest` judged samples, and the ids of the others."""
    if not (kept := [index for index, pool in enumerate(pools) if len(pool.samples) >= largest]):
        most = max((len(pool.samples) for pool in pools), default=0)
        raise DataError(f"no problem has {largest} judged samples: at most {most} are judged, so budgets end there")
    return kept, [pool.problem.id for pool in pools if len(pool.samples) < largest]


Role = Literal["prm", "orm"]
NAMES: Mapping[Role, str] = {"prm": "process reward model", "orm": "outcome reward model"}


class Scored(NamedTuple):
    """The scores of a completion."""

    steps: tuple[float, ...]
    """Probability of each step that it is right; of an outcome model one number. Empty for an unfinished completion."""
    tokens: int


class ScoredPool(NamedTuple):
    """The scores of a pool's samples, in their order."""

    samples: tuple[Scored, ...]
    seconds: float

    def joined(self, how: str) -> list[float]:
        return [aggregated(sample.steps, how) for sample in self.samples]

    @property
    def mean_tokens(self) -> float:
        return sum(sample.tokens for sample in self.samples) / len(self.samples)


class Told(NamedTuple):
    """A text for a reward model to read."""

    prompt: str
    steps: tuple[str, ...]
    name: str

    @classmethod
    def of(cls, prompt: str, sample: Sample, step: str, name: str) -> "Told":
        steps = steps_after(sample.prefill, sample.text, step) if sample.finished else []
        return cls(prompt, tuple(steps), name)


@dataclass(frozen=True, slots=True)
class Scorer:
    """A reward model that reads steps."""

    model: ScoresSteps
    path: str
    role: Role
    step: str
    fingerprint: str
    num_parameters: int
    chat: bool
    """True where a chat template writes the prompts."""

    @classmethod
    def load(cls, config: ModelConfig, role: Role, step: str, chat: bool, reference: str, beta: float) -> Self:
        model = load_scorer(config, reference, beta)
        check_reads(model, chat, f"the {NAMES[role]} {config.path!r}")
        if isinstance(model, RewardModel):
            return cls(model, config.path, role, step, model.fingerprint(), model.num_parameters, chat)
        both = model.policy, model.reference
        fingerprint = " ".join([*(part.fingerprint() for part in both), str(beta)])
        return cls(model, config.path, role, step, fingerprint, sum(part.num_parameters for part in both), chat)

    @property
    def identity(self) -> dict[str, Any]:
        return {"role": self.role, "model": self.fingerprint, "step": self.step}

    def texts(self, texts: Sequence[Told]) -> list[Scored]:
        encoded = [self._encoded(told) if told.steps else None for told in texts]
        rows = [row for row in encoded if row is not None]
        scores = iter(score_rows(self.model, rows) if rows else ())
        scored = [
            Scored((), 0) if row is None else Scored(tuple(next(scores)), row.sequences.num_read) for row in encoded
        ]
        for told, of_text in zip(texts, scored, strict=True):
            for score in of_text.steps:
                check_number(score, f"the {NAMES[self.role]} {self.path!r}", f"a step of {told.name}")
        return scored

    def _encoded(self, told: Told) -> EncodedSteps:
        try:
            unlabelled = StepRow(told.prompt, told.steps, (None,) * len(told.steps), rendered=self.chat)
            row = encode_steps(self.model, unlabelled)
        except DataError as error:
            raise DataError(f"the {NAMES[self.role]} {self.path!r} cannot read {told.name}: {error}") from None
        return row._replace(ends=row.ends[-1:]) if self.role == "orm" else row

    def pools(self, pools: Sequence[Pool], directory: Path, sampled: Mapping[str, Any]) -> list[ScoredPool]:
        def score(part: Sequence[Pool]) -> list[list[Scored]]:
            told = [
                Told.of(pool.prompt, sample, self.step, f"sample {index} of {pool.problem.id}")
                for pool in part
                for index, sample in enumerate(pool.samples)
            ]
            scores = iter(self.texts(told))
            return [[next(scores) for _ in pool.samples] for pool in part]

        identity, title = {**sampled, **self.identity}, f"{self.role} scores"
        store = Store.of(directory, self.role, identity, title)
        return [
            ScoredPool(tuple(Scored(tuple(steps), tokens) for steps, tokens in value), seconds / max(1, len(value)))
            for _, value, seconds in store.values(pools, score)
        ]
