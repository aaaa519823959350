"""The settings of recall."""

from typing import Annotated

from pydantic import Field

from groupwise.config import Section
from groupwise.config.schema import DataRef
from groupwise.recall.annotate import ANNOTATORS, Annotator, Oracle
from groupwise.recall.extract import ExtractConfig
from groupwise.recall.sources import SOURCES, PageSource
from groupwise.tasks import TaskOptions


class SeedConfig(Section):
    """Texts that are known to be mathematics before the first round."""

    path: DataRef = ""
    """Texts, one JSON object with `text` a line; empty: those that the first source has of its own."""
    num_texts: int = Field(200, ge=1)
    """How many of them are used."""


class DedupConfig(Section):
    """When a page counts as a copy: MinHash of word n-grams (datatrove's numbers)."""

    ngram: int = Field(5, ge=1)
    """Words of an n-gram."""
    bands: int = Field(14, ge=1)
    """Bands; two pages that agree in one of them are compared."""
    rows: int = Field(8, ge=1)
    """Minima in a band."""
    min_agreement: float = Field(0.7, ge=0, le=1)
    """Smallest share of equal minima between copies: an estimate of their Jaccard similarity."""


class ClassifierConfig(Section):
    """The classifier: fastText's model of two classes. DeepSeekMath: 3 words, min count 3, 3 epochs, rate 0.1."""

    ngrams: int = Field(3, ge=1)
    """Longest n-gram of words."""
    buckets: int = Field(1 << 18, ge=2)
    """Weights; n-grams are hashed to them."""
    min_count: int = Field(3, ge=1)
    """n-grams in fewer training texts are not learned."""
    epochs: int = Field(3, ge=1)
    """Passes over the training texts."""
    lr: float = Field(4.0, gt=0)
    """First learning rate; it falls to 0. A text is a unit vector, so rates are larger than fastText's 0.1."""
    negatives: int = Field(2000, ge=1)
    """Random pages that stand for everything else. Some of them are mathematics, as in the paper's."""
    symbols: bool = True
    """Read signs such as × and \\, too; off, only letters and numbers, as MegaMath's classifier does."""


class RoundsConfig(Section):
    """What a round keeps and when the rounds end."""

    max_rounds: int = Field(4, ge=1)
    """Most rounds (DeepSeekMath: 4)."""
    known_share: float = Field(0.98, gt=0, le=1)
    """The rounds end where this share of what one found was there before (DeepSeekMath: 98 %)."""
    min_score: float = Field(0.5, ge=0, le=1)
    """Lowest score of a page that is kept."""
    max_characters: int = Field(0, ge=0)
    """Budget: most characters that are kept, the best pages first; 0: no budget. (DeepSeekMath: 40B tokens.)"""
    domain_share: float = Field(0.10, ge=0, le=1)
    """A domain is looked at if more than this share of its pages was kept (DeepSeekMath: 10 %)."""
    domain_rule: bool = True
    """Off: URL patterns of every domain with a kept page are asked."""


class DecontaminateConfig(Section):
    """What must not be in the corpus: anything that is measured later."""

    tasks: dict[str, TaskOptions] = Field(default_factory=dict)
    """Tasks by a name of your own, whose dev and test problems are looked for."""
    ngram: int = Field(10, ge=1)
    """Words of a run that must be the same (DeepSeekMath: 10); 20 characters count as ten words of Chinese."""
    min_ngram: int = Field(3, ge=1)
    """Shorter texts of a benchmark are not looked for; those up to `ngram` words must occur as a whole."""
    expressions: bool = True
    """Look for the expressions of arithmetical problems, too, such as `45 × 77`."""
    numbers: bool = True
    """A run counts only where the numbers around it in the benchmark's text stand around it on the page, too: the same
    words with other numbers are another problem. A run of twice `ngram` words always counts. `false`: the paper's."""


class RecallConfig(Section):
    """From pages to a corpus."""

    seed: int = 0
    """Seed of the made web, of the negatives and of the classifier."""
    sources: dict[str, Annotated[PageSource, SOURCES]] = Field(min_length=1)
    """Where pages come from, by a name of your own."""
    begin: SeedConfig = SeedConfig()
    """What the first round begins with."""
    extract: ExtractConfig = ExtractConfig()
    """What counts as a page."""
    dedup: DedupConfig = DedupConfig()
    """What counts as a copy."""
    classifier: ClassifierConfig = ClassifierConfig()
    """How pages are scored."""
    rounds: RoundsConfig = RoundsConfig()
    """What is kept."""
    annotator: Annotated[Annotator, ANNOTATORS] = Oracle()
    """Who says which URL patterns are mathematics."""
    decontaminate: DecontaminateConfig = DecontaminateConfig()
    """What is taken out in the end."""
