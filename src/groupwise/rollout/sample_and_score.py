"""From problems to scored groups: the one way in which completions are sampled and judged.

    problems -> prompts -> an engine samples G completions of each -> a group -> one verdict per completion

Training, evaluation, pipeline stages, replay and `groupwise sample` all come through here.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from groupwise.errors import ConfigError, InvariantError
from groupwise.models.cores import CoreMeter
from groupwise.models.policy import Policy
from groupwise.models.prompts import encode_prompt
from groupwise.randomness import Draws
from groupwise.ranks.group import RANKS
from groupwise.rollout.engine import Engine, EngineConfig, Recorded, Request, Sampled, make_engine
from groupwise.rollout.environments import Crews
from groupwise.rollout.episodes import Episodes
from groupwise.rollout.pieces import Pieces, completion_in, completion_of, joined, own_text, reflected, visible
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tool_rounds import generate_with_tools
from groupwise.rollout.tool_watch import ToolWatch
from groupwise.runs.progress import say
from groupwise.tasks.base import Template
from groupwise.types import FinishReason, Group, Problem, Prompt, ScoredGroup
from groupwise.verifiers import OverlappedScoring, Verifier, check_failures, spot_check
from groupwise.verifiers.scoring import check_paid, score

Shares = list[list[ScoredGroup]]
"""Groups that one rank sampled and judged, by its shares."""


class Ahead:
    """Completions that are sampled for the next step, from the weights that the present one begins with.

    Nothing is sampled across new weights: `publish` waits until they are there.
    """

    def __init__(self) -> None:
        self._plan: tuple[Sequence[Problem], Draws] | None = None
        self._begun: tuple[list[str], Draws, Future[Shares]] | None = None

    def plan(self, problems: Sequence[Problem], draws: Draws) -> None:
        self._plan = problems, draws

    def begin(self, sample: Callable[[Sequence[Problem], Draws], Shares]) -> None:
        """Begin what is planned, if anything is; it computes nothing with the model's weights."""
        if self._plan is None:
            return
        (problems, draws), self._plan = self._plan, None
        future: Future[Shares] = Future()

        def run() -> None:
            try:
                future.set_result(sample(problems, draws))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="ahead", daemon=True).start()
        self._begun = [problem.id for problem in problems], draws, future

    def take(self, problems: Sequence[Problem], draws: Draws) -> Shares | None:
        if self._begun is None or self._begun[:2] != ([problem.id for problem in problems], draws):
            return None
        (_, _, future), self._begun = self._begun, None
        return future.result()

    def wait(self) -> None:
        if self._begun is not None:
            self._begun[2].result()

    def drop(self) -> None:
        self.wait()
        self._begun = None


@dataclass(frozen=True, slots=True)
class Seconds:
    """Time spent in each phase of a step."""

    generate: float
    verify: float
    train: float
    processor: float
    busy_cores: float = 0.0


class Clock:
    """Adds up where a step's time goes: `with clock("verify"): ...`."""

    def __init__(self) -> None:
        self._spent = {"generate": 0.0, "verify": 0.0, "train": 0.0}
        self._began, self._meter = time.process_time(), CoreMeter()

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._spent[what] += time.perf_counter() - began

    def seconds(self) -> Seconds:
        others = self._meter.others() if RANKS.size == 1 else 0.0  # the other ranks are no strangers
        return Seconds(**self._spent, processor=time.process_time() - self._began, busy_cores=others)


FALSE_ALARM = 25.0
"""Draws count as dependent when independent ones would look like them with a probability below exp(-25) = 1e-11."""


@dataclass(frozen=True, slots=True)
class Actors:
    """The parts that turn problems into scored groups."""

    policy: Policy
    engine: Engine
    template: Template
    verifier: Verifier
    reflection: Mapping[str, str] = field(default_factory=dict)
    """By language, a phrase that opens a completion's reasoning again (`rollout.pieces`); empty: none."""
    recorded: Mapping[str, tuple[Recorded, ...]] = field(default_factory=dict)
    """By problem, its completions as they were sampled before, whose results of tools are used again."""

    ahead: Ahead = field(default_factory=Ahead)
    crews: Crews = field(default_factory=Crews)
    """The workers of the problems' environments."""

    @classmethod
    def of(cls, policy: Policy, template: Template, verifier: Verifier, engine: EngineConfig | None = None) -> Self:
        config = engine or EngineConfig()
        return cls(policy, make_engine(config, policy), template, verifier)

    def publish(self, version: int) -> None:
        self.ahead.wait()
        self.engine.publish(self.policy, version)


