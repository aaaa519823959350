"""Suites: benchmarks, each by a protocol that others recognise, in one table. `groupwise eval MODEL --suite NAMES`.

Everything that is sampled is kept at once, so that a killed evaluation goes on where it was; the completions are a run
directory that the explorer opens. Protocols are in `benchmarks.toml` beside this file, published values
in `truth.toml`.
"""

import hashlib
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from groupwise.algorithms.statistics import Estimate, mean_share, paired_difference, wilson
from groupwise.config import Changes, read_toml
from groupwise.config.recipes import dump_tables
from groupwise.errors import ConfigError
from groupwise.evaluation.checkpoints import Context, refuse_run, refuse_unread
from groupwise.models.config import ModelConfig
from groupwise.models.loading import compute_dtype
from groupwise.models.policy import Policy, load_policy
from groupwise.models.prompts import encode_prompt
from groupwise.models.size import language_model_size
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.engine import KeptEngine, make_engine
from groupwise.rollout.sample_and_score import Actors, sample_and_score, score_groups
from groupwise.runs.atomic import write_file
from groupwise.runs.directory import ENVIRONMENT, RunDirectory, begin_run, hold_run
from groupwise.runs.processes import resuming
from groupwise.runs.progress import counted, span, tell
from groupwise.runs.rollouts import write_rollouts
from groupwise.tasks.base import Task, Template
from groupwise.tasks.jsonl import Jsonl
from groupwise.types import FinishReason, Outcome, Problem, ScoredGroup
from groupwise.verifiers import make_verifier

BENCHMARKS = read_toml(Path(__file__).with_name("benchmarks.toml"))
TRUTH = read_toml(Path(__file__).with_name("truth.toml"))["value"]
SYSTEM = "groupwise eval"
"""Name under which an evaluation's directory is a run that began elsewhere."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """The prompt of a benchmark, the sampling and the reading of its answers, and the harness that has them so."""

    benchmark: str
    name: str
    title: str
    harness: str
    task: Mapping[str, Any]
    sampling: Mapping[str, Any]
    readings: Mapping[str, Any]
    """Verifiers by the name of the reading; the first one's verdicts are recorded."""
    measures: tuple[str, ...] = ()
    """Measures of the first verifier that are scores, too."""
    shots: Mapping[str, Any] | None = None
    weights: Mapping[str, str] = field(default_factory=dict)
    """By measure, the measure that says how much a problem counts: an IFEval prompt has several instructions."""

    @classmethod
    def find(cls, spec: str, *, is_chat: bool, data: str = "") -> Self:
        """Return a protocol by `BENCHMARK` or `BENCHMARK:PROTOCOL`. Raises ConfigError: an unknown name."""
        benchmark, _, name = spec.strip().partition(":")
        if benchmark not in BENCHMARKS:
            raise ConfigError(f"there is no benchmark {benchmark!r}; there are {', '.join(BENCHMARKS)}")
        table = BENCHMARKS[benchmark]
        protocols = BENCHMARKS.get(table.get("protocols_of"), {}).get("protocols", {}) | table.get("protocols", {})
        name = name or table["chat" if is_chat else "base"]
        if name not in protocols:
            raise ConfigError(f"{benchmark} has no protocol {name!r}; it has {', '.join(protocols)}")
        chosen = protocols[name]
        if chosen["template"].get("chat") and not is_chat:
            plain = [each for each, other in protocols.items() if not other["template"].get("chat")]
            raise ConfigError(
                f"{benchmark}:{name} is for chat models, and this tokenizer has no chat template; allowed are "
                f"{', '.join(plain)}"
            )
        task = {key: v.replace("{data}", data) if isinstance(v, str) else v for key, v in table["task"].items()}
        return cls(
            benchmark, name, table["title"], chosen["harness"], {**task, "template": chosen["template"]},
            {"temperature": 0.0, **chosen["sampling"]}, chosen["readings"], tuple(chosen.get("measures", ())),
            chosen.get("shots"), chosen.get("weights", {}),
        )  # fmt: skip

    @property
    def label(self) -> str:
        return f"{self.benchmark}-{self.name}"

    def problems(self, task: Task, most: int | None) -> list[Problem]:
        """Return the test problems, each with its `shots` among its data where the prompt shows examples.

        As lm-eval draws them: for one problem after the other, from the training data in its order, by one generator.
        """
        problems = list(task.problems("test")[:most])
        if not self.shots:
            return problems
        if not isinstance(task, Jsonl):
            raise ConfigError(f"{self.label}: examples are drawn from the rows of the task `jsonl`, not of {task.name}")
        pool, generator = list(task.rows("train")), random.Random(self.shots["seed"])
        shot = Template(prompt=self.shots["text"])

        def examples() -> str:
            return "".join(shot.render(example) for example in generator.sample(pool, self.shots["number"]))  # type: ignore[index]

        return [replace(problem, data={**problem.data, "shots": examples()}) for problem in problems]


