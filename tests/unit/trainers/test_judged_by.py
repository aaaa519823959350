"""Who judges a recipe's completions: the task's verifier, the recipe's, or one's own; tasks and templates in files."""

from pathlib import Path

import pytest

from groupwise.config import dump_toml, load
from groupwise.errors import ConfigError
from groupwise.evaluation.evaluate import open_second
from groupwise.tasks import make_task
from groupwise.trainers.grpo import GrpoRecipe
from groupwise.types import Outcome
from groupwise.verifiers import make_verifier

OWN = '''
from collections.abc import Iterator

from groupwise.tasks.base import GeneratedConfig, GeneratedTask, Template
from groupwise.types import Outcome, Problem
from groupwise.verifiers.base import ExtractingConfig, Finding, Verifier, verdict
from groupwise.verifiers.extraction import extract
from groupwise.verifiers.base import StylePart


class LowerConfig(ExtractingConfig):
    ignore: str = ""


class Lower(Verifier):
    """Right is the reference answer in any case, without some characters."""

    Config = LowerConfig
    one_right = True
    by_text_alone = True

    def verify_many(self, requests):
        return [self._judge(request) for request in requests]

    def _judge(self, request):
        answer = extract(request.text, self.config.extraction).answer
        if answer is None:
            return verdict(Finding(Outcome.UNPARSABLE, "none"), self.config, tags_right=False)
        kept = "".join(one for one in answer.lower() if one not in self.config.ignore)
        right = kept == request.problem.reference.lower()
        return verdict(Finding(Outcome.CORRECT if right else Outcome.WRONG, answer), self.config, tags_right=True)


class StoriesConfig(GeneratedConfig):
    hero: str = "Anna"


class Stories(GeneratedTask):
    Config = StoriesConfig
    verifier = "math"

    def candidates(self) -> Iterator[tuple[str, Problem]]:
        for number in range(10_000):
            text = f"{self.config.hero} has {number} pens and finds one. How many?"
            yield text, Problem(f"stories/{number}", text, str(number + 1))


class Polite(Template):
    please: str = "Please: "

    def render(self, problem: Problem) -> str:
        return self.please + super().render(problem)


class Short(StylePart):
    most: int = 10

    def measure(self, request, verdict):
        return float(len(request.text) <= self.most)


def reward(completion, reference):
    return float(reference in completion)
'''
RECIPE = """
algorithm = "grpo"
[run]
directory = "unused"
num_steps = 1
[task]
kind = "arithmetic"
kinds = ["sum"]
num_problems = 20
num_eval_problems = 4
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path


def recipe(folder: Path, *overrides: str) -> GrpoRecipe:
    found = load(GrpoRecipe, folder / "recipe.toml", overrides)
    again = folder / "again.toml"
    again.write_text(dump_toml(found))
    assert load(GrpoRecipe, again) == found
    return found


def test_a_recipe_says_who_judges_and_how(folder: Path) -> None:
    assert recipe(folder).verifier.kind == "number"
    found = recipe(folder, "verifier.correct_reward=2", "verifier.extraction=tag", "evaluation.second_verifier=math")
    assert (found.verifier.kind, found.verifier.correct_reward) == ("number", 2.0)
    second = found.evaluation.second_verifier
    assert (second.kind, second.extraction, second.correct_reward) == ("math", "tag", 1.0)  # type: ignore[attr-defined]


def test_a_recipe_may_choose_its_verifier_and_the_task_may(folder: Path) -> None:
    assert recipe(folder, "verifier.kind=math", "verifier.timeout_s=9").verifier.timeout_s == 9  # type: ignore[attr-defined]
    named = recipe(folder, 'task.verifier={kind="math", timeout_s=9}', "verifier.format_reward=0.5").verifier
    assert (named.kind, named.timeout_s, named.format_reward) == ("math", 9.0, 0.5)  # type: ignore[attr-defined]
    assert recipe(folder, "task.verifier=math", "verifier.kind=countdown").verifier.kind == "countdown"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["verifier.timeout_s=9"], "verifier.timeout_s: a setting without effect: math"),
        (["verifier.judge.url=http://a"], "judge: a setting without effect: judge reads it, the one in use"),
        (["verifier.kind=numbr"], "there is no verifier 'numbr'; did you mean 'number'?"),
        (["verifier.kind=own.py:Lowr"], "own.py has no 'Lowr'; did you mean 'Lower'?"),
        (["verifier.parts.a={kind='verifier', verifier={kind='math', steps='equations'}}"], "steps = 'equations' has"),
        (["verifier.kind=routed", "verifier.each.math.cap_wrong=0.5"], "each.math.cap_wrong = 0.5 has no effect here"),
        (["task.kind=aritmetic"], "task: there is no task 'aritmetic'; did you mean 'arithmetic'?"),
        (["task.template=own.py:Short"], "is no template: allowed is a class that builds on Template"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.* begins the section anew")
def test_what_has_no_effect_or_is_not_there_is_named(folder: Path, overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        recipe(folder, *overrides)
    assert said in str(caught.value)


def test_a_verifier_of_ones_own_has_a_setting(folder: Path) -> None:
    found = recipe(folder, "verifier.kind=own.py:Lower", "verifier.ignore=-", "verifier.format_reward=0.5")
    problem = make_task(found.task).problems("train")[0]
    with make_verifier(found.verifier) as verifier:
        dashed = verifier.verify(problem, f"\\boxed{{-{problem.reference}-}}")
    assert (dashed.outcome, dashed.parts) == (Outcome.CORRECT, {"accuracy": 1.0, "format": 0.5})


def test_a_task_and_a_template_of_ones_own(folder: Path) -> None:
    chosen = 'task={kind="own.py:Stories", hero="Ben", num_problems=9, num_eval_problems=2}'
    found = recipe(folder, chosen, "task.template={kind='own.py:Polite', please='Kindly: '}")
    task = make_task(found.task)
    assert found.verifier.kind == "math"
    assert task.name == "Stories"
    first = task.problems("train")[0]
    assert task.template.render(first) == f"Kindly: {first.question}\n"
    assert first.question.startswith("Ben has")
    with make_verifier(found.verifier) as verifier:
        task.validate(verifier.verify)


def test_parts_of_ones_own_a_style_and_a_reward(folder: Path) -> None:
    short = "verifier.parts.short={kind='own.py:Short', weight=0.25, most=12}"
    found = recipe(folder, short, "verifier.parts.mine={kind='own.py:reward', weight=0.5}")
    problem = make_task(found.task).problems("train")[0]
    right, wrong = f"\\boxed{{{problem.reference}}}", "\\boxed{none of these}"
    with make_verifier(found.verifier) as verifier:
        parts = [verifier.verify(problem, text).parts for text in (right, wrong)]
    paid = {"accuracy": 1.0, "format": 0.0, "short": 0.25, "mine": 0.5}
    assert parts == [paid, dict.fromkeys(paid, 0.0)]


def test_a_second_verifier_of_ones_own_looks_again(folder: Path) -> None:
    found = recipe(folder, "evaluation.second_verifier={kind='own.py:Lower', ignore=','}")
    with open_second(found.evaluation.second_verifier, make_task(found.task), found.verifier) as second:
        assert second.verify(make_task(found.task).problems("dev")[0], "\\boxed{x}").outcome is Outcome.WRONG
