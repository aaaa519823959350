"""Every rule on every planted fault, over seeds, beside rldoctor on the same runs' scalars.

    python lab/benchmarks/doctor/matrix.py run --seeds 16-35  as often as it takes: what is there is not run again
    python lab/benchmarks/doctor/matrix.py write  docs/doctor.md, from lab/benchmarks/doctor/matrix.jsonl

Each line of matrix.jsonl is one run under all rules; `--keep FOLDER` holds the runs, `--again` judges them anew (after
a rule has changed), `--peer PATH` is the command of rldoctor, `--minutes` ends a piece in time. `real NAME RUN ...`
adds runs from elsewhere, as healthy ones. `scenarios` compares both on rldoctor's own scenarios (`scenarios.py`).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import scenarios
from pupil import pupil
from ward import CASES, Case, run_case

from groupwise.checks.doctor import RULES, Finding, Severity, diagnose
from groupwise.checks.doctor.facts import RunFacts, read_facts

DATA = Path(__file__).parent / "matrix.jsonl"
BY_NAME = {case.name: case for case in CASES}
NONE = Case("", "", ())


def alarms(findings: Sequence[Finding]) -> list[Finding]:
    """Those that are more than a note."""
    return [one for one in findings if one.severity is not Severity.NOTE]


def judge(case: Case, run: Path, peer: Path | None = None) -> dict[str, Any]:
    """A run under all rules, as a whole and as it was after each step."""
    facts = read_facts(run)
    speaks = partial(expected, case) if case.rules else alarms
    noticed = next((step.step + 1 for step in facts.steps if speaks(diagnose(facts.until(step.step)).findings)), None)
    findings = diagnose(facts).findings
    return {
        "case": case.name, "found": bool(speaks(findings)) is bool(case.rules), "noticed": noticed,
        "steps": len(facts.steps), "dev": [[one.step, one.pass_at_1] for one in facts.dev],
        "findings": [[one.check, str(one.severity), one.since_step, round(one.statistic, 6)] for one in findings],
        "peer": peer_says(peer, facts) if peer else None,
    }  # fmt: skip


def expected(case: Case, findings: Sequence[Finding]) -> bool:
    """Whether one of the case's rules spoke, loudly enough."""
    return any(one.check in case.rules for one in (findings if case.is_mild else alarms(findings)))


def peer_says(peer: Path, run: RunFacts) -> list[str]:
    """What rldoctor finds (warnings and worse) in the run's scalars, under names that it knows."""
    dev = {one.step: one.pass_at_1 for one in run.dev}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        log.write_text("".join(json.dumps(_scalars(one.step, one.line, dev)) + "\n" for one in run.steps))
        done = subprocess.run(
            [str(peer), "diagnose", "-f", "json", str(log)], capture_output=True, text=True, check=True
        )
    findings = json.loads(done.stdout)["findings"]
    return [one["detector"] for one in findings if one["severity"] in ("WARNING", "CRITICAL")]


def _scalars(step: int, line: Any, dev: dict[int, float]) -> dict[str, float]:
    names = {
        "reward": "reward", "entropy": "entropy", "grad_norm": "grad_norm", "learning_rate": "lr", "kl": "kl",
        "clip_ratio": "clipped", "completions/mean_length": "length", "completions/clipped_ratio": "truncated",
    }  # fmt: skip
    scalars = {theirs: line[ours] for theirs, ours in names.items() if line.get(ours) is not None}
    scalars |= {"step": step, "frac_reward_zero_std": 1 - line["signal"]}
    return scalars | ({"eval_score": dev[step + 1]} if step + 1 in dev else {})


def read_data() -> list[dict[str, Any]]:
    """The judged runs."""
    return [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()] if DATA.exists() else []


