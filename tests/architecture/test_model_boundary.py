"""Whoever is not in `models/` reads no weight: a model that is sharded or adapted then needs no second path.

Only source above `models` is walked; `verifiers` and `tasks` cannot reach a model at all.
"""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "groupwise"
WALKED = ("rollout", "training", "trainers", "evaluation", "pipeline", "health", "cli")
WEIGHTS = {
    "root", "head", "trunk", "base_model", "lm_head", "get_output_embeddings", "get_input_embeddings", "parameters",
    "named_parameters", "state_dict", "load_state_dict", "requires_grad_", "save_pretrained", "from_pretrained",
}  # fmt: skip
"""Attributes that lead to weights."""
CONFIGS = ("recipe", "settings", "config", "self", "heading")
"""Their `.model` is a section of a recipe or its class; the `.model` of anything else is a transformers model."""
EXCEPTIONS = {("training/optimizer.py", "optimizer.state_dict"), ("training/optimizer.py", "optimizer.load_state_dict")}
"""The state of AdamW, which is no weight."""


def reads(source: str, path: str) -> list[str]:
    """Where a file reads weights."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and (path, ast.unparse(node)) not in EXCEPTIONS:
            owner = ast.unparse(node.value).rpartition(".")[2]
            if node.attr in WEIGHTS or (node.attr == "model" and owner not in CONFIGS):
                found.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    return found


def test_nothing_outside_models_reads_a_weight() -> None:
    paths = [path for folder in WALKED for path in sorted((PACKAGE / folder).rglob("*.py"))]
    assert len(paths) > 50
    found = [one for path in paths for one in reads(path.read_text("utf-8"), path.relative_to(PACKAGE).as_posix())]
    assert not found, "ask the policy instead (models/backbone.py):\n" + "\n".join(found)


def test_torch_distributed_stands_in_one_folder() -> None:
    found = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py") if "distributed" in _names(path)}
    assert found == {"ranks"}


def _names(path: Path) -> set[str]:
    """Parts of what a file imports and of the attributes that it reads."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            dotted = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            names |= {part for name in dotted for part in name.split(".")}
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
    return names


@pytest.mark.parametrize(
    "source",
    [
        "weight, bias = policy.head",
        "policy.root(packed, 1.0)",
        "self.policy.model.base_model(ids)",
        "Optimizer(policy.model, config)",
        "sum(p.numel() for p in session.policy.model.parameters())",
    ],
)
def test_a_read_is_seen(source: str) -> None:
    assert reads(source, "trainers/grpo.py")


@pytest.mark.parametrize(
    "source",
    [
        "load_policy(start.model_to_load(recipe.model))",
        "load_policy(self.recipe.model.at(path))",
        "policy.fingerprint()",
    ],
)
def test_what_is_offered_is_allowed(source: str) -> None:
    assert reads(source, "trainers/grpo.py") == []