@dataclass(frozen=True, slots=True)
class Published:
    """A value of others, in percent."""

    value: float
    how: str
    source: str
    is_same: bool
    """True where it was measured as the score that it stands beside: by protocol and reading, on all problems."""


@dataclass(frozen=True, slots=True)
class Score:
    """One line of the table."""

    benchmark: str
    title: str
    protocol: str
    harness: str
    reading: str
    problems: int
    samples: int
    temperature: float
    share: Estimate
    """Share of right answers, with its 95 % interval over problems."""
    tokens: float
    """Mean length of a completion."""
    cut: float
    """Share of completions that ran into the limit of tokens."""
    seconds: float
    """Time spent sampling, that of killed evaluations included."""
    published: tuple[Published, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"share": self.share._asdict()}

    def cells(self) -> tuple[str, ...]:
        value, low, high = (f"{100 * number:.1f}" for number in self.share)
        theirs = [
            f"{each.value:g}{'' if not each.is_same else ' inside' if self.holds(each) else ' OUTSIDE'}"
            for each in self.published
        ]
        return (
            self.benchmark, f"{self.protocol}, {self.reading}", f"{value} [{low}, {high}]", f"{self.problems:,}",
            "\n".join(theirs) or "-", f"{self.tokens:.0f}", f"{self.cut:.1%}",
        )  # fmt: skip

    def notes(self) -> tuple[str, ...]:
        """Return what stands below the table: benchmark, protocol, published values, each said in full."""
        drawn = "greedy" if self.temperature == 0 else f"T {self.temperature:g}"
        how = f"{self.harness}; {drawn}, n {self.samples}; sampled in {span(self.seconds)}"
        theirs = (f"published {each.value:g}: {each.how} ({each.source})" for each in self.published)
        return f"{self.benchmark}: {self.title}", f"{self.benchmark}, {self.protocol}: {how}", *theirs

    def holds(self, value: Published) -> bool:
        return self.share.low <= value.value / 100 <= self.share.high


def published(checkpoint: str, benchmark: str, protocol: str, reading: str) -> tuple[Published, ...]:
    """Return what others published of this model on this benchmark; a quantisation in the name is no other model.

    `protocol` is empty where its settings were changed, or problems left out.

    >>> [p.value for p in published("x/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "humaneval", "evalplus", "base")]
    [61.6, 54.3]
    """
    name = _plain(Path(checkpoint.rpartition(":")[2]).name)
    return tuple(
        Published(
            row["value"], row["how"], row["source"], (row.get("protocol"), row.get("reading")) == (protocol, reading)
        )
        for row in TRUTH
        if row["benchmark"] == benchmark and re.fullmatch(_plain(row["model"]) + _QUANTISED, name)
    )


