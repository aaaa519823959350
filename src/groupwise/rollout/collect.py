"""From problems to groups: render prompts, sample, and name every completion by its key."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from groupwise.errors import ConfigError, InvariantError, ModelError
from groupwise.models.backbone import Backbone
from groupwise.models.policy import Policy
from groupwise.randomness import key
from groupwise.rollout.engine import Request, Sampled, generate
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks.base import Template
from groupwise.types import Completion, FinishReason, Group, Problem, Prompt

FALSE_ALARM = 25.0
"""Draws count as dependent when independent ones would look like them with a probability below exp(-25) = 1e-11."""


def encode_prompt(policy: Backbone, template: Template, problem: Problem) -> Prompt:
    """Render a problem as exactly what the model reads, once; training, evaluation and replay use these ids.

    Raises:
        ModelError: the tokenizer cannot write a character, has no chat template, or doubles its BOS.
    """
    tokenizer = policy.tokenizer
    text = template.render(problem)
    if template.chat:
        text, ids = _chat(tokenizer, template, text)
    else:
        ids = list(tokenizer(text)["input_ids"])
    if template.prefill:
        text += template.prefill
        ids += tokenizer(template.prefill, add_special_tokens=False)["input_ids"]
    if not ids:
        raise ModelError(f"the prompt of {problem.id} has no tokens: {text!r}")
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
        unknown = sorted(
            {c for c in text if tokenizer.unk_token_id in tokenizer(c, add_special_tokens=False)["input_ids"]}
        )
        raise ModelError(
            f"the tokenizer cannot write {' '.join(map(repr, unknown))} in the prompt of {problem.id}: {text!r}"
        )
    bos = tokenizer.bos_token_id
    if bos is not None and ids[:2] == [bos, bos]:
        raise ModelError(f"the prompt of {problem.id} begins with two BOS tokens: the chat template already writes one")
    return Prompt(problem, text, tuple(ids), template.prefill)


def _chat(tokenizer: Any, template: Template, question: str) -> tuple[str, list[int]]:
    if not tokenizer.chat_template:
        raise ModelError(
            "task.template.chat is on, but the tokenizer has no chat template: set task.template.chat=false"
        )
    messages = [{"role": "system", "content": template.system}] if template.system else []
    messages.append({"role": "user", "content": question})
    text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    # the template writes its own special tokens; adding them again is the classic double BOS
    return text, list(tokenizer(text, add_special_tokens=False)["input_ids"])


def sample_keys(seed: int, purpose: str, step: int, problem_id: str, num_samples: int) -> tuple[int, ...]:
    """The random key of each completion; the draw of a token is a function of this key and the token's position."""
    return tuple(key(seed, purpose, step, problem_id, sample) for sample in range(num_samples))


def collect(
    policy: Policy,
    template: Template,
    problems: Sequence[Problem],
    group_size: int,
    sampling: SamplingConfig,
    *,
    seed: int,
    purpose: str,
    step: int,
    policy_version: int = 0,
    on_group: Callable[[Group], None] = lambda group: None,
) -> list[Group]:
    """Sample a group of completions for every problem.

    `purpose` (`train`, `dev`, `test` or `sample`) keeps the draws of different uses apart; `policy_version` is the
    number of updates behind the policy's weights; `on_group` is called with each group as soon as it is complete.
    """
    if len({problem.id for problem in problems}) < len(problems):
        raise ConfigError("a problem occurs twice in one step: prompts_per_step is larger than the number of problems")
    prompts = [encode_prompt(policy, template, problem) for problem in problems]
    requests = [
        Request(prompt.token_ids, sample_keys(seed, purpose, step, prompt.problem.id, group_size)) for prompt in prompts
    ]
    groups: dict[int, Group] = {}

    def finished(place: int, sampled: Sequence[Sampled]) -> None:
        _check_stops(policy, sampled)
        texts = policy.tokenizer.batch_decode([_visible(policy, one) for one in sampled])
        completions = tuple(_completion(i, one, text) for i, (one, text) in enumerate(zip(sampled, texts, strict=True)))
        groups[place] = Group(prompts[place], completions, step, policy_version)
        on_group(groups[place])

    generate(policy, requests, sampling, finished)
    _check_first_tokens(list(groups.values()))
    return [groups[place] for place in range(len(prompts))]


def _check_stops(policy: Policy, sampled: Sequence[Sampled]) -> None:
    """A completion that stopped ends with its stop token, which is then trained; any other has none."""
    for one in sampled:
        stops = [place for place, token in enumerate(one.token_ids.tolist()) if token in policy.stop_ids]
        if stops != ([len(one.token_ids) - 1] if one.finish_reason is FinishReason.STOP else []):
            raise InvariantError(
                f"a completion of {len(one.token_ids)} tokens that ended by '{one.finish_reason}' has stop tokens at "
                f"places {stops}: the sampler lost its stop token, went on after it, or misnamed its end"
            )


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


def _visible(policy: Policy, sampled: Sampled) -> list[int]:
    """Tokens that a person reads: all but the stop token."""
    ids: list[int] = sampled.token_ids.tolist()
    return ids[:-1] if ids[-1] in policy.stop_ids else ids


def _completion(index: int, sampled: Sampled, text: str) -> Completion:
    return Completion(index, sampled.token_ids, sampled.logprobs, sampled.entropy, sampled.finish_reason, text)
