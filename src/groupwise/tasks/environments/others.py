"""Parts that every bridge to other people's environments shares: their package, their chance, their conversation."""

import importlib.util
import random
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from groupwise.errors import ConfigError, VerifierError
from groupwise.randomness import key
from groupwise.tasks.environments.base import Environment, Message
from groupwise.types import Problem


def needs(package: str, extra: str) -> None:
    """Check that a package can be imported. Raises ConfigError: it says what to install."""
    if importlib.util.find_spec(package) is None:
        raise ConfigError(f"environment.kind = {extra!r} needs {package}: pip install 'groupwise[{extra}]'")


class Others(Environment):
    """An environment that somebody else wrote; `random` and NumPy's are seeded before each of its methods."""

    alone = True
    _seed, _turn = 0, -1

    def begins(self, problem: Problem, seed: int) -> None:
        self._seed, self._turn = key("others", seed, problem.id), -1
        self.goes_on()

    def goes_on(self) -> None:
        self._turn += 1
        random.seed(number := key("others", self._seed, self._turn))
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed(number % 2**32)


def plain(message: Any) -> dict[str, Any]:
    """Return role, content and the tool's name of a message as OpenAI, or a class with these attributes, writes it.

    Raises:
        VerifierError: it holds something else than text.
    """
    said = message if isinstance(message, Mapping) else vars(message)
    content = said.get("content") or ""
    if not isinstance(content, str | list | tuple):
        raise VerifierError(f"a message holds {type(content).__name__}; allowed is text, or a list of its parts")
    if not isinstance(content, str):
        parts = [part if isinstance(part, Mapping) else vars(part) for part in content]
        if other := next((part for part in parts if part.get("type") not in ("text", "thinking")), None):
            raise VerifierError(f"a message holds {other.get('type')!r}; allowed is text")
        content = "\n".join(part["text"] for part in parts if part["type"] == "text")
    name = {"name": str(said["name"])} if said.get("name") else {}
    return {"role": str(said["role"]), "content": content, **name}


def news(past: Iterable[Message], now: Iterable[Message]) -> list[Message]:
    """Return the messages behind the answer to `past`, of a conversation that is given whole.

    Raises:
        VerifierError: `now` does not begin with `past` and one answer, or adds nothing.
    """
    past, now = list(past), list(now)
    if now[: len(past)] != past or [m["role"] for m in now[len(past) : len(past) + 1]] != ["assistant"]:
        at = next((i for i, (a, b) in enumerate(zip(past, now, strict=False)) if a != b), min(len(past), len(now)))
        raise VerifierError(
            f"it asks again behind another past, from message {at} on: {str(now[at : at + 1])[:120]}; allowed is one "
            "conversation that grows at its end"
        )
    if not (added := now[len(past) + 1 :]):
        raise VerifierError("it asks again and has added nothing; allowed are messages behind each answer")
    return added
