"""A policy: a causal language model, its tokenizer, and what it says about tokens; and the critic that values them."""

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from groupwise.algorithms.distillation import Compared, Comparison, Outputs, total_divergence
from groupwise.algorithms.logprobs import token_logprobs
from groupwise.errors import ModelError
from groupwise.models.adapters import Adapters
from groupwise.models.backbone import Backbone, Root, Unread, head_states, precision
from groupwise.models.config import LoraConfig, ModelConfig
from groupwise.models.loading import Training, damaged, place, with_adapters
from groupwise.models.located import locate, stamp_of
from groupwise.models.packed import MIN_SHARED, Pack, Sequences, pack
from groupwise.models.recurrent import one_by_one
from groupwise.models.rows import read

T = TypeVar("T")


class Prediction(NamedTuple):
    """A policy's opinion of the M completion tokens of a pack; with gradient."""

    logprobs: Tensor  # (M,) log pi(token), fp32, in nats
    entropy: Tensor  # (M,) entropy of the distribution that the token is from, fp32, in nats
    states: Tensor  # (M, d) final hidden states that predict the tokens


class Head(nn.Module):
    """The output layer. Its weight and bias are read inside `forward` alone, however many chunks are made of it."""

    def __init__(self, layer: nn.Module, compute_dtype: torch.dtype, config: Any) -> None:
        super().__init__()
        self.layer = layer
        self.compute_dtype = compute_dtype
        self.cap: float | None = getattr(config, "final_logit_softcapping", None)  # z -> cap · tanh(z / cap) (Gemma 2)
        factors = (getattr(config, key, None) for key in ("logit_scale", "lm_head_multiplier"))  # Cohere, Falcon-H1
        self.scale: float = math.prod(factor for factor in factors if factor is not None)
        self.scale /= getattr(config, "logits_scaling", None) or 1  # Granite

    def forward(self, states: Tensor, compute: Callable[[Tensor, Tensor, Tensor | None], T]) -> T:
        """Call `compute` with states (M, d), weight (V, d) and bias (V,), all in the precision of the products."""
        weight: Tensor = self.layer.weight  # type: ignore[assignment]
        bias: Tensor | None = getattr(self.layer, "bias", None)
        dtype = self.compute_dtype
        return compute(self._scaled(states).to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))

    def logits(self, states: Tensor) -> Tensor:
        logits: Tensor = self.layer(self._scaled(states))
        return logits if self.cap is None else self.cap * (logits.float() / self.cap).tanh()

    def _scaled(self, states: Tensor) -> Tensor:
        return states if self.scale == 1 else states * self.scale


class PolicyModule(Root):
    """The root module of a causal language model."""

    def __init__(self, model: PreTrainedModel, compute_dtype: torch.dtype, adapters: Adapters | None = None) -> None:
        super().__init__(model, compute_dtype, adapters)
        self.head = Head(model.get_output_embeddings(), compute_dtype, model.config.get_text_config())

    def forward(self, packed: Pack, temperature: float) -> Prediction:
        states = self._states_of(packed)
        compute = partial(token_logprobs, targets=packed.targets, temperature=temperature, cap=self.head.cap)
        logprobs, entropy = self.head(states, compute)
        return Prediction(logprobs, entropy, states)

    def next_logits(self, states: Tensor) -> Tensor:
        return self.head.logits(states)

    def eager_logits(self, row: Tensor) -> Tensor:
        logits: Tensor = self.model(row, use_cache=False).logits
        return logits

    def one_by_one(self, prompt: Sequence[int], completion: Sequence[int]) -> Tensor:
        return one_by_one(self.model, prompt, completion, self.device)

    def teach(self, packed: Pack, learn: Callable[[Outputs], Compared]) -> Compared:
        """Let a student `learn` from this model, whose head it may read meanwhile."""
        with torch.no_grad():
            states = self._states_of(packed)
        learned: Compared = self.head(states, lambda *head: learn(Outputs(*head)._replace(cap=self.head.cap)))
        return learned

    def divergence(self, packed: Pack, teacher: Outputs, comparison: Comparison) -> Compared:
        states = self._states_of(packed)

        def compare(*head: Any) -> Compared:
            student = Outputs(*head)._replace(cap=self.head.cap)
            # models of one family pad the same vocabulary to different sizes: compared over the rows that both have
            size = min(len(student.weight), len(teacher.weight))
            return total_divergence(student.cut(size), teacher.cut(size), comparison)

        compared: Compared = self.head(states, compare)
        return compared