def write_data(rows: Sequence[dict[str, Any]]) -> None:
    """In the order of the cases and seeds, one line a run."""
    order = [*BY_NAME, *dict.fromkeys(row["case"] for row in rows)]
    lines = [json.dumps(row) for row in sorted(rows, key=lambda row: (order.index(row["case"]), row["seed"]))]
    DATA.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def run(options: argparse.Namespace) -> None:
    """Train and judge what has no line yet, seed by seed."""
    end = time.monotonic() + 60 * options.minutes
    rows = {(row["case"], row["seed"]): row for row in read_data()}
    known = set() if options.again else set(rows)
    low, _, high = options.seeds.partition("-")
    model = pupil(options.keep)
    for seed in range(int(low), int(high or low) + 1):
        for case in (options.case and [BY_NAME[name] for name in options.case]) or CASES:
            if (case.name, seed) in known or time.monotonic() > end:
                continue
            directory, began = options.keep / f"{case.name.replace(' ', '-')}-{seed}", time.process_time()
            there = (directory / "judged").exists()
            if not there and options.again:
                continue
            if not there:
                run_case(case, model, directory, seed)
                (directory / "judged").touch()
            row = rows.get((case.name, seed), {"seed": seed})
            seconds = row.get("seconds") if there else round(time.process_time() - began, 2)
            rows[case.name, seed] = row = {**row, "seconds": seconds, **judge(case, directory, options.peer)}
            print(_told(row), flush=True)
            write_data(list(rows.values()))
    print("left" if time.monotonic() > end else "done")


def _told(row: dict[str, Any]) -> str:
    findings = ", ".join(f"{name} {severity}" for name, severity, *_ in row["findings"])
    return f"{'ok  ' if row['found'] else 'MISS'} {row['case']} {row['seed']} {row['seconds']} s: {findings}"


def real(options: argparse.Namespace) -> None:
    """Judge runs from elsewhere as healthy ones; the name says what they are."""
    rows = {(row["case"], row["seed"]): row for row in read_data()}
    for seed, directory in enumerate(options.runs):
        rows[options.name, seed] = {
            "seed": seed, "seconds": None, **judge(Case(options.name, "none", ()), directory, options.peer),
        }  # fmt: skip
        print(_told(rows[options.name, seed]), flush=True)
    write_data(list(rows.values()))


