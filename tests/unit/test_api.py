"""`import groupwise as gw`: light, complete, typed; recipes from Python; run directories as tables."""

import ast
import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import groupwise as gw
from groupwise.config import as_overrides
from groupwise.errors import DataError
from groupwise.runs.directory import RunDirectory, begin_run
from groupwise.runs.rollouts import SCHEMA, write_rollouts
from groupwise.types import AdvantagedGroup, Completion, FinishReason, Group, Outcome, Problem, Prompt, ScoredGroup
from groupwise.types import Verdict as OneVerdict

ROOT = Path(__file__).parents[2]
ARITHMETIC = ROOT / "recipes" / "arithmetic.toml"


def python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_import_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'transformers', 'pydantic', 'numpy', 'pyarrow', 'rich', 'typer'}"
    assert python(f"import sys, groupwise; print(*({heavy} & set(sys.modules)))").split() == []


def test_a_run_is_looked_at_without_torch() -> None:
    assert python("import sys, groupwise; groupwise.Run; print('torch' in sys.modules)").split() == ["False"]


def test_type_checkers_read_the_table_as_python_does() -> None:
    tree = ast.parse(Path(str(gw.__file__)).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    places = {alias.name: (node.module, alias.name) for node in imports for alias in node.names}
    renamed = {
        ast.unparse(node.targets[0]): ast.unparse(node.value) for node in tree.body if isinstance(node, ast.Assign)
    }
    names = {name: place for name, place in places.items() if name not in renamed.values()}
    names |= {name: places[attribute] for name, attribute in renamed.items()}
    assert names == gw._PLACES  # type: ignore[attr-defined]
    assert len(names) >= 50


@pytest.mark.parametrize("name", [name for name in gw.__all__ if name != "__version__"])
def test_every_name_is_there_and_documented(name: str) -> None:
    module, attribute = gw._PLACES[name]  # type: ignore[attr-defined]
    found = getattr(gw, name)
    assert found is getattr(importlib.import_module(module), attribute)
    assert name == "Split" or len(found.__doc__) > 12
    assert name in dir(gw)


def test_a_misspelt_name_is_an_error_that_lists_those_there_are() -> None:
    with pytest.raises(AttributeError, match="no attribute 'trian'; it has load_recipe, "):
        gw.trian  # type: ignore[attr-defined]  # noqa: B018


def test_changes_are_those_of_the_command_line() -> None:
    by_value = gw.load_recipe(str(ARITHMETIC), {"run.num_steps": 3, "loss.policy": {"kind": "sequence_ratio"}})
    by_text = gw.load_recipe(ARITHMETIC, ["run.num_steps=3", "loss.policy.kind=sequence_ratio"])
    assert isinstance(by_value, gw.GrpoRecipe)
    assert by_value == by_text
    assert (by_value.run.num_steps, by_value.loss.policy.kind) == (3, "sequence_ratio")


def test_a_recipe_may_be_tables_and_extend_a_shipped_one() -> None:
    tables: dict[str, Any] = {
        "algorithm": "grpo", "extends": ["algorithms/rloo.toml"],
        "run": {"directory": Path("runs/x"), "num_steps": 3}, "task": {"kind": "arithmetic", "digits": (1, 2)},
    }  # fmt: skip
    recipe = gw.load_recipe(tables)
    assert isinstance(recipe, gw.GrpoRecipe)
    assert (recipe.advantage.kind, recipe.run.directory) == ("leave_one_out", "runs/x")
    assert recipe == gw.load_recipe({**tables, "extends": []}, extends=["algorithms/rloo.toml"])
    assert tables["extends"] == ["algorithms/rloo.toml"]


def test_a_copy_with_changes_is_checked_and_the_recipe_stays() -> None:
    recipe = gw.load_recipe(ARITHMETIC)
    assert isinstance(recipe, gw.GrpoRecipe)
    changed = recipe.with_changes({"grpo.group_size": 8, "advantage.kind": "leave_one_out"})
    assert (changed.grpo.group_size, changed.advantage.kind, recipe.grpo.group_size) == (8, "leave_one_out", 16)
    assert recipe.with_changes({}) == recipe
    with pytest.raises(gw.ConfigError, match=r"grpo.group_size = 1 leaves 'group_mean' nothing to compare with"):
        recipe.with_changes({"grpo.group_size": 1})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"grpo.group_sise": 8}, "grpo.group_sise: unknown key; did you mean 'group_size'"),
        ({"grpo": {"group_sise": 8}}, "grpo.group_sise: unknown key; did you mean 'group_size'"),
        ({"run.seed": None}, "run.seed = None: a recipe has no such value"),
        ({"run.num_steps": "many"}, "run.num_steps = 'many': "),
        ("run.num_steps", "'run.num_steps' must look like section.key=value"),
    ],
)
def test_a_mistake_is_one_sentence(changes: Any, sentence: str) -> None:
    with pytest.raises(gw.ConfigError) as error:
        gw.load_recipe(ARITHMETIC, changes)
    assert sentence in str(error.value)


