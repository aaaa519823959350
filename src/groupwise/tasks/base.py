"""Tasks: problems in three disjoint splits, and the template that makes a prompt of a problem.

A task knows problems, not answers' forms: `verifier` names the verifier that judges its completions, and `validate`
takes that verifier as a callable and proves that every reference answer it tries passes through the rendered template.
"""

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import count, islice
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from groupwise.config import Section
from groupwise.config.kinds import Kinds, KindSection
from groupwise.config.places import Place, beside
from groupwise.errors import ConfigError, DataError, VerifierError
from groupwise.randomness import key
from groupwise.types import SPLITS, Outcome, Problem, Split, Verdict
from groupwise.verifiers import VERIFIERS, VerifierConfig, verifier_config

Verify = Callable[[Problem, str], Verdict]


_PLACES = re.compile(r"\{(?:question|data\.(\w+))\}")


class ChatArguments(Section):
    """Values that a chat template is given beside the messages."""

    arguments: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the tokenizer's chat template, for example `{enable_thinking = false}`; one that it does not read is
    an error. `tools` are JSON schemas; `chat_template` names one of several templates."""
    now: datetime | None = None
    """Day and time that a chat template which reads the clock is given. Left out, a run records that of its beginning
    and keeps it in every prompt, also when it is resumed, evaluated or replayed."""

    @property
    def reads_messages(self) -> bool:
        """True where there may be messages, which a chat template renders."""
        return True


OF_CHAT = ("system", "arguments", "now")
"""Keys of a template that nothing but a chat template reads."""


class Template(KindSection, ChatArguments):
    """Makes a prompt of a problem, and an ideal answer to it.

    Your own template is a subclass with another `render`, `messages` or `gold_answer`:
    `task.template = "my_file.py:MyTemplate"`.
    """

    kind: str = "text"
    """`text`: the texts below with their placeholders filled in."""
    prompt: str = "{question}\n"
    """The text that the model reads; `{question}` is replaced, and `{data.NAME}` by a text of the problem's data. With
    `chat` this is the user's message, which, left out, is the question and a request for the form that the verifier
    reads."""
    system: str = ""
    """System message of the chat template; an error where there is none."""
    chat: bool | None = None
    """Wrap the prompt in the tokenizer's chat template. Left out, runs and evaluations do so where the tokenizer has
    one, and say so; a run's config.toml has what was chosen. Data of plain text are made without."""
    prefill: str = ""
    """Start of the answer that the model is given, for example `<think>`; the verifier sees it too."""
    gold: str = "<think></think>\\boxed{{{reference}}}"
    """An ideal answer, prefill included; `{reference}` is replaced. `validate` sends it to the verifier."""

    @field_validator("prompt")
    @classmethod
    def _check_prompt(cls, prompt: str) -> str:
        if not _PLACES.search(prompt):
            raise ValueError(
                "the prompt must contain {question} or {data.NAME}, or every problem would get the same prompt"
            )
        return prompt

    @field_validator("gold")
    @classmethod
    def _check_gold(cls, gold: str) -> str:
        try:
            answer = gold.format(reference="42")
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(
                f"the gold answer is not a format string ({error}); write every brace of the text twice"
            ) from None
        if "42" not in answer:
            raise ValueError("the gold answer must contain {reference}")
        return gold

    @property
    def reads_messages(self) -> bool:
        return self.chat is not False

    @model_validator(mode="after")
    def _chat_has_what_it_needs(self) -> Self:
        for name in OF_CHAT:
            if getattr(self, name) and self.chat is False:
                raise ValueError(
                    f"{name} is of the chat template, which chat = false leaves out; allowed is chat = true"
                )
        return self

    def render(self, problem: Problem) -> str:
        def text(place: re.Match[str]) -> str:
            value = problem.data.get(place[1]) if place[1] else problem.question
            if not isinstance(value, str):
                texts = ", ".join(key for key, each in problem.data.items() if isinstance(each, str)) or "none"
                raise ConfigError(f"template.prompt has {place[0]}; texts in the data of {problem.id} are {texts}")
            return value

        return _PLACES.sub(text, self.prompt)

    def messages(self, problem: Problem) -> list[dict[str, Any]]:
        """The conversation that the model answers; used only with `chat`.

        A problem's own conversation stays as it is but for what is rendered around the user's last turn.
        """
        system = [{"role": "system", "content": self.system}] if self.system else []
        if not problem.messages:
            return [*system, {"role": "user", "content": self.render(problem)}]
        if system and problem.messages[0]["role"] in ("system", "developer"):
            raise ConfigError(
                f"template.system = {self.system!r:.60}: {problem.id} has a system message of its own; allowed is one"
            )
        *turns, last = (dict(message) for message in problem.messages)
        if last["role"] == "user":
            around = self.model_copy(update={"prompt": "{question}" if self.prompt in ASKED else self.prompt.strip()})
            last["content"] = around.render(replace(problem, question=last["content"]))
        return [*system, *turns, last]

    def gold_answer(self, problem: Problem) -> str:
        return self.gold.format(reference=problem.reference)


