"""The tasks that stand alone, by name; `mixture` is made of them."""

from collections.abc import Mapping
from types import MappingProxyType

from groupwise.tasks.arithmetic import Arithmetic, ArithmeticConfig
from groupwise.tasks.base import Task
from groupwise.tasks.code import Code, CodeConfig
from groupwise.tasks.countdown import Countdown, CountdownConfig
from groupwise.tasks.general import General, GeneralConfig
from groupwise.tasks.jsonl import Jsonl
from groupwise.tasks.jsonl_config import JsonlConfig
from groupwise.tasks.logic import LOGIC_TASKS, LogicOptions
from groupwise.tasks.proofs import PROOF_TASKS, ProofOptions
from groupwise.tasks.word_problems import WordProblems, WordProblemsConfig

SingleOptions = (
    ArithmeticConfig
    | WordProblemsConfig
    | CountdownConfig
    | GeneralConfig
    | JsonlConfig
    | CodeConfig
    | LogicOptions
    | ProofOptions
)
"""Configurations of these tasks."""

_ALL: tuple[type[Task], ...] = (
    Arithmetic, WordProblems, Countdown, General, Jsonl, Code, *LOGIC_TASKS, *PROOF_TASKS,
)  # fmt: skip
SINGLE_TASKS: Mapping[str, type[Task]] = MappingProxyType({task.name: task for task in _ALL})
"""Task classes by name."""
