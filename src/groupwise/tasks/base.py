"""What a task is: problems in three disjoint splits, and the template that makes a prompt of a problem.

A task knows problems, not answers' forms: `verifier` names the verifier that judges its completions, and `validate`
takes that verifier as a callable and proves that every reference answer it tries passes through the rendered template.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from groupwise.config import Section
from groupwise.errors import VerifierError
from groupwise.randomness import key
from groupwise.types import Outcome, Problem, Split, Verdict

Verify = Callable[[Problem, str], Verdict]


class Template(Section):
    """How a problem becomes a prompt, and what an ideal answer looks like."""

    prompt: str = "{question}\n"
    """What the model reads; `{question}` is replaced. With `chat` this is the user's message."""
    system: str = ""
    """System message; used only with `chat`."""
    chat: bool = False
    """Wrap the prompt in the tokenizer's chat template. Off for base models."""
    prefill: str = ""
    """Start of the answer that the model is given, for example `<think>`; the verifier sees it too."""
    gold: str = "<think></think>\\boxed{{{reference}}}"
    """An ideal answer, prefill included; `{reference}` is replaced. `validate` sends it to the verifier."""

    def render(self, problem: Problem) -> str:
        """The prompt's text without prefill."""
        return self.prompt.replace("{question}", problem.question)

    def gold_answer(self, problem: Problem) -> str:
        """A completion that must be judged correct (prefill included)."""
        return self.gold.format(reference=problem.reference)


class TaskConfig(Section):
    """Fields common to the configurations of all tasks; each task adds its own dials."""

    template: Template = Template()


def split_of(content: str) -> Split:
    """The split a problem belongs to, as a function of its content alone, so splits are disjoint by construction.

    90 % train, 5 % dev, 5 % test.
    """
    bucket = key("split", content) % 20
    return "dev" if bucket == 18 else "test" if bucket == 19 else "train"


class Task(ABC):
    """A source of problems. Subclasses set `name` and `verifier` and implement `problems`."""

    name: ClassVar[str]
    verifier: ClassVar[str] = "math"

    def __init__(self, config: TaskConfig) -> None:
        self.config = config

    @property
    def template(self) -> Template:
        return self.config.template

    @abstractmethod
    def problems(self, split: Split) -> Sequence[Problem]:
        """All problems of a split, always in the same order; the same problem is in no other split."""

    def find(self, problem_id: str) -> Problem:
        """The problem with this id, from any split."""
        for split in ("train", "dev", "test"):
            for problem in self.problems(split):  # type: ignore[arg-type]
                if problem.id == problem_id:
                    return problem
        raise KeyError(f"task {self.name} has no problem {problem_id!r}")

    def validate(self, verify: Verify, num_problems: int = 32) -> None:
        """Prove that reference answers pass their verifier through the rendered template.

        Raises:
            VerifierError: names the problem, the reference answer and what the verifier said.
        """
        problems = self.problems("train")
        for problem in problems[:: max(1, len(problems) // num_problems)][:num_problems]:
            answer = self.template.gold_answer(problem)
            verdict = verify(problem, answer)
            if verdict.outcome is not Outcome.CORRECT:
                raise VerifierError(
                    f"the verifier '{self.verifier}' rejects the reference answer of {problem.id}: {answer!r} is "
                    f"{verdict.outcome} ({verdict.evidence}); mend the template or the reference before training"
                )