def test_texts_stay_texts_and_tables_change_only_what_they_hold() -> None:
    changes = {"a.b": 'x = "1"', "c": {"d": [1, (2.5, True)], "e": {}}}
    assert as_overrides(changes) == [r'a.b="x = \"1\""', "c.d=[1, [2.5, true]]", "c.e={}"]


CONFIG = 'algorithm = "grpo"\n[run]\nnum_steps = 4\n[task]\nkind = "arithmetic"\n'
TEXT = "<script>alert(1)</script>"


def scored(problem: str, rewards: Sequence[float | None], step: int = 0) -> ScoredGroup:
    """A group of completions of three tokens each, of which the last was put in."""
    prompt = Prompt(Problem(problem, f"What is {problem}?", "42", "easy"), f"What is {problem}?\n", (1,))
    three, mask = np.zeros(3, np.float32), np.array([True, True, False])
    completions = tuple(
        Completion(i, np.arange(3), three, three, FinishReason.STOP, TEXT, mask) for i in range(len(rewards))
    )
    outcomes = [Outcome.CRASHED if one is None else Outcome.CORRECT if one > 0.5 else Outcome.WRONG for one in rewards]
    verdicts = tuple(
        OneVerdict(outcome, {} if one is None else {"accuracy": one}, "")
        for outcome, one in zip(outcomes, rewards, strict=True)
    )
    return ScoredGroup(Group(prompt, completions, step, 0), verdicts)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """An unfinished run: two steps, the second of them done twice, and a dev evaluation."""
    run: RunDirectory = begin_run(tmp_path / "<b>run", CONFIG)
    groups = [scored("6×7", [1.0, 0.0, None]), scored("2×21", [0.0, 0.0])]
    write_rollouts(run.rollouts(0), [AdvantagedGroup(g, tuple([np.zeros(3)] * len(g.verdicts))) for g in groups])
    write_rollouts(run.rollouts(1), [scored("6×7", [1.0, 1.0], step=1)])
    write_rollouts(run.rollouts("dev-step-000000"), [scored("5×5", [1.0])])
    run.metrics.append({"kind": "dev", "step": 0, "pass_at_1": [0.5, 0.4, 0.6], "length": 2.0, "best": True})
    for step, reward in ((0, 0.25), (1, 0.5), (1, 0.75)):
        run.metrics.append({"kind": "step", "step": step, "reward": reward, "parts": {"part/accuracy/mean": reward}})
    run.metrics.append({"kind": "held_out", "step": 2, "accuracy": 1})
    return run.path


def test_steps_count_once_and_metrics_keep_every_line(recorded: Path) -> None:
    run = gw.Run.open(recorded)
    assert (run.num_steps, run.finished, run.best, run.checkpoints) == (2, False, None, [])
    assert run.config["run"]["num_steps"] == 4
    assert run.steps()["reward"] == [0.25, 0.75]
    assert run.steps()["part/accuracy/mean"] == [0.25, 0.75]
    assert run.metrics()["kind"] == ["dev", "step", "step", "step", "held_out"]
    assert run.metrics()["reward"] == [None, 0.25, 0.5, 0.75, None]


def test_evaluations_have_intervals_and_lead_to_their_completions(recorded: Path) -> None:
    run = gw.Run.open(str(recorded))
    dev, held_out = run.evaluations()
    assert (dev["name"], dev["pass_at_1"], dev["pass_at_1_low"], dev["pass_at_1_high"]) == (
        "dev-step-000000", 0.5, 0.4, 0.6,
    )  # fmt: skip
    assert (held_out["name"], held_out["kind"], held_out["accuracy"]) == (None, "held_out", 1)
    assert run.completions(dev["name"])["problem"] == ["5×5"]


