"""Every rule on every planted fault: `python tests/doctor/matrix.py --write docs/doctor.md`, with `--seeds` at will.

Each fault is a real run (about ten seconds on one core). With `--peer PATH`, the command of rldoctor judges the same
runs' scalars. `--keep FOLDER` keeps the runs, and uses those that are there.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ward import CASES, Case, run_case

from groupwise.doctor import RULES, Finding, Severity, diagnose
from groupwise.doctor.facts import RunFacts, read_facts


class Result(NamedTuple):
    """One run under all rules."""

    case: Case
    seed: int
    findings: tuple[Finding, ...]
    delay: int | None
    """Steps done when one of the expected rules first spoke; None where none did."""
    peer: tuple[str, ...] | None
    """What rldoctor found; None where it was not asked."""

    @property
    def found(self) -> bool:
        """Whether the fault was noticed; of a healthy run, whether nothing was said that alarms."""
        if not self.case.rules:
            return not alarms(self.findings)
        spoken = self.findings if self.case.is_mild else alarms(self.findings)
        return any(finding.rule in self.case.rules for finding in spoken)


def alarms(findings: Sequence[Finding]) -> list[Finding]:
    """Those that are more than a note."""
    return [one for one in findings if one.severity is not Severity.NOTE]


def judge(case: Case, seed: int, run: Path, peer: Path | None) -> Result:
    """Apply all rules to a run, as a whole and as it was after each step."""
    facts = read_facts(run)
    delay = next((step.step + 1 for step in facts.steps if _speaks(facts.until(step.step), case)), None)
    said = peer_says(peer, facts) if peer else None
    return Result(case, seed, diagnose(facts).findings, delay if case.rules else None, said)


def _speaks(facts: RunFacts, case: Case) -> bool:
    findings = diagnose(facts).findings
    return any(one.rule in case.rules for one in (findings if case.is_mild else alarms(findings)))


def peer_says(peer: Path, run: RunFacts) -> tuple[str, ...]:
    """What rldoctor finds (warnings and worse) in the run's scalars, under names that it knows."""
    dev = {one.step: one.pass_at_1 for one in run.dev}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        log.write_text("".join(json.dumps(_scalars(one.step, one.line, dev)) + "\n" for one in run.steps))
        done = subprocess.run(
            [str(peer), "diagnose", "-f", "json", str(log)], capture_output=True, text=True, check=True
        )
    findings = json.loads(done.stdout)["findings"]
    return tuple(
        f"{one['detector']} ({one['severity'].lower()})"
        for one in findings
        if one["severity"] in ("WARNING", "CRITICAL")
    )


def _scalars(step: int, line: object, dev: dict[int, float]) -> dict[str, float]:
    assert isinstance(line, dict)
    names = {
        "reward": "reward", "entropy": "entropy", "grad_norm": "grad_norm", "learning_rate": "lr", "kl": "kl",
        "clip_ratio": "clipped", "completions/mean_length": "length", "completions/clipped_ratio": "truncated",
    }  # fmt: skip
    scalars = {theirs: line[ours] for theirs, ours in names.items() if line[ours] is not None}
    scalars |= {"step": step, "frac_reward_zero_std": 1 - line["signal"]}
    return scalars | ({"eval_score": dev[step + 1]} if step + 1 in dev else {})


HEAD = """# The doctor

`groupwise doctor RUN` reads a run directory and says what is wrong with it; the same rules speak on the step lines of
`groupwise train`, and in the run's report. A rule compares a run with its own start and asks whether what it sees did
harm, so that a healthy run, whose entropy falls while its reward rises, is left alone. `--json` is for programs,
`--fail-on warning` for scripts (exit status 3), `--explain RULE` shows one row of the first table. `doctor.ignore`
leaves rules out; with `doctor.stop_at_critical` a critical finding ends the run, with a checkpoint.

This page is made by `python tests/doctor/matrix.py --write docs/doctor.md`, which trains the runs of the second table.

## Rules

| rule | symptom | statistic | bounds | source |
|---|---|---|---|---|
"""


def document(results: Sequence[Result]) -> str:
    """The page."""
    rules = "".join(
        f"| `{r.name}` | {r.says} | {r.statistic} | {r.thresholds} | {r.source} |\n" for r in RULES.values()
    )
    planted = {finding.rule for result in results for finding in result.findings}
    left = ", ".join(f"`{name}`" for name in RULES if name not in planted) or "none"
    healthy = [result for result in results if not result.case.rules]
    faulty = [result for result in results if result.case.rules]
    summary = (
        f"{sum(one.found for one in faulty)} of {len(faulty)} runs with a fault were noticed; "
        f"{sum(not one.found for one in healthy)} of {len(healthy)} healthy ones had a false alarm. Rules that no run "
        f"here has triggered: {left}. They are tested on series by hand.\n"
    )
    return f"{HEAD}{rules}\n## Planted faults\n\n{summary}{_table(results)}"


def _table(results: Sequence[Result]) -> str:
    peers = any(result.peer is not None for result in results)
    head = "\nA healthy run should have nothing but notes. `Noticed after` counts steps of 20.\n"
    if peers:
        head += "The last column is rldoctor 0.2.0 on the same runs' scalars, warnings and worse.\n"
    head += f"\n| fault | seed | expected | found | noticed after |{' rldoctor |' if peers else ''}\n"
    head += f"|---|---|---|---|---|{'---|' if peers else ''}\n"
    return head + "".join(_row(result, peers) for result in results)


def _row(result: Result, peers: bool) -> str:
    expected = ", ".join(f"`{name}`" for name in result.case.rules) or "-"
    found = ", ".join(f"`{one.rule}` ({one.severity})" for one in result.findings) or "-"
    cells = [f"{result.case.name}: {result.case.what}", str(result.seed), expected, found, str(result.delay or "-")]
    cells += [", ".join(result.peer or ()) or "-"] if peers else []
    return f"| {' | '.join(cells)} |\n"


def main() -> int:
    """Train, judge, write; 1 where a fault was missed or a healthy run alarmed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="of the healthy run")
    parser.add_argument("--fault-seeds", type=int, default=1, help="of every fault; at most --seeds")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--peer", type=Path, help="rldoctor's command, rl-doctor")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(options.seeds):
            for case in CASES if seed < options.fault_seeds else CASES[:1]:
                run = (options.keep or Path(scratch)) / f"{case.name.replace(' ', '-')}-{seed}"
                if not (run / "finished.json").exists():
                    run_case(case, run, seed)
                results.append(judge(case, seed, run, options.peer))
                print(_row(results[-1], peers=options.peer is not None), end="", file=sys.stderr, flush=True)
    if options.write:
        options.write.write_text(document(results), encoding="utf-8")
    return int(not all(result.found for result in results))


if __name__ == "__main__":
    sys.exit(main())