TEMPLATES = Kinds("template", {"text": f"{__name__}:Template"}, default="text")


class TaskConfig(KindSection):
    """Fields common to the configurations of all tasks; each task adds its own dials."""

    template: Annotated[Template, TEMPLATES] = Template()
    """Makes the prompt of a problem."""
    verifier: Annotated[VerifierConfig, VERIFIERS] | None = None
    """Judges its completions wherever the recipe's own `verifier` names no kind; None: the task's own verifier."""

    @field_validator("template")
    @classmethod
    def _keeps_what_is_left_out(cls, template: Template) -> Template:
        usual, given = cls.model_fields["template"].default, template.model_fields_set
        if type(template) is not type(usual):
            return template
        kept = {name: getattr(usual, name) for name in usual.model_fields_set - given}
        return type(template).model_construct(given, **{**dict(template), **kept}) if kept else template


FORMS = {
    "boxed": "put your final answer within \\boxed{}",
    "tag": "put your final answer within <answer></answer>",
    "last_number": "end with your final answer",
    "code": "give the whole program, imports included, in one block that begins with ```python and ends with ```; "
    "only the standard library is there",
}
"""Requests for the forms that verifiers read, by the place of the answer."""


def asking(place: str, thinks: bool) -> str:
    r"""Return the prompt of a chat model where neither recipe nor data say how to ask: for an answer at this place.

    >>> asking("boxed", thinks=False)
    '{question}\n\nPlease reason step by step, and put your final answer within \\boxed{}.'
    """
    how = "think inside <think> </think>" if thinks else "reason step by step"
    return f"{{question}}\n\nPlease {how}, and {FORMS[place]}."


ASKED = frozenset(asking(place, thinks) for place in FORMS for thinks in (False, True))


def split_of(content: str) -> Split:
    """The split a problem belongs to, as a function of its content alone, so splits are disjoint by construction.

    90 % train, 5 % dev, 5 % test.
    """
    bucket = key("split", content) % 20
    return "dev" if bucket == 18 else "test" if bucket == 19 else "train"


def without_spaces(text: str) -> str:
    """Return a text whose words stand one space apart: what two texts that differ in spaces alone have in common."""
    return " ".join(text.split())