_QUANTISED = r"(q\d\w*|b?f16|f32|gguf)*"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def evaluate_suite(
    checkpoint: str | Path,
    suite: Sequence[str],
    *,
    directory: str | Path | None = None,
    data: str | Path = "../shared/data",
    problems: int | None = None,
    samples: int | None = None,
    seed: int = 0,
    dtype: str = "auto",
    cache_mb: int = 400,
    sampling: Mapping[str, Any] | None = None,
    changes: Changes = (),
) -> Iterator[Score]:
    """Measure a model on several benchmarks, each by its protocol; yields the lines of the table.

    Args:
        checkpoint: a checkpoint directory, a hub name, a GGUF file, or `base` for the shipped model.
        suite: `BENCHMARK`, by its usual protocol, or `BENCHMARK:PROTOCOL`.
        directory: where completions are kept, a run directory; None: `runs/eval-MODEL`.
        data: directory of the benchmarks' files, from the working directory.
        problems: at most this many of each, from the first; None: all of them.
        samples: completions of each problem; None: one.
        seed: of the draws, where the temperature is not 0.
        dtype: of weights and products: `float32`, `bfloat16`, or `auto`, as of `model.compute_dtype`.
        cache_mb: memory for keys and values; more of it samples more completions at one time.
        sampling: over the protocol's.
        changes: of the sections task, verifier, sampling and engine, over the protocol's.

    Raises:
        ConfigError: an unknown benchmark or protocol, data that is not there, or a directory of another model.
        ModelError: the model cannot be loaded.
    """
    refuse_run(str(checkpoint))
    refuse_unread(changes, ("task", "verifier", "sampling", "engine"))
    for spec in suite:  # before a model is read
        Protocol.find(spec, is_chat=True)
    size = language_model_size(str(checkpoint))
    path = Path(directory or f"runs/eval-{Path(checkpoint).name.removesuffix('.gguf') or checkpoint}")
    run, is_begun = RunDirectory(path), (path / "config.toml").exists()
    begun = read_toml(run.config).get("imported", {}) if is_begun else {}
    was, now = Path(begun.get("source", "")), Path(checkpoint)
    is_same = was.name == now.name and not (was.exists() and now.exists() and not was.samefile(now))  # or was moved
    if is_begun and not (begun.get("system") == SYSTEM and is_same):
        raise ConfigError(
            f"{path} holds another run, of {begun.get('source') or 'training'}, so completions of {checkpoint} cannot "
            "be kept there: name another --directory"
        )
    with hold_run(path):
        if dtype == "auto" and is_begun:  # a resumed evaluation computes as it began, however busy the machine is
            dtype = str(begun.get("dtype", dtype))
        if dtype == "auto":
            dtype = compute_dtype(ModelConfig(path=str(checkpoint)), size.total)
        if not (path / ENVIRONMENT).exists():  # nor was one killed before it was written
            source = {"system": SYSTEM, "source": str(checkpoint), "dtype": dtype, "lacks": [], "damage": []}
            tables = {"run": {"directory": str(path), "num_steps": 1}, "imported": source}
            begin_run(path, dump_tables({"algorithm": "imported", **tables}))
        run.metrics.mend()
        policy = load_policy(ModelConfig(path=str(checkpoint), compute_dtype=dtype, weights_dtype=dtype))
        protocols = [
            Protocol.find(spec, is_chat=bool(policy.tokenizer.chat_template), data=str(data)) for spec in suite
        ]
        for protocol in counted("benchmarks", protocols, len(protocols)):
            room = (cache_mb << 20) // size.cached(2 if dtype == "bfloat16" else 4)
            one = _Measured(policy, run, protocol, str(checkpoint), dtype, room)
            with resuming(path):
                yield from one.scores(problems, samples or 1, seed, sampling or {}, changes)
        write_file(run.finished, b"{}\n")


