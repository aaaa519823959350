from pathlib import Path

import pytest

from groupwise.config import Section, parse
from groupwise.tasks import TASKS, TaskOptions, make_task, with_verifier

OWN = "import groupwise as gw\nclass Own(gw.Task):\n    verifier = 'rewards.py:pay'\n    problems = None\n"


class Recipe(Section):
    task: TaskOptions


@pytest.mark.parametrize("name", ["arithmetic", "word_problems", "countdown"])
def test_a_recipe_section_makes_its_task(name: str) -> None:
    recipe = parse(Recipe, {"task": {"kind": name, "num_problems": 20, "num_eval_problems": 5}})
    task = make_task(recipe.task)
    assert type(task) is TASKS.find(name)
    assert len(task.problems("train")) == 20
    assert [len(problem.id) > 0 for problem in task.problems("test")] == [True] * 5


def test_every_task_has_the_name_of_its_kind() -> None:
    assert {kind: TASKS.find(kind).name for kind in TASKS.table} == {kind: kind for kind in TASKS.table}


def test_a_task_of_ones_own_names_a_verifier_beside_it(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(ValueError, match=r"the verifier of task Own cannot be used: there is no file rewards\.py"):
        with_verifier({"task": f"{tmp_path}/own.py:Own"}, None)
    (tmp_path / "rewards.py").write_text("def pay(completion):\n    return 1.0\n")
    assert with_verifier({"task": f"{tmp_path}/own.py:Own"}, None)["verifier"]["kind"] == f"{tmp_path}/rewards.py:pay"
