"""Recipes with one fault each, and what a preflight must say of them: what the checks are tried on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from groupwise.checks import Finding
from groupwise.checks.preflight import CHECKS, Preflight, PreflightOptions, Severity, machine, preflight
from groupwise.config import merged
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.new_model import NewModel, byte_tokenizer, new_policy
from groupwise.trainers import load_recipe

RECIPE: dict[str, Any] = {
    "algorithm": "grpo", "run": {"directory": "runs/never", "num_steps": 10},
    "model": {"device": "cpu", "num_threads": 1},
    "task": {"kind": "arithmetic", "kinds": ["product"], "digits": [2, 2], "num_problems": 64, "num_eval_problems": 8},
    "sampling": {"max_tokens": 96}, "grpo": {"prompts_per_step": 4, "group_size": 4}, "optimizer": {"lr": 3e-4},
    "evaluation": {"num_problems": 100, "num_samples": 4, "test_problems": 8},
}  # fmt: skip
"""The demo, smaller."""
OPTIONS = PreflightOptions(num_problems=6, num_samples=8)


class Case(NamedTuple):
    """A recipe, and what must be found."""

    name: str
    what: str
    """The fault in a sentence."""
    check: str
    severity: Severity | None
    """None for a recipe that is in order."""
    says: str = ""
    """Words of the evidence."""
    changes: dict[str, Any] = {}  # noqa: RUF012
    prepare: Callable[[Path], dict[str, Any]] = lambda folder: {}
    """Writes files; returns what the recipe says of them."""
    plant: Callable[[pytest.MonkeyPatch], None] = lambda patch: None


def fly(case: Case, folder: Path) -> Preflight:
    """The preflight of a case's recipe, with the check that must notice alone."""
    with pytest.MonkeyPatch.context() as patch:
        case.plant(patch)
        tables = merged(RECIPE, case.prepare(folder))
        others = [name for name in CHECKS if name != case.check]
        return preflight(load_recipe(tables, case.changes), OPTIONS, others)


def heaviest(found: Preflight, check: str) -> Finding | None:
    """The heaviest finding of a check that is more than a note."""
    return next((one for one in found.findings if one.check == check and one.severity is not Severity.NOTE), None)


def reward(body: str) -> Callable[[Path], dict[str, Any]]:
    """A reward function of one's own."""

    def prepare(folder: Path) -> dict[str, Any]:
        path = folder / "rewards.py"
        path.write_text(f"import random, re\n\n\ndef reward(completion, reference):\n    {body}\n")
        return {"verifier": {"kind": f"{path}:reward"}}

    return prepare


def rows(*pairs: tuple[str, str], test: tuple[tuple[str, str], ...] = ()) -> Callable[[Path], dict[str, Any]]:
    """Problems of one's own, question and answer each, and others to test on."""

    def prepare(folder: Path) -> dict[str, Any]:
        files = {"path": pairs, "test_path": test}
        task: dict[str, Any] = {"kind": "jsonl", "dev_fraction": 0.1}
        for key, some in files.items():
            if some:
                task[key] = str(folder / f"{key}.jsonl")
                lines = [json.dumps({"question": question, "answer": answer}) for question, answer in some]
                Path(task[key]).write_text("\n".join(lines) + "\n")
        return {"task": task, "verifier": {"kind": "number"}}

    return prepare


SUMS = tuple((f"What is {a} + {b}?", str(a + b)) for a in range(10, 20) for b in range(10, 20))


def model(**changes: Any) -> Callable[[Path], dict[str, Any]]:
    """A tiny model whose tokenizer has other attributes."""

    def prepare(folder: Path) -> dict[str, Any]:
        tokenizer = byte_tokenizer()
        for name, value in changes.items():
            setattr(tokenizer, name, value)
        shape = NewModel(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                         context_length=512)  # fmt: skip
        save_checkpoint(folder / "model", new_policy(shape, tokenizer))
        return {"model": {"path": str(folder / "model")}}

    return prepare


CHAT = (
    "{% for m in messages %}<BOS>{{ m.content }}{{ '<END>' if m.role == 'assistant' else '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<BOS>{% endif %}"
)


def chat(template: str) -> Callable[[Path], dict[str, Any]]:
    """A model with a chat template; `<BOS>` stands for a byte that begins texts, `<END>` for its end token."""

    def prepare(folder: Path) -> dict[str, Any]:
        tokenizer = byte_tokenizer()
        text = template.replace("<BOS>", "^").replace("<END>", str(tokenizer.eos_token))
        return model(chat_template=text, bos_token="^")(folder) | {"task": {"template": {"chat": True}}}

    return prepare


def little_memory(patch: pytest.MonkeyPatch) -> None:
    """A machine with 20 MB."""
    patch.setattr(machine, "available_memory", lambda device: 20e6)


def full_disk(patch: pytest.MonkeyPatch) -> None:
    """A disk with 1 MB left."""
    patch.setattr(machine.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1 << 20}))


