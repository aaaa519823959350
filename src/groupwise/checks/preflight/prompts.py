"""Prompts as token ids: what the model really reads, where it stops, and whether everything fits."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from groupwise.checks.doctor.finding import Advice
from groupwise.checks.preflight.bench import Bench
from groupwise.checks.preflight.finding import Check, Checked, Finding, Level
from groupwise.rollout.sample_and_score import encode_prompt
from groupwise.types import Prompt, Split

NUM_PROMPTS = 512
"""Prompts of a split that are written."""
SPLITS_SEEN: tuple[Split, ...] = ("train", "dev")
"""The test split is not opened before a run's end."""
SHOWN_TOKENS = 40
"""Tokens at either end of the prompt that is shown."""


def prompts(bench: Bench) -> Checked:
    """Write the prompts of every split; the tokenizer refuses what it cannot write, and two BOS tokens."""
    policy, template = bench.policy, bench.task.template
    written = [
        encode_prompt(policy, template, problem) for split in SPLITS_SEEN for problem in bench.some(NUM_PROMPTS, split)
    ]
    lengths = [len(prompt.token_ids) for prompt in written]
    middle, high = np.quantile(lengths, (0.5, 0.99)).tolist()
    figures: dict[str, Any] = {
        "tokens of a prompt": f"p50 {middle:.0f}, p99 {high:.0f}, longest {max(lengths)}",
        "context": policy.context_length,
        "stop tokens": [policy.tokenizer.convert_ids_to_tokens(i) for i in sorted(policy.stop_ids)],
        "prompt": _shown(policy.tokenizer, written[0]),
    }
    found = [*_fits(bench, written), *_bos(bench, written), *_ends(bench)]
    return Checked(figures, tuple(found))


def _shown(tokenizer: Any, prompt: Prompt) -> str:
    """A prompt with a bar between tokens; the middle of a long one is left out."""
    ids = prompt.token_ids
    kept = ids if len(ids) <= 2 * SHOWN_TOKENS else (*ids[:SHOWN_TOKENS], *ids[-SHOWN_TOKENS:])
    tokens = [tokenizer.decode([token]) for token in kept]
    if len(kept) < len(ids):
        tokens.insert(SHOWN_TOKENS, f" … {len(ids) - len(kept)} tokens … ")
    return "¦".join(tokens)


def _finding(level: Level, evidence: str, means: str, change: Advice, places: Sequence[str] = ()) -> Finding:
    return Finding(
        check="prompts", level=level, evidence=evidence, means=means, change=(change,), places=tuple(places[:5])
    )


def _fits(bench: Bench, written: Sequence[Prompt]) -> Iterator[Finding]:
    room = bench.policy.context_length - bench.recipe.sampling.max_tokens
    cut = [prompt for prompt in written if len(prompt.token_ids) > room]
    if cut:
        longest = max(len(prompt.token_ids) for prompt in cut)
        yield _finding(
            Level.NO_GO,
            f"{len(cut)} of {len(written)} prompts do not fit: the longest has {longest} tokens, and with "
            f"sampling.max_tokens = {bench.recipe.sampling.max_tokens} the context of {bench.policy.context_length} "
            f"leaves {room}",
            "The run ends with an error when it meets one of them; nothing is cut silently.",
            Advice("sampling.max_tokens", f"at most {bench.policy.context_length - longest}") if longest <
            bench.policy.context_length else Advice("task", "leave the long problems out"),
            [prompt.problem.id for prompt in cut],
        )  # fmt: skip


def _bos(bench: Bench, written: Sequence[Prompt]) -> Iterator[Finding]:
    """Exactly one, at the front, where the tokenizer writes one at all."""
    tokenizer = bench.policy.tokenizer
    bos = tokenizer.bos_token_id
    if bos is None or bos in bench.policy.stop_ids:
        return
    several = [prompt.problem.id for prompt in written if prompt.token_ids.count(bos) > 1]
    if several:
        yield _finding(
            Level.NO_GO, f"{len(several)} of {len(written)} prompts hold {tokenizer.bos_token!r} more than once",
            "The model was never trained on such a prompt, and answers it worse.",
            Advice("task.template", "leave the token out: the tokenizer or its chat template writes it"), several,
        )  # fmt: skip
    writes_one = tokenizer("a")["input_ids"][:1] == [bos]
    without = [prompt.problem.id for prompt in written if prompt.token_ids[0] != bos]
    if writes_one and without:
        yield _finding(
            Level.WARNING, f"{len(without)} of {len(written)} prompts do not begin with {tokenizer.bos_token!r}, which "
            "the tokenizer writes before other texts",
            "The model may answer worse than it can.", Advice("task.template", "a chat template that writes it"),
            without,
        )  # fmt: skip


def _ends(bench: Bench) -> Iterator[Finding]:
    """Whether the token with which the chat template ends an answer is one that ends a completion."""
    policy, template = bench.policy, bench.task.template
    if not template.chat:
        return
    messages = [*template.messages(bench.problems("train")[0]), {"role": "assistant", "content": "forty-two"}]
    text: str = policy.tokenizer.apply_chat_template(messages, tokenize=False)
    rest = text.rpartition("forty-two")[2]
    after = list(policy.tokenizer(rest, add_special_tokens=False)["input_ids"]) if rest else []
    stops = [policy.tokenizer.convert_ids_to_tokens(i) for i in sorted(policy.stop_ids)]
    if not after:
        yield _finding(
            Level.WARNING, "the chat template writes nothing after an answer",
            "The model was never shown where an answer ends.", Advice("model.path", "a model with a chat template"),
        )  # fmt: skip
    elif after[0] not in policy.stop_ids:
        token = policy.tokenizer.convert_ids_to_tokens(after[0])
        yield _finding(
            Level.NO_GO,
            f"the chat template ends an answer with {token!r}, and completions stop at {', '.join(stops)} alone",
            "Completions run on behind their answer until the token limit, and are judged with all that.",
            Advice("model.path", f"put {token!r} into eos_token_id of the model's generation_config.json"),
        )  # fmt: skip


PROMPTS = Check(
    name="prompts", says="every prompt as token ids: one BOS, stop tokens, lengths against the context",
    cost="model", run=prompts, source="peers' threads on doubled BOS and lost stop tokens; lengths are counted",
)  # fmt: skip
