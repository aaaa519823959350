"""Measure the worth of each piece of recall: the same made webs, with one piece changed at a time.

    python lab/benchmarks/recall_ablations.py                              # five seeds, 6,000 pages in 90 domains
    python lab/benchmarks/recall_ablations.py --seeds 2 --pages 1500 --domains 40 --json ablations.json  # goes on there

By arm and over seeds, with Student's 95 % interval: precision and recall at the end, recall of the styles that the
seed does not hold in the first round and in the last, and rounds. Then decontamination by the length of its runs:
planted items that were removed, and paragraphs that were removed without one, with the numbers around a run and
without them.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.algorithms.statistics import mean_over_seeds
from groupwise.config import RECIPES, parse
from groupwise.config.places import Place
from groupwise.recall.config import RecallConfig
from groupwise.recall.page import of_copies, of_removal
from groupwise.recall.rounds import Prepared
from groupwise.recall.run import Recall
from groupwise.recall.words import Index, Rule

SEEN: Sequence[str] = Place(RECIPES / "worlds/web.py", "SEEN").load()
"""Styles of mathematics that the seed holds."""
ARMS: Mapping[str, tuple[str, ...]] = {
    "as it is": (),
    "no annotation": ("annotator.kind=none",),
    "no domain rule": ("rounds.domain_share=0",),
    "domains above 5 %": ("rounds.domain_share=0.05",),
    "domains above 20 %": ("rounds.domain_share=0.2",),
    "10 % of answers wrong": ("annotator.error_rate=0.1",),
    "30 % of answers wrong": ("annotator.error_rate=0.3",),
    "no symbols": ("classifier.symbols=false",),
}
SHARED = ("pages", "copies", "unique", "domains", "patterns")
RULES = {
    f"runs of {size} words{'' if numbers else ', whatever their numbers'}": Rule(size, numbers=numbers)
    for size in (8, 10, 13)
    for numbers in (True, False)
}


def config(options: argparse.Namespace, seed: int, changes: Sequence[str] = ()) -> RecallConfig:
    """The settings of an arm."""
    web = {"kind": "worlds/web.py:MadeWeb", "num_pages": options.pages, "num_domains": options.domains, "planted": 0.2}
    tasks = {"products": {"kind": "arithmetic"}, "stories": {"kind": "word_problems"}}
    return parse(RecallConfig, {"seed": seed, "sources": {"web": web}, "decontaminate": {"tasks": tasks}}, changes)


def unseen(one: Mapping[str, Any]) -> float:
    """Share of pages that was found, of the styles that the seed does not hold."""
    counts = [count for style, count in one["styles"].items() if style not in SEEN]
    return float(sum(found for found, _ in counts) / max(1, sum(there for _, there in counts)))


def figures(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures that are compared."""
    first, last = facts["rounds"][0], facts["rounds"][-1]
    return {
        "precision": last["precision"][0] / max(1, last["precision"][1]),
        "recall": last["recall"][0] / last["recall"][1],
        "unseen, round 1": unseen(first),
        "unseen, last": unseen(last),
        "rounds": len(facts["rounds"]),
        "known before": last["known_share"],
    }


def of_seed(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """All arms on the web of a seed, which is made once."""
    with tempfile.TemporaryDirectory() as folder:
        base = Prepared(config(options, seed), Path(folder))
        assert base.pages  # reading them writes what was dropped
        found = {}
        for name, changes in ARMS.items():
            directory = Path(folder) / name.replace(" ", "-")
            directory.mkdir()
            (directory / "dropped.jsonl").write_bytes((Path(folder) / "dropped.jsonl").read_bytes())
            arm = Recall(config(options, seed, changes), directory)
            shared = (*SHARED, *([] if "symbols" in str(changes) else ["features"]))
            arm.__dict__.update({key: getattr(base, key) for key in shared})
            facts = arm.run()
            found[name] = figures(facts)
            if not changes:
                kept = frozenset(json.loads((directory / f"round-{len(facts['rounds'])}.json").read_text())["kept"])
                removal = {name: removed(arm, kept, rule) for name, rule in RULES.items()}
        return {"seed": seed, "arms": found, "copies": of_copies(base.pages, base.copies), "removal": removal}


def removed(arm: Recall, kept: frozenset[int], rule: Rule) -> dict[str, Any]:
    """Decontamination by another rule."""
    index, rows = Index(arm.items, rule), []
    for number in kept:
        page = arm.pages[number]
        rows += [
            {"url": page.url, "paragraph": page.paragraphs[match.segment], "why": match.why}
            for match in index.matches(page.paragraphs)
        ]
    return of_removal(arm.pages, kept, rows, arm.items)


def show(results: Sequence[Mapping[str, Any]]) -> None:
    """The tables."""
    for name in ARMS:
        parts = []
        for key in results[0]["arms"][name]:
            mean = mean_over_seeds([one["arms"][name][key] for one in results])
            parts.append(f"{key} {mean.value:.3f} [{mean.low:.3f}, {mean.high:.3f}]")
        print(f"{name}: {'; '.join(parts)}")
    for name in RULES:
        counts = [one["removal"][name] for one in results]
        ways = sorted({way for one in counts for way in one.get("planted", {})})
        sums = {way: [sum(one["planted"].get(way, [0, 0])[i] for one in counts) for i in (0, 1)] for way in ways}
        planted = ", ".join(f"{way} {gone} of {there}" for way, (gone, there) in sums.items())
        false = f"{sum(one['false'] for one in counts)} of {sum(one['of_paragraphs'] for one in counts)}"
        print(f"{name}: {planted}; paragraphs without a planted item {false}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pages", type=int, default=6000)
    parser.add_argument("--domains", type=int, default=90)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    results = _there(options)
    for seed in range(len(results), options.seeds):
        results.append({"web": [options.pages, options.domains], **of_seed(options, seed)})
        print(f"seed {seed}: {results[-1]['arms']['as it is']}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    show(results)


def _there(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The seeds that a file has already, of a web of this size."""
    if not options.json or not options.json.exists():
        return []
    results: list[dict[str, Any]] = json.loads(options.json.read_text("utf-8"))
    if any(one["web"] != [options.pages, options.domains] for one in results):
        raise SystemExit(f"{options.json} is of a web of another size: choose another file")
    return results


if __name__ == "__main__":
    main()
