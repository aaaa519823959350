"""Faults between the prompt and the completion."""

from typing import Any

import pytest

from groupwise.errors import ConfigError, ModelError
from groupwise.models.policy import Policy
from groupwise.rollout import engine, sample_and_score
from lab import Fault, Lab, fails, stops

DISAGREE = stops("training", "sampler and trainer disagree about log-probabilities")
STOP_TOKENS = stops("rollout", "has stop tokens at")
DRAWS = stops("rollout", "their draws are not independent")


def stale_sampler(lab: Lab, patch: pytest.MonkeyPatch) -> None:
    """Sample from a copy of the weights that is never renewed."""
    real = engine.make_engine

    def stale(config: Any, policy: Policy) -> Any:
        made = real(config, policy.copy())
        made.publish = lambda policy, version: None
        return made

    patch.setattr(sample_and_score, "make_engine", stale)


FAULTS = (
    Fault(1, "The sampler draws at one temperature and records log-probabilities at temperature 1", DISAGREE).by(
        "rollout", "logprobs.gather(1, tokens)", "torch.log_softmax(logits, -1).gather(1, tokens)"
    ),
    Fault(1, "The trainer scores at temperature 1 what was drawn at another", DISAGREE).by(
        "training",
        "policy.token_logprobs(micro.packed, updater.temperature)",
        "policy.token_logprobs(micro.packed, 1.0)",
    ),
    Fault(
        2,
        "A recipe trains on samples of top-k",
        stops("trainers", "training must sample from the whole distribution", ConfigError),
        settings=("sampling.top_k=5",),
    ),
    Fault(2, "The sampler cuts to the likeliest tokens; the loss is that of the full softmax", DISAGREE).by(
        "rollout", "_truncate(scaled, config)", "_truncate(scaled, config.model_copy(update={'top_k': 5}))"
    ),
    Fault(
        2,
        "The sampler cuts to the likeliest tokens and records log-probabilities of the full softmax",
        fails(
            "unit/rollout/test_engine.py",
            "test_first_tokens_follow_the_models_distribution",
            device="cpu",
            temperature=1.0,
        ),
    ).by("rollout", "logprobs.exp()", "logprobs.exp() * (logprobs >= logprobs.topk(5).values[:, -1:])"),
    Fault(
        3,
        "A log-probability that was never recorded counts as 0",
        stops("training", "sampled tokens have an impossible log-probability"),
    ).by("rollout", "self.length[outputs] += 1", "self.length[outputs] += 1; self.logprobs[outputs, 0] = 0"),
    Fault(4, "The sampler keeps the weights of the first step", DISAGREE, (stale_sampler,)),
    Fault(12, "The sampler loses the stop token", STOP_TOKENS).by(
        "rollout",
        "told = slice(self.since[output], self.length[output])",
        "told = slice(self.since[output], self.length[output] - self.stopped[output])",
    ),
    Fault(13, "A second end token counts as truncation", STOP_TOKENS).by(
        "rollout",
        "FinishReason.STOP if self.stopped[output] else FinishReason.LENGTH",
        "FinishReason.STOP if self.tokens[output, told][-1] == self.policy.tokenizer.eos_token_id "
        "else FinishReason.LENGTH",
    ),
    Fault(13, "The sampler continues after a second end token", STOP_TOKENS).by(
        "rollout", "list(policy.stop_ids)", "[policy.tokenizer.eos_token_id]"
    ),
    Fault(
        13,
        "Only the tokenizer's end token is known, not the model's others",
        fails("unit/rollout/test_engine.py", "test_several_end_tokens_of_a_model_are_all_read"),
    ).by("models", "stops = {*ends, tokenizer.eos_token_id} - {None}", "stops = {tokenizer.eos_token_id}"),
    Fault(
        17,
        "The trained tokens are those of the decoded text, encoded again",
        stops("types", "exactly one of each per token is allowed", ValueError),
    ).by(
        "rollout",
        "completion_of(index, sample, text, own_text(policy, [sample], sampling.tools))",
        "completion_of(index, __import__('dataclasses').replace("
        "sample, token_ids=policy.tokenizer(text)['input_ids']), text, None)",
    ),
    Fault(18, "The prompt begins with two BOS tokens", stops("models", "begins with two BOS tokens", ModelError)).by(
        "models", "tokenizer(text, add_special_tokens=not is_chat)['input_ids']", "tokenizer(text)['input_ids']"
    ),
    Fault(19, "Completions of a group share their first token", DRAWS).by(
        "rollout",
        "uniforms(self.keys[outputs], self.begun[outputs] + self.length[outputs])",
        "uniforms(np.where(self.length[outputs], self.keys[outputs], "
        "self.keys[self.first[self.request_of[outputs]]]), self.begun[outputs] + self.length[outputs])",
    ),
    Fault(19, "Completions of a group have the same random key", DRAWS).by(
        "randomness",
        "key(self.seed, self.name, self.step, problem_id, sample)",
        "key(self.seed, self.name, self.step, problem_id)",
    ),
)