class _Measured(NamedTuple):
    policy: Policy
    run: RunDirectory
    protocol: Protocol
    checkpoint: str
    dtype: str
    room: int
    """Tokens whose keys and values the cache holds."""

    def scores(
        self, most: int | None, samples: int, seed: int, sampling: Mapping[str, Any], changes: Changes
    ) -> Iterator[Score]:
        protocol = self.protocol
        tables = {"task": protocol.task, "sampling": {**protocol.sampling, **sampling}}
        contexts = {
            name: Context.parse(tables | {"verifier": verifier}, changes)
            for name, verifier in protocol.readings.items()
        }
        first = next(iter(contexts.values()))
        problems = protocol.problems(first.task, most)
        plain = {"task": protocol.task, "sampling": protocol.sampling}
        is_theirs = len(problems) == len(first.task.problems("test")) and all(
            _settings(context) == _settings(Context.parse(plain | {"verifier": protocol.readings[name]}, ()))
            for name, context in contexts.items()
        )
        config = first.sampling.model_copy(update={"max_live_completions": self._rows(first, problems)})
        engine = KeptEngine(make_engine(first.engine, self.policy), self.run.path / "kept" / self._kept(first))
        if len(engine):
            tell(f"{protocol.label}: {len(engine)} prompts were sampled before")
        verdicts: dict[str, list[ScoredGroup]] = {}
        draws = Draws(seed, Purpose.TEST)
        for name, context in contexts.items():
            with make_verifier(context.verifier) as verifier:
                actors = Actors(self.policy, engine, context.task.template, verifier)
                if verdicts:
                    groups = [scored.group for scored in next(iter(verdicts.values()))]
                    verdicts[name] = score_groups(actors, groups, config, draws)
                else:
                    verifier.check(problems, context.task.template)
                    verdicts[name] = sample_and_score(actors, problems, samples, config, draws)
        shares = {name: weighted_share([_share(group, None) for group in scored]) for name, scored in verdicts.items()}
        recorded = next(iter(verdicts.values()))
        for name in protocol.measures:
            values, weight = [_share(group, name) for group in recorded], protocol.weights.get(name)
            weights = [_share(group, weight) for group in recorded] if weight else None
            shares[name] = weighted_share(values, weights)
        write_rollouts(self.run.rollouts(protocol.label), recorded)
        completions = [completion for scored in recorded for completion in scored.group.completions]
        for name, share in shares.items():
            result = Score(
                protocol.benchmark, protocol.title, protocol.name, protocol.harness, name, len(problems), samples,
                config.temperature, share, sum(c.num_tokens for c in completions) / len(completions),
                sum(c.finish_reason is FinishReason.LENGTH for c in completions) / len(completions), engine.seconds,
                published(self.checkpoint, protocol.benchmark, protocol.name if is_theirs else "", name),
            )  # fmt: skip
            self.run.metrics.append({"kind": protocol.label, "step": 0, "dtype": self.dtype, **result.as_dict()})
            yield result

    def _rows(self, context: Context, problems: Sequence[Problem]) -> int:
        """Return how many completions are sampled at one time: the cache holds a prompt and a completion of each."""
        prompts = (encode_prompt(self.policy, context.task.template, problem) for problem in problems)
        longest = max(len(prompt.token_ids) for prompt in prompts)
        return max(1, min(256, self.room // (longest + context.sampling.max_tokens)))

    def _kept(self, context: Context) -> str:
        *_, drawn = _settings(context)
        identity = json.dumps([drawn, self.policy.fingerprint(), self.dtype], sort_keys=True, default=str)
        return f"{self.protocol.label}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsonl"


def _settings(context: Context) -> tuple[Any, ...]:
    """Return all that a score depends on; how many completions are sampled at one time changes none of them."""
    sampling = context.sampling.model_dump(mode="json", exclude={"max_live_completions", "cuda_graphs"})
    return context.task.config, context.verifier, sampling


def weighted_share(values: Sequence[float], weights: Sequence[float] | None = None) -> Estimate:
    """Return Σ w v / Σ w with its 95 % interval over problems, that of a ratio of means; nan counts for nothing.

    Where all are right or none is, that has no width; then it is Wilson's, of (Σ w)² / Σ w² problems (Kish 1965).

    >>> weighted_share([1.0, 0.0, float("nan"), 1.0], [3.0, 1.0, float("nan"), 1.0]).value
    0.8
    """
    if weights is None:
        return mean_share([value for value in values if value == value])
    pairs = [(value, weight) for value, weight in zip(values, weights, strict=True) if value == value]
    total = sum(weight for _, weight in pairs)
    ratio = sum(value * weight for value, weight in pairs) / total if total else float("nan")
    if ratio in (0.0, 1.0):
        return Estimate(ratio, *wilson(ratio, total**2 / sum(weight**2 for _, weight in pairs)))
    # linearised: the mean of these is the ratio, and their variance is its
    linear = [ratio + weight * len(pairs) / total * (value - ratio) for value, weight in pairs]
    return paired_difference([0.0] * len(linear), linear)._replace(value=ratio)


def _share(scored: ScoredGroup, measure: str | None) -> float:
    """Return the share of right completions of a problem; what no verifier could judge is no wrong answer."""
    judged = [verdict for verdict in scored.verdicts if verdict.outcome.judged]
    right = [v.outcome is Outcome.CORRECT if measure is None else v.measures.get(measure, 0.0) for v in judged]
    return sum(right) / len(right) if right else float("nan")