NO_GO, WARNING = Severity.CRITICAL, Severity.WARNING
CASES = (
    Case("healthy settings", "none", "settings", None),
    Case("rate of nothing", "a learning rate of 0", "settings", NO_GO, "lr = 0", {"optimizer.lr": 0.0}),
    Case("padding", "process rewards that pay idle true steps", "settings", NO_GO, "padded wrong one +3.37",
         {"advantage.kind": "process", "verifier.steps": "equations"}),
    Case("worst step", "process rewards of the worst step, which padding does not raise", "settings", None, "",
         {"advantage.kind": "process_min", "verifier.steps": "equations"}),
    Case("own ends", "baselines at the ends of one's own verifier's steps", "settings", WARNING, "at the ends of steps",
         {"advantage.kind": "process_gae"}, prepare=reward("return 1.0")),
    Case("style pays", "a format that is paid as much as the answer", "settings", WARNING, "format 1",
         {"verifier.format_reward": 1.0}),
    Case("endless warm-up", "a warm-up longer than the run", "settings", WARNING, "warmup_steps = 10",
         {"optimizer.warmup_steps": 10}),
    Case("by heart", "few problems, seen over and over", "settings", WARNING, "40 times",
         {"run.num_steps": 640}),
    Case("healthy data", "none", "data", None, prepare=rows(*SUMS, test=(("What is 1 + 1?", "2"),))),
    Case("contaminated", "training questions as tests, in capitals", "data", NO_GO, "2 test questions are train",
         prepare=rows(*SUMS, test=(("WHAT is 10 + 10?", "20"), ("What is 19 ＋ 19?", "38")))),
    Case("nothing to test on", "test problems that are wanted and not there", "data", NO_GO, "has no test split",
         prepare=rows(*SUMS)),
    Case("two truths", "one question with two answers", "data", NO_GO, "different reference answers",
         changes={"evaluation.test_problems": 0},
        prepare=rows(*SUMS, *((f"what is {a} + 10?", "7") for a in range(10, 20)))),
    Case("one answer", "the wrong field as the answer", "data", WARNING, "are '7'",
         changes={"evaluation.test_problems": 0},
        prepare=rows(*((question, "7") for question, _ in SUMS))),
    Case("healthy machine", "none", "machine", None),
    Case("no memory", "a machine with 20 MB", "machine", NO_GO, "MiB are free", plant=little_memory),
    Case("full disk", "a disk with 1 MB left", "machine", NO_GO, "where runs/never will be", plant=full_disk),
    Case("healthy verifier", "none", "verifier", None),
    Case("healthy reward", "none", "verifier", None,
         prepare=reward(r"boxes = re.findall(r'\\boxed{([^{}]*)}', completion); "
                        "return float(len(boxes) == 1 and boxes[0].strip() == reference)")),
    Case("any box", "a reward for any answer in a box", "verifier", NO_GO, "false positive",
         prepare=reward(r"return float('\\boxed' in completion)")),
    Case("it crashes", "a reward function with a slip", "verifier", NO_GO, "made the verifier fail",
         prepare=reward("return completion.index(missing)")),
    Case("dice", "a reward that is drawn", "verifier", NO_GO, "differ when the same text is judged again",
         prepare=reward("return float(reference in completion and random.random() < 0.5)")),
    Case("gold refused", "a template whose ideal answer has no box", "verifier", NO_GO, "are refused",
         {"task.template.gold": "The answer is {reference}."}),
    Case("healthy prompts", "none", "prompts", None),
    Case("healthy chat", "none", "prompts", None, prepare=chat("<BOS>" + CHAT.replace("<BOS>", ""))),
    Case("two beginnings", "a chat template that writes BOS before every message", "prompts", NO_GO, "two BOS tokens",
         prepare=chat("<BOS>" + CHAT)),
    Case("BOS in between", "a chat template that writes BOS again later", "prompts", NO_GO, "more than once",
         prepare=chat("<BOS>" + CHAT.replace("<BOS>", "User: <BOS>"))),
    Case("no end", "a chat template that ends answers with no stop token", "prompts", NO_GO, "ends an answer with",
         prepare=chat("<BOS>" + CHAT.replace("<BOS>", "").replace("<END>", "#"))),
    Case("no room", "a limit that leaves no room for prompts", "prompts", NO_GO, "do not fit",
         {"sampling.max_tokens": 1010}),
    Case("no answer stops", "a model that never stops", "sample", NO_GO, "were cut at 4 tokens",
         {"sampling.max_tokens": 4}, prepare=model()),
    Case("too hard", "problems that the model never solves", "sample", NO_GO, "6 never",
         {"task.digits": [5, 5], "sampling.max_tokens": 24}),
)  # fmt: skip
"""Those that take no more than a sample."""
SLOW_CASES = (
    Case("everybody wins", "a reward of 1 for everything", "verifier", NO_GO, "false positive",
         prepare=reward("return 1.0")),
    Case("upside down", "a reward for wrong answers", "verifier", NO_GO, "are refused",
         prepare=reward("return float(reference not in completion)")),
    Case("healthy sample", "none", "sample", None, "", {"task.num_eval_problems": 100}),
    Case("cold", "a temperature of 0.1", "sample", WARNING, "one reward alone", {"sampling.temperature": 0.1}),
    Case("healthy step", "none", "rehearsal", None),
    Case("leaps", "a learning rate 1,000 times too large", "rehearsal", NO_GO, "moves the policy",
         {"optimizer.lr": 0.3}),
    Case("ant steps", "a learning rate 1,000,000 times too small", "rehearsal", NO_GO, "moves the policy",
         {"optimizer.lr": 3e-10}),
)  # fmt: skip
"""Those that train, or sample much."""
