"""People's part: which URL patterns of a rich domain lead to mathematics. By an oracle of made webs, or by a file."""

import re
import tomllib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from groupwise.config import toml_literal
from groupwise.config.kinds import Kinds, KindSection
from groupwise.errors import ConfigError, DataError, WaitingError
from groupwise.randomness import Draw
from groupwise.recall.page import Page
from groupwise.runs.atomic import write_file

_MEND = "mend that line, the others are kept as they are"


class Asked(NamedTuple):
    """A URL pattern that waits for yes or no."""

    pattern: str
    pages: Sequence[Page]
    """All pages under it."""
    collected: int
    """How many of them the round collected."""


class Annotator(KindSection):
    """Who says which URL patterns are mathematics."""

    patterns_per_round: int = Field(0, ge=0)
    """Most patterns that are asked in a round, those of the richest domains first; 0: all."""

    @abstractmethod
    def answers(self, asked: Sequence[Asked], round_number: int, seed: int) -> Mapping[str, bool]:
        """Yes or no for every pattern.

        Raises:
            WaitingError: a person has to answer first.
        """


class Oracle(Annotator):
    """Says what is true of pages whose truth is known, and errs at a given rate."""

    kind: str = "oracle"
    """The truth, with errors."""
    error_rate: float = Field(0.0, ge=0, le=1)
    """Probability that an answer is the wrong one."""

    def answers(self, asked: Sequence[Asked], round_number: int, seed: int) -> dict[str, bool]:
        return {one.pattern: self._answer(one, seed) for one in asked}

    def _answer(self, one: Asked, seed: int) -> bool:
        known = [page.truth.is_mathematics for page in one.pages if page.truth]
        if not known:
            raise ConfigError(
                f'annotator.kind = "oracle": nothing is known of {one.pattern}; allowed is "file" or "none"'
            )
        errs = Draw("annotator", seed, one.pattern).uniform() < self.error_rate
        return (2 * sum(known) > len(known)) != errs


class Nobody(Annotator):
    """No annotation: the seed never grows."""

    kind: str = "none"
    """Nobody answers; all rounds after the first repeat it."""

    def answers(self, asked: Sequence[Asked], round_number: int, seed: int) -> dict[str, bool]:
        return {}


class File(Annotator):
    """A TOML file of patterns, which is written with a question mark behind each, for people to fill in."""

    kind: str = "file"
    """People, through a file."""
    path: str = Field("patterns.toml", min_length=1)
    """The file. It stays when everything else is made anew, and no pattern is asked twice."""

    def answers(self, asked: Sequence[Asked], round_number: int, seed: int) -> dict[str, bool]:
        path = Path(self.path)
        known = read_answers(path)
        if new := [one for one in asked if _spelled(one.pattern) not in known]:
            _ask(path, new, round_number)
        given = {one.pattern: known.get(_spelled(one.pattern), "?") for one in asked}
        if waiting := [name for name, answer in given.items() if answer == "?"]:
            raise WaitingError(
                f"{len(waiting)} of {len(asked)} URL patterns of round {round_number} wait in {path} for yes or no, "
                f"the first is {waiting[0]}; write them and run the same command again"
            )
        return {name: answer == "yes" for name, answer in given.items()}


def read_answers(path: Path) -> dict[str, str]:
    """Yes, no or ? by pattern; empty where there is no file yet.

    Raises:
        DataError: names the line that cannot be read, or the pattern whose answer is something else.
    """
    if not path.exists():
        return {}
    try:
        content = path.read_bytes()
        answers = _parsed(content)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path} cannot be read: line {line} is not UTF-8; {_MEND}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}; {_MEND}") from None
    for name, answer in answers.items():
        if answer not in ("yes", "no", "?"):
            raise DataError(f"{path}: {name} = {answer!r}; allowed are yes, no and ?")
    return answers


def _parsed(content: bytes) -> dict[str, Any]:
    return tomllib.loads("\n".join(content.decode("utf-8").replace("\r\n", "\n").split("\r")))


def _spelled(text: str) -> str:
    """A text as it can stand in a file: half a pair of UTF-16, which no file can hold, becomes its escape."""
    return text.encode("utf-8", errors="backslashreplace").decode()


def _in_comment(url: str) -> str:
    """An address on one line of a comment, where TOML allows no control characters."""
    return re.sub(r"[\x00-\x1f\x7f]", lambda char: f"\\x{ord(char[0]):02x}", " ".join(_spelled(url).split()))


def _ask(path: Path, new: Sequence[Asked], round_number: int) -> None:
    """Write more questions behind what people have written; what is written can be read again.

    Raises:
        DataError: it could not; the file stays as it is.
    """
    head = "# Is what stands under these addresses mathematics? Write yes or no.\n"
    written = path.read_text(encoding="utf-8") if path.exists() else head
    lines = [
        f"{toml_literal(_spelled(one.pattern))} = \"?\"  # {one.collected} of {len(one.pages)} pages collected, "
        f"for example {_in_comment(one.pages[0].url)}"
        for one in new
    ]  # fmt: skip
    text = written.rstrip("\n") + f"\n\n# round {round_number}\n" + "\n".join(lines) + "\n"
    content = text.encode("utf-8")
    try:
        _parsed(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} would be unreadable with the questions of round {round_number}: {error}") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, content)


ANNOTATORS = Kinds(
    "annotator",
    {"oracle": f"{__name__}:Oracle", "file": f"{__name__}:File", "none": f"{__name__}:Nobody"},
    default="oracle",
    base=Annotator,
)
"""Who may annotate."""
