"""The report's form: sections, each a table of settings with their figures."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from groupwise.oracle.estimate import Estimated, estimate
from groupwise.oracle.setting import Policies, Setting
from groupwise.oracle.toys import Toy

FIGURES = ("cosine", "scale", "bias", "noise")
"""What most sections say of an estimator; the properties of `Estimated`."""

LEGEND = {
    "cosine": "cosine of the angle between the expected gradient E[g] and the true one ∇J; 1 is the right direction",
    "scale": "length of E[g] along ∇J; other than 1 is no harm where the cosine is 1: the learning rate takes it up",
    "bias": "|E[g] - ∇J| / |∇J|: what no number of samples averages away, a wrong scale included",
    "noise": "standard deviation of one batch's gradient in units of |E[g]|; n batches divide it by √n",
}
"""What the columns mean."""


class Row(NamedTuple):
    """One setting."""

    name: str
    values: tuple[float, ...]


class Section(NamedTuple):
    """One question."""

    key: str
    title: str
    text: str
    """What is varied, and what to look for."""
    world: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def row(self, name: str) -> dict[str, float]:
        """Figures of the setting of that name."""
        return dict(zip(self.columns, next(row.values for row in self.rows if row.name == name), strict=True))


def figures(found: Estimated) -> tuple[float, ...]:
    """The values of FIGURES."""
    return tuple(getattr(found, name) for name in FIGURES)


def on_policy_rows(toy: Toy, settings: Mapping[str, Setting]) -> Iterable[Row]:
    """One row per setting, the policy being its own sampler."""
    policies = Policies.on_policy(toy.theta)
    return [Row(name, figures(estimate(toy.world, policies, one))) for name, one in settings.items()]


def section(key: str, title: str, text: str, toy: Toy, rows: Iterable[Row], more: Sequence[str] = ()) -> Section:
    """A section with the usual columns and perhaps some more."""
    return Section(key, title, text, str(toy), (*FIGURES, *more), tuple(rows))
