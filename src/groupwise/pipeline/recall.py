"""Stage `recall`: a corpus for continued pre-training, collected from pages (DeepSeekMath, arXiv:2402.03300, 2.1)."""

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.pipeline.base import Made, Stage, Workplace
from groupwise.recall.config import RecallConfig
from groupwise.recall.lines import file_hash
from groupwise.recall.run import Recall


class RecallStage(Stage[RecallConfig]):
    """Extracts, removes copies, collects in rounds, decontaminates; its rows have `text` and `url`.

    Where people annotate, the pipeline stops and says which file waits for them; the same command goes on.
    """

    Config = RecallConfig
    makes = "data"

    def run(self, settings: RecallConfig, work: Workplace) -> Made:
        recall = Recall(settings, work.directory.path / "recall", work.progress)
        facts = recall.run()
        corpus = recall.directory / "corpus.jsonl"
        statistics = {
            "rows": facts["corpus"]["pages"], "characters": facts["corpus"]["characters"], "pages": facts["pages"],
            "copies": facts["copies"]["found"], "dropped": facts["dropped"], "rounds": len(facts["rounds"]),
            **_by_round(facts["rounds"]),
            "paragraphs of benchmarks": facts["decontamination"]["paragraphs"],
        }  # fmt: skip
        return Made(corpus, file_hash(corpus), statistics=statistics)


def _by_round(rounds: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """What each round kept, which share of it was there before and, where the truth is known, what it found of it."""
    found: dict[str, dict[str, float]] = {"kept": {}, "known share": {}, "found": {}}
    for number, one in enumerate(rounds, 1):
        found["kept"][f"round {number}"] = one["kept"]
        found["known share"][f"round {number}"] = one["known_share"]
        if "recall" in one and one["recall"][1]:
            found["found"][f"round {number}"] = round(one["recall"][0] / one["recall"][1], 6)
    last = f"round {len(rounds)}"
    return {name: {**of, "last": of[last]} if last in of else of for name, of in found.items()}