class Task(ABC):
    """A source of problems. Subclasses implement `problems`; their settings are their `Config`."""

    name: ClassVar[str]
    """Its name in messages; by default that of the class."""
    Config: ClassVar[type[TaskConfig]] = TaskConfig
    verifier: ClassVar[str] = "math"
    answers_any_question: ClassVar[bool] = True
    """True where the verifier needs nothing but a reference answer, so that a user's own question can be judged."""

    def __init__(self, config: TaskConfig) -> None:
        self.config = config

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = vars(cls).get("name", cls.__name__)

    @property
    def verifier_config(self) -> VerifierConfig:
        """The settings of its verifier, where a recipe names no other; a file is looked for beside that of the task."""
        own = Place.of(self.config.kind)
        return self.config.verifier or verifier_config(beside(self.verifier, own.file.parent if own else None))

    @property
    def template(self) -> Template:
        return self.config.template

    @abstractmethod
    def problems(self, split: Split) -> Sequence[Problem]:
        """All problems of a split, always in the same order; the same problem is in no other split."""

    @property
    def test_file(self) -> str | None:
        """The file of the test problems, if it is not the one to train on."""
        return None

    def undivided(self) -> Sequence[Problem] | None:
        """All problems, if nothing says how to divide them into splits; None otherwise."""
        return None

    def every_problem(self) -> Iterator[Problem]:
        for split in SPLITS:
            with suppress(DataError):  # data without this split
                yield from self.problems(split)

    def find(self, problem_id: str) -> Problem:
        if found := next((problem for problem in self.every_problem() if problem.id == problem_id), None):
            return found
        raise KeyError(f"task {self.name} has no problem {problem_id!r}")

    def validate(self, verify: Verify, must_accept: bool = True) -> None:
        """Prove that 32 reference answers pass their verifier through the rendered template (VerifierError: names one).

        Where the verifier need not accept them (`must_accept`), because it measures something else, it must only judge
        them, and problems without a reference are left out; that it does not accept them is a warning.
        """
        problems = self.problems("train")
        sample, rejections = problems[:: max(1, len(problems) // 32)][:32], list[str]()
        for problem in sample:
            if not (must_accept or problem.reference):
                continue
            answer = self.template.gold_answer(problem)
            verdict = verify(problem, answer)
            if verdict.outcome is Outcome.CORRECT:
                continue
            config = getattr(getattr(verify, "__self__", None), "config", None)
            name = getattr(config, "kind", "") or self.verifier
            if verdict.outcome.failed:
                raise VerifierError(
                    f"the verifier '{name}' failed on the reference answer of {problem.id}, {answer!r}: "
                    f"{verdict.outcome} ({verdict.evidence}); fix it before training"
                )
            if must_accept:
                raise VerifierError(
                    f"the verifier '{name}' rejects the reference answer of {problem.id}: {answer!r} is "
                    f"{verdict.outcome} ({verdict.evidence}); fix the template or the reference before training"
                )
            rejections.append(f"{problem.id}: {answer!r} is {verdict.outcome} ({verdict.evidence})")
        if rejections:
            warnings.warn(
                f"{len(rejections)} of {len(sample)} reference answers are not judged correct, for example that of "
                f"{rejections[0]}; this is right only where the reward is about something else",
                stacklevel=2,
            )


class GeneratedConfig(TaskConfig):
    """Dials of tasks that generate their problems."""

    num_problems: int = Field(default=5000, ge=1)
    """Problems in the train split."""
    num_eval_problems: int = Field(default=256, ge=1)
    """Problems in the dev split, and the same number in the test split."""


Candidate = tuple[str, Problem]
"""A problem and its content: what must not be in two splits, for example the unordered pair of a product's factors."""


class GeneratedTask(Task):
    """A task that generates problems without end (or all there are); subclasses implement `candidates`."""

    Config = GeneratedConfig
    config: GeneratedConfig

    def __init__(self, config: GeneratedConfig) -> None:
        super().__init__(config)
        self._problems: dict[Split, Sequence[Problem]] = {}
        self._drawn: list[Candidate] = []  # they are costly, and the three splits go through the same ones
        self._coming = self.candidates()

    @abstractmethod
    def candidates(self) -> Iterator[Candidate]:
        """Problems of all splits, always in the same order; they may repeat and need not end."""

    def _every(self) -> Iterator[Candidate]:
        for index in count():
            if index == len(self._drawn):
                if (candidate := next(self._coming, None)) is None:
                    return
                self._drawn.append(candidate)
            yield self._drawn[index]

    def problems(self, split: Split) -> Sequence[Problem]:
        if split in self._problems:
            return self._problems[split]
        dial = "num_problems" if split == "train" else "num_eval_problems"
        number: int = getattr(self.config, dial)
        # one candidate in twenty is in the dev split; the rest of the margin is for repeats
        sample = first_of_split(islice(self._every(), 100 * number + 10_000), split, number)
        if len(sample) < number:
            raise ConfigError(
                f"task.{dial} = {number}: with these settings task {self.name} has {len(sample)} different problems in "
                f"its {split} split; at most {len(sample)} is allowed"
            )
        self._problems[split] = sample
        return sample


def first_of_split(candidates: Iterable[Candidate], split: Split, number: int) -> tuple[Problem, ...]:
    """The first `number` different problems of a split."""
    selection: dict[str, Problem] = {}
    for content, problem in candidates:
        if split_of(content) == split:
            selection.setdefault(problem.id, problem)
        if len(selection) == number:
            break
    return tuple(selection.values())


def split_problems(task: Task, split: Split, max_problems: int | None) -> Sequence[Problem]:
    """The first problems of a split."""
    if not (problems := task.problems(split)):
        raise ConfigError(f"task {task.name} has no {split} problems")
    return problems if max_problems is None else problems[:max_problems]
