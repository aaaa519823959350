"""The ends of a completion's steps, in tokens: verifiers know characters, advantages belong to tokens."""

from bisect import bisect_left
from collections.abc import Sequence

from groupwise.models.policy import Policy
from groupwise.types import Completion, Prompt


def step_ends(policy: Policy, prompt: Prompt, completion: Completion, char_ends: Sequence[int]) -> list[int]:
    """Number of completion tokens up to and with the one in which each step ends.

    Args:
        policy: whose tokenizer wrote the text.
        prompt: its prefill is the beginning of the judged text.
        completion: the tokens; a step that ends at the text's end has the stop token too.
        char_ends: ends of the steps in the judged text (prefill and completion), increasing.
    """
    ids = completion.token_ids.tolist()
    prefixes = policy.tokenizer.batch_decode([ids[:count] for count in range(1, len(ids) + 1)])
    offset, total = len(prompt.prefill), len(completion.text)
    lengths = [min(len(text), total) for text in prefixes]
    ends = []
    for end in char_ends:
        inside = min(max(end - offset, 0), total)
        ends.append(len(ids) if inside >= total else min(bisect_left(lengths, inside) + 1, len(ids)))
    return ends