@dataclass(frozen=True, slots=True)
class Policy(Backbone):
    """A model ready to sample from and to train."""

    root: PolicyModule

    @property
    def vocabulary(self) -> int:
        """Number of tokens that the head tells apart; padding of the vocabulary counts."""
        return len(self.root.head.layer.weight)  # type: ignore[arg-type]

    @property
    def hidden_size(self) -> int:
        return int(self.root.head.layer.weight.shape[1])  # type: ignore[index]

    def token_logprobs(self, packed: Pack, temperature: float = 1.0) -> Prediction:
        """Return log-probability and entropy of every completion token of a pack, with gradient."""
        with self.as_meant():
            prediction: Prediction = self.root(packed, temperature)
        return prediction

    def completion_states(self, packed: Pack) -> Tensor:
        """Return the (M, d) hidden states that predict the completion tokens of a pack, with gradient."""
        with self.as_meant():
            return self.root.states(packed)

    def next_logits(self, states: Tensor) -> Tensor:
        """Return the (n, V) logits that hidden states (n, d) predict, in the precision around the call."""
        return self.root.next_logits(states)

    def divergence(self, packed: Pack, teacher: "Policy", comparison: Comparison) -> Compared:
        """Return the divergence from a teacher over a pack's completions and the tokens that both know.

        The gradient goes to this model alone.
        """

        def learn(theirs: Outputs) -> Compared:
            with self.as_meant():
                return self.root.divergence(packed, theirs, comparison)

        with teacher.as_meant():
            return teacher.root.teach(packed, learn)

    def check_forward(self) -> None:
        """Compare the packed forward with transformers' own; of a model in rows all ranks have to ask."""
        size = self.vocabulary
        drawn = [[(7 * i + 3 * k + 1) % size for i in range(length)] for k, length in enumerate((4, 4, 2, 2, 3, 4))]
        begin = [(5 * i + 2) % size for i in range(MIN_SHARED)]
        groups = [Sequences(begin + drawn[0], drawn[1:3]), Sequences(begin + drawn[3], drawn[4:])]  # of unequal lengths
        packed = pack(groups, self.device)

        def alone(prompt: Any, completion: Any) -> Tensor:
            row = torch.tensor([[*prompt, *completion]], device=self.device)
            return self.root.eager_logits(row)[0, len(prompt) - 1 : -1]

        self.compare_with_eager(
            lambda: self.next_logits(self.completion_states(packed)),
            lambda: torch.cat([alone(group.prompt, c) for group in groups for c in group.completions]),
        )
        if self.is_recurrent:  # what sampling does is another way through their layers
            self.compare_with_eager(
                lambda: self.next_logits(self.root.one_by_one(drawn[0], drawn[1])), lambda: alone(drawn[0], drawn[1])
            )

    def base(self) -> Self:
        """Return the model that this one's adapters stand on: the same weights, the adapters left out."""
        if self.root.adapters is None:
            raise ModelError("the model has no adapters, so there is nothing that they stand on")
        return replace(self, is_base=True)


def load_policy(config: ModelConfig | str | Path, *, in_rows: bool = False, trusted: bool = False) -> Policy:
    """Load a model.

    Args:
        config: a recipe's `model` section, or a path alone: a checkpoint directory, a hub name, or `base`. A directory
            of adapters is the model that they stand on, with them beside its weights.
        in_rows: among ranks `models.sharded.sharded` reads its weights, this rank's rows alone.
        trusted: leave out the comparison with transformers' own forward where it once held for the same files, code,
            versions and threads, which a file of the cache says (`models.located.stamp_of`). Never for what is trained.

    Raises:
        ModelError: it is missing, damaged or without an end token.
        UnsupportedModelError: it computes attention in a way we do not.
        ConfigError: it has adapters, and peft is not installed.
    """
    config = config if isinstance(config, ModelConfig) else ModelConfig(path=str(config))
    return _load(config, None, in_rows, trusted)


def start_policy(config: ModelConfig, lora: LoraConfig | None, seed: int, *, in_rows: bool = False) -> Policy:
    """Load the model that a run trains: with `lora` adapters, new ones of this seed or the directory's; else all of it.

    The adapters of a directory are added to the weights where the whole model is trained. `in_rows`: see
    `load_policy`.

    Raises:
        ModelError: as in `load_policy`, or a target of the adapters cannot be adapted.
        UnsupportedModelError: it computes attention in a way we do not.
        ConfigError: the directory's adapters are others than `lora` says, or peft is not installed.
    """
    return _load(config, Training(lora, seed), in_rows)


