"""Annotation of the URL patterns that lead to mathematics, by an oracle of made webs or by people through a file."""

import re
import tomllib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from groupwise.config import toml_literal
from groupwise.config.kinds import Kinds, KindSection
from groupwise.config.places import decoded
from groupwise.config.schema import PlaceRef
from groupwise.errors import ConfigError, DataError, WaitingError
from groupwise.randomness import Draw
from groupwise.recall.page import Page
from groupwise.runs.atomic import write_file


class Asked(NamedTuple):
    """A URL pattern that waits for yes or no."""

    pattern: str
    pages: Sequence[Page]
    collected: int


class Annotator(KindSection):
    """The judge of URL patterns: mathematics or not."""

    @abstractmethod
    def answers(self, asked: Sequence[Asked], round_number: int, seed: int) -> Mapping[str, bool]:
        """Return yes or no for every pattern; raise WaitingError if a person has to answer first."""


class Oracle(Annotator):
    """Knows the truth about made pages, and errs at a given rate."""

    error_rate: float = Field(0.0, ge=0, le=1)
    """Probability that an answer is wrong."""

    def answers(self, asked: Sequence[Asked], round_number: int, seed: int) -> dict[str, bool]:
        given = {}
        for entry in asked:
            known = [page.truth.is_mathematics for page in entry.pages if page.truth]
            if not known:
                raise ConfigError(
                    f'annotator.kind = "oracle": nothing is known of {entry.pattern}; allowed is "file" or "none"'
                )
            errs = Draw("annotator", seed, entry.pattern).uniform() < self.error_rate
            given[entry.pattern] = (2 * sum(known) > len(known)) != errs
        return given


class NoAnnotator(Annotator):
    """No annotation: the seed never grows, and all rounds after the first repeat it."""

    def answers(self, asked: Sequence[Asked], round_number: int, seed: int) -> dict[str, bool]:
        return {}


class File(Annotator):
    """A TOML file of patterns, written with a question mark behind each, for people to fill in."""

    path: PlaceRef = Field("patterns.toml", min_length=1)
    """The file. It stays when everything else is made again, and no pattern is asked twice."""

    def answers(self, asked: Sequence[Asked], round_number: int, seed: int) -> dict[str, bool]:
        path = Path(self.path)
        known = read_answers(path)
        if new := [entry for entry in asked if _spelled(entry.pattern) not in known]:
            head = "# Is the content of these addresses mathematics? Write yes or no.\n"
            written = decoded(path.read_bytes()) if path.exists() else head
            lines = [written.rstrip("\n"), "", f"# round {round_number}"]
            for entry in new:
                url = " ".join(_spelled(entry.pages[0].url).split())  # a comment is one line, no control characters
                url = re.sub(r"[\x00-\x1f\x7f]", lambda char: f"\\x{ord(char[0]):02x}", url)
                counts = f"{entry.collected} of {len(entry.pages)} pages collected"
                lines.append(f'{toml_literal(_spelled(entry.pattern))} = "?"  # {counts}, for example {url}')
            content = ("\n".join(lines) + "\n").encode("utf-8")
            try:
                _parsed(content)
            except (ValueError, RecursionError) as error:
                of_round = f"the questions of round {round_number}"
                raise DataError(f"{path} would be unreadable with {of_round}: {error}") from None
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, content)
        given = {entry.pattern: known.get(_spelled(entry.pattern), "?") for entry in asked}
        if waiting := [name for name, answer in given.items() if answer == "?"]:
            raise WaitingError(
                f"{len(waiting)} of {len(asked)} URL patterns of round {round_number} wait in {path} for yes or no, "
                f"the first is {waiting[0]}; write them and run the same command again"
            )
        return {name: answer == "yes" for name, answer in given.items()}


def read_answers(path: Path) -> dict[str, str]:
    """Read yes, no or ? by pattern; empty without a file, DataError for a line that cannot be read."""
    if not path.exists():
        return {}
    mend = "mend that line, the others are kept as they are"
    try:
        content = path.read_bytes()
        answers = _parsed(content)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path} cannot be read: line {line} is not UTF-8; {mend}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}; {mend}") from None
    for name, answer in answers.items():
        if answer not in ("yes", "no", "?"):
            raise DataError(f"{path}: {name} = {answer!r}; allowed are yes, no and ?")
    return answers


def _parsed(content: bytes) -> dict[str, Any]:
    return tomllib.loads("\n".join(decoded(content).replace("\r\n", "\n").split("\r")))


def _spelled(text: str) -> str:
    return text.encode("utf-8", errors="backslashreplace").decode()


ANNOTATORS = Kinds(
    "annotator",
    {"oracle": f"{__name__}:Oracle", "file": f"{__name__}:File", "none": f"{__name__}:NoAnnotator"},
    default="oracle",
    base=Annotator,
)
