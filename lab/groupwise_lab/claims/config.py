"""The files of a ledger: `arms.toml` says what is run, every other `*.toml` beside it is one claim."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from groupwise.config import ReadIf, Section, load
from groupwise.errors import ConfigError
from groupwise_lab.claims.decision import CLAIMED, LEAST_SEEDS, Bounds, bounds

ARMS = "arms.toml"
SHORT = 4.0
"""Minutes of one core up to which a run is short."""
SHORT_SEEDS = 5
"""Seeds of a claim that short runs decide."""
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
_MEASURED = re.compile(r"([a-z][a-z0-9_]*)\.(\S(?:.*\S)?)")


class EvaluationConfig(Section):
    """One more measurement of an arm's model, beside what its own run measures."""

    task: str = ""
    """Task's name; empty: the task of the run."""
    extends: tuple[str, ...] = ()
    """Recipes whose sections task, verifier, sampling and behaviour count, beside the ledger or shipped."""
    overrides: tuple[str, ...] = ()
    """Dotted changes on top, for example `verifier.kind=number`."""
    num_problems: int = Field(100, ge=1)
    """Test problems, the first of the split."""
    num_samples: int = Field(8, ge=1)
    """Completions per problem."""
    max_tokens: int = Field(0, ge=0)
    """Token limit of a completion; 0: that of the run."""


class Arm(Section):
    """One thing that is run, with seeds 0, 1, 2, ..."""

    kind: Literal["train", "pipeline", "model"] = "train"
    """`train`: a recipe of one training. `pipeline`: one with stages. `model`: nothing is trained, `path` is
    measured."""
    recipe: str = ""
    """Its recipe, relative to the ledger; of the kinds `train` and `pipeline`."""
    path: str = ""
    """A model, for example `base`; of the kind `model`."""
    extends: Annotated[tuple[str, ...], ReadIf(lambda arm: arm.kind == "train", "kind = 'train'")] = ()
    """Recipes that are put over it, beside the ledger or shipped, for example `algorithms/dapo.toml`."""
    overrides: Annotated[tuple[str, ...], ReadIf(lambda arm: arm.kind != "model", "a recipe")] = ()
    """Dotted changes on top, for example `grpo.group_size=8`."""
    minutes: float = Field(gt=0)
    """Minutes of one core for a seed, measured or estimated."""
    evaluations: Annotated[
        dict[Name, EvaluationConfig], ReadIf(lambda arm: arm.kind != "pipeline", "a model of its own")
    ] = {}  # noqa: RUF012  pydantic copies it, and `ReadIf` compares with it
    """Further measurements of its model, by a name of your own."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed, other = ("path", "recipe") if self.kind == "model" else ("recipe", "path")
        if not getattr(self, needed) or getattr(self, other):
            raise ValueError(f"an arm of kind {self.kind!r} needs {needed}, and {other} has no effect there")
        if self.kind == "model" and any(not evaluation.task for evaluation in self.evaluations.values()):
            raise ValueError("an arm of kind 'model' lies in no run: each of its evaluations must name a task")
        return self


class Arms(Section):
    """All that is run for a ledger."""

    directory: str = "runs/claims"
    """Folder of the runs; a killed one resumes there."""
    arms: dict[Name, Arm] = Field(min_length=1)
    """By a name of your own, to which claims refer."""


class Measured(str):
    """`ARM.METRIC`, for example `reference.after.pass_at_1`."""

    @property
    def arm(self) -> str:
        """The arm's name."""
        return self.partition(".")[0]

    @property
    def metric(self) -> str:
        """The metric's name within its results."""
        return self.partition(".")[2]


_NUMBERS = {
    "level": (1, 0), "difference": (1, 1), "difference_of_differences": (2, 2), "ratio": (1, 1), "slope": (0, 0),
}  # fmt: skip
"""Numbers of `of` and of `minus` by kind of statistic."""


class Point(Section):
    """One size of a slope."""

    at: float
    """The size."""
    of: str
    """The measured quantity, `ARM.METRIC`."""


