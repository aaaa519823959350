"""The settings of recall; and annotation of URL patterns, by an oracle of made webs or by people through a file."""

import re
import tomllib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from groupwise.config import Section, toml_literal
from groupwise.config.kinds import Kinds, KindSection
from groupwise.config.places import decoded
from groupwise.config.schema import DataRef, PlaceRef
from groupwise.errors import ConfigError, DataError, WaitingError
from groupwise.randomness import Draw
from groupwise.recall.page import Page
from groupwise.recall.sources import SOURCES, PageSource
from groupwise.runs.atomic import write_file
from groupwise.tasks import TaskOptions


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
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, ("\n".join(lines) + "\n").encode("utf-8"))
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
        answers = tomllib.loads("\n".join(decoded(content).replace("\r\n", "\n").split("\r")))
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


def _spelled(text: str) -> str:
    return text.encode("utf-8", errors="backslashreplace").decode()


ANNOTATORS = Kinds(
    "annotator",
    {"oracle": f"{__name__}:Oracle", "file": f"{__name__}:File", "none": f"{__name__}:NoAnnotator"},
    default="oracle",
)


class SeedConfig(Section):
    """Texts that are known to be mathematics before the first round."""

    path: DataRef = ""
    """Texts, one JSON object with `text` a line; empty: the first source's seed texts."""
    num_texts: int = Field(200, ge=1)
    """Most texts that are used."""


class ClassifierConfig(Section):
    """The classifier: fastText's model of two classes on hashed n-grams of up to three words."""

    negatives: int = Field(2000, ge=1)
    """Random pages that stand for everything else. Some of them are mathematics, as in the paper's."""
    symbols: bool = True
    """Read signs such as × and \\, too; off, only letters and numbers, as MegaMath's classifier does."""


class RoundsConfig(Section):
    """The pages that a round keeps, and the end of the rounds."""

    max_rounds: int = Field(4, ge=1)
    """Most rounds (DeepSeekMath: 4). They end where 98 % of a round's pages was there before, as there."""
    min_score: float = Field(0.5, ge=0, le=1)
    """Lowest score of a page that is kept."""
    max_characters: int = Field(0, ge=0)
    """Budget: most characters that are kept, the best pages first; 0: no budget. (DeepSeekMath: 40B tokens.)"""
    domain_share: float = Field(0.10, ge=0, le=1)
    """A domain is annotated if more than this share of its pages was kept (DeepSeekMath: 10 %); 0: every domain with a
    kept page."""


class DecontaminateConfig(Section):
    """Benchmark texts that must not be in the corpus."""

    tasks: dict[str, TaskOptions] = Field(default_factory=dict)
    """Tasks, by names that you choose, whose dev and test problems are looked for, their arithmetical expressions
    (`45 × 77`) included."""
    numbers: bool = True
    """A run of ten words counts only where the numbers around it in the benchmark's text are around it on the page,
    too: the same words with other numbers are another problem. A run of twenty always counts. `false`: the paper's."""


class RecallConfig(Section):
    """From pages to a corpus."""

    seed: int = 0
    """Seed of made pages, of the negatives and of the classifier."""
    sources: dict[str, Annotated[PageSource, SOURCES]] = Field(min_length=1)
    """Sources of pages, by names that you choose."""
    begin: SeedConfig = SeedConfig()
    """Texts that the first round starts with."""
    classifier: ClassifierConfig = ClassifierConfig()
    """Scoring of pages."""
    rounds: RoundsConfig = RoundsConfig()
    """Selection of pages."""
    annotator: Annotated[Annotator, ANNOTATORS] = Oracle(kind="oracle")
    """The judge of URL patterns: mathematics or not."""
    decontaminate: DecontaminateConfig = DecontaminateConfig()
    """Benchmark texts that are removed in the end."""


class RecallRecipe(RecallConfig):
    """Recall without a pipeline: `groupwise pipeline recipes/recall.toml`."""

    directory: PlaceRef = Field(min_length=1)
    """Directory of the work; the same command resumes it."""
