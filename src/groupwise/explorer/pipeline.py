"""The facts of a pipeline's page: the tables, the picture and the answers of its static report, as plain values."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.pages.pipeline.data import PipelineData
    from groupwise.pages.pipeline.table import Table

MOST_ANSWER = 20_000
"""Characters of an answer that are shown."""


def pipeline_facts(path: Path, runs: Mapping[Path, int]) -> dict[str, Any]:
    """What the report of a pipeline holds.

    Args:
        path: the pipeline directory.
        runs: index of every run that is shown, by its directory.

    Raises:
        ConfigError: there is no pipeline.
        DataError: one of its files cannot be read.
    """
    from groupwise.pages.pipeline.data import load_pipeline  # loads what draws the report: only where there is one
    from groupwise.pages.pipeline.lineage import picture
    from groupwise.pages.pipeline.tables import (
        behaviour_table,
        cost_table,
        data_table,
        description,
        lineage_table,
        stage_table,
        tiles,
    )
    from groupwise.pages.pipeline.training import alarm_table, num_alarms, training_table

    data = load_pipeline(path)
    drawn = picture(data)
    tables = (
        stage_table(data), training_table(data), data_table(data), behaviour_table(data), alarm_table(data),
        cost_table(data), lineage_table(data),
    )  # fmt: skip
    return {
        "description": description(data),
        "tiles": [tile._asdict() for tile in tiles(data)],
        "picture": {
            "width": drawn.width, "height": drawn.height, "words": drawn.in_words, "arrows": drawn.arrows,
            "boxes": [
                {"kind": box.kind, "title": box.title, "paths": box.paths, "rounded": box.rounded, "texts": box.texts,
                 "width": box.width, "height": box.height}
                for box in drawn.boxes
            ],
        },
        "tables": [_table(table) for table in tables],
        "stages": [_stage(path, stage.name, stage.state, runs) for stage in data.stages],
        "alarms": num_alarms(data),
        "problems": _problems(data),
        "done": all(stage.state in ("finished", "not measured") for stage in data.stages),
    }  # fmt: skip


def _stage(path: Path, name: str, state: str, runs: Mapping[Path, int]) -> dict[str, Any]:
    return {"name": name, "state": state, "run": runs.get((path / "stages" / name / "run").resolve())}


def _table(table: "Table") -> dict[str, Any]:
    return {
        "title": table.title, "note": table.note, "first": table.first, "empty": table.empty,
        "groups": table.groups, "columns": [column.name for column in table.columns], "meanings": table.meanings,
        "lines": [
            {"name": line.name, "about": line.about, "note": line.note, "group": line.group,
             "cells": [cell._asdict() for cell in line.cells]}
            for line in table.lines
        ],
    }  # fmt: skip


def _problems(data: "PipelineData") -> list[dict[str, Any]]:
    from groupwise.pages.pipeline.page import same_problems

    return [
        {
            "kind": asked.kind, "question": asked.question[:MOST_ANSWER], "reference": asked.reference[:MOST_ANSWER],
            "answers": [
                {"stage": stage, "text": answer.text[:MOST_ANSWER], "outcome": str(answer.outcome),
                 "evidence": answer.evidence[:MOST_ANSWER], "length": answer.num_tokens, "share": answer.share,
                 "samples": answer.num_samples}
                for stage, answer in asked.answers.items()
            ],
        }
        for asked in same_problems(data)
    ]  # fmt: skip
