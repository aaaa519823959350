"""Stage `recall`: a corpus for continued pre-training, collected from pages (DeepSeekMath, arXiv:2402.03300, 2.1)."""

from groupwise.pipeline.base import Made, Stage, Workplace
from groupwise.pipeline.directory import content_hash
from groupwise.recall.config import RecallConfig
from groupwise.recall.run import Recall
from groupwise.runs.progress import say


class RecallStage(Stage[RecallConfig]):
    """Extract, remove copies, collect in rounds, decontaminate; rows have `text` and `url`.

    Where people annotate, the pipeline stops and names the file that waits for them; the same command resumes.
    """

    Config = RecallConfig
    makes = "data"

    def run(self, settings: RecallConfig, work: Workplace) -> Made:
        recall = Recall(settings, work.directory.path / "recall", say)
        facts = recall.run()
        corpus = recall.directory / "corpus.jsonl"
        by_round: dict[str, dict[str, float]] = {"kept": {}, "known share": {}, "found": {}}
        for number, figures in enumerate(facts["rounds"], 1):
            name = f"round {number}"
            by_round["kept"][name], by_round["known share"][name] = figures["kept"], figures["known_share"]
            if "recall" in figures and figures["recall"][1]:
                by_round["found"][name] = round(figures["recall"][0] / figures["recall"][1], 6)
        for of_rounds in by_round.values():
            if name in of_rounds:
                of_rounds["last"] = of_rounds[name]
        statistics = {
            "rows": facts["corpus"]["pages"], "characters": facts["corpus"]["characters"], "pages": facts["pages"],
            "copies": facts["copies"]["found"], "dropped": facts["dropped"], "rounds": len(facts["rounds"]),
            **by_round,
            "paragraphs of benchmarks": facts["decontamination"]["paragraphs"],
        }  # fmt: skip
        return Made(corpus, content_hash(corpus), statistics=statistics)
