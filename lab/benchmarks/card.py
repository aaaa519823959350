"""Measure all that a card can tell in eight minutes, and write it as one JSON.

    sh lab/benchmarks/card.sh OUT [WHEELS]                       on the machine with the card
    python lab/benchmarks/card.py --out OUT --device cpu --tiny  only tries the script out

Parts, each a process with its own limit, so that one that fails or hangs costs no other: the `gpu` tests; decoding and
training against the card's bandwidth and product rate at the shapes of Qwen2.5-0.5B and 7B with random weights
(`gpu.py`); training with fused attention and in blocks; thirty steps of the demo on the card and on the processor,
and where their ledgers part; five steps in bfloat16, with the difference of sampler and trainer. What a part printed
stands beside its figures; OUT/card.json is renewed after every part.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from machine import describe

ROOT = Path(__file__).parents[2]
BENCHMARKS = Path(__file__).parent
TINY = ("--tiny", "--live", "2", "--group", "2", "--prompt", "5", "--tokens", "4", "--repeats", "1")


class Part(NamedTuple):
    """A command, its limit, and what its files say."""

    name: str
    command: list[str]
    limit_s: float
    read: Callable[[], Any] = lambda: None


def parts(out: Path, device: str, tiny: bool) -> list[Part]:
    """All parts, the most wanted first."""

    def bench(name: str, limit_s: float, *options: str) -> Part:
        file = out / f"{name}.json"
        command = ["gpu.py", "--device", device, *(TINY if tiny else options), "--json", str(file)]
        return Part(name, [str(BENCHMARKS / command[0]), *command[1:]], limit_s, lambda: json.loads(file.read_text()))

    def demo(name: str, limit_s: float, steps: int, *changes: str) -> Part:
        run = out / name
        changes = (
            f"run.directory={run}",
            f"run.num_steps={2 if tiny else steps}",
            f"run.checkpoint_every={steps}",
            f"model.device={device}",
            "evaluation.num_problems=1",
            "evaluation.test_problems=1",
            *changes,
        )
        sets = [part for change in changes for part in ("--set", change)]
        command = ["-m", "groupwise", "train", "recipes/arithmetic.toml", "--restart", *sets]
        return Part(name, command, limit_s, lambda: steps_of(run))

    return [
        Part("tests", ["-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "tests/unit/rollout"], 120),
        bench("decode_0.5B", 120, "--live", "32", "256", "--tokens", "128", "--repeats", "2"),
        demo("demo", 60, 30),
        demo("demo_processor", 90, 30, "model.device=cpu", "model.num_threads=2"),
        demo("bfloat16", 40, 5, "model.compute_dtype=bfloat16"),
        bench("decode_7B", 90, "--size", "7B", "--live", "32", "256", "--tokens", "64", "--repeats", "2"),
        bench("fused", 60, "--live", "1", "--tokens", "64"),
        bench("blocks", 60, "--blocks", "--live", "1", "--tokens", "64"),
    ]  # fmt: skip


def steps_of(run: Path) -> dict[str, Any]:
    """Seconds, rewards and agreement of a run's steps, and the hashes of its tokens."""
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in metrics if "logprob_difference" in line]
    kept = ("step", "seconds", "reward", "logprob_difference", "logprob_bias")
    ledger = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    return {
        "steps": [{key: line[key] for key in kept if key in line} for line in trained],
        "facts": [{key: value for key, value in line.items() if key != "previous"} for line in ledger],
    }


def parted(card: dict[str, Any], processor: dict[str, Any]) -> dict[str, Any]:
    """The first fact in which two runs differ."""
    for number, (ours, theirs) in enumerate(zip(card["facts"], processor["facts"], strict=False)):
        for key in sorted(ours.keys() & theirs.keys()):
            if ours[key] != theirs[key]:
                return {"line": number, "fact": key, "card": str(ours[key])[:200], "processor": str(theirs[key])[:200]}
    return {}


def run(part: Part) -> dict[str, Any]:
    """Do a part; its status, seconds, the end of what it printed, and its figures."""
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, *part.command], cwd=ROOT, capture_output=True, text=True, timeout=part.limit_s
        )
        status, printed = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        status, printed = "too late", (late.stdout or b"").decode(errors="replace")
    result: dict[str, Any] = {"status": status, "seconds": time.perf_counter() - began, "printed": printed[-4000:]}
    try:
        return result | {"figures": part.read()}
    except (OSError, ValueError) as error:
        return result | {"figures": None, "why": str(error)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every part within the time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny work, to try the script out")
    parser.add_argument("--seconds", type=float, default=460, help="no part begins that could end later")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("No CUDA device is here, so nothing was measured; --device cpu --tiny only tries the script out.")
    options.out.mkdir(parents=True, exist_ok=True)
    began, found = time.perf_counter(), {"machine": describe(), "torch": torch.__version__, "python": sys.version}
    if options.device == "cuda":
        found["card"] = torch.cuda.get_device_name()
    for part in parts(options.out.resolve(), options.device, options.tiny):
        left = options.seconds - (time.perf_counter() - began)
        found[part.name] = run(part) if left > 20 else {"status": "no time"}
        if part.name == "demo_processor":
            both = [found[name].get("figures") for name in ("demo", part.name)]
            found["parted"] = parted(*both) if all(both) else None
        (options.out / "card.json").write_text(json.dumps(found, indent=1) + "\n")
        print(f"{part.name}: {found[part.name]['status']}, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
