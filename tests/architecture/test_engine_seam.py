"""Only `rollout/` talks to an engine and judges what was sampled, behind the stop on failing verifiers.

Everybody else calls `sample_and_score`, `continue_and_score`, or `continuations` and then `score_groups`.
"""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "groupwise"
ENGINE = {"generate", "generate_with_tools"}
"""What asks an engine."""
JUDGING = {"verify_many", "score", "OverlappedScoring"}
"""What asks a verifier for many verdicts."""
JUDGES = {"checks", "verifiers"}
"""Rooms that may ask a verifier: `checks/` tries references and attacks, which nobody sampled."""
EXCEPTIONS = {
    ("pipeline/rejection_sampling.py", "verify_many"): "judges answers that are data, with a stop of its own",
    ("evaluation/evaluate.py", "score"): "asks a second verifier, whose failures are a result",
}


def violations(source: str, path: str) -> list[str]:
    """Lines of a file (path relative to the package) that ask an engine or a verifier."""
    room = path.partition("/")[0]
    if room == "rollout":
        return []
    forbidden = ENGINE if room in JUDGES else ENGINE | JUDGING
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):  # a step's seconds have a field `generate`, other things a `score`
            names = {node.attr} - {"score", *(["generate"] if "seconds" in ast.unparse(node.value) else [])}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            names = {node.func.id}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("groupwise."):
            names = {alias.name for alias in node.names} if node.module != "groupwise.verifiers" else set()
        else:
            continue
        lines += [f"{path}:{node.lineno}: {name}" for name in names & forbidden if (path, name) not in EXCEPTIONS]
    return lines


def test_only_rollout_asks_an_engine() -> None:
    paths = sorted(PACKAGE.rglob("*.py"))
    assert len(paths) > 100
    lines = [
        line for path in paths for line in violations(path.read_text("utf-8"), path.relative_to(PACKAGE).as_posix())
    ]
    assert not lines, "use rollout.sample_and_score instead:\n" + "\n".join(lines)
    for path, name in EXCEPTIONS:
        assert name in (PACKAGE / path).read_text("utf-8"), f"{path} needs no exception any more"


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("pipeline/rollouts.py", "self.actors.engine.generate(requests, sampling, results.__setitem__)"),
        ("evaluation/chains.py", "from groupwise.rollout.tool_rounds import generate_with_tools"),
        ("evaluation/chains.py", "ask = engine.generate\nask(requests)"),
        ("pipeline/rollouts.py", "verdicts = self.actors.verifier.verify_many(requests)"),
        ("trainers/ppo.py", "from groupwise.verifiers.scoring import score"),
        ("checks/audit/verifier.py", "engine.generate(requests, sampling, finished)"),
    ],
)
def test_the_walk_sees_a_violation(path: str, source: str) -> None:
    assert len(violations(source, path)) == 1


def test_the_walk_accepts_the_seam() -> None:
    source = "from groupwise.rollout.sample_and_score import continue_and_score\nrow.score + model.score(x)"
    assert not violations(source, "pipeline/rollouts.py")
    assert not violations("verifier.verify_many(requests)", "checks/audit/verifier.py")
