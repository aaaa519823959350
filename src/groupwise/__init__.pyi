"""The names of the package: for type checkers, and the table from which `__init__.py` imports them when first used."""

# ruff: noqa: E402, I001

__version__: str

# recipes, and what is done with them
from groupwise.trainers import load_recipe as load_recipe
from groupwise.trainers.base import Recipe as Recipe
from groupwise.trainers.grpo import GrpoRecipe as GrpoRecipe
from groupwise.checks.preflight import preflight as preflight
from groupwise.checks.preflight import PreflightOptions as PreflightOptions
from groupwise.trainers import train as train
from groupwise.trainers.report import StepReport as StepReport
from groupwise.trainers.report import DevReport as DevReport
from groupwise.pipeline import load_pipeline as load_pipeline
from groupwise.pipeline import run_pipeline as run_pipeline
from groupwise.pipeline import run_seeds as run_seeds
from groupwise.trainers.compare import compare_variants

compare = compare_variants

# checkpoints, and verifiers
from groupwise.evaluation.measure import evaluate as evaluate
from groupwise.evaluation.test_time.budget import measure_budget as measure_budget
from groupwise.evaluation.test_time.methods import BudgetConfig as BudgetConfig
from groupwise.evaluation.test_time.result import BudgetResult as BudgetResult
from groupwise.evaluation.measure import Measurement as Measurement
from groupwise.evaluation.ask import sample as sample
from groupwise.checks.audit.verifier import audit_verifier as audit_verifier
from groupwise.checks.audit.sandbox import audit_sandbox as audit_sandbox
from groupwise.checks.audit.verifier import verify as verify
from groupwise.checks.audit.verifier import check_references as check_references

# run directories
from groupwise.runs.run import Run as Run
from groupwise.runs.run import Table as Table
from groupwise.explorer.export import write_report

report = write_report
from groupwise.explorer.seeds import write_seeds_report

seeds_report = write_seeds_report
from groupwise.models.export import export as export
from groupwise.trainers.replay import replay as replay

# a loop of your own: what `grpo_step` is made of
from groupwise.tasks import make_task as make_task
from groupwise.verifiers import make_verifier as make_verifier
from groupwise.models.policy import load_policy as load_policy
from groupwise.models.policy import Policy as Policy
from groupwise.rollout.sample_and_score import Actors as Actors
from groupwise.trainers.rl_run import problem_order as problem_order
from groupwise.randomness import Draws as Draws
from groupwise.randomness import Purpose as Purpose
from groupwise.rollout.sample_and_score import sample_and_score as sample_and_score
from groupwise.trainers.grpo import advantaged

advantages = advantaged
from groupwise.training.optimizer import Optimizer as Optimizer
from groupwise.training.update import Updater as Updater
from groupwise.training.update import update_policy

update = update_policy

# a task and a verifier of your own
from groupwise.types import Problem as Problem
from groupwise.types import Split as Split
from groupwise.tasks.base import Task as Task
from groupwise.tasks.base import TaskConfig as TaskConfig
from groupwise.verifiers import Verifier as Verifier
from groupwise.types import Verdict as Verdict
from groupwise.types import Outcome as Outcome

# errors
from groupwise.errors import GroupwiseError as GroupwiseError
from groupwise.errors import ConfigError as ConfigError
