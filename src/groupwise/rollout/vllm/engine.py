"""The vLLM engine: completions from servers over HTTP, from weights that each server has proven to have.

publish   directory -> pause, reload, clear, label, resume (every server) -> canary -> healthy
generate  waiting -> the healthy server that owes least -> checked -> a group is told when its last one is there
"""

from collections.abc import Sequence
from time import perf_counter
from typing import Any, ClassVar

from groupwise.errors import ConfigError
from groupwise.models.policy import Policy
from groupwise.models.serving import changed_a_little
from groupwise.rollout.engine import OnFinished, Request
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.vllm.canary import Canary
from groupwise.rollout.vllm.config import VllmConfig
from groupwise.rollout.vllm.crew import Crew, Weights
from groupwise.rollout.vllm.round import Deadlines, Round
from groupwise.rollout.vllm.start import Started, start
from groupwise.rollout.vllm.weights import WeightsFolder


class VllmEngine:
    """Samples from servers of vLLM."""

    Config: ClassVar[type[VllmConfig]] = VllmConfig

    def __init__(self, config: VllmConfig, policy: Policy) -> None:
        self.config, self.policy, self.version = config, policy, 0
        self.folder = WeightsFolder(config.directory)
        self.facts: dict[str, Any] = {}
        """What is recorded of the newest publish and the newest round."""
        self._started: Started | None = None

    @property
    def crew(self) -> Crew:
        """The servers, found or started at the first use, with the policy's weights."""
        if self._started is None or self._started.crew.weights is None:
            self.publish(self.policy, self.version)
        assert self._started is not None
        return self._started.crew

    def generate(self, requests: Sequence[Request], sampling: SamplingConfig, on_finished: OnFinished) -> None:
        """Sample every completion of every request.

        Raises:
            ConfigError: a prompt and its completion do not fit in the model's context, or completions are to be looked
                at after every token.
            EngineError: no server is left, or an answer cannot be trusted.
        """
        _refuse_searches(requests)
        crew = self.crew
        self._check_lengths(requests, sampling)
        deadlines = Deadlines(self.config.request_s, self.config.patience_s)
        Round(crew, requests, sampling, deadlines, on_finished).run()
        self.facts |= {"reissued": crew.fleet.reissued, "servers": self._states(crew)}

    def _check_lengths(self, requests: Sequence[Request], sampling: SamplingConfig) -> None:
        context = min(self.policy.context_length, *(self._started.contexts if self._started else ()))
        for request in requests:
            if (longest := len(request.token_ids)) + request.room(sampling) > context:
                raise ConfigError(
                    f"a prompt of {longest} tokens and a completion of up to {request.room(sampling)} "
                    f"(sampling.max_tokens) do not fit in the context of {context} tokens that model and servers have"
                )

    def publish(self, policy: Policy, version: int) -> None:
        """Give these weights to every server that lives, and let each of them prove that it has them.

        Raises:
            EngineError: no server can be reached, or one is not what it must be.
            InvariantError: a server has other weights than it was given, or samples from others.
            CheckpointError: the weights cannot be written.
        """
        began = perf_counter()
        if self._started is None:
            self._started = start(self.config, policy, self.folder)
            if self.config.rehearse:
                self._send(changed := changed_a_little(policy), f"rehearsal-{changed.fingerprint()}", None)
        crew = self._started.crew
        before = crew.weights.canary if crew.weights else None
        self._send(policy, f"v{version}-{policy.fingerprint()}", before)
        self.policy, self.version = policy, version
        self.facts = {
            "version": version,
            "publish_s": perf_counter() - began,
            "servers": self._states(crew),
        }

    def _send(self, policy: Policy, label: str, before: Canary | None) -> None:
        assert self._started is not None
        crew = self._started.crew
        directory = self.folder.write(policy, label)
        crew.outdate(Weights(label, directory, Canary.of(policy, before, self.config.dtype), policy))
        crew.wait(self.config.patience_s)

    def _states(self, crew: Crew) -> dict[str, Any]:
        """By server, its state and what its canary proved."""
        proofs = {server: proof._asdict() for server, proof in crew.proofs.items()}
        return {server: {"state": str(state), **proofs.get(server, {})} for server, state in crew.fleet.states.items()}

    def close(self) -> None:
        """Delete the weights that were written for the servers; those that it started end with the process."""
        self.folder.close()


def _refuse_searches(requests: Sequence[Request]) -> None:
    if any(request.pause for request in requests):
        raise ConfigError(
            "engine.kind = 'vllm' samples completions to their end: searches, which look at them after every token, "
            "need engine.kind = 'in_process'"
        )
