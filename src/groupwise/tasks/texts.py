"""Texts that a Python file of yours writes: to pretrain on, to answer questions, or two of which one is better.

`recipes/worlds` has one of each, for the shipped base model.
"""

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

from groupwise.config import KindSection
from groupwise.config.kinds import Kinds
from groupwise.randomness import Draw
from groupwise.types import Problem


class TextSource(KindSection):
    """Texts without end."""

    @abstractmethod
    def text(self, seed: int, place: int) -> tuple[str, str]:
        """Return the prompt and the completion of a text; the same arguments give the same text."""

    @abstractmethod
    def alphabet(self) -> str:
        """Return every character that the texts can contain; the tokenizer of a new model is made of them."""


class AnswerWriter(KindSection):
    """Answers as people might write them."""

    @abstractmethod
    def written(self, draw: Draw, problem: Problem) -> str:
        """Return a completion of a problem."""

    @abstractmethod
    def summary(self, draw: Draw, answer: str, language: str) -> str:
        """Return a sentence that says the answer again, to stand behind it."""


class Preference(KindSection):
    """Pairs of completions, and which one of them is better."""

    sees: ClassVar[Literal["completion", "answer"]] = "completion"
    """`answer`: a pair shows only what stands after `</think>`, behind a prompt without prefill."""

    @abstractmethod
    def written(self, draw: Draw, problem: Problem) -> str:
        """Return a completion of a problem."""

    @property
    def name(self) -> str:
        """Return what its draws are called after: pairs of another name are other pairs."""
        return type(self).__name__.lower()

    @abstractmethod
    def worth(self, problem: Problem, completion: str) -> float:
        """Return how good a completion is, from 0 to 1."""


TEXTS = Kinds("text source", {}, base=TextSource)
"""None is built in."""
WRITERS = Kinds("answer writer", {}, base=AnswerWriter)
"""None is built in."""
PREFERENCES = Kinds("preference", {}, base=Preference)
"""None is built in."""

Texts = Annotated[TextSource, TEXTS]
Writer = Annotated[AnswerWriter, WRITERS]
AnyPreference = Annotated[Preference, PREFERENCES]