HEAD = """# The doctor

`groupwise doctor RUN` reads a run directory and says what is wrong with it; the same rules speak on the step lines of
`groupwise train`, and in the run's report. A rule compares a run with its own start and asks whether what it sees did
harm, so that a healthy run, whose entropy falls while its reward rises, is left alone. `--json` is for programs,
`--fail-on warning` for scripts (exit status 3), `--explain RULE` shows one row of the first table. `doctor.ignore`
leaves rules out; with `doctor.stop_at_critical` a critical finding ends the run, with a checkpoint.

`python lab/benchmarks/doctor/matrix.py run` trains and judges the runs of the second table (it goes on where it was
stopped),
`python lab/benchmarks/doctor/matrix.py write` makes this page of its results,
`lab/benchmarks/doctor/matrix.jsonl`.

## Rules

| rule | symptom | statistic | bounds | source |
|---|---|---|---|---|
"""
FAULTS = """
## Planted faults

Every fault is a real run of 6 to 60 steps of a small model that half knows how to add
(`lab/benchmarks/doctor/pupil.py`), with
36 completions a step. A fault counts as found in a run where one of the rules that are meant for it gives a warning or
worse at its end (`note` where that is all it deserves). Bounds of rules and the faults themselves were mended with
seeds below 12 in view, those of the runs that the column `seen` counts; seeds from {first} on were kept back. The bar
is 19 of 20 seeds that were kept back; the column says how many were run. The rules of
{looked}
were mended once more, with seeds below 12 alone, after their results on seeds {first} to 31 were known: their faults
have a star, and of healthy runs seeds from {second} on alone count as kept back.

`After` is the number of steps after which the first of its rules spoke, median and largest. `Dev lost` is of faults
that spoil a model little by little: what dev pass@1 (288 completions) had lost against its start at the first
evaluation after that, in points, the mean over seeds with its 95 % interval; in brackets what it had lost at the end.
Both are of seeds that were kept back. The bar is a loss of less than 2 points.

{healthy}

A fault is gradual at the rate at which it is planted here. No rule judges fewer than five steps, and `noise`, an
entropy bonus at a larger rate, loses {noise:.1f} points within them (mean of the seeds that were kept back, of
`lab/benchmarks/doctor/matrix.jsonl`). `repeating paid` and `length paid` teach first what they spoil later: there
dev is above
its start when they are found, and not always at its best.

"""
SPOKEN = """
## Rules on these runs

Runs of kept-back seeds of which a rule said anything, notes included: of the faults that it is meant for; of other
faults, where it spoke in half of their runs or more (a fault has more than one symptom); and of healthy runs, where
`warned` counts what was more than a note.

"""
SCENARIOS = """
## rldoctor's own scenarios

Twelve shapes of curves that the package rldoctor 0.2.0 (junglezke/rl-doctor, Apache-2.0, `rl_doctor.simulate`) draws to
test itself, 400 steps each, seeds {seeds}; our bounds were mended with seeds below 40 in view. Its command got the log
with all names that it knows, ours what `groupwise import wandb` makes of the same log: scalars alone, no completions.
Counted are warnings and worse, and notes where that is what our rule gives (`plateau`). `Beside it` is what else was
said. `python lab/benchmarks/doctor/matrix.py scenarios --peer PATH` makes this table.

"""
HEALTHY = """Runs that no bound was chosen with, most of them of other work, judged at their end. What is found in a
control is no false warning: the tools' control by text alone has problems that it never solves beside problems that it
always solves, and a run whose rewards are drawn learns nothing. {older}were judged before the last changes of
`no_signal`, `overfitting`, `update_too_large`, `kl_to_reference`, `critic_explains_nothing`, `plateau`,
`entropy_explosion`, `entropy_collapse` and `length_collapse`, and before there was an `entropy_bonus`.

`entropy_collapse` was mended with runs of `recipes/process.toml` in view (outcomes and critics over steps), so they are
not in the table. With λ = 0 the same recipe spoils the model, and `groupwise doctor` says so
([results.md](results.md#process-supervision)).

"""
KEPT_BACK, AGAIN = 16, 32
"""First seed that no bound was chosen with, and that of `LOOKED`."""
SEEN = 12
"""Seeds below it are for choosing bounds."""
LOOKED = ("healthy", "healthy ppo", "by heart", "too easy", "held", "cold", "too hard")
"""Cases whose rules were mended when the first seeds that were kept back had been looked at."""
OLDER = (
    "products, variants of GRPO", "RL stages of pipelines: process rewards, tools, R1",
    "tools: by text alone, a control half of whose problems are too hard", "all families of problems",
    "a control whose rewards are drawn", "PPO on products",
)  # fmt: skip
"""Runs that are not judged anew when a rule changes: they are not kept."""
LATER = ("habit_is_lost", "reward_falls")
"""Rules that were made after the runs."""
FOUND = "has it ([results.md](results.md#the-road-of-deepseek-r1-with-smollm2-135m-instruct))"


def document(rows: Sequence[dict[str, Any]], page: str = "") -> str:
    """The page. Until every fault has a run, what the present page says of planted faults stays."""
    rules = "".join(
        f"| `{r.name}` | {r.says} | {r.statistic} | {r.thresholds} | {r.source} |\n" for r in RULES.values()
    )
    spoken = {name for row in rows for name, *_ in row["findings"]}
    left = ", ".join(f"`{name}`" for name in RULES if name not in {*spoken, *LATER})
    silent = f"\nRules that no run here has triggered, tested on series by hand alone: {left}.\n" if left else ""
    later = f"`{'` and `'.join(LATER)}` are younger than these runs and were not tried on them"
    silent += f"\n{later}; of the first a real run of ours {FOUND}.\n"
    complete = {case.name for case in CASES} <= {row["case"] for row in rows}
    planted = f"{_about(rows)}{_faults(rows)}{SPOKEN}{_spoken(rows)}{silent}\n" if complete else _earlier(page)
    return f"{HEAD}{rules}{planted}## Healthy runs\n\n{_healthy(rows)}{_compared(scenarios.read())}"


