"""Results: `results/ARM.jsonl` beside the claims, a line for every seed, committed with them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import Annotated

from pydantic import Field, ValidationError

from groupwise.config import Section
from groupwise.errors import DataError
from groupwise.runs.atomic import translated_disk_errors, write_file
from groupwise_lab.claims.arms import Marks

_WRITING = Lock()


class Result(Section):
    """One arm with one seed."""

    arm: str
    """Its name."""
    seed: Annotated[int, Field(ge=0)]
    """Seed of every draw."""
    recipe: str
    """Mark of what recipes say (`Marks.recipe`)."""
    base: str
    """Mark of the shipped model."""
    code: str
    """Mark of the code."""
    minutes: float
    """Processor time, all of it, in minutes; 0 where it was not measured."""
    machine: str
    """Processor and version of torch."""
    metrics: dict[str, float]
    """Measured values by name."""

    @property
    def marks(self) -> Marks:
        """Marks of the recipe and the base model."""
        return Marks(self.recipe, self.base)


Results = Mapping[tuple[str, int], Result]
"""By arm and seed."""


def results_file(folder: Path, arm: str) -> Path:
    """Return the path of an arm's results."""
    return folder / "results" / f"{arm}.jsonl"


def read_results(folder: Path, arms: Iterable[str]) -> dict[tuple[str, int], Result]:
    """All results of these arms.

    Raises:
        DataError: a line cannot be read; names it.
    """
    results = {}
    for arm in arms:
        path = results_file(folder, arm)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for number, line in enumerate(lines, start=1):
            try:
                result = Result.model_validate_json(line)
            except ValidationError as error:
                raise DataError(f"{path}:{number} is no result: {error.errors()[0]['msg']}") from None
            if result.arm != arm:
                raise DataError(f"{path}:{number} is a result of the arm {result.arm!r}; allowed here is {arm!r}")
            results[arm, result.seed] = result
    return results


def keep_result(folder: Path, result: Result) -> None:
    """Put a result in place of the earlier one of this arm and seed; whole or not at all."""
    with _WRITING:
        path = results_file(folder, result.arm)
        kept = {seed: old for (_, seed), old in read_results(folder, [result.arm]).items()} | {result.seed: result}
        lines = [json.dumps(kept[seed].model_dump(mode="json"), sort_keys=True) for seed in sorted(kept)]
        with translated_disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, ("\n".join(lines) + "\n").encode())
