"""Groupwise: reinforcement learning that teaches language models to reason.

    import groupwise as gw

    run = gw.train(gw.load_recipe("recipes/arithmetic.toml", {"run.num_steps": 3}))
    run.steps().to_pandas()

This file is a table of names. Each is what the command line itself calls, and is imported when it is first used, so
that `import groupwise` loads neither torch nor transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from groupwise.checks.audit.sandbox import SandboxAudit as SandboxAudit
    from groupwise.checks.audit.sandbox import audit_sandbox as audit_sandbox
    from groupwise.checks.audit.verifier import Audit as Audit
    from groupwise.checks.audit.verifier import audit_verifier as audit_verifier
    from groupwise.checks.audit.verify import Explained as Explained
    from groupwise.checks.audit.verify import References as References
    from groupwise.checks.audit.verify import check_references as check_references
    from groupwise.checks.audit.verify import verify as verify
    from groupwise.checks.preflight import Preflight as Preflight
    from groupwise.checks.preflight import PreflightOptions as PreflightOptions
    from groupwise.checks.preflight import preflight as preflight
    from groupwise.errors import ConfigError as ConfigError
    from groupwise.errors import GroupwiseError as GroupwiseError
    from groupwise.evaluation.ask import Answers as Answers
    from groupwise.evaluation.ask import sample as sample
    from groupwise.evaluation.measure import Measurement as Measurement
    from groupwise.evaluation.measure import evaluate as evaluate
    from groupwise.evaluation.test_time.budget import measure_budget as measure_budget
    from groupwise.evaluation.test_time.result import BudgetResult as BudgetResult
    from groupwise.evaluation.test_time.settings import BudgetConfig as BudgetConfig
    from groupwise.explorer.export import write_report
    from groupwise.explorer.seeds import write_seeds_report
    from groupwise.models.export import export as export
    from groupwise.models.policy import Policy as Policy
    from groupwise.models.policy import load_policy as load_policy
    from groupwise.pipeline import load_pipeline as load_pipeline
    from groupwise.pipeline import run_pipeline as run_pipeline
    from groupwise.pipeline import run_seeds as run_seeds
    from groupwise.randomness import Draws as Draws
    from groupwise.randomness import Purpose as Purpose
    from groupwise.rollout.sample_and_score import Actors as Actors
    from groupwise.rollout.sample_and_score import sample_and_score as sample_and_score
    from groupwise.runs.run import Run as Run
    from groupwise.runs.run import Table as Table
    from groupwise.tasks import make_task as make_task
    from groupwise.tasks.base import Task as Task
    from groupwise.tasks.base import TaskConfig as TaskConfig
    from groupwise.trainers import load_recipe as load_recipe
    from groupwise.trainers import train as train
    from groupwise.trainers.base import Recipe as Recipe
    from groupwise.trainers.compare import ComparisonTable as ComparisonTable
    from groupwise.trainers.compare import compare_variants
    from groupwise.trainers.grpo import GrpoRecipe as GrpoRecipe
    from groupwise.trainers.grpo import advantaged
    from groupwise.trainers.replay import Replay as Replay
    from groupwise.trainers.replay import replay as replay
    from groupwise.trainers.report import DevReport as DevReport
    from groupwise.trainers.report import StepReport as StepReport
    from groupwise.trainers.rl_run import problem_order as problem_order
    from groupwise.training.optimizer import Optimizer as Optimizer
    from groupwise.training.update import Updater as Updater
    from groupwise.training.update import update_policy
    from groupwise.types import Outcome as Outcome
    from groupwise.types import Problem as Problem
    from groupwise.types import Split as Split
    from groupwise.types import Verdict as Verdict
    from groupwise.verifiers import Verifier as Verifier
    from groupwise.verifiers import make_verifier as make_verifier

    advantages = advantaged
    compare = compare_variants
    report = write_report
    seeds_report = write_seeds_report
    update = update_policy

_PLACES = {
    # recipes, and what is done with them
    "load_recipe": "groupwise.trainers:load_recipe",
    "Recipe": "groupwise.trainers.base:Recipe",
    "GrpoRecipe": "groupwise.trainers.grpo:GrpoRecipe",
    "preflight": "groupwise.checks.preflight:preflight",
    "Preflight": "groupwise.checks.preflight:Preflight",
    "PreflightOptions": "groupwise.checks.preflight:PreflightOptions",
    "train": "groupwise.trainers:train",
    "StepReport": "groupwise.trainers.report:StepReport",
    "DevReport": "groupwise.trainers.report:DevReport",
    "load_pipeline": "groupwise.pipeline:load_pipeline",
    "run_pipeline": "groupwise.pipeline:run_pipeline",
    "run_seeds": "groupwise.pipeline:run_seeds",
    "compare": "groupwise.trainers.compare:compare_variants",
    "ComparisonTable": "groupwise.trainers.compare:ComparisonTable",
    # checkpoints, and verifiers
    "evaluate": "groupwise.evaluation.measure:evaluate",
    "measure_budget": "groupwise.evaluation.test_time.budget:measure_budget",
    "BudgetConfig": "groupwise.evaluation.test_time.settings:BudgetConfig",
    "BudgetResult": "groupwise.evaluation.test_time.result:BudgetResult",
    "Measurement": "groupwise.evaluation.measure:Measurement",
    "sample": "groupwise.evaluation.ask:sample",
    "Answers": "groupwise.evaluation.ask:Answers",
    "audit_verifier": "groupwise.checks.audit.verifier:audit_verifier",
    "Audit": "groupwise.checks.audit.verifier:Audit",
    "audit_sandbox": "groupwise.checks.audit.sandbox:audit_sandbox",
    "SandboxAudit": "groupwise.checks.audit.sandbox:SandboxAudit",
    "verify": "groupwise.checks.audit.verify:verify",
    "Explained": "groupwise.checks.audit.verify:Explained",
    "check_references": "groupwise.checks.audit.verify:check_references",
    "References": "groupwise.checks.audit.verify:References",
    # run directories
    "Run": "groupwise.runs.run:Run",
    "Table": "groupwise.runs.run:Table",
    "report": "groupwise.explorer.export:write_report",
    "seeds_report": "groupwise.explorer.seeds:write_seeds_report",
    "export": "groupwise.models.export:export",
    "replay": "groupwise.trainers.replay:replay",
    "Replay": "groupwise.trainers.replay:Replay",
    # a loop of your own: what `grpo_step` is made of
    "make_task": "groupwise.tasks:make_task",
    "make_verifier": "groupwise.verifiers:make_verifier",
    "load_policy": "groupwise.models.policy:load_policy",
    "Policy": "groupwise.models.policy:Policy",
    "Actors": "groupwise.rollout.sample_and_score:Actors",
    "problem_order": "groupwise.trainers.rl_run:problem_order",
    "Draws": "groupwise.randomness:Draws",
    "Purpose": "groupwise.randomness:Purpose",
    "sample_and_score": "groupwise.rollout.sample_and_score:sample_and_score",
    "advantages": "groupwise.trainers.grpo:advantaged",
    "Optimizer": "groupwise.training.optimizer:Optimizer",
    "Updater": "groupwise.training.update:Updater",
    "update": "groupwise.training.update:update_policy",
    # a task and a verifier of your own
    "Problem": "groupwise.types:Problem",
    "Split": "groupwise.types:Split",
    "Task": "groupwise.tasks.base:Task",
    "TaskConfig": "groupwise.tasks.base:TaskConfig",
    "Verifier": "groupwise.verifiers:Verifier",
    "Verdict": "groupwise.types:Verdict",
    "Outcome": "groupwise.types:Outcome",
    # errors
    "GroupwiseError": "groupwise.errors:GroupwiseError",
    "ConfigError": "groupwise.errors:ConfigError",
}
"""Where each name stands, as `module:name`; the imports above say the same to type checkers."""

__all__ = ["__version__", *_PLACES]


if not TYPE_CHECKING:  # else every misspelt name would be Any

    def __getattr__(name: str) -> object:
        """Import a name of the table when it is first used (PEP 562)."""
        if name not in _PLACES:
            raise AttributeError(f"module 'groupwise' has no attribute {name!r}; it has {', '.join(_PLACES)}")
        module, _, attribute = _PLACES[name].partition(":")
        found = globals()[name] = getattr(import_module(module), attribute)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_PLACES})
