"""The settings of recall."""

from typing import Annotated

from pydantic import Field

from groupwise.config import Section
from groupwise.config.schema import DataRef, PlaceRef
from groupwise.recall.annotate import ANNOTATORS, Annotator, Oracle
from groupwise.recall.sources import SOURCES, PageSource
from groupwise.tasks import TaskOptions


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
