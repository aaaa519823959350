"""The report of a pipeline: `report.html`, one page that needs nothing else, and `report.md` beside it.

Reads the pipeline directory alone; a pipeline that is not finished is reported as far as it got.
"""

from pathlib import Path

from groupwise.pages.pipeline.data import PipelineData, load_pipeline
from groupwise.pages.pipeline.markdown import markdown, tables
from groupwise.pages.pipeline.page import page
from groupwise.pages.pipeline.tables import stage_table
from groupwise.runs.atomic import write_file

__all__ = ["PipelineData", "load_pipeline", "stage_table", "tables", "write_pipeline_report"]


def write_pipeline_report(directory: Path) -> Path:
    """Write `report.html` and `report.md` into a pipeline directory; returns the page's path.

    Raises:
        ConfigError: there is no pipeline at this path.
        DataError: one of its files cannot be read.
    """
    data = load_pipeline(directory)
    write_file(directory / "report.md", markdown(data).encode())
    target = directory / "report.html"
    write_file(target, page(data).encode())
    return target