class Statistic(Section):
    """One number of every seed, and what is claimed of it."""

    kind: Literal["level", "difference", "difference_of_differences", "ratio", "slope"]
    """`level`: `of` less the number `than`. `difference`: `of` less `minus`, paired by seed.
    `difference_of_differences`: (of - minus) of the first pair less that of the second.
    `ratio`: `of` over `minus`. `slope`: of `points`, over the logarithm to base 2 of their sizes."""
    of: str | tuple[str, str] = ""
    """`ARM.METRIC`; two of them for a difference of differences."""
    minus: str | tuple[str, str] = ""
    """The quantity that it is compared with, likewise."""
    than: Annotated[float, ReadIf(lambda statistic: statistic.kind == "level", "kind = 'level'")] = 0.0
    """The number that a level is held against."""
    points: Annotated[tuple[Point, ...], ReadIf(lambda statistic: statistic.kind == "slope", "kind = 'slope'")] = ()
    """Sizes of a slope, two or more."""
    claimed: Literal["above", "below", "equal", "at_least", "at_most"]
    """The source's claim: `above` the margin, `below` minus the margin, `equal` to zero up to the margin,
    `at_least` minus the margin, `at_most` the margin. Of a ratio: above the margin, below one over it, and so on."""
    margin: float = Field(0.0, ge=0)
    """Largest difference that does not matter, in the metric's unit; of a ratio a factor, 1 or more."""
    unit: str = ""
    """Unit for the table; empty: as it is, `%`: shares are shown as points."""

    @field_validator("claimed")
    @classmethod
    def _known(cls, name: str) -> str:
        assert name in CLAIMED, f"{name} has no rule"
        return name

    @model_validator(mode="after")
    def _fits(self) -> Self:
        wanted = _NUMBERS
        found = (len(_several(self.of)), len(_several(self.minus)))
        if found != wanted[self.kind]:
            raise ValueError(
                f"kind = {self.kind!r} needs {wanted[self.kind][0]} in `of` and {wanted[self.kind][1]} in `minus`, got "
                f"{found[0]} and {found[1]}"
            )
        if self.kind == "slope" and len({point.at for point in self.points}) < 2:
            raise ValueError("kind = 'slope' needs at least two points of different size")
        if self.kind == "slope" and any(point.at <= 0 for point in self.points):
            raise ValueError("sizes of a slope must be above 0, as it is over their logarithm")
        if self.kind == "ratio" and self.margin < 1:
            raise ValueError(f"margin = {self.margin:g} of a ratio is a factor; allowed is 1 or more")
        for text in self.measured:
            if not _MEASURED.fullmatch(text):
                raise ValueError(f"{text!r} must look like ARM.METRIC, for example reference.after.pass_at_1")
        return self

    @property
    def measured(self) -> tuple[Measured, ...]:
        """All that it is made of."""
        return tuple(
            Measured(text) for text in (*_several(self.of), *_several(self.minus), *(point.of for point in self.points))
        )

    @property
    def bounds(self) -> Bounds:
        """The values that are claimed, of a ratio on the scale of logarithms."""
        return bounds(self.claimed, math.log(self.margin) if self.kind == "ratio" else self.margin)


def _several(value: str | tuple[str, str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) and value else tuple(value)


class Claim(Section):
    """One claim, and what decides it."""

    topic: str
    """Heading that it stands under in the document."""
    sentence: str = Field(min_length=20)
    """The claim in one sentence."""
    source: str = Field(min_length=4)
    """Source: paper, section."""
    here: str = Field(min_length=20)
    """The experiment here, and its differences from the source."""
    seeds: int = Field(0, ge=0)
    """Seeds 0, 1, ... that are run; 0: five where each of its runs takes up to four minutes of one core, else three."""
    note: str = ""
    """Remark for the reader, written after the result."""
    statistic: Statistic
    """The statistic that decides."""

    @field_validator("seeds")
    @classmethod
    def _decide(cls, seeds: int) -> int:
        if 0 < seeds < LEAST_SEEDS:
            raise ValueError(f"{seeds} decide nothing; allowed are {LEAST_SEEDS} or more, or 0 for the rule")
        return seeds

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms that it is measured on."""
        return tuple(dict.fromkeys(measured.arm for measured in self.statistic.measured))


class Ledger(Section):
    """A folder of claims."""

    folder: str
    """Path of the ledger."""
    arms: Arms
    """The arms."""
    claims: dict[str, Claim]
    """By name of their files."""

    def seeds_of(self, claim: Claim) -> int:
        """Return the number of seeds for a claim of this ledger."""
        longest = max(self.arms.arms[arm].minutes for arm in claim.arms)
        return claim.seeds or (SHORT_SEEDS if longest <= SHORT else LEAST_SEEDS)

    def chosen(self, name: str | None) -> dict[str, Claim]:
        """One claim, or all.

        Raises:
            ConfigError: there is none of that name.
        """
        if name is None:
            return self.claims
        if name not in self.claims:
            raise ConfigError(f"there is no claim {name!r} in {self.folder}; there are {', '.join(self.claims)}")
        return {name: self.claims[name]}


def load_ledger(folder: Path) -> Ledger:
    """Read all files of a ledger.

    Raises:
        ConfigError: a file, a key or a value cannot be used; names it, and what is allowed.
    """
    if not (folder / ARMS).is_file():
        raise ConfigError(f"{folder} is no ledger of claims, it has no {ARMS}: name one with --folder")
    arms = load(Arms, folder / ARMS)
    claims = {path.stem: load(Claim, path) for path in sorted(folder.glob("*.toml")) if path.name != ARMS}
    for fault in _faults(folder, arms.arms, claims):
        raise ConfigError(fault)
    return Ledger(folder=str(folder), arms=arms, claims=claims)


def _faults(folder: Path, arms: Mapping[str, Arm], claims: Mapping[str, Claim]) -> Iterator[str]:
    for name, claim in claims.items():
        for measured in claim.statistic.measured:
            if measured.arm not in arms:
                yield (
                    f"{folder / name}.toml: statistic names {measured!r}, but there is no arm {measured.arm!r} in "
                    f"{folder / ARMS}; there are {', '.join(arms)}"
                )
