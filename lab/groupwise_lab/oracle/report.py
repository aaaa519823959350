"""The report's form: sections, each a table of settings with their figures."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from groupwise_lab.oracle.estimate import Estimated, estimate
from groupwise_lab.oracle.setting import Policies, Setting
from groupwise_lab.oracle.toys import Toy

FIGURES = ("cosine", "scale", "bias", "noise")
"""Figures of an estimator in most sections; the properties of `Estimated`."""
LEGEND = {
    "cosine": "cosine of the angle between the expected gradient E[g] and the true one ∇J; 1 is the right direction",
    "scale": "length of E[g] along ∇J; other than 1 is no harm where the cosine is 1: the learning rate takes it up",
    "bias": "|E[g] - ∇J| / |∇J|: what no number of samples averages away, a wrong scale included",
    "noise": "standard deviation of one batch's gradient in units of |E[g]|; n batches divide it by √n",
}
"""Meaning of the columns."""
READING = """## How to read the figures

`groupwise oracle` goes through every batch that a toy world can produce, weights each with its probability, and calls
the functions that train on it. So the expected gradient is exact, no estimate, and stands beside the true gradient ∇J
of the expected reward:

{legend}

A toy world has two or three tokens, so the sizes of the effects are those of the toy. That a bias is exactly zero, or
is not, holds for any model.

## What the oracle settles

{findings}"""
FINDINGS = (
    "Taking the group's mean off the rewards keeps the direction and shrinks the gradient to (G - 1) / G: cosine "
    "{advantages/group_mean/cosine}, scale {advantages/group_mean/scale} at G = 4. Leave-one-out has scale "
    "{advantages/leave_one_out/scale}. Both have less noise ({advantages/leave_one_out/noise}) than no baseline "
    "({advantages/none/noise}).",
    "Dividing by the group's std weights prompts against each other: at G = 8 a pass rate p of 0.10 counts "
    "{prompts/group_normalised/p = 0.10} and one of 0.50 counts {prompts/group_normalised/p = 0.50} (cosine "
    "{prompts/group_normalised/cosine}). Dividing by the mean does it more: {prompts/divided_by_mean/p = 0.10} and "
    "{prompts/divided_by_mean/p = 0.50}, which is (1 - (1 - p)^(G-1)) / p, the gradient of a truncated E[log p].",
    "Dividing each completion by its own length bends the gradient (cosine {aggregations/sequence/cosine}); dividing "
    "by all tokens hardly does ({aggregations/token/cosine}); a constant does not ({aggregations/constant/cosine}).",
    "k1 in the loss has an expected gradient of length {kl/k1 in loss/length}: it only adds noise. k2 in "
    "the loss, and k1 or k3 times the ratio, have the gradient of KL(π ‖ ref) of the token (distance "
    "{kl/k2 in loss/to token}). k3 in the loss, as in GRPO, has that of KL(ref ‖ π) (distance "
    "{kl/k3 in loss/to forward}; to the one meant {kl/k3 in loss/to token}). Only k1 in the "
    "reward has that of the whole sequence ({kl/k1 in reward/to sequence}).",
    "With a foreign sampler, weights of whole completions are unbiased (bias {importance/sequence, no cap/bias}) and "
    "noisy ({importance/sequence, no cap/noise}); a cap of 2 costs bias {importance/sequence, truncate at 2/bias} and "
    "saves noise ({importance/sequence, truncate at 2/noise}). Token weights are biased even without a cap "
    "({importance/token, no cap/bias}).",
    "After a large update clipping costs the ratio its direction (cosine {off-policy/large: clipped_ratio/cosine}, "
    "{off-policy/large: clipped_ratio/clipped} of the tokens clipped): it brakes. Clipping the weight instead keeps it "
    "({off-policy/large: clipped_weight/cosine}) and does not brake.",
    "A verifier with 10 % false positives and 10 % false negatives leaves the direction (cosine "
    "{verifier/leave_one_out, fp 10 %, fn 10 %/cosine}) and scales it to "
    "{verifier/leave_one_out, fp 10 %, fn 10 %/scale} = 1 - 0.1 - 0.1.",
    "Replacing dead groups by groups of other prompts only scales the gradient (cosine "
    "{dead-groups/group_mean, other/cosine}), as they taught nothing; sampling the same prompt again until there is a "
    "signal favours hard prompts ({dead-groups/group_mean, again/cosine}). Masking truncated completions bends the "
    "gradient ({truncation/leave_one_out, mask/cosine}): the pressure to finish is lost.",
)
"""A figure is {section/row/column}."""


class Row(NamedTuple):
    """One setting."""

    name: str
    values: tuple[float, ...]


class Section(NamedTuple):
    """One question."""

    key: str
    title: str
    text: str
    """Explanation: the varied quantity and its expected effect."""
    world: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def row(self, name: str) -> dict[str, float]:
        """Figures of the setting of that name."""
        return dict(zip(self.columns, next(row.values for row in self.rows if row.name == name), strict=True))


def figures(estimated: Estimated) -> tuple[float, ...]:
    """The values of FIGURES."""
    return tuple(getattr(estimated, name) for name in FIGURES)


def on_policy_rows(toy: Toy, settings: Mapping[str, Setting]) -> Iterable[Row]:
    """One row per setting, the policy being its own sampler."""
    policies = Policies.on_policy(toy.theta)
    return [Row(name, figures(estimate(toy.world, policies, setting))) for name, setting in settings.items()]


def section(key: str, title: str, text: str, toy: Toy, rows: Iterable[Row], more: Sequence[str] = ()) -> Section:
    """A section with the usual columns and perhaps some more."""
    return Section(key, title, text, str(toy), (*FIGURES, *more), tuple(rows))


def prose(sections: Mapping[str, Section]) -> str:
    """Explanation of the figures."""

    def figure(place: re.Match[str]) -> str:
        key, row, column = place[1].split("/")
        return shown(sections[key].row(row)[column])

    legend = "\n".join(f"- **{name}**: {meaning}." for name, meaning in LEGEND.items())
    findings = "\n".join(f"- {re.sub('{(.*?)}', figure, sentence)}" for sentence in FINDINGS)
    return READING.format(legend=legend, findings=findings)


def shown(value: float) -> str:
    """A figure as document and terminal print it; the last bits, which differ between machines, cannot tip it."""
    steady = round(value, 6)
    if math.isnan(value):
        return "–"
    return f"{steady:.3f}" if round(steady, 3) else "0.000"  # never -0.000
