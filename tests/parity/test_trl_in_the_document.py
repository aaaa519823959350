"""What docs/compared.md says of TRL is so in the version that is installed."""

import dataclasses
import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from parity_document import DEFAULTS, PAGE, THEIRS_ONLY, cells, quoted
from parity_trl import import_trl

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:You are importing from .trl.experimental")]

GONE = ("ppo", "prm", "bco", "gfpo", "gspo_token", "minillm", "nash_md", "papo", "ssd", "xpo")
"""Trainers that TRL once had."""


@pytest.fixture(scope="module")
def trl() -> ModuleType:
    return import_trl()


def fields(config: Any) -> dict[str, Any]:
    return {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(config)
    }


def test_the_version_is_the_one_that_was_read(trl: ModuleType) -> None:
    assert f"| TRL | {trl.__version__}," in PAGE


def test_files_that_are_named_exist(trl: ModuleType) -> None:
    paths = {name for name in quoted(PAGE) if name.startswith("trl/")} - {"trl/"}
    assert len(paths) > 12
    assert [path for path in paths if not (Path(trl.__file__).parents[1] / path).exists()] == []


def test_names_that_are_said_to_be_trls_are(trl: ModuleType) -> None:
    configs = [trl.GRPOConfig, trl.ModelConfig, importlib.import_module("trl.experimental.async_grpo").AsyncGRPOConfig]
    known = {*inspect.signature(trl.GRPOTrainer.__init__).parameters, *(name for c in configs for name in fields(c))}
    named = [
        name
        for cell in cells(THEIRS_ONLY, 1)
        for text in re.findall(r"TRL \((.*?)\)", cell)
        for name in quoted(text)
        if "/" not in name
    ]
    assert len(named) > 8
    assert [name for name in named if name not in known] == []


def test_defaults_are_trls(trl: ModuleType) -> None:
    defaults = fields(trl.GRPOConfig)
    stated = [pair.split(" = ") for cell in cells(DEFAULTS, 1) for pair in quoted(cell) if " = " in pair]
    assert len(stated) > 10
    assert {name: repr(defaults[name]).replace("'", '"') for name, _ in stated} == dict(stated)


def test_settings_that_equal_ours_are_trls(trl: ModuleType) -> None:
    names = {n for cell in cells("### Equal", 0) for n in re.findall(r"`([a-z][a-z_]+)(?: = |`)", cell)}
    assert len(names) > 10
    assert names - set(fields(trl.GRPOConfig)) == set()


def test_trainers_are_there_or_gone(trl: ModuleType) -> None:
    for name in ("DPO", "Distillation", "GRPO", "KTO", "RLOO", "Reward", "SFT"):
        assert hasattr(trl, f"{name}Trainer")
    assert not hasattr(trl, "PPOTrainer")
    assert not hasattr(trl, "PRMTrainer")
    for name in GONE:
        assert importlib.util.find_spec(f"trl.experimental.{name}") is None, name


def test_numbers_of_the_page(trl: ModuleType) -> None:
    losses = re.search(r"\d+(?= losses of pairs)", PAGE)
    staleness = re.search(r"\d+(?=, `max_staleness`)", PAGE)
    assert losses
    assert staleness
    text = {field.name: field.metadata["help"] for field in dataclasses.fields(trl.DPOConfig) if field.metadata}
    assert len(re.findall(r"`'\w+'`", text["loss_type"])) == int(losses[0])
    config = importlib.import_module("trl.experimental.async_grpo").AsyncGRPOConfig
    assert fields(config)["max_staleness"] == int(staleness[0])


def test_what_grpo_lacks_and_has(trl: ModuleType) -> None:
    assert [name for name in fields(trl.GRPOConfig) if re.search("dynamic|refill|resampl|filter_", name)] == []
    saved = inspect.getsource(trl.GRPOTrainer._save_checkpoint)
    trainer = inspect.getsource(trl.GRPOTrainer)
    for name in ("_step", "_buffered_inputs"):
        assert f"self.{name} =" in trainer
        assert f"self.{name}" not in saved
    head = inspect.getsource(importlib.import_module("trl.kernels.chunked_logprob"))
    assert "entropy" in head
    assert 'outputs=("log_probs", "entropy")' in trainer
    assert "does not support sequence-dim parallelism" in inspect.getsource(trl.GRPOConfig.__post_init__)
