"""The vLLM engine: completions from servers over HTTP, from weights that each server has proven to have.

publish   directory -> pause, reload, clear, label, resume (every server) -> canary -> healthy
generate  waiting -> the healthy server that owes least -> checked -> a group is told when its last one is there
"""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, ClassVar

from groupwise.errors import ConfigError, EngineError, GroupwiseError, InvariantError, RankError
from groupwise.models.checkpoint import changing_a_little, serving_weights
from groupwise.models.policy import Policy
from groupwise.randomness import key as key_of
from groupwise.ranks.group import RANKS
from groupwise.rollout.engine import OnFinished, Request, Sampled
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.vllm.canary import Canary
from groupwise.rollout.vllm.config import VllmConfig
from groupwise.rollout.vllm.crew import LOOK_S, Care, Crew
from groupwise.rollout.vllm.fleet import Attempt, Event, State
from groupwise.rollout.vllm.launch import WeightsFolder, start
from groupwise.rollout.vllm.loading import Weights
from groupwise.rollout.vllm.server import Unreachable
from groupwise.rollout.vllm.wire import ForeignWeights, Unfinished

MAX_TRIES = 10
"""Most requests for one completion, which is then taken for the reason why servers fail."""


class Round:
    """The completions of some requests. A task is one completion; a group is told when all of its tasks are done."""

    def __init__(
        self, crew: Crew, requests: Sequence[Request], sampling: SamplingConfig, config: VllmConfig,
        on_finished: OnFinished,
    ) -> None:  # fmt: skip
        self.crew, self.requests, self.sampling = crew, requests, sampling
        self.config, self.on_finished = config, on_finished
        self.tasks = [(index, sample) for index, request in enumerate(requests) for sample in range(len(request.keys))]
        self.groups: list[dict[int, Sampled]] = [{} for _ in requests]

    def run(self) -> None:
        fleet = self.crew.fleet
        fleet.begin(len(self.tasks))
        fleet.max_live = self.sampling.max_live_completions
        healthy_at = monotonic()
        while fleet.waiting or fleet.owed:
            self.crew.tend()
            self._ask()
            self._hear()
            if fleet.having(State.HEALTHY, State.SUSPECT):
                healthy_at = monotonic()
            elif (waited := monotonic() - healthy_at) > self.config.patience_s:
                raise self.crew.nobody(self.config.patience_s)
            else:
                self.crew.tell_waiting(waited, self.config.patience_s)
        if len(fleet.done) != len(self.tasks):
            raise InvariantError(
                f"{len(fleet.done)} of {len(self.tasks)} completions are there, and none is waited for"
            )

    def _ask(self) -> None:
        while (attempt := self.crew.fleet.next()) is not None:
            if self.crew.fleet.tries[attempt.task] > MAX_TRIES:
                words = self.crew.last_words.get(attempt.server, "each was ended before its end")
                raise EngineError(
                    f"a completion was asked for {MAX_TRIES} times and never came; the last time: {words}"
                )
            self._send(attempt)

    def _send(self, attempt: Attempt) -> None:
        crew, (index, sample) = self.crew, self.tasks[attempt.task]
        request, server, weights = self.requests[index], crew.servers[attempt.server], crew.weights
        assert weights is not None
        asker, label, name, key = weights.asker(crew.asker), weights.label, weights.name, request.keys[sample]
        if request.begun:  # a server draws from its seed's beginning, and those draws are behind it
            key = key_of("continued", key, request.begun)
        sampling = self.sampling.model_copy(update={"max_tokens": request.room(self.sampling)})
        crew.errands.begin(
            (self, attempt),
            lambda: asker.sample(
                server, request.token_ids, key, sampling, label, name, self.config.request_s, request.stops
            ),
        )

    def _hear(self) -> None:
        fleet, outcome = self.crew.fleet, self.crew.errands.next(LOOK_S)
        if outcome is None:
            return
        what, result = outcome
        if isinstance(what, Care):
            self.crew.cared(what, result)
            return
        asking, attempt = what
        if asking is not self:  # it is from a round that was given up
            return
        if isinstance(result, Sampled):
            if fleet.settle(attempt, Event.ANSWERED):
                index, sample = self.tasks[attempt.task]
                group = self.groups[index]
                group[sample] = result
                if len(group) == len(self.requests[index].keys):
                    self.on_finished(index, [group[i] for i in range(len(group))])
        elif isinstance(result, Unfinished):
            fleet.drop(attempt)
        elif isinstance(result, ForeignWeights):
            self.crew.last_words[attempt.server] = f"it answered from {result}"
            fleet.settle(attempt, Event.FOREIGN)
        elif isinstance(result, Unreachable):
            self.crew.last_words[attempt.server] = str(result)
            fleet.settle(attempt, Event.FAILED)
        else:
            raise result if isinstance(result, GroupwiseError) else EngineError(f"{attempt.server}: {result!r}")


