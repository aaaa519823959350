"""Faults of recipes, checkpoints, resumed runs and evaluation."""

import pytest
from planting import Change, Edit

from groupwise.errors import CheckpointError, ConfigError, ModelError
from groupwise.training.optimizer import OptimizerConfig
from lab import LEDGER, Fault, Lab, fails, resume, stops

OTHER_WEIGHTS = stops("training", "other weights were saved or loaded", CheckpointError, resume)


def unread_key(lab: Lab, patch: pytest.MonkeyPatch) -> None:
    """Let the optimizer's source no longer read a key of its configuration."""
    trees = lab.request.getfixturevalue("trees")
    changes = {path: Change(Edit("training", "self.config.max_grad_norm", "1.0"), trees[path]) for path in trees}
    [(path, change)] = [(path, change) for path, change in changes.items() if change.places]
    patch.setitem(trees, path, change.tree)


FAULTS = (
    Fault(5, "A resumed run starts from the recipe's model instead of its checkpoint", OTHER_WEIGHTS).by(
        "training", "model.at(self._checkpoint) if self._checkpoint else model", "model"
    ),
    Fault(5, "A checkpoint holds other weights than the trained ones", OTHER_WEIGHTS).by(
        "models",
        "self.model.save_pretrained(directory, state_dict=state)",
        "self.model.save_pretrained(directory, state_dict={name: weight.round(decimals=3) "
        "for name, weight in self.model.state_dict().items()})",
    ),
    Fault(
        5,
        "A checkpoint lacks some of the weights",
        stops("models", "are missing or of another shape", ModelError, resume),
    ).by(
        "models",
        "self.model.save_pretrained(directory, state_dict=state)",
        "self.model.save_pretrained(directory, state_dict={name: weight "
        "for name, weight in self.model.state_dict().items() if 'mlp' not in name})",
    ),
    Fault(21, "A resumed run begins with the first problems again", LEDGER).by(
        "trainers",
        "order = problem_order(len(problems), size, seed, step)",
        "order = problem_order(len(problems), size, seed, step - self.__dict__.setdefault('first', step))",
    ),
    Fault(21, "Random numbers come from a generator that every start seeds again", LEDGER)
    .by(
        "training:Start",
        "self._config, self._sinks = config, recipe.sinks",
        "self._config, self._sinks = config, recipe.sinks; __import__('torch').manual_seed(config.seed)",
    )
    .by(
        "rollout",
        "self._tensor(uniforms(self.keys[outputs], self.begun[outputs] + self.length[outputs]))",
        "torch.rand(len(outputs), dtype=torch.float64)",
    ),
    Fault(21, "The optimizer's moments are not restored", LEDGER).by(
        "training",
        "optimizer.load_state(moments, state.facts['updates_done'])",
        "optimizer.load_state({}, state.facts['updates_done'])",
    ),
    Fault(21, "A resumed run does no step", LEDGER).by(
        "training",
        "range(self.progress.step, self.config.num_steps)",
        "range(0 if self.progress.step else self.config.num_steps)",
    ),
    Fault(
        22,
        "A checkpoint has its name before its weights are on disk",
        stops("runs", "does not have the hash in", CheckpointError, resume),
    ).by(
        "runs:new_directory",
        "os.replace(temporary, path)",
        "os.replace(temporary, path); os.truncate(path / 'model.safetensors', 100)",
    ),
    Fault(
        22,
        "A checkpoint is written under its name file by file",
        stops("runs", "is not a finished checkpoint: it has no", CheckpointError, resume),
    ).by(
        "models:save_checkpoint",
        "new_directory(path)",
        "__import__('contextlib').nullcontext(path.mkdir(parents=True) or path)",
    ),
    Fault(
        23,
        "A key of the configuration is read by no code",
        fails("architecture/test_docs.py", "test_config_keys_are_read", sections=[OptimizerConfig]),
        (unread_key,),
    ),
    Fault(
        23,
        "A recipe sets a key that does not exist",
        stops("config", "unknown key; ", ConfigError),
        settings=("grpo.group_sise=8",),
    ),
    Fault(30, "The best checkpoint is chosen on the test split", stops("trainers", "would open the test split")).by(
        "trainers",
        "self._evaluate(Purpose.DEV, self.actors, size, name)",
        "self._evaluate(Purpose.TEST, self.actors, size, name)",
    ),
)
