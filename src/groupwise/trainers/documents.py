"""Documents to learn from as they are: continued pre-training on a mixture, some of it a replay of earlier text.

Every document is a sequence of its own; a long one is cut into pieces of nearly equal length.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from groupwise.config import Section, named, parse, read_recipe
from groupwise.config.schema import DataRef
from groupwise.errors import ConfigError, DataError
from groupwise.models.packed import Sequences
from groupwise.models.policy import Policy
from groupwise.models.prompts import unknown_id
from groupwise.randomness import key, permutation, uniforms
from groupwise.tasks.data_files import read_file
from groupwise.tasks.preferences import Texts, TextSource
from groupwise.training.config import RunConfig

MEASURED = 256
"""Generated documents whose mean length stands for that of all."""


class Example(NamedTuple):
    """A prompt and what shall follow it, as token ids; the end token is part of the completion."""

    prompt: list[int]
    completion: list[int]
    trained: list[bool] | None = None

    @property
    def mask(self) -> NDArray[np.bool_]:
        """(T,) which tokens of the completion are trained."""
        return np.ones(len(self.completion), np.bool_) if self.trained is None else np.array(self.trained)

    @property
    def sequences(self) -> Sequences:
        return Sequences(self.prompt, [self.completion], [self.mask])


class TextData(Section):
    """Prompt/completion pairs without end, written by a Python file of yours."""

    source: Literal["texts"] = "texts"
    """Texts that a program writes."""
    text: Texts
    """The writer, for example `worlds/diet.py:Diet`: what the shipped base model is pretrained on."""


class DocumentsPart(Section):
    """One part of the mixture: a file of documents, or a generated corpus."""

    share: float = Field(1.0, gt=0)
    """Share of the tokens, relative to the other parts'."""
    path: DataRef = ""
    """A data file with the field `text`; empty: `replay` says what is generated."""
    replay: str = ""
    """A recipe of supervised fine-tuning whose generated text is written on, for example `base/second-3.toml`, from
    which the shipped base model read last."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.path) == bool(self.replay):
            raise ValueError(f"path = {self.path!r} and replay = {self.replay!r}: exactly one of them must be set")
        return self


class DocumentsData(Section):
    """A mixture of documents. DeepSeekMath: 56 % the mathematical corpus, the rest papers, code and general text."""

    source: Literal["documents"] = "documents"
    """Documents as they are; every token but the first is learned."""
    parts: dict[str, DocumentsPart] = Field(min_length=1)
    """The parts by a name of your own."""
    max_tokens: int = Field(0, ge=0)
    """Longest piece of a document from a file, 0: the model's context; one that is generated stays whole."""


Part = tuple[Callable[[int], list[int]], float]
"""The token ids of a part's n-th piece, of which there is no end; and the mean number of them."""


def document_batches(policy: Policy, data: DocumentsData, size: int, run: RunConfig) -> Callable[[int], list[Example]]:
    """Draw the examples of each step, a pure function of seed and step.

    A part is drawn with a probability that is its share divided by the mean length of its pieces, so that the
    shares are shares of tokens.
    """
    parts = [_part(policy, name, part, data.max_tokens, run.seed) for name, part in data.parts.items()]
    weights = np.array([of.share / mean for of, (_, mean) in zip(data.parts.values(), parts, strict=True)])
    bounds = np.cumsum(weights / weights.sum())
    draws = uniforms(key(run.seed, "document part"), np.arange(run.num_steps * size))
    chosen = np.minimum(np.searchsorted(bounds, draws, side="right"), len(parts) - 1)
    places = np.stack([np.cumsum(chosen == part) - 1 for part in range(len(parts))])

    def batch(step: int) -> list[Example]:
        slots = range(step * size, (step + 1) * size)
        pieces = [parts[chosen[slot]][0](int(places[chosen[slot], slot])) for slot in slots]
        return [Example(piece[:1], piece[1:]) for piece in pieces]

    return batch


def _part(policy: Policy, name: str, part: DocumentsPart, max_tokens: int, seed: int) -> Part:
    context, unknown = policy.context_length, unknown_id(policy.tokenizer)
    if part.replay:
        source = replayed(part.replay)

        def generated(place: int) -> list[int]:
            [ids] = encoded(policy, ["".join(source.text(key(seed, "replay", name), place))])
            if len(ids) > context or unknown in ids:
                what = f"{len(ids)} tokens" if len(ids) > context else "characters that the model does not know"
                raise DataError(
                    f"data.parts.{name}.replay = {part.replay!r} writes a text with {what}; allowed are texts that the "
                    f"model can write, of at most {context} tokens, its context"
                )
            return ids

        return generated, float(np.mean([len(generated(place)) for place in range(MEASURED)]))
    texts = []
    for record in read_file(part.path):
        if "text" not in record.fields:
            raise DataError(f"{record.place} has no field 'text'")
        text = record.fields["text"]
        if not isinstance(text, str) or not text:
            raise DataError(f"{record.place}: the text must be a non-empty string")
        texts.append(text)
    if not texts:
        raise DataError(f"{part.path} holds no documents")
    pieces = _pieces(policy, name, texts, min(max_tokens or context, context))

    @cache
    def order(epoch: int) -> NDArray[np.int64]:
        return permutation(len(pieces), seed, "document order", name, epoch)

    def from_file(place: int) -> list[int]:
        epoch, index = divmod(place, len(pieces))
        return pieces[int(order(epoch)[index])]

    return from_file, float(np.mean([len(piece) for piece in pieces]))


def replayed(recipe: str) -> TextSource:
    """Return the generated text that a recipe of supervised fine-tuning learns from."""
    data, (name, folder) = read_recipe(recipe).get("data", {}), named(recipe)
    if data.get("source") != "texts":
        raise ConfigError(f"replay = {recipe!r}: {name} learns from no generated text (its data.source)")
    return parse(TextData, data, source=name, folder=folder).text


def encoded(policy: Policy, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of documents, each with the end token."""
    end = policy.tokenizer.eos_token_id
    return [[*ids, end] for ids in policy.tokenizer(list(texts), add_special_tokens=False)["input_ids"]]


def _pieces(policy: Policy, name: str, texts: Sequence[str], limit: int) -> list[list[int]]:
    unknown = unknown_id(policy.tokenizer)
    documents = encoded(policy, texts)
    usable = [ids for ids in documents if unknown is None or unknown not in ids]
    if not usable:
        raise DataError(
            f"data.parts.{name}: each of its {len(texts)} documents has characters that the model does not know"
        )
    if len(usable) < len(documents):
        warnings.warn(
            f"data.parts.{name}: {len(documents) - len(usable)} of {len(documents)} documents have characters that the "
            "model does not know, and are left out",
            stacklevel=2,
        )
    return [piece for ids in usable for piece in cut(ids, limit)]


def cut(ids: list[int], limit: int) -> list[list[int]]:
    """A document in as few pieces as the limit allows, of nearly equal length, so that none is a single token.

    >>> cut([1, 2, 3, 4, 5], 3), cut([1, 2], 3)
    ([[1, 2, 3], [4, 5]], [[1, 2]])
    """
    count = -(-len(ids) // limit)
    ends = [-(-len(ids) * part // count) for part in range(count + 1)]
    return [ids[start:end] for start, end in pairwise(ends)]