def sample_and_score(
    actors: Actors,
    problems: Sequence[Problem],
    group_size: int,
    sampling: SamplingConfig,
    draws: Draws,
    clock: Clock | None = None,
) -> list[ScoredGroup]:
    """Sample a group of completions for every problem and judge each one; groups stand in the order of the problems.

    A finished group is judged while others are still being sampled. A few verdicts are checked a second time. Among
    ranks each samples and judges its share of the problems, and all get all groups.

    Raises:
        ConfigError: a problem occurs twice, or a prompt does not fit in the model's context.
        VerifierError: the verifier failed on too many completions.
        InvariantError: the engine lost or added tokens, draws depend on each other, or verdicts do not repeat.
    """
    clock = clock or Clock()
    if (sampling.tools or actors.reflection) and (played := next((p for p in problems if p.environment), None)):
        raise ConfigError(
            f"problem {played.id} is played in an environment, which neither sampling.tools nor `reflection` allow: "
            "drop one of the two"
        )
    if actors.reflection and sampling.tools:
        raise ConfigError(
            "`reflection` opens finished completions again, which those with tools do not allow: drop one"
        )
    if sampling.stop and (sampling.tools or actors.reflection or any(problem.environment for problem in problems)):
        raise ConfigError(
            f"sampling.stop = {list(sampling.stop)} ends whole completions; allowed are those that go on behind no "
            "result of a tool, no `reflection` and no reply of an environment"
        )
    if len({problem.id for problem in problems}) < len(problems):
        raise ConfigError("a problem occurs twice in one step: prompts_per_step is larger than the number of problems")
    with clock("generate"):
        own = actors.ahead.take(problems, draws)
    if own is None:
        own = _own_shares(actors, problems, group_size, sampling, draws, clock)
    actors.ahead.begin(lambda *wanted: _own_shares(actors, wanted[0], group_size, sampling, wanted[1], Clock()))
    with clock("verify"):  # for the other ranks
        scored = RANKS.collect(own)
    return _checked(actors, scored, [one for share in own for one in share], sampling, draws)


def _own_shares(
    actors: Actors, problems: Sequence[Problem], group_size: int, sampling: SamplingConfig, draws: Draws, clock: Clock
) -> Shares:
    plays = any(problem.environment for problem in problems)  # and so do all ranks, whatever their shares hold
    with OverlappedScoring(actors.verifier, sampling.max_tokens) as scoring:
        with clock("generate"):
            groups = [
                _sample(actors, own, group_size, sampling, draws, scoring.submit, plays)
                for own in RANKS.shares(problems)
            ]
        with clock("verify"):  # what is left of it when sampling is done
            each = iter(scoring.result([group for own in groups for group in own]))
            return [[next(each) for _ in own] for own in groups]


class Prefix(NamedTuple):
    """The beginning of a completion, from which several continuations are sampled."""

    prompt: Prompt
    pieces: Pieces
    keys: tuple[int, ...]


def continue_and_score(
    actors: Actors, prefixes: Sequence[Prefix], sampling: SamplingConfig, draws: Draws
) -> list[ScoredGroup]:
    """Sample continuations of every prefix and judge the whole completions, with the checks of `sample_and_score`.

    A continuation may have `sampling.max_tokens` tokens beside those of its prefix.
    """
    requests = []
    if played := next((prefix.prompt.problem for prefix in prefixes if prefix.prompt.problem.environment), None):
        raise ConfigError(
            f"problem {played.id} is played in an environment, and searches and step labels continue single "
            "completions; allowed here is a task without an environment"
        )
    for prompt, pieces, keys in prefixes:
        prefix = joined(pieces)
        ids = (*prompt.token_ids, *prefix.token_ids.tolist())
        requests.append(Request(ids, keys, calls=prefix.calls, since_result=prefix.since_put_in))
    groups = []
    for (prompt, pieces, _), sampled in zip(prefixes, continuations(actors, requests, sampling), strict=True):
        completions = tuple(
            completion_in(actors.policy, index, (*pieces, continuation), sampling.tools)
            for index, continuation in enumerate(sampled)
        )
        groups.append(Group(prompt, completions, draws.step, actors.engine.version))
    return score_groups(actors, groups, sampling, draws)


def continuations(
    actors: Actors, requests: Sequence[Request], sampling: SamplingConfig, watch: ToolWatch | None = None
) -> list[list[Sampled]]:
    """Sample what follows every request, one piece for each key; tools of a `watch` are open already and stay open."""
    if sampling.stop:
        raise ConfigError(
            f"sampling.stop = {list(sampling.stop)} ends whole completions; a search, and `groupwise sample`, have "
            "pieces, which end by the stop token alone: `--set sampling.stop=[]` goes on without it"
        )
    sampled: dict[int, list[Sampled]] = {}
    generate_with_tools(actors.engine, actors.policy, requests, sampling, sampled.__setitem__, watch)
    if missing := set(range(len(requests))) - sampled.keys():
        raise InvariantError(f"the engine never finished the completions of {len(missing)} of {len(requests)} requests")
    return [sampled[index] for index in range(len(requests))]


def score_groups(actors: Actors, groups: Sequence[Group], sampling: SamplingConfig, draws: Draws) -> list[ScoredGroup]:
    """Judge groups whose completions were sampled piece by piece, with the checks of `sample_and_score`."""
    scored = score(groups, actors.verifier, sampling.max_tokens)
    return _checked(actors, scored, scored, sampling, draws)


def _checked(
    actors: Actors, scored: list[ScoredGroup], judged: Sequence[ScoredGroup], sampling: SamplingConfig, draws: Draws
) -> list[ScoredGroup]:
    check_failures(scored, actors.verifier.config.max_failure_share)
    check_paid(scored, actors.verifier.config.kind)
    spot_check(judged, actors.verifier, sampling.max_tokens, draws.seed, draws.step)
    return scored


