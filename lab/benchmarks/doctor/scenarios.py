"""rldoctor's own scenarios, which its package draws, under its detectors and our rules.

`matrix.py scenarios --peer PATH` asks its package for the series of each scenario (twelve shapes of curves, by name and
seed), gives them to its command, and to ours by the way of `groupwise import wandb`: as scalars alone, which is all
that they are. Nothing of that package is kept here but the names of its scenarios and detectors.
"""

import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from groupwise_lab.imports import read_scalars, write_imported

from groupwise.checks.doctor import Severity, doctor

DATA = Path(__file__).parent / "scenarios.jsonl"
NAMES = ("sampled_correct=rewards/correctness/mean", "dev=eval/accuracy")
"""What the scalars mean, as `groupwise import --scalar` is told."""
SHARES = ("rewards/correctness/mean", "eval/accuracy", "frac_reward_zero_std", "completions/clipped_ratio")
RULES: dict[str, tuple[str, ...]] = {
    "healthy": (), "entropy_collapse": ("entropy_collapse",), "saturated_groups": ("no_signal",),
    "too_hard": ("no_signal", "never_correct"), "reward_hacking": ("reward_without_result", "overfitting"),
    "length_hacking": ("length_runaway", "overfitting"), "truncation": ("truncation",),
    "kl_blowup": ("kl_to_reference",), "clip_saturation": ("clipping",), "grad_spikes": ("gradient_spikes",),
    "plateau": ("plateau",), "format_domination": ("reward_without_result", "part_dominates"),
}  # fmt: skip
"""Those of our rules that a scenario is about."""
WHY = {
    "healthy": "silent is right",
    "entropy_collapse": "ours waits until neither dev nor the pass rate rises",
    "saturated_groups": "a note: solved problems are no fault",
    "too_hard": "the share of dead groups; `never_correct` would need completions",
    "truncation": "beside it, the pass rate is a healthy run's",
    "kl_blowup": "as entropy_collapse; a log that has `kl` counts as a run with a KL term",
    "plateau": "a note of ours, where the best dev result is old; in these curves noise moves it",
    "format_domination": "by what the parts' means vary by; with completions it is judged within groups",
}
"""What there is to say of a scenario."""
DRAW = """
import json, sys
from rl_doctor.simulate import EXPECTED_DETECTIONS, SCENARIOS, simulate
for name in SCENARIOS:
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        records, config = simulate(name, seed=seed)
        print(json.dumps([name, seed, EXPECTED_DETECTIONS[name], records]))
"""


def compare(peer: Path, seeds: range) -> list[dict[str, Any]]:
    """Every scenario under both."""
    drawn = subprocess.run(
        [str(peer.parent / "python"), "-c", DRAW, str(seeds.start), str(seeds.stop)], capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return [_judged(peer, *json.loads(line)) for line in drawn.stdout.splitlines()]


def _judged(peer: Path, name: str, seed: int, expected: list[str], records: list[dict[str, Any]]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        for record in records:  # its noise carries shares a little beyond 0 and 1, which no trainer logs
            record.update({name: min(max(record[name], 0.0), 1.0) for name in SHARES if name in record})
        log.write_text("".join(json.dumps({**record, "_step": record["step"]}) + "\n" for record in records))
        done = subprocess.run(
            [str(peer), "diagnose", "-f", "json", str(log)], capture_output=True, text=True, check=True
        )
        theirs = [one for one in json.loads(done.stdout)["findings"] if one["severity"] in ("WARNING", "CRITICAL")]
        foreign = read_scalars("wandb", log, NAMES)
        write_imported(foreign, "wandb", log, Path(folder) / "run", None)
        ours = doctor(Path(folder) / "run").findings
    return {
        "scenario": name, "seed": seed, "expected": expected, "theirs": sorted({one["detector"] for one in theirs}),
        "ours": [[one.check, str(one.severity)] for one in ours],
    }  # fmt: skip


def read() -> list[dict[str, Any]]:
    """The comparison that was made last."""
    return [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()] if DATA.exists() else []


def write(rows: Sequence[dict[str, Any]]) -> None:
    """One line a scenario and seed."""
    DATA.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """How often both found what a scenario is about, and what else they said."""
    head = "| scenario | rldoctor 0.2.0 found it | beside it | ours found it | beside it | why |"
    lines = [f"{head}\n|---|---|---|---|---|---|\n"]
    for name, rules in RULES.items():
        own = [row for row in rows if row["scenario"] == name]
        theirs = _cells([row["theirs"] for row in own], own[0]["expected"])
        loud = [[rule for rule, severity in row["ours"] if severity != Severity.NOTE or rule in rules] for row in own]
        lines.append(f"| {' | '.join([name, *theirs, *_cells(loud, rules), WHY.get(name, '')])} |\n")
    return "".join(lines)


def _cells(said: Sequence[Sequence[str]], wanted: Sequence[str]) -> tuple[str, str]:
    found = sum(any(one in wanted for one in row) for row in said) if wanted else sum(not row for row in said)
    beside = Counter(one for row in said for one in row if one not in wanted)
    names = ", ".join(f"`{one}` {count}" for one, count in beside.most_common())
    return f"{found} of {len(said)}", names or "nothing"
