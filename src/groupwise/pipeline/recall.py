"""Stage `recall`: a corpus for continued pre-training, collected from pages (DeepSeekMath, arXiv:2402.03300, 2.1)."""

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
            "kept": {f"round {number}": one["kept"] for number, one in enumerate(facts["rounds"], 1)},
            "paragraphs of benchmarks": facts["decontamination"]["paragraphs"],
        }  # fmt: skip
        return Made(corpus, file_hash(corpus), statistics=statistics)
