"""docs/claims.md: what was claimed, what was run, what it decides. Made of the ledger and its results alone."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from groupwise.algorithms.statistics import Estimate
from groupwise_lab.claims.config import Claim, Ledger, Statistic
from groupwise_lab.claims.decided import Decided, decided, shown
from groupwise_lab.claims.decision import LEAST_SEEDS, Ruling
from groupwise_lab.claims.results import Results

HEAD = """# Claims

What others say of reinforcement learning for reasoning, run here: one small model
([the shipped base model](results.md#the-shipped-base-model)),
tasks that make their own problems, several seeds, one rule. *Here* is a model of 1.7 million parameters and runs of
minutes; what holds here need not hold at another size, and the other way round. The rule says what these runs decide,
and no more.

**The rule.** Every claim is a number of each seed (a difference is paired by seed: the same problems, the same draws)
and a set of values, with a margin below which nothing matters; both stand in `lab/claims/NAME.toml`. With the mean over
seeds and Student's 95 % interval, of three seeds or more:

- *holds here*: the whole interval lies within what is claimed;
- *does not hold here*: the whole interval lies outside of it;
- *not decided by this evidence*: else. Then it says how many seeds would decide, if mean and spread stayed the same.

With fewer than three seeds a claim is *not yet measured*. A claim of time or memory counts only seeds whose runs are
all of one kind of machine.

Five seeds are run where a run takes up to four minutes of one core, three where it takes longer. They decide large
effects and leave small ones open. Each claim is ruled on alone, and many share the runs of one reference arm: their
errors come together. Where an open claim got more seeds, all of them count; looking again makes a wrong verdict a
little likelier than 5 %.

**Dropped.** Ten claims were measured and stayed open, and it would take 17 to more than 1,000 seeds to decide them;
in points, with their seeds: at many attempts the base model solves as many problems as the trained one (pass@8, +0.0
[-4.1, +4.1], 6); adapters of rank 1 are enough (-3.1 [-9.9, +3.8], 5); GRPO without a critic reaches PPO's accuracy
(-0.6 [-6.6, +5.3], 6); beam search beats best-of-N at small budgets (-0.6 [-10.1, +8.9], 5); the road ends higher
with a cold start (-0.2 [-6.3, +5.8], 3); the language reward costs accuracy (-1.9 [-5.0, +1.2], 5); labels by
rollouts are better where a second judge agrees (+0.8 [-0.4, +1.9], 5), and teach as well as exact ones (+0.3 [-5.3,
+5.9], 5); problems of medium difficulty first learn faster (-0.6 [-5.6, +4.4], 5), and so does dynamic sampling (+1.5
[-2.0, +5.0], 5).

**Again.** `groupwise claims` runs what is missing, goes on where it was killed, and writes this page;
`groupwise claims NAME --rerun` measures one claim anew. Results are kept in `lab/claims/results/`, a line for each run,
with marks of recipe, base model and code; a test fails where recipe or base model have changed since. `groupwise claims
--list` says what is missing, how long it takes, and how many runs of each claim were made by other code than today's.

**Other code.** The mark of code is of every module that the run of an arm imports, so it changes with much that changes
no number, and results of earlier code stay. Where the runs of an arm bear more than one mark, the claim says that the
code changed between its seeds: then its mean is over versions of the code, and a change that moved numbers counts as
spread between seeds. A test fails where runs of different code that measured the same model before training, on the
same problems with the same seed and kind of machine, differ in any number. That says nothing of the training itself;
`python lab/check_numbers.py` trains first seeds again, picked at random, with today's code.
"""


MANY = {
    Ruling.HOLDS.value: "hold here", Ruling.FAILS.value: "do not",
    Ruling.OPEN.value: "are not decided by this evidence",
    "not yet measured": "not yet measured",
}  # fmt: skip
"""Verdicts of several claims."""


def document(ledger: Ledger, results: Results) -> str:
    """The whole page."""
    found = {name: decided(claim, results) for name, claim in ledger.claims.items()}
    topics = dict.fromkeys(claim.topic for claim in ledger.claims.values())
    parts = [HEAD, _counts(found.values()), _machines(results), _versions(found.values(), results)]
    for topic in topics:
        of_topic = {name: one for name, one in found.items() if one.claim.topic == topic}
        parts += [f"## {topic}\n", _table(of_topic)]
        parts += [_section(name, one, ledger, results) for name, one in of_topic.items()]
    return "\n".join(parts).rstrip() + "\n"


def _counts(found: Iterable[Decided]) -> str:
    count = Counter(one.verdict for one in found)
    told = ", ".join(f"{count[name]} {words}" for name, words in MANY.items() if count[name])
    return f"**{sum(count.values())} claims**: {told}.\n"


def _machines(results: Results) -> str:
    """Every kind of machine with the number of its runs."""
    count = Counter(result.machine for result in results.values())
    if len(count) < 2:
        return "".join(f"Machine: {machine}; fp32, one thread a run.\n" for machine in count)
    told = "; ".join(f"{machine} ({count[machine]} runs)" for machine in sorted(count))
    return f"Machines: {told}; fp32, one thread a run. Time and memory are compared between runs of one kind alone.\n"


def _versions(found: Iterable[Decided], results: Results) -> str:
    """Count the measured claims with runs of more than one code."""
    several = [_changed(one, results) for one in found if one.seeds]
    return f"Code: in {sum(several)} of {len(several)} claims with results it changed between the seeds.\n"


def _changed(one: Decided, results: Results) -> bool:
    """Return True if the seeds of one arm are of several versions of the code; two arms may differ."""
    return any(len({results[arm, seed].code for seed in one.seeds}) > 1 for arm in one.claim.arms)


def _table(found: Mapping[str, Decided]) -> str:
    rows = ["| claim | what is measured | seeds | verdict |", "|---|---|---|---|"]
    for name, one in found.items():
        value = told(one.claim.statistic, one.decision.estimate) if one.decision and one.is_measured else "–"
        rows.append(f"| [{one.claim.sentence}](#{name}) | {value} | {len(one.seeds)} | {one.verdict} |")
    return "\n".join(rows) + "\n"


def _section(name: str, one: Decided, ledger: Ledger, results: Results) -> str:
    claim = one.claim
    lines = [f"### {name}\n", f"{claim.sentence} *{claim.source}*\n", f"{claim.here}\n"]
    lines += [f"- Claimed: {claimed(claim.statistic)}."]
    if not one.is_measured:
        lines += [f"- {_not_measured(name, one, ledger, results)}"]
        lines += [f"- Measured so far at {_code(one, results)}."] if one.seeds else []
    else:
        lines += [
            f"- Found: {_sides(one)}.",
            f"- **{_sentence(one)}**",
            f"- `groupwise claims {name}`; measured at {_code(one, results)}.",
        ]
    lines += [f"- {claim.note}"] if claim.note and one.decision else []
    return "\n".join(lines) + "\n"


def _not_measured(name: str, one: Decided, ledger: Ledger, results: Results) -> str:
    """Return the number of seeds, and the command for more."""
    claim, there = one.claim, len(one.seeds)
    minutes = max(1, round(sum(_minutes(ledger, arm) for arm in claim.arms) * ledger.seeds_of(claim)))
    head = f"**Not yet measured: {there} of at least {LEAST_SEEDS} seeds**" if there else "**Not yet measured**"
    ran = [seed for seed in range(ledger.seeds_of(claim)) if all((arm, seed) in results for arm in claim.arms)]
    if len(ran) > there:
        head += f", as {len(ran) - there} of {len(ran)} were run on more than one kind of machine"
    again = " --rerun" if len(ran) >= ledger.seeds_of(claim) else ""
    return f"{head}: `groupwise claims {name}{again}`, about {minutes} minutes of one core."


def _minutes(ledger: Ledger, arm: str) -> float:
    return ledger.arms.arms[arm].minutes


def _sentence(one: Decided) -> str:
    decision = one.decision
    assert decision is not None
    statistic, verdict = one.claim.statistic, one.verdict
    values = ", ".join(_number(value, statistic) for value in shown(statistic, one.values))
    head = f"{verdict[0].upper()}{verdict[1:]}: {told(statistic, decision.estimate)}, seeds {values}"
    if one.is_decided:
        return f"{head}."
    if decision.seeds_needed is None:
        return f"{head}; the mean is so near the margin that more than 1,000 seeds would not decide."
    return f"{head}; about {decision.seeds_needed} seeds would decide."


def _code(one: Decided, results: Results) -> str:
    codes = sorted({results[arm, seed].code for arm in one.claim.arms for seed in one.seeds})
    changed = "; the code changed between its seeds" if _changed(one, results) else ""
    return f"code {', '.join(codes)}{changed}"


def _sides(one: Decided) -> str:
    return "; ".join(f"`{name}` {_mean(mean)}" for name, mean in one.sides.items())


def _mean(mean: Estimate) -> str:
    return f"{mean.value:.4g} [{mean.low:.4g}, {mean.high:.4g}]" if mean.high < float("inf") else f"{mean.value:.4g}"


def claimed(statistic: Statistic) -> str:
    """Return the claim in words and names."""
    first, *others = statistic.measured
    match statistic.kind:
        case "level":
            what = f"`{first}` less {statistic.than:g}"
        case "difference":
            what = f"`{first}` less `{others[0]}`"
        case "ratio":
            what = f"`{first}` over `{others[0]}`"
        case "difference_of_differences":
            second, third, fourth = others
            what = f"(`{first}` less `{third}`) less (`{second}` less `{fourth}`)"
        case "slope":
            names = ", ".join(f"`{measured}`" for measured in statistic.measured)
            what = f"the change with each doubling, of {names},"
    margin = _number(statistic.margin, statistic).lstrip("+")
    unit = " points" if statistic.unit == "%" else ""
    minus = f"1/{margin}" if statistic.kind == "ratio" else f"-{margin}" if statistic.margin else margin
    where = {
        "above": f"above {margin}", "below": f"below {minus}", "at_least": f"above {minus}",
        "at_most": f"below {margin}", "equal": f"between {minus} and {margin}",
    }[statistic.claimed]  # fmt: skip
    return f"{what} is {where}{unit}"


def told(statistic: Statistic, estimate: Estimate) -> str:
    """The statistic with its interval."""
    value, low, high = shown(statistic, estimate)
    unit = {"%": " points", "": ""}.get(statistic.unit, f" {statistic.unit}")
    text = f"{_number(value, statistic)}{unit}"
    if not (low > -float("inf") and high < float("inf")):
        return text
    return f"{text} [{_number(low, statistic)}, {_number(high, statistic)}]"


def _number(value: float, statistic: Statistic) -> str:
    if statistic.kind == "ratio":
        return f"{value:.2f}"
    if statistic.unit == "%":
        return f"{round(100 * value, 1) + 0.0:+.1f}"
    return f"{value:+.3g}"


def missing_lines(
    ledger: Ledger, claims: Mapping[str, Claim], results: Results, seeds: int, codes: Mapping[str, str]
) -> Iterator[tuple[str, str, str, str]]:
    """Every claim with its verdict, what is missing of it, and how many of its runs are not of today's code.

    Args:
        ledger: where its arms are.
        claims: by name.
        results: all that there are.
        seeds: of every claim; 0: as many as the ledger runs it with.
        codes: today's mark of the code, by arm.

    Yields:
        (name, verdict, missing runs and minutes, runs of other code).
    """
    for name, claim in claims.items():
        count = seeds or ledger.seeds_of(claim)
        absent = [(arm, seed) for arm in claim.arms for seed in range(count) if (arm, seed) not in results]
        minutes = sum(_minutes(ledger, arm) for arm, _ in absent)
        one = decided(claim, results)
        other = [results[arm, seed].code != codes[arm] for arm in claim.arms for seed in one.seeds]
        yield (
            name,
            one.verdict,
            f"{len(absent)} runs, {minutes:.0f} minutes" if absent else "nothing",
            f"{sum(other)} of {len(other)} runs" if other else "-",
        )


def write_document(ledger: Ledger, results: Results, path: Path) -> None:
    """Write the page."""
    path.write_text(document(ledger, results), encoding="utf-8")
