"""Faults of recipes, checkpoints, resumed runs and evaluation."""

import ast

import pytest
from lab import LEDGER, Fault, Lab, fails, resume, stops
from planting import Edit

from groupwise.errors import CheckpointError, ConfigError, ModelError
from groupwise.training.optimizer import OptimizerConfig

OTHER_WEIGHTS = stops(
    "training.session:Session._check_weights", "other weights were saved or loaded", CheckpointError, resume
)


def unread_key(lab: Lab, patch: pytest.MonkeyPatch) -> None:
    """Let the optimizer's source no longer read a key of its configuration."""
    trees, path = lab.request.getfixturevalue("trees"), "training/optimizer.py"
    source = ast.unparse(trees[path])
    assert source.count("self.config.max_grad_norm") == 1
    patch.setitem(trees, path, ast.parse(source.replace("self.config.max_grad_norm", "1.0")))


FAULTS = (
    Fault(
        5,
        "A resumed run starts from the recipe's model instead of its checkpoint",
        OTHER_WEIGHTS,
        (Edit("training.session:Session.model_path", "str(self._checkpoint) if self._checkpoint else path", "path"),),
    ),
    Fault(
        5,
        "A checkpoint holds other weights than the trained ones",
        OTHER_WEIGHTS,
        (
            Edit(
                "models.backbone:Backbone.save",
                "self.model.save_pretrained(directory)",
                "self.model.save_pretrained(directory, state_dict={name: weight.round(decimals=3) "
                "for name, weight in self.model.state_dict().items()})",
            ),
        ),
    ),
    Fault(
        5,
        "A checkpoint lacks some of the weights",
        stops("models.loading:damaged", "are missing or of another shape", ModelError, resume),
        (
            Edit(
                "models.backbone:Backbone.save",
                "self.model.save_pretrained(directory)",
                "self.model.save_pretrained(directory, state_dict={name: weight "
                "for name, weight in self.model.state_dict().items() if 'mlp' not in name})",
            ),
        ),
    ),
    Fault(
        21,
        "A resumed run begins with the first problems again",
        LEDGER,
        (
            Edit(
                "trainers.rl:_Run.choose",
                "size, seed, step)",
                "size, seed, step - self.__dict__.setdefault('first', step))",
            ),
        ),
    ),
    Fault(
        21,
        "Random numbers come from a generator that every start seeds anew",
        LEDGER,
        (
            Edit(
                "training.session:Session.__init__",
                "self.config = config",
                "self.config = config; torch.manual_seed(config.seed)",
            ),
            Edit(
                "rollout.engine:_LiveBatch._uniforms",
                "self._tensor(uniforms(self.keys[outputs], self.length[outputs]))",
                "torch.rand(len(outputs), dtype=torch.float64)",
            ),
        ),
    ),
    Fault(
        21,
        "The optimizer's moments are not restored",
        LEDGER,
        (Edit("training.session:restore", "optimizer.load_state(moments,", "optimizer.load_state({},"),),
    ),
    Fault(
        21,
        "A resumed run does no step",
        LEDGER,
        (
            Edit(
                "training.session:Session.steps",
                "range(self.resumed_at, self.config.num_steps)",
                "range(0 if self.resumed_at else self.config.num_steps)",
            ),
        ),
    ),
    Fault(
        22,
        "A checkpoint has its name before its weights are on disk",
        stops("runs.atomic:check_directory", "does not have the hash in", CheckpointError, resume),
        (
            Edit(
                "runs.atomic:new_directory",
                "os.replace(temporary, path)",
                "os.replace(temporary, path)\n            os.truncate(path / 'model.safetensors', 100)",
            ),
        ),
    ),
    Fault(
        22,
        "A checkpoint is written under its name file by file",
        stops("runs.atomic:check_directory", "is not a finished checkpoint: it has no", CheckpointError, resume),
        (
            Edit(
                "models.checkpoint:save_checkpoint",
                "with new_directory(path) as directory, _disk_errors():",
                "(directory := path).mkdir(parents=True)\n    with _disk_errors():",
            ),
        ),
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
        stops("config:_explain", "unknown key; ", ConfigError),
        settings=("grpo.group_sise=8",),
    ),
    Fault(
        30,
        "The best checkpoint is chosen on the test split",
        stops("trainers.rl:_Run._evaluate", "would open the test split"),
        (Edit("trainers.rl:_Run.evaluate_dev", 'self._evaluate("dev"', 'self._evaluate("test"'),),
    ),
)
