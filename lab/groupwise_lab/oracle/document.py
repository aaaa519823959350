"""docs/algorithms.md: every formula with its function, source, tests and what the oracle measured of it."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from groupwise.algorithms.advantages import ADVANTAGES, gae
from groupwise.algorithms.importance import importance_weights
from groupwise.algorithms.kl import KL_ESTIMATORS, importance_corrected
from groupwise.algorithms.objective import AGGREGATIONS, clipped_value_loss
from groupwise.algorithms.policy_losses import POLICY_LOSSES
from groupwise_lab.oracle.kl import WHERE, Place
from groupwise_lab.oracle.published import Published, published_algorithms
from groupwise_lab.oracle.report import Section, prose, shown

ARXIV = re.compile(r"arXiv:(\d{4}\.\d{5})")
CITED = re.compile(r"arXiv:\d{4}\.\d{5}(?:, (?:eq\. \d+(?: and \d+)?|§[\d.]+\d))?")
SHOWN = ("cosine", "scale", "bias", "value", "to sequence", "to token", "to forward")
"""Figures that the table repeats; the report has all."""


class Entry(NamedTuple):
    """One line of the table."""

    name: str
    function: Callable[..., Any]
    tests: tuple[str, ...]
    """Names of tests under tests/lab/oracle, as file::test."""
    rows: tuple[tuple[str, str], ...] = ()
    """Section and row of the oracle's report."""
    unit: str = ""
    """File of its unit tests, where it is not that of the module."""


_DIRECTION = "test_advantages.py::test_a_baseline_keeps_the_direction"
_WEIGHTS = "test_advantages.py::test_weights_of_prompts_in_closed_form"
_LOSSES = "test_losses.py::test_all_losses_agree_on_policy"
_STALE = "test_off_policy.py::test_token_ratios_ignore_the_prefix"
_KL_TRUTHS = "test_kl.py::test_what_each_estimator_is_unbiased_for"
_STEP_ROWS = {
    "process_gae": ("process_gae, poor, λ = 1", "process_gae, poor, λ = 0"),
    "process_min": ("process_min, perfect",),
    "group_tree": ("group_tree, λ = 1",),
}
_TURNS = {
    "turn_return": ("turn_return", "turn_return, γ = 0.8"),
    "equal_state": ("equal_state",),
}
_CAPS = "test_off_policy.py::test_a_lower_cap_trades_variance_for_bias"


def groups() -> dict[str, list[Entry]]:
    """All entries, by the recipe key that chooses among them."""
    return {
        "Advantages: `advantage.kind`": _advantages(),
        "Policy losses: `loss.policy.kind`": [
            Entry(
                name, POLICY_LOSSES.find(name), (_LOSSES, _STALE), (("losses", name), ("off-policy", f"large: {name}"))
            )
            for name in POLICY_LOSSES.table
        ],
        "Aggregation: `loss.aggregation`": [
            Entry(name, function, ("test_losses.py::test_aggregations_in_closed_form",), (("aggregations", name),))
            for name, function in AGGREGATIONS.items()
        ],
        "KL estimators: `loss.kl_estimator`, `loss.kl_in`, `loss.kl_corrected`": _kl(),
        "Importance weights: `loss.correction`": [
            Entry(f"{level}, {bound}", importance_weights, (_CAPS,), (("importance", f"{level}, {bound} at 2"),))
            for level in ("token", "sequence")
            for bound in ("truncate", "mask")
        ],
        "Value loss: `critic.clip`": [Entry("clipped_value_loss", clipped_value_loss, ())],
    }


def _advantages() -> list[Entry]:
    unit = "test_advantages_of_tokens.py"
    critic = "test_advantages.py::test_lambda_one_is_unbiased_whatever_the_critic_says"
    return [
        *(_advantage(name, unit) for name in ADVANTAGES.table),
        Entry('`algorithm = "ppo"`', gae, (critic,), (("critic", "poor, γ = 1, λ = 0.95"),), unit),
    ]