def _kept(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of planted cases that no bound was chosen with."""
    return [
        row for row in rows
        if row["case"] in BY_NAME and row["seed"] >= (KEPT_BACK if BY_NAME[row["case"]].rules else AGAIN)
    ]  # fmt: skip


def _about(rows: Sequence[dict[str, Any]]) -> str:
    healthy = [row for row in rows if row["case"] in BY_NAME and not BY_NAME[row["case"]].rules]
    kept = _kept(healthy)
    between = [row for row in healthy if KEPT_BACK <= row["seed"] < AGAIN]
    said = ";\n".join(
        f"of {len(some)} healthy runs {which} {sum(not row['found'] for row in some)} had a false warning at their "
        f"end, {sum(row['noticed'] is not None for row in some)} after some step"
        for some, which in ((kept, "that were kept back"), (between, f"of seeds {KEPT_BACK} to {AGAIN - 1}"))
    )
    looked = ", ".join(f"`{name}`" for name in LOOKED[:-1]) + f" and `{LOOKED[-1]}`"
    noise = fmean(100 * (row["dev"][0][1] - row["dev"][1][1]) for row in _kept(rows) if row["case"] == "noise")
    return FAULTS.format(first=KEPT_BACK, second=AGAIN, looked=looked, healthy=f"O{said[1:]}.", noise=noise)


def _earlier(page: str) -> str:
    return f"\n## Planted faults{page.partition('## Planted faults')[2].partition('## Healthy runs')[0]}"


def _faults(rows: Sequence[dict[str, Any]]) -> str:
    lines = [_fault(case, [row for row in rows if row["case"] == case.name]) for case in CASES if case.rules]
    head = "| fault | meant for it | seen | kept back | after | dev lost | rldoctor 0.2.0 |\n"
    return head + "|---|---|---|---|---|---|---|\n" + "".join(lines)


def _fault(case: Case, rows: Sequence[dict[str, Any]]) -> str:
    kept, seen = _kept(rows), [row for row in rows if row["seed"] < SEEN]
    found = [f"{sum(row['found'] for row in some)} of {len(some)}" if some else "-" for some in (seen, kept)]
    noticed = [row for row in kept if row["noticed"]]
    delays = [row["noticed"] for row in noticed]
    after = f"{median(delays):g}, {max(delays)}" if delays else "-"
    cells = [
        f"{case.name}{'*' * (case.name in LOOKED)}: {case.what}",
        ", ".join(f"`{name}`" for name in case.rules), *found, after,
        _losses(noticed) if case.is_gradual else "-", _peer(kept),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def _losses(rows: Sequence[dict[str, Any]]) -> str:
    """When it was noticed, with its interval, and at the end."""
    then = [100 * _lost(row) for row in rows]
    if len(then) < 2:
        return "-"
    mean, half = fmean(then), 1.96 * stdev(then) / len(then) ** 0.5
    end = fmean(100 * (row["dev"][0][1] - row["dev"][-1][1]) for row in rows)
    return f"{mean:+.1f}, {mean - half:+.1f} to {mean + half:+.1f} ({end:+.1f})"


def _lost(row: dict[str, Any]) -> float:
    """What dev pass@1 had lost at the first evaluation after the fault was noticed."""
    later = [value for step, value in row["dev"] if step >= row["noticed"]]
    return float(row["dev"][0][1] - (later[0] if later else row["dev"][-1][1]))


def _spoken(rows: Sequence[dict[str, Any]]) -> str:
    """What every rule said of every kind of run."""
    kept = _kept(rows)
    runs = {case: [row for row in kept if row["case"] == case.name] for case in CASES}
    lines = ["| rule | meant for | of other faults | healthy runs |\n|---|---|---|---|\n"]
    for name in RULES:
        said = {case: sum(any(rule == name for rule, *_ in row["findings"]) for row in runs[case]) for case in CASES}
        meant = [f"{case.name} {said[case]} of {len(runs[case])}" for case in CASES if name in case.rules]
        other = [f"{case.name} {said[case]} of {len(runs[case])}" for case in CASES
                 if case.rules and name not in case.rules and 2 * said[case] >= max(1, len(runs[case]))]  # fmt: skip
        healthy = [row for case in CASES if not case.rules for row in runs[case]]
        warned = sum(any(r == name and severity != "note" for r, severity, *_ in row["findings"]) for row in healthy)
        notes = sum(said[case] for case in CASES if not case.rules) - warned
        calm = ", ".join([f"warned {warned}"] * bool(warned) + [f"noted {notes}"] * bool(notes)) or "silent"
        calm = "not tried" if name in LATER else f"{calm} of {len(healthy)}"
        cells = [f"`{name}`", ", ".join(meant) or "-", ", ".join(other) or "-", calm]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def _compared(rows: Sequence[dict[str, Any]]) -> str:
    seeds = sorted({row["seed"] for row in rows})
    return SCENARIOS.format(seeds=f"{seeds[0]} to {seeds[-1]}") + scenarios.table(rows) if rows else ""


def _peer(rows: Sequence[dict[str, Any]]) -> str:
    """How often each of its detectors gave a warning or worse."""
    asked = [row["peer"] for row in rows if row["peer"] is not None]
    counts = Counter(name for said in asked for name in said)
    said = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    return f"{said or 'silent'} (of {len(asked)})" if asked else "-"


def _healthy(rows: Sequence[dict[str, Any]]) -> str:
    names = [name for name in dict.fromkeys(row["case"] for row in rows) if not BY_NAME.get(name, NONE).rules]
    lines = []
    for name in names:
        own = [row for row in rows if row["case"] == name]
        own = _kept(own) if name in BY_NAME else own
        false = Counter(rule for row in own for rule, severity, *_ in row["findings"] if severity != "note")
        said = ", ".join(f"`{rule}` {count}" for rule, count in false.items()) or "none"
        silent = sum(row["found"] for row in own)
        lines.append(f"| {name} | {len(own)} | {len(own) - silent} | {said} | {_peer(own)} |\n")
    head = "| runs | number | with a false warning | by rule | rldoctor 0.2.0 |\n|---|---|---|---|---|\n"
    return HEALTHY.format(older=_listed(OLDER)) + head + "".join(lines)


def _listed(names: Sequence[str]) -> str:
    return f"The runs of {len(names)} kinds\n({'; '.join(names)})\n"


def compare(options: argparse.Namespace) -> None:
    """Both on rldoctor's scenarios."""
    low, _, high = options.seeds.partition("-")
    scenarios.write(scenarios.compare(options.peer, range(int(low), int(high or low) + 1)))


def write(options: argparse.Namespace) -> None:
    """Write the page."""
    page = Path(__file__).parents[3] / "docs" / "doctor.md"
    page.write_text(document(read_data(), page.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.add_argument("--seeds", default="16-35")
    one.add_argument("--case", action="append")
    one.add_argument("--keep", type=Path, default=Path("runs/doctor"))
    one.add_argument("--again", action="store_true")
    one.add_argument("--minutes", type=float, default=1e9)
    one.set_defaults(call=run)
    two = commands.add_parser("real")
    two.add_argument("name")
    two.add_argument("runs", type=Path, nargs="+")
    two.set_defaults(call=real)
    three = commands.add_parser("scenarios")
    three.add_argument("--seeds", default="40-49")
    three.set_defaults(call=compare)
    commands.add_parser("write").set_defaults(call=write)
    for command in (one, two, three):
        command.add_argument("--peer", type=Path, required=command is three, help="rldoctor's command, rl-doctor")
    options = parser.parse_args()
    options.call(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