def _sample(
    actors: Actors,
    problems: Sequence[Problem],
    group_size: int,
    sampling: SamplingConfig,
    draws: Draws,
    on_group: Callable[[Group], None],
    plays: bool,
) -> list[Group]:
    policy = actors.policy
    episodes = Episodes(actors.crews, policy, actors.template, problems, draws) if plays else None
    prompts = episodes.prompts if episodes else [encode_prompt(policy, actors.template, each) for each in problems]
    longest = max((len(stop.encode()) for stop in sampling.stop), default=0)  # in tokens: each holds a byte at least
    requests = []

    def pause(ids: Sequence[int]) -> bool:
        tail = policy.tokenizer.decode(visible(policy, list(ids[-longest - 1 :])))
        return any(stop in tail for stop in sampling.stop)

    for prompt in prompts:
        recorded = actors.recorded.get(prompt.problem.id, ())
        keys = draws.keys(prompt.problem.id, group_size)
        again = recorded if len(recorded) == group_size else ()
        requests.append(Request(prompt.token_ids, keys, pause=pause if longest else None, recorded=again))
    groups: dict[int, Group] = {}

    def finished(index: int, sampled: Sequence[Sampled]) -> None:
        if len(sampled) != group_size:
            raise InvariantError(f"the engine gave {len(sampled)} of {group_size} completions of {problems[index].id}")
        groups[index] = _group(policy, prompts[index], sampled, draws.step, actors.engine.version, sampling)
        say("prompts sampled", len(groups), len(prompts))
        if not actors.reflection:
            on_group(groups[index])

    say("prompts sampled", 0, len(prompts))
    if episodes:
        episodes.generate(actors.engine, requests, sampling, finished)
        episodes.check()
    else:
        generate_with_tools(actors.engine, policy, requests, sampling, finished)
    if missing := [prompt.problem.id for index, prompt in enumerate(prompts) if index not in groups]:
        raise InvariantError(f"the engine never finished the completions of {', '.join(missing[:3])}")
    _check_first_tokens(list(groups.values()))
    ordered = [groups[index] for index in range(len(prompts))]
    if actors.reflection:
        ordered = reflected(policy, actors.engine, ordered, sampling, actors.reflection, draws)
        for group in ordered:
            on_group(group)
    return ordered


def _group(
    policy: Policy, prompt: Prompt, sampled: Sequence[Sampled], step: int, version: int, sampling: SamplingConfig
) -> Group:
    for sample in sampled:
        pairs = enumerate(zip(sample.token_ids.tolist(), sample.drawn.tolist(), strict=True))
        stops = [index for index, (token, is_drawn) in pairs if token in policy.stop_ids and is_drawn]
        ends = [turn.end - 1 for turn in sample.turns]
        if not sample.turns:
            ends = [len(sample.token_ids) - 1] if sample.finish_reason is FinishReason.STOP else []
        may_be_cut = sample.finish_reason in (FinishReason.LENGTH, FinishReason.ENVIRONMENT_FAILED)
        if stops != ends and not (may_be_cut and stops == ends[:-1]):
            raise InvariantError(
                f"a completion of {len(sample.token_ids)} tokens that ended by '{sample.finish_reason}' has stop "
                f"tokens at {stops}: the sampler lost its stop token, continued after it, or misnamed its end"
            )
    texts = policy.tokenizer.batch_decode([visible(policy, sample.token_ids.tolist()) for sample in sampled])
    ended = list(sampled)
    for index, text in enumerate(texts):
        if ends := [text.index(stop) for stop in sampling.stop if stop in text]:
            texts[index] = text[: min(ends)]
            ended[index] = replace(sampled[index], finish_reason=FinishReason.STOP_TEXT)
    completions = tuple(
        completion_of(index, sample, text, own_text(policy, [sample], sampling.tools))
        for index, (sample, text) in enumerate(zip(ended, texts, strict=True))
    )
    return Group(prompt, completions, step, version)


def _check_first_tokens(groups: Sequence[Group]) -> None:
    """Completions of a group are drawn each on its own, so they do not all begin alike more often than chance has it.

    Given the first completion, the G - 1 others begin with its token v too with probability pᵥ^(G-1). With
    x = -(G-1) log pᵥ where they all do and 0 elsewhere, E[exp x] < 2 for a group, so by Markov's inequality the sum of
    x over n groups exceeds n log 2 + t with probability below exp(-t).
    """
    surprise = 0.0
    for group in groups:
        first, *others = [int(completion.token_ids[0]) for completion in group.completions]
        if set(others) == {first}:
            surprise -= len(others) * float(group.completions[0].sampling_logprobs[0])
    if surprise > len(groups) * math.log(2) + FALSE_ALARM:
        raise InvariantError(
            f"completions of the same group begin with the same token so often that chance explains it with a "
            f"probability of exp(-{surprise - len(groups) * math.log(2):.0f}) at most: their draws are not independent"
        )