def test_groups_leave_out_what_was_not_judged(recorded: Path) -> None:
    first, second = gw.Run.open(recorded).groups(0)
    assert (first["problem"], first["num_completions"], first["num_judged"]) == ("6×7", 3, 2)
    assert (first["correct"], first["reward"], first["reward_std"]) == (0.5, 0.5, 0.5)
    assert (first["length"], first["signal"], second["signal"]) == (2.0, True, False)
    assert gw.Run.open(recorded).groups()["step"] == [0, 0, 1]


def test_completions_as_pandas(recorded: Path) -> None:
    pytest.importorskip("pandas")
    assert list(gw.Run.open(recorded).completions(0).to_pandas()["sample"]) == [0, 1, 2, 0, 1]


def test_completions_are_those_of_the_file(recorded: Path) -> None:
    run = gw.Run.open(recorded)
    assert run.completions(0).arrow.schema.equals(SCHEMA)
    assert len(run.completions(0, "2×21")) == 2
    assert len(run.completions()) == 7
    assert pa.table(run.completions(1)).num_rows == 2  # by Arrow's stream protocol, as polars and DuckDB read it
    assert run.completions(0).arrow["sample"].to_pylist() == [0, 1, 2, 0, 1]


def test_what_is_not_there_is_said(recorded: Path) -> None:
    run = gw.Run.open(recorded)
    with pytest.raises(gw.ConfigError, match="of step-000007; recorded are steps 0 to 1, dev-"):
        run.completions(7)
    with pytest.raises(gw.ConfigError, match="no completions of problem '1×1' there; there are 6×7, 2×21"):
        run.completions(0, "1×1")
    with pytest.raises(KeyError, match="no column 'rewards'; there are kind, step, reward"):
        run.steps()["rewards"]
    with pytest.raises(gw.ConfigError, match="is not a run directory"):
        gw.Run.open(recorded.parent)
    (recorded / "metrics.jsonl").write_text('{"kind": "step"}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl cannot be read"):
        run.steps()
    (recorded / "rollouts" / "step-000000.parquet").write_text("no parquet")
    with pytest.raises(DataError, match=r"step-000000\.parquet cannot be read"):
        run.completions(0)


def test_a_run_that_has_just_begun_is_empty(tmp_path: Path) -> None:
    run = gw.Run(begin_run(tmp_path / "run", CONFIG))
    assert (len(run.steps()), len(run.evaluations()), len(run.groups()), run.num_steps) == (0, 0, 0, 0)
    assert run.completions().arrow.schema.equals(SCHEMA)
    assert repr(run).endswith("run: grpo, 0 of 4 steps, unfinished)")
    assert "0 of 4 steps" in run._repr_html_()


def test_what_a_model_wrote_is_text_in_a_notebook(recorded: Path) -> None:
    run = gw.Run.open(recorded)
    for page in (run._repr_html_(), run.completions(0)._repr_html_()):
        assert "<script" not in page
        assert "<b>run" not in page
    assert "&lt;b&gt;run" in run._repr_html_()
    assert "&lt;script&gt;" in run.completions(0)._repr_html_()
    assert "15 more rows" in gw.Table.of([{"n": n} for n in range(35)])._repr_html_()


def test_without_pandas_a_sentence_says_what_to_do() -> None:
    program = (
        "import sys\nclass Without:\n    def find_spec(self, name, *_):\n"
        "        if name == 'pandas': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Without())\nimport groupwise as gw\n"
        "try: gw.Table.of([{'a': 1}]).to_pandas()\nexcept gw.ConfigError as error: print(error)"
    )
    assert "needs pandas, which is not installed: `pip install pandas`, or use to_arrow()" in python(program)


def test_a_recorded_recipe_is_a_recipe(tmp_path: Path) -> None:
    recipe = gw.load_recipe(ARITHMETIC, {"run.directory": str(tmp_path / "run")})
    run = gw.Run(begin_run(tmp_path / "run", (ROOT / "recipes" / "arithmetic.toml").read_text()))
    assert gw.load_recipe(run.config, {"run.directory": str(tmp_path / "run")}) == recipe
    shutil.rmtree(run.path)
    assert json.dumps(recipe.model_dump(mode="json"))