def _advantage(name: str, unit_of_tokens: str) -> Entry:
    estimator = ADVANTAGES.find(name)
    if name == "process":
        steps = "test_advantages.py::test_one_step_per_completion_is_group_normalised"
        return Entry(name, estimator, (steps,), (("process", "every token a step"),), unit_of_tokens)
    if rows := _TURNS.get(name):
        proof = "test_step_advantages.py::test_turns_against_others_whole_returns_are_unbiased"
        unit = "test_step_advantages.py"
        return Entry(name, estimator, (proof,), tuple(("turns", row) for row in rows), unit)
    if rows := _STEP_ROWS.get(name):
        proof = "test_step_advantages.py::test_no_process_reward_model_bends_the_gradient_at_lambda_one"
        return Entry(name, estimator, (proof,), tuple(("steps", row) for row in rows))
    parts = (("parts", name),) if estimator.reads == "parts" else ()
    return Entry(name, estimator, (_DIRECTION, _WEIGHTS), (("advantages", name), ("prompts", name), *parts))


def _kl() -> list[Entry]:
    entries = [
        Entry(name, function, (_KL_TRUTHS,), tuple(("kl", f"{name} {WHERE[p]}") for p in get_args(Place)))
        for name, function in KL_ESTIMATORS.items()
    ]
    stale = (("kl", "k1 × ratio, stale"), ("kl", "k3 × ratio, stale"))
    return [*entries, Entry("kl_corrected", importance_corrected, (_KL_TRUTHS,), stale)]


def document(sections: Mapping[str, Section]) -> str:
    """The whole file."""
    parts = ["# Algorithms", _NOTE, prose(sections), "## Formulas", _FORMULAS_NOTE]
    for title, entries in groups().items():
        header = ("setting", "formula", "source", "function", "tests", "oracle")
        parts += [f"### {title}", _table(header, (_line(entry, sections) for entry in entries))]
    parts += ["## Published algorithms as settings", _PUBLISHED_NOTE.format(sections["published"].world)]
    columns = ("algorithm", "source", "recipe", "oracle: `published`", "note")
    parts.append(
        _table(columns, (_published(name, algorithm, sections) for name, algorithm in published_algorithms().items()))
    )
    return "\n\n".join(parts) + "\n"


_NOTE = (
    "<!-- Written by `groupwise oracle --write docs/algorithms.md`; a test compares it with the code. Change the "
    "docstrings, not this file. -->"
)
_FORMULAS_NOTE = (
    "Formula and source are the first line of each function's docstring, which says more. Tests lie under "
    "`tests/unit/algorithms` (one file per module) and `tests/lab/oracle`. The last column names the section of "
    "`groupwise oracle` and what it measured."
)
_PUBLISHED_NOTE = (
    "Each is a recipe to extend, `recipes/algorithms/*.toml`; what is not named keeps its default. KL terms are no "
    "part of the measured figures. World: {}."
)


def _line(entry: Entry, sections: Mapping[str, Section]) -> list[str]:
    formula, source = formula_and_source(entry.function)
    module = entry.function.__module__.rpartition(".")[2]
    tests = [entry.unit or f"test_{module}.py", *(f"oracle/{test}" for test in entry.tests)]
    return [
        entry.name if "`" in entry.name else f"`{entry.name}`",
        formula,
        source or "–",
        f"`{module}.{entry.function.__name__}`",
        "<br>".join(f"`{test}`" for test in tests),
        "<br>".join(_measured(sections[key], row, entry.name) for key, row in entry.rows) or "no part of ∇J",
    ]


def formula_and_source(function: Callable[..., Any]) -> tuple[str, str]:
    """The first line of the docstring, cut at its first colon or full stop; sources further down are cited too."""
    text = inspect.getdoc(function) or ""
    line = text.splitlines()[0].removesuffix(".")
    formula, _, rest = re.sub(r"(: |\. )", "\0", line, count=1).partition("\0")
    cited = dict.fromkeys(CITED.findall(text)) if not ARXIV.search(rest) else ()
    return formula, _linked("; ".join([*([rest] if rest else []), *cited]))


def _linked(text: str) -> str:
    return ARXIV.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", text)


def _measured(section: Section, row: str, name: str) -> str:
    where = f"`{section.key}`" if row == name else f"`{section.key}`, {row}"
    return f"{where}: {_figures(section, row)}"


def _figures(section: Section, row: str) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in section.row(row).items() if name in SHOWN)


def _published(name: str, algorithm: Published, sections: Mapping[str, Section]) -> list[str]:
    keys = "<br>".join(f"`{key} = {_toml(value)}`" for key, value in algorithm.keys.items())
    measured = _figures(sections["published"], name) if algorithm.is_grpo else "–"
    return [name, _linked(algorithm.source), keys, measured, algorithm.note]


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else f"{value:g}"


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in line] for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
