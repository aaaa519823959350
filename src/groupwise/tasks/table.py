"""The tasks by name, and the verifier that judges a recipe's completions."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ValidationError

from groupwise.config import FOLDER, merged
from groupwise.config.kinds import Kinds
from groupwise.errors import ConfigError
from groupwise.tasks.base import FORMS, OF_CHAT, Task, TaskConfig, Template, asking
from groupwise.verifiers import VERIFIERS, VerifierConfig

_HERE = "groupwise.tasks"

TASKS = Kinds(
    "task",
    {
        "arithmetic": f"{_HERE}.arithmetic:Arithmetic",
        "numbers": "worlds/calculations.py:Numbers",
        "word_problems": "worlds/word_problems.py:WordProblems",
        "countdown": "worlds/countdown.py:Countdown",
        "general": "worlds/questions.py:General",
        "jsonl": f"{_HERE}.jsonl:Jsonl",
        "code": f"{_HERE}.code:Code",
        "knights_knaves": "worlds/knights_knaves.py:KnightsKnaves",
        "json_extraction": "worlds/json_extraction.py:JsonExtraction",
        "instructions": "worlds/instructions.py:Instructions",
        "propositional_proofs": "worlds/propositional.py:PropositionalProofs",
        "minif2f": f"{_HERE}.statements:Minif2f",
        "coq_statements": f"{_HERE}.statements:CoqStatements",
        "reasoning_gym": "worlds/gym_problems.py:ReasoningGym",
        "mixture": f"{_HERE}.mixture:Mixture",
        "episodes": f"{_HERE}.episodes:Episodes",
    },
)
"""The module of each, or the file among the shipped recipes."""

TaskOptions = Annotated[TaskConfig, TASKS]
"""The [task] section of a recipe: `kind` says which task's dials the others are."""


def make_task(section: TaskConfig | Mapping[str, Any] | str) -> Task:
    """The task of a section, a table or a kind alone."""
    config = TASKS.read(section)
    task: Task = TASKS.find(config.kind)(config)
    return task


def with_verifier(tables: Any, folder: Path | None) -> Any:
    """A recipe's tables in which `verifier` names its kind: if it names none, it is laid over the task's section."""
    if not isinstance(tables, Mapping) or VERIFIERS.kind_of(section := tables.get("verifier", {})) is not None:
        return tables
    try:
        task = make_task(TASKS.read(tables.get("task"), {FOLDER: folder}))
    except (ConfigError, ValidationError):
        return {**tables, "verifier": "answered"}  # the fault of the task comes first
    try:
        judge = task.verifier_config.model_dump(mode="json")
    except (ConfigError, ValidationError) as error:
        raise ValueError(f"the verifier of task {task.name} cannot be used: {error}") from None
    if not isinstance(section, Mapping):
        return tables
    for member in judge.get("each", {}).values():  # what the recipe says about all counts for each
        for name in section:
            member.pop(name, None)
    return {**tables, "verifier": merged(judge, section)}


PLACES = {"code": "code", "program": "code", "reasoning_gym": "tag", "json": "bare"}
"""Places of the answer for verifiers that have no such setting, or read bare answers as well."""


def place_of(verifier: VerifierConfig) -> str:
    """Return the place at which a verifier reads the answer, by its name in `FORMS`; another name where it has none."""
    return str(PLACES.get(verifier.kind, getattr(verifier, "extraction", "")))


def form_asked(verifier: VerifierConfig) -> str:
    """Return the prompt that asks a chat model for what this verifier reads; empty where that is not known."""
    place = place_of(verifier)
    thinks = verifier.format_reward > 0 or any(part.kind == "format" for part in verifier.parts.values())
    return asking(place, thinks) if place in FORMS else ""


def _form_of(config: TaskConfig, verifier: VerifierConfig) -> str:
    parts = getattr(config, "parts", None)
    if verifier.kind != "routed" or not parts:
        return form_asked(verifier)
    given = getattr(verifier, "each", {})
    judges = [make_task(part.task).verifier_config for part in parts.values()]
    forms = {form_asked(given.get(judge.kind, judge)) for judge in judges}
    return forms.pop() if len(forms) == 1 else ""  # one prompt asks for one form


def settled(config: TaskConfig, verifier: VerifierConfig, has_chat: Callable[[], bool]) -> TaskConfig:
    """Return the task with what its template leaves open: the chat template, and with it the prompt.

    Raises ConfigError: a key is of a chat template, and the tokenizer has none.
    """
    template, default = config.template, type(config).model_fields["template"].default
    usual = default if isinstance(default, Template) else Template()
    chat = has_chat() if template.chat is None else template.chat
    changes: dict[str, Any] = {"chat": chat}
    is_usual = template == usual and template.model_fields_set == usual.model_fields_set
    is_open = "prompt" not in template.model_fields_set and template.prompt in (usual.prompt, Template().prompt)
    if chat and (is_usual or is_open):
        # a prompt that writes the turns itself leaves that to the chat template
        is_bare = usual.prompt == Template().prompt or usual.prompt.endswith("\nAssistant:")
        changes["prompt"] = (_form_of(config, verifier) or "{question}") if is_bare else usual.prompt
    if not chat and (given := [name for name in OF_CHAT if getattr(template, name)]):
        raise ConfigError(
            f"task.template.{given[0]} is of a chat template, which is not used: the tokenizer has none, or a stage of "
            "a pipeline leaves chat open and writes plain text; leave it out"
        )
    return config.model_copy(update={"template": template.model_copy(update=changes)})
