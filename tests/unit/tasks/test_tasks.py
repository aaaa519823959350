import pytest

from groupwise.config import Section, parse
from groupwise.tasks import TASKS, TaskOptions, make_task


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