def _load(config: ModelConfig, training: Training | None, in_rows: bool, trusted: bool = False) -> Policy:
    located = locate(config.path)
    adapts = training is not None and training.lora is not None
    model, tokenizer, lost, unread = read(AutoModelForCausalLM, located, config, in_rows, adapts)
    if lost:
        raise damaged(located.adapters.base if located.adapters else config.path, lost)
    is_scorer = located.adapters is not None and located.adapters.scores
    if is_scorer or "ForSequenceClassification" in str(model.config.architectures):
        raise ModelError(f"{config.path!r} is a reward model or another classifier; a language model is needed")
    adapters, _ = with_adapters(model, located, training, unread, scores=False)
    stamp = stamp_of(located, config) if trusted else None
    policy = make_policy(model, tokenizer, config, adapters, unread, is_checked=stamp is not None and stamp.is_file())
    if stamp is not None:
        with suppress(OSError):  # a cache that cannot be written costs the next command a second
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.touch()
    return policy


def make_policy(
    model: PreTrainedModel,
    tokenizer: Any,
    config: ModelConfig | None = None,
    adapters: Adapters | None = None,
    unread: Unread | None = None,
    is_checked: bool = False,
) -> Policy:
    """Check a model and its tokenizer, and move them to their device; weights that are unread are checked later.

    `is_checked`: its forward is known to be that of transformers.

    Raises:
        ModelError: there is no end token, or it is outside the vocabulary.
        UnsupportedModelError: it computes attention in a way we do not.
    """
    config = config or ModelConfig()
    dtype = place(model, config, is_read=unread is None)
    of_generation = getattr(model.generation_config, "eos_token_id", None)
    ends = model.config.get_text_config().eos_token_id if of_generation is None else of_generation
    ends = ends if isinstance(ends, list) else [ends]
    stops = {*ends, tokenizer.eos_token_id} - {None}
    texts = getattr(model.generation_config, "stop_strings", None) or []
    texts, added = [texts] if isinstance(texts, str) else texts, tokenizer.get_added_vocab()
    stops |= {added[text] for text in texts if text in added}
    if others := [text for text in texts if text not in added]:
        warnings.warn(
            f"the model's generation_config.json stops at the texts {others}, which are no tokens of its own: "
            "completions stop there in an evaluation with sampling.stop, and nowhere else",
            stacklevel=2,
        )
    if tokenizer.eos_token_id is None:
        raise ModelError("the tokenizer has no end-of-sequence token (eos_token): completions could never stop")
    head = model.get_output_embeddings().weight
    if head is not model.get_input_embeddings().weight:  # as files may hold it whose config.json says otherwise
        model.config.tie_word_embeddings = False
    vocabulary = len(head)
    if outside := [int(token) for token in stops if not 0 <= token < vocabulary]:
        raise ModelError(f"end-of-sequence ids {outside} are outside the model's vocabulary of {vocabulary}")
    if stops.difference(ends) and model.generation_config is not None:  # else other readers would run on
        model.generation_config.eos_token_id = sorted(map(int, stops))
    root = PolicyModule(model, dtype, adapters)
    policy = Policy(root, tokenizer, frozenset(map(int, stops)), unread=unread)
    if unread is None:
        if not is_checked:
            policy.check_forward()
    else:
        root.computes_on = unread.device
    return policy


class Critic(nn.Module):
    """V(prompt and the tokens so far): one linear layer on its own backbone, or on the policy's.

    The layer starts at zero, so that an untrained critic says 0 everywhere and its advantages are the plain returns.
    """

    optimizer = None  # The policy's trains it

    def __init__(self, policy: Policy, backbone: Policy | None) -> None:
        super().__init__()
        self.head = nn.Linear(policy.hidden_size, 1, device=policy.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        # the backbone's output layer over the vocabulary is never used, so it is not ours
        self.trunk: nn.Module | None = None if backbone is None else backbone.model.base_model
        self.compute_dtype = policy.compute_dtype if backbone is None else backbone.compute_dtype

    def forward(self, packed: Pack, policy_states: Tensor | None) -> Tensor:
        states = policy_states
        if self.trunk is not None:
            with precision(self.head.weight.device, self.compute_dtype):
                states = head_states(self.trunk, packed)
        if states is None:
            raise ValueError("a critic on the policy's backbone needs the policy's states")
        values: Tensor = self.head(states.float())
        return values  # (M, 1): a hook on the output would be lost on a view

    def values(self, packed: Pack, policy_states: Tensor | None) -> Tensor:
        """Return the (M,) value of the state before each completion token, with gradient.

        `policy_states` (M, d) are the policy's `completion_states`, where the backbone is shared; else None.
        """
        values: Tensor = self(packed, policy_states)
        return values[:, 0]

    @property
    def shares_backbone(self) -> bool:
        return self.trunk is None

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, weight) for name, weight in self.named_parameters() if weight.requires_grad]
