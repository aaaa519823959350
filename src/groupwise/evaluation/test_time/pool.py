"""One pool of samples for each problem, from which every method without a search draws."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from groupwise.errors import ConfigError, DataError
from groupwise.evaluation.row import Row, read_rows
from groupwise.evaluation.test_time.store import Store, parts
from groupwise.randomness import Draws
from groupwise.rollout.sample_and_score import Actors, encode_prompt, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.rollouts import write_rollouts
from groupwise.types import FinishReason, Outcome, Problem

Progress = Callable[[str, int, int], None]
"""Called with what is done, how many problems are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A completion and what was found of it."""

    text: str
    prefill: str
    finished: bool
    """Whether it stopped by itself; one that was cut off is no answer, and no model scores it."""
    answer: str | None
    right: bool
    num_tokens: int
    num_put_in: int = 0
    """Tokens of tools' results."""

    @classmethod
    def of(cls, row: Row) -> Self:
        """The sample that a row describes."""
        finished, right = row.finish_reason is FinishReason.STOP, row.outcome is Outcome.CORRECT
        put_in = row.num_read - row.num_tokens
        return cls(row.text, row.prefill, finished, row.answer, right, row.num_tokens, put_in)


@dataclass(frozen=True, slots=True)
class Pool:
    """The judged samples of one problem."""

    problem: Problem
    prompt: str
    """As the model reads it, prefill included."""
    prompt_tokens: int
    samples: tuple[Sample, ...]
    """Those that the verifier failed on are left out."""
    seconds: float
    """Of sampling and judging one sample: the time of the pool's part, divided by its samples."""

    @property
    def right(self) -> list[bool]:
        return [sample.right for sample in self.samples]

    @property
    def answers(self) -> list[str | None]:
        return [sample.answer for sample in self.samples]

    @property
    def pass_rate(self) -> float:
        """Share of right samples."""
        return sum(self.right) / len(self.samples)

    @property
    def mean_tokens(self) -> float:
        """Tokens of a sample."""
        return sum(sample.num_tokens for sample in self.samples) / len(self.samples)

    @property
    def mean_put_in(self) -> float:
        """Tokens of tools' results in a sample."""
        return sum(sample.num_put_in for sample in self.samples) / len(self.samples)


@dataclass(frozen=True, slots=True)
class Sampler:
    """What samples pools, and where it keeps them."""

    actors: Actors
    sampling: SamplingConfig
    draws: Draws
    directory: Path
    identity: Mapping[str, Any]
    """What completions follow from beside sampling, draws and their number: weights, task, verifier, problems."""
    progress: Progress = lambda what, done, total: None

    def pools(self, problems: Sequence[Problem], num_samples: int, name: str = "pool") -> list[Pool]:
        """A pool of each problem.

        Raises:
            ConfigError: a prompt does not fit.
            VerifierError: the verifier failed too often.
        """
        store = Store.of(self.directory, name, self.identity_of(num_samples))
        pools: list[Pool] = []
        for number, part in parts(problems):
            self.progress(name, len(pools), len(problems))
            make = partial(self._write, part, num_samples)
            file, seconds = store.kept(number, ".parquet", make)
            rows = read_rows(file)
            if [row.problem for row in rows[::num_samples]] != [problem.id for problem in part]:
                raise DataError(f"{file} holds other problems than are asked: delete it, and it is made again")
            pools += [self._pool(problem, rows, seconds / len(rows)) for problem in part]
        return pools

    def greedy(self, problems: Sequence[Problem]) -> list[Pool]:
        """The likeliest completion of each problem, token by token."""
        sampling = self.sampling.model_copy(update={"temperature": 0.0, "top_k": 0, "top_p": 1.0})
        return replace(self, sampling=sampling).pools(problems, 1, "greedy")

    def drawing(self, detail: str) -> Self:
        """The same with draws of their own."""
        return replace(self, draws=replace(self.draws, detail=detail))

    def identity_of(self, num_samples: int) -> dict[str, Any]:
        """What a pool of so many samples follows from."""
        # how many are sampled at one time and CUDA graphs change nothing of what is drawn
        sampling = self.sampling.model_dump(exclude={"max_live_completions", "cuda_graphs"})
        draws = {"seed": self.draws.seed, "purpose": self.draws.name}
        return {**self.identity, "samples": num_samples, "sampling": sampling, **draws}

    def _write(self, problems: Sequence[Problem], num_samples: int, path: Path) -> None:
        scored = sample_and_score(self.actors, problems, num_samples, self.sampling, self.draws)
        write_rollouts(path, scored, tokens="sampled")

    def _pool(self, problem: Problem, rows: Sequence[Row], seconds: float) -> Pool:
        prompt = encode_prompt(self.actors.policy, self.actors.template, problem)
        judged = tuple(Sample.of(row) for row in rows if row.problem == problem.id and row.outcome.judged)
        return Pool(problem, prompt.text, len(prompt.token_ids), judged, seconds)


def check_budgets(budgets: Sequence[int], num_samples: int) -> tuple[int, ...]:
    """The budgets in order, each once.

    Raises:
        ConfigError: there is none, or one that the pool is too small for.
    """
    if not budgets or min(budgets) < 1 or max(budgets) > num_samples:
        raise ConfigError(
            f"budgets {', '.join(map(str, budgets)) or 'none'} from a pool of {num_samples} samples: 1 to "
            f"{num_samples} are allowed; more need --samples {max([*budgets, 1])} or above"
        )
    return tuple(sorted(set(budgets)))


def enough(pools: Sequence[Pool], largest: int) -> tuple[list[int], list[str]]:
    """Places of the problems with enough judged samples, and the ids of the others.

    Raises:
        DataError: no problem has enough.
    """
    kept = [index for index, pool in enumerate(pools) if len(pool.samples) >= largest]
    if not kept:
        most = max((len(pool.samples) for pool in pools), default=0)
        raise DataError(f"no problem has {largest} judged samples: at most {most} are judged, so budgets end there")
    return kept, [pool.problem.id for pool in pools if len(pool.samples) < largest]