OTHERS_S = 0.05
"""Seconds between two looks of the first rank at whether the others are done."""
REHEARSAL, REHEARSAL_BASE = "rehearsal", "rehearsal-base"
_NUMBERS = count()
"""Numbers of engines; ranks run one program, so all of them give an engine the same."""


class VllmEngine:
    """Samples from servers of vLLM."""

    Config: ClassVar[type[VllmConfig]] = VllmConfig

    def __init__(self, config: VllmConfig, policy: Policy) -> None:
        self.config, self.policy, self.version = config, policy, 0
        self.folder = WeightsFolder(config.directory)
        self.facts: dict[str, Any] = {}
        self._crew: Crew | None = None
        self._bases: dict[str, Path] = {}
        self._name, self._rounds = f"engine-{next(_NUMBERS)}", 0

    @property
    def crew(self) -> Crew:
        if self._crew is None or self._crew.weights is None:
            self.publish(self.policy, self.version)
        assert self._crew is not None
        return self._crew

    @property
    def context_length(self) -> int:
        """Return the tokens, those of the prompt included, that the model and all of the servers have room for."""
        return min((self.policy.context_length, *self.crew.contexts))

    def generate(self, requests: Sequence[Request], sampling: SamplingConfig, on_finished: OnFinished) -> None:
        if any(request.pause for request in requests):
            raise ConfigError(
                "engine.kind = 'vllm' samples completions to their end: searches and sampling.stop, which look at them "
                "after every token, need engine.kind = 'in_process'"
            )
        crew, context = self.crew, self.context_length
        for request in requests:
            if (longest := len(request.token_ids)) + request.room(sampling) > context:
                raise ConfigError(
                    f"a prompt of {longest} tokens and a completion of up to {request.room(sampling)} "
                    f"(sampling.max_tokens) do not fit in the context of {context} tokens that model and servers have"
                )
        self._rounds += 1
        done, reissued = f"{self._name}/{self._rounds}/done", f"{self._name}/v{self.version}/reissued"
        try:
            Round(crew, requests, sampling, self.config, on_finished).run()
        finally:
            RANKS.count(reissued, crew.fleet.reissued)  # of all rounds from these weights: an episode takes several
            RANKS.count(done, 1)
        end = monotonic() + RANKS.deadline_s
        while RANKS.is_first and RANKS.count(done) < RANKS.size:
            crew.look_after(OTHERS_S)
            if monotonic() > end:
                raise RankError(
                    f"the other ranks did not get their completions within {RANKS.deadline_s:g} s (ranks.deadline_s)"
                )
        self.facts |= {"reissued": RANKS.count(reissued), "servers": self._states(crew)}

    def publish(self, policy: Policy, version: int) -> None:
        """Give these weights to every living server, and let each prove that it has them; all ranks call it."""
        began = perf_counter()
        if self._crew is None:
            self._crew = start(self.config, policy)
            if self.config.rehearse:
                with changing_a_little(policy):
                    self._send(self._crew, policy, REHEARSAL, None)
        crew = self._crew
        self._send(crew, policy, f"v{version}", crew.weights.canary if crew.weights else None)
        self.policy, self.version = policy, version
        self.facts |= {  # what the round before cost stays
            "version": version,
            "publish_s": perf_counter() - began,
            "servers": self._states(crew),
        }

    def _send(self, crew: Crew, policy: Policy, name: str, before: Canary | None) -> None:
        name = f"{name}-{policy.fingerprint()}"
        canary = Canary.of(policy, before, self.config.dtype)
        if adapters := self.config.adapters_of(
            policy
        ):  # and what they stand on where it is new: a rehearsal changes it
            label = REHEARSAL_BASE if name.startswith(REHEARSAL) else f"base-{adapters.base_fingerprint}"
            if label not in self._bases:
                self._bases = {label: self._write(policy.base(), label)}
            gathered = policy.gathered()
            directory = RANKS.by_first(lambda: self.folder.write_adapters(policy, name, gathered))
            weights = Weights(label, self._bases[label], canary, directory)
        else:
            weights = Weights(name, self._write(policy, name), canary)
        crew.outdate(weights)
        states = RANKS.by_first(lambda: crew.wait(self.config.patience_s))
        if not RANKS.is_first:
            crew.adopt(states)

    def _write(self, policy: Policy, label: str) -> Path:
        weights = serving_weights(policy)
        return RANKS.by_first(lambda: self.folder.write(policy, label, weights))

    def _states(self, crew: Crew) -> dict[str, Any]:
        proofs = {server: proof._asdict() for server, proof in crew.proofs.items()}
        return {server: {"state": str(state), **proofs.get(server, {})} for server, state in crew.fleet.states.items()}

    def close(self) -> None:
        self.folder.close()
