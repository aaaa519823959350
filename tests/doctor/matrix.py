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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pupil import pupil
from ward import CASES, Case, run_case

from groupwise.doctor import RULES, Finding, Severity, diagnose
from groupwise.doctor.facts import RunFacts, read_facts

DATA = Path(__file__).parent / "matrix.jsonl"
BY_NAME = {case.name: case for case in CASES}


def alarms(findings: Sequence[Finding]) -> list[Finding]:
    """Those that are more than a note."""
    return [one for one in findings if one.severity is not Severity.NOTE]


def judge(case: Case, run: Path, peer: Path | None = None) -> dict[str, Any]:
    """A run under all rules, as a whole and as it was after each step."""
    facts = read_facts(run)
    noticed = next((step.step + 1 for step in facts.steps if expected(case, diagnose(facts.until(step.step)).findings)),
                   None) if case.rules else None  # fmt: skip
    findings = diagnose(facts).findings
    return {
        "case": case.name,
        "found": noticed is not None and expected(case, findings) if case.rules else not alarms(findings),
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
        for case in options.case and [BY_NAME[name] for name in options.case] or CASES:
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
    for command in (one, two):
        command.add_argument("--peer", type=Path, help="rldoctor's command, rl-doctor")
    options = parser.parse_args()
    options.call(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
