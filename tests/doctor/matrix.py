"""Every rule on every planted fault, over seeds, beside rldoctor on the same runs' scalars.

    python tests/doctor/matrix.py run --seeds 0-19        as often as it takes: what is there is not run again
    python tests/doctor/matrix.py write                   docs/doctor.md, from tests/doctor/matrix.jsonl

Each line of matrix.jsonl is one run under all rules; `--keep FOLDER` holds the runs, `--again` judges them anew (after
a rule has changed), `--peer PATH` is the command of rldoctor, `--minutes` ends a piece in time. `real NAME RUN ...`
adds runs from elsewhere, as healthy ones.
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
from statistics import fmean, median
from typing import Any

from pupil import pupil
from ward import CASES, Case, run_case

from groupwise.doctor import RULES, Finding, Severity, diagnose
from groupwise.doctor.facts import RunFacts, read_facts

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
        "case": case.name,
        "found": bool(speaks(findings)) is bool(case.rules),
        "noticed": noticed,
        "steps": len(facts.steps),
        "dev": [[one.step, one.pass_at_1] for one in facts.dev],
        "findings": [[one.rule, str(one.severity), one.since_step, round(one.statistic, 6)] for one in findings],
        "peer": peer_says(peer, facts) if peer else None,
    }


def expected(case: Case, findings: Sequence[Finding]) -> bool:
    """Whether one of the case's rules spoke, loudly enough."""
    return any(one.rule in case.rules for one in (findings if case.is_mild else alarms(findings)))


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

`python tests/doctor/matrix.py run` trains and judges the runs of the second table (it goes on where it was stopped),
`python tests/doctor/matrix.py write` makes this page of its results, `tests/doctor/matrix.jsonl`.

## Rules

| rule | symptom | statistic | bounds | source |
|---|---|---|---|---|
"""
FAULTS = """
## Planted faults

Every fault is a real run of 6 to 60 steps of a small model that half knows how to add (`tests/doctor/pupil.py`), with
36 completions a step. A fault counts as found in a run where one of the rules that are meant for it gives a warning or
worse at its end (`note` where that is all it deserves). Bounds of rules and the faults themselves were mended with
seeds below {first} in view, of which {below} were run; seeds from {first} on, of which {later} were run, were not
looked at before. `After` is the number of steps after which the first of them spoke, median and largest. `Dev lost` is
what dev pass@1 had lost at the last evaluation before that, in points, the mean over seeds: of faults that spoil a
model little by little.

{healthy}
"""
HEALTHY = """Runs of other work, which no bound was chosen with, judged at their end. What is found in a control is no
false warning: the tools' control by text alone has problems that it never solves beside problems that it always solves,
and a run whose rewards are drawn learns nothing.

"""
KEPT_BACK = 12
"""First seed that no bound was chosen with."""


def document(rows: Sequence[dict[str, Any]], page: str = "") -> str:
    """The page. Until every fault has a run, what the present page says of planted faults stays."""
    rules = "".join(
        f"| `{r.name}` | {r.says} | {r.statistic} | {r.thresholds} | {r.source} |\n" for r in RULES.values()
    )
    spoken = {name for row in rows for name, *_ in row["findings"]}
    left = ", ".join(f"`{name}`" for name in RULES if name not in spoken)
    silent = f"\nRules that no run here has triggered, tested on series by hand alone: {left}.\n" if left else ""
    complete = {case.name for case in CASES} <= {row["case"] for row in rows}
    planted = f"{_about(rows)}\n{_faults(rows)}{silent}\n" if complete else _earlier(page)
    return f"{HEAD}{rules}{planted}## Healthy runs\n\n{HEALTHY}{_healthy(rows)}"


def _about(rows: Sequence[dict[str, Any]]) -> str:
    seeds = [sorted({row["seed"] for row in rows if row["case"] in BY_NAME and (row["seed"] >= KEPT_BACK) == later})
             for later in (False, True)]  # fmt: skip
    below, later = (f"{len(own)} ({', '.join(map(str, own))})" if own else "none" for own in seeds)
    own = [row for row in rows if row["case"] in BY_NAME and not BY_NAME[row["case"]].rules]
    wrong = [[row for row in own if row["seed"] >= first] for first in (0, KEPT_BACK)]
    said = [
        f"{sum(not row['found'] for row in some)} of {len(some)} healthy runs{where} had a false warning at their end, "
        f"{sum(row['noticed'] is not None for row in some)} after some step"
        for some, where in zip(wrong, ("", f" of seeds from {KEPT_BACK} on"), strict=True) if some
    ]  # fmt: skip
    return FAULTS.format(first=KEPT_BACK, below=below, later=later, healthy="; ".join(said) + ".")


def _earlier(page: str) -> str:
    return f"\n## Planted faults{page.partition('## Planted faults')[2].partition('## Healthy runs')[0]}"


def _faults(rows: Sequence[dict[str, Any]]) -> str:
    faulty = [case for case in CASES if case.rules]
    lines = [_fault(case, [row for row in rows if row["case"] == case.name]) for case in faulty]
    seeds = f"found, seeds below {KEPT_BACK} | from {KEPT_BACK} on"
    head = f"| fault | meant for it | {seeds} | after | dev lost | rldoctor 0.2.0 |\n"
    return head + "|---|---|---|---|---|---|---|\n" + "".join(lines)


def _fault(case: Case, rows: Sequence[dict[str, Any]]) -> str:
    sides = [[row for row in rows if (row["seed"] >= KEPT_BACK) == later] for later in (False, True)]
    found = [f"{sum(row['found'] for row in side)} of {len(side)}" if side else "-" for side in sides]
    delays = [row["noticed"] for row in rows if row["noticed"]]
    after = f"{median(delays):g}, {max(delays)}" if delays else "-"
    lost = [_lost(row) for row in rows if row["noticed"]] if case.is_gradual else []
    cells = [
        f"{case.name}: {case.what}", ", ".join(f"`{name}`" for name in case.rules), *found, after,
        f"{100 * fmean(lost):+.1f}" if lost else "-", _peer(rows),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def _lost(row: dict[str, Any]) -> float:
    """What dev pass@1 had lost at the last evaluation before the fault was noticed."""
    known = [value for step, value in row["dev"] if step <= row["noticed"]]
    return float(known[0] - known[-1])


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
        false = Counter(rule for row in own for rule, severity, *_ in row["findings"] if severity != "note")
        said = ", ".join(f"`{rule}` {count}" for rule, count in false.items()) or "none"
        silent = sum(row["found"] for row in own)
        lines.append(f"| {name} | {len(own)} | {len(own) - silent} | {said} | {_peer(own)} |\n")
    head = "| runs | number | with a false warning | by rule | rldoctor 0.2.0 |\n|---|---|---|---|---|\n"
    return head + "".join(lines)


def write(options: argparse.Namespace) -> None:
    """Write the page."""
    page = Path(__file__).parents[2] / "docs" / "doctor.md"
    page.write_text(document(read_data(), page.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.add_argument("--seeds", default="0-19")
    one.add_argument("--case", action="append")
    one.add_argument("--keep", type=Path, default=Path("runs/doctor"))
    one.add_argument("--again", action="store_true")
    one.add_argument("--minutes", type=float, default=1e9)
    one.set_defaults(call=run)
    two = commands.add_parser("real")
    two.add_argument("name")
    two.add_argument("runs", type=Path, nargs="+")
    two.set_defaults(call=real)
    commands.add_parser("write").set_defaults(call=write)
    for command in (one, two):
        command.add_argument("--peer", type=Path, help="rldoctor's command, rl-doctor")
    options = parser.parse_args()
    options.call(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
