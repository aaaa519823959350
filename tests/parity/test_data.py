"""Documented forms of data give the token ids and the learnt tokens of TRL's own datasets and collators."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parity_trl import import_trl

from groupwise.models.config import ModelConfig
from groupwise.models.new_model import byte_tokenizer
from groupwise.models.policy import Policy, make_policy
from groupwise.tasks.preferences import PairsFile, load_pairs
from groupwise.trainers import preferences
from groupwise.trainers.sft import PairsData, encode, read_rows

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")]

MARKED = (
    "{% for m in messages %}<think>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>\n"
    "{% endgeneration %}{% else %}{{ m.content }}<|end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<think>assistant\n{% endif %}"
)
UNMARKED = MARKED.replace("{% generation %}", "").replace("{% endgeneration %}", "")
SYSTEM = {"role": "system", "content": "Be brief."}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


TEXTS = [{"prompt": "The sky is", "completion": " blue."}, {"prompt": "2+2=", "completion": "4"}]
PAIRS = [
    {"prompt": [SYSTEM, user("What is the sky?")], "completion": [assistant("It is blue.")]},
    {"prompt": [user("a"), assistant("b"), user("c")], "completion": [assistant(" d\n")]},
]
TALKS = [{"messages": [SYSTEM, user("a"), assistant("b"), user("c?"), assistant("d, e")]}]
PLAIN = [{"text": "The sky is blue."}, {"text": "x"}]


@pytest.fixture
def model(make_model: Callable[..., Any]) -> Policy:
    return make_policy(make_model(), byte_tokenizer(), ModelConfig(device="cpu"))


def trainer_settings(tmp_path: Path) -> dict[str, Any]:
    return {
        "output_dir": str(tmp_path / "trl"),
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "disable_tqdm": True,
    }


def batches_of(trainer: Any, rows: int) -> dict[str, list[list[int]]]:
    """What TRL's collator makes of the trainer's prepared rows, by name, row by row without the padding."""
    batch = trainer.data_collator([trainer.train_dataset[index] for index in range(rows)])
    lengths = batch["attention_mask"].sum(1)
    return {name: [row[:n].tolist() for row, n in zip(rows, lengths)] for name, rows in batch.items()}  # noqa: B905


@pytest.mark.parametrize(
    ("rows", "template", "config", "loss_on"),
    [
        (TEXTS, None, {}, "completion"),
        (PAIRS, UNMARKED, {}, "completion"),
        (PAIRS, MARKED, {}, "completion"),
        (TALKS, MARKED, {"assistant_only_loss": True}, "completion"),
        (TALKS, UNMARKED, {}, "all"),
        (PLAIN, None, {}, "all"),
    ],
    ids=["prompt-completion", "conversations", "with marks", "assistant_only_loss", "all of a conversation", "text"],
)
def test_supervised_examples(
    model: Policy,
    tmp_path: Path,
    rows: list[dict[str, Any]],
    template: str | None,
    config: dict[str, Any],
    loss_on: Any,
) -> None:
    import datasets

    trl = import_trl()
    model.tokenizer.chat_template = template
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    data = PairsData(path=str(tmp_path / "rows.jsonl"))
    ours = encode(model, read_rows(data), loss_on, chat=data)
    trainer = trl.SFTTrainer(
        model=model.model, args=trl.SFTConfig(**trainer_settings(tmp_path), **config),
        train_dataset=datasets.Dataset.from_list(rows), processing_class=model.tokenizer,
    )  # fmt: skip
    theirs = batches_of(trainer, len(rows))
    assert [[*e.prompt, *e.completion] for e in ours] == theirs["input_ids"]
    learnt = [
        [-100] * len(e.prompt) + [i if m else -100 for i, m in zip(e.completion, e.mask, strict=True)] for e in ours
    ]
    # the first token is predicted from nothing, so it is learnt by neither
    assert [row[1:] for row in learnt] == [row[1:] for row in theirs["labels"]]


@pytest.mark.parametrize(
    "rows",
    [
        [{"prompt": "The sky is", "chosen": " blue.", "rejected": " green."}],
        [{"chosen": "The sky is blue.", "rejected": "The sky is green."}],
        [{"prompt": [user("a")], "chosen": [assistant("b")], "rejected": [assistant("c, d")]}],
        [{"chosen": [SYSTEM, user("a"), assistant("b")], "rejected": [SYSTEM, user("a"), assistant("bc")]}],
    ],
    ids=["text", "text with the prompt within", "conversations", "conversations with the prompt within"],
)
def test_preference_pairs(model: Policy, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    import datasets

    trl = import_trl()
    model.tokenizer.chat_template = UNMARKED
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    data = PairsFile(path=str(tmp_path / "rows.jsonl"), held_out=0)
    [ours] = preferences.encode(model, load_pairs(data).train, data)
    model.model.save_pretrained(tmp_path / "reference")
    model.model.config._name_or_path = str(tmp_path / "reference")  # where TRL looks for the reference
    trainer = trl.DPOTrainer(
        model=model.model, args=trl.DPOConfig(**trainer_settings(tmp_path)),
        train_dataset=datasets.Dataset.from_list(rows), processing_class=model.tokenizer,
    )  # fmt: skip
    theirs = trainer.train_dataset[0]
    assert (ours.prompt, ours.chosen, ours.rejected) == tuple(
        theirs[f"{name}_ids"] for name in ("prompt", "chosen", "rejected")
    )
