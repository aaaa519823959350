"""Pipelines whose stages do next to nothing, so that what surrounds the work can be tested."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import Field

from groupwise.config import Section, parse
from groupwise.config.schema import DataRef, Makes, ModelRef, named, stage_of
from groupwise.pipeline import AnyStage, fingerprint, runner
from groupwise.pipeline.base import Made, Source, Stage, Workplace
from groupwise.pipeline.directory import StageDirectory, content_hash, write_rows
from groupwise.pipeline.plan import Planned, plan
from groupwise.pipeline.recipe import PipelineRecipe
from groupwise.pipeline.runner import Display, run_pipeline
from groupwise.runs.row import Row
from groupwise.tasks import TaskOptions
from groupwise.types import FinishReason, Outcome

FIND_IMPORT = cache(fingerprint._near)
"""Where the package imports from does not change while its tests run; to look for it takes longer than they do."""


class FakeModel(Section):
    path: ModelRef


class FakeData(Section):
    path: DataRef


class FakeConfig(Section):
    makes: Makes = "data"
    number: int = 0
    new: bool = False
    nested: dict[str, list[int]] = Field(default_factory=dict)
    path: DataRef | None = None
    include: tuple[DataRef, ...] = ()
    model: FakeModel | None = None
    data: FakeData | None = None
    task: TaskOptions | None = None
    examples: list[dict[str, str]] = Field(default_factory=list)
    empty: list[int] = Field(default_factory=list)
    engine: dict[str, Any] = Field(default_factory=dict)


class Fake(Stage[FakeConfig]):
    """Writes its settings, and what it reads, into a file."""

    Config = FakeConfig
    done: ClassVar[list[str]] = []
    """Names of the stages that were run."""
    before_end: ClassVar[dict[str, Callable[[Workplace], None]]] = {}
    """By stage, what happens to it just before its end."""
    luck: ClassVar[str] = ""
    """Written into every output, and no setting."""

    @property
    def makes(self) -> Makes:
        return self.config.makes

    @property
    def settings(self) -> dict[str, Any]:
        return self.config.model_dump(mode="json", exclude_unset=True)

    def run(self, config: FakeConfig, work: Workplace) -> Made:
        self.done.append(self.name)
        if self.name in self.before_end:
            self.before_end[self.name](work)
        given = zip(named(self.config), named(config), strict=True)
        read = {name: Path(at.value).read_text() for ref, at in given if (name := stage_of(ref.value))}
        digest = write_rows(work.directory.data, [{"prompt": "p", "completion": f"{self.settings}{self.luck}", **read}])
        return Made(work.directory.data, digest, 3, 4, {"rows": 1})


class Pipeline:
    """A pipeline of fake stages; `recipe` and `stages` may be changed between two calls."""

    def __init__(self, folder: Path, recipe: dict[str, Any]) -> None:
        self.folder, self.values = folder, recipe

    @property
    def path(self) -> Path:
        return Path(self.values["pipeline"]["directory"])

    def read(self) -> tuple[PipelineRecipe, list[AnyStage]]:
        recipe = parse(PipelineRecipe, self.values)
        return recipe, [Fake.read("fake", Source(name, table, recipe)) for name, table in recipe.stages.items()]

    def plan(self, **options: Any) -> dict[str, Planned]:
        return {one.stage.name: one for one in plan(*self.read(), **options)}

    def actions(self, **options: Any) -> dict[str, str]:
        return {name: str(one.action) for name, one in self.plan(**options).items()}

    def run(self, **options: Any) -> list[str]:
        """Names of the stages that were run."""
        Fake.done.clear()
        assert run_pipeline(*self.read(), Display(pytest.fail), **options)
        return list(Fake.done)

    def stage(self, name: str) -> StageDirectory:
        return StageDirectory(self.path / "stages" / name)

    def contents(self) -> dict[str, bytes]:
        return {str(f.relative_to(self.path)): f.read_bytes() for f in sorted(self.path.rglob("*")) if f.is_file()}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the models that were evaluated."""
    found: list[str] = []

    def evaluate(recipe: PipelineRecipe, model: str, place: StageDirectory) -> dict[str, Any]:
        found.append(model)
        place.path.mkdir(parents=True, exist_ok=True)
        place.evaluation.write_text(content_hash(Path(model)))
        return {"task": {"pass_at_1": [0.5, 0.4, 0.6], "num_problems": recipe.measure.num_problems}}

    monkeypatch.setattr(runner, "evaluate_model", evaluate)
    return found


@pytest.fixture
def fake(tmp_path: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """first -> second -> third, and `other`, which reads a file of its own; `third` makes a model."""
    monkeypatch.setattr(fingerprint, "_near", FIND_IMPORT)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "weights").write_text("1 2 3")
    (tmp_path / "mine.jsonl").write_text("{}\n")
    Fake.before_end = {}
    stages = {
        "first": {"number": 1, "nested": {"deep": [1, 2]}}, "second": {"path": "{first}"},
        "other": {"data": {"path": str(tmp_path / "mine.jsonl")}},
        "third": {"makes": "model", "model": {"path": "{second}"}},
    }  # fmt: skip
    recipe = {
        "pipeline": {"directory": str(tmp_path / "pipeline")}, "model": {"path": str(tmp_path / "base")},
        "tasks": {"sums": {"kind": "arithmetic"}}, "stages": stages,
    }  # fmt: skip
    return Pipeline(tmp_path, recipe)


@pytest.fixture
def before_end() -> dict[str, Callable[[Workplace], None]]:
    """What happens to a fake stage just before its end, by its name."""
    return Fake.before_end


@pytest.fixture(scope="session")
def row() -> Callable[..., Row]:
    """row(text, **changes) -> a correct, readable completion as evaluations keep it."""

    def make(text: str = "<think>2+2=4. 4+1=5.</think>\\boxed{5}", **changes: Any) -> Row:
        values = {
            "problem": "p1", "difficulty": "easy", "language": "en", "question": "q", "reference": "5",
            "open_ended": False, "prefill": "", "sample": 0, "text": text, "finish_reason": "stop",
            "outcome": "correct", "answer": "5", "evidence": "equal", "num_tokens": 20, **changes,
        }  # fmt: skip
        kinds = {"finish_reason": FinishReason(values["finish_reason"]), "outcome": Outcome(values["outcome"])}
        return Row(**{**values, **kinds})

    return make
