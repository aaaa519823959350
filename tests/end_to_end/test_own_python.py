"""A stranger's reward and data, named on the command line: in every command, and refused before a model is loaded."""

import json
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commands import ROOT, Said, groupwise

pytestmark = pytest.mark.filterwarnings("ignore")  # that such rewards do not accept every reference answer
REWARDS = """
def reward(completion, reference, tags):
    if "9" in completion: return None
    return {"right": float(reference in completion), "tagged": 0.25 * len(tags)}

def trl(completions, tags, **kwargs):
    return [0.5 * len(t) + len(c) / 100 for c, t in zip(completions, tags)]

def misspelt(completion, tag):
    return 1.0

def broken(completion):
    return "much"
"""
SMALL = {
    "model.device": "cpu", "model.num_threads": 1, "run.num_steps": 1, "grpo.prompts_per_step": 2, "grpo.group_size": 4,
    "sampling.max_tokens": 24, "evaluation.num_problems": 2, "evaluation.num_samples": 2, "evaluation.test_problems": 0,
}  # fmt: skip
TASK = 'task={kind="jsonl", path="data.jsonl", dev_fraction=0.3, template={prompt="{question}\\n"}}'


def train(function: str, *more: str) -> Said:
    dials = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    kind = f'verifier.kind="my_rewards.py:{function}"'
    return groupwise("train", ROOT / "recipes" / "arithmetic.toml", *dials, "--set", TASK, "--set", kind, *more)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stranger works."""
    home = tmp_path_factory.mktemp("home")
    (home / "my_rewards.py").write_text(REWARDS)
    lines = [{"question": f"What is {n} + 2?", "answer": str(n + 2), "tags": ["sum", "easy"]} for n in range(10, 40)]
    (home / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return home


@pytest.fixture(scope="module")
def trained(home: Path) -> Said:
    with chdir(home):
        return train("reward", "--set", "run.directory=runs/own", "--set", "verifier.timeout_s=60")


@pytest.fixture
def there(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(home)
    return home


def test_its_parts_stand_in_the_step_line_and_in_the_rollouts(trained: Said, there: Path) -> None:
    assert trained.code == 0, trained.err
    assert "tagged +0.500" in trained.out
    rows = pq.read_table(there / "runs" / "own" / "rollouts" / "step-000000.parquet").to_pylist()
    assert len(rows) == 8
    for row in rows:
        right = {"right": float(row["reference"] in row["text"]), "tagged": 0.5}
        assert json.loads(row["reward_parts"]) == ({} if "9" in row["text"] else right)
        assert (row["reward"] is None) == (row["outcome"] == "none") == ("9" in row["text"])


def test_its_source_is_kept_with_the_run(trained: Said, there: Path) -> None:
    (kept,) = (there / "runs" / "own" / "sources").glob("my_rewards-*/my_rewards.py")
    assert kept.read_text() == REWARDS


def test_a_replay_finds_it_from_anywhere_and_when_it_was_changed(
    trained: Said, there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = there / "runs" / "own"
    row = pq.read_table(run / "rollouts" / "step-000000.parquet").to_pylist()[0]
    monkeypatch.chdir(tmp_path)
    (there / "my_rewards.py").rename(there / "moved.py")
    try:
        said = groupwise("replay", str(run), "--step", "0", "--problem", row["problem"])
    finally:
        (there / "moved.py").rename(there / "my_rewards.py")
    assert (said.code, "identical" in said.out) == (0, True), said.err


def test_the_same_name_in_eval(trained: Said, there: Path) -> None:
    best = str(there / "runs" / "own" / "checkpoints" / "best")
    said = groupwise(
        "eval", best, "--split", "dev", "--problems", "2", "--samples", "2", "--max-tokens", "24", "--json"
    )
    assert said.code == 0, said.err
    assert json.loads(said.out)["checkpoints"][best]["verdict_errors"] == 0


def test_the_same_name_in_verify(there: Path) -> None:
    words = ("verify", "my_rewards.py:reward", "It is 42.", "--reference", "42", "--data", 'tags=["a"]')
    said = groupwise(*words, "--json", "--set", "verifier.timeout_s=60")
    assert json.loads(said.out)["parts"] == {"right": 1.0, "tagged": 0.25}
    assert (json.loads(said.out)["outcome"], said.code) == ("correct", 0)
    refused = groupwise("verify", "my_rewards.py:reward", "It is 42.", "--reference", "42")
    assert (refused.code, "needs the argument 'tags'" in refused.err) == (2, True)


def test_the_same_name_in_audit(there: Path) -> None:
    said = groupwise("audit", "my_rewards.py:trl", "--reference", "42", "--json")
    assert (said.code, "needs the argument 'tags'" in said.err) == (2, True)
    case = {"gold": "42", "response": "x", "expected": True}
    (there / "cases.jsonl").write_text(json.dumps(case) + "\n")
    said = groupwise("audit", "my_rewards.py:broken", "--cases", "cases.jsonl", "--json")
    assert said.code == 1, said.err
    assert "returned 'much' (a str)" in said.out


def test_the_same_name_in_a_pipeline(there: Path) -> None:
    recipe = """
        [pipeline]
        directory = "runs/pipeline"
        [model]
        device = "cpu"
        num_threads = 1
        [sampling]
        max_tokens = 24
        [measure]
        num_problems = 2
        num_samples = 2
        [tasks.sums]
        kind = "jsonl"
        path = "data.jsonl"
        dev_fraction = 0.3
        test_fraction = 0.2
        template = { prompt = "{question}\\n" }
        [stages.one]
        kind = "train"
        algorithm = "grpo"
        task = "sums"
        verifier = { kind = "my_rewards.py:trl", timeout_s = 60 }
        run = { num_steps = 1 }
        model = { path = "{base}" }
        grpo = { prompts_per_step = 2, group_size = 4 }
        evaluation = { num_problems = 2, num_samples = 2, test_problems = 0 }
    """
    (there / "pipeline.toml").write_text(recipe)
    said = groupwise("pipeline", "pipeline.toml")
    assert said.code == 0, said.err


@pytest.mark.parametrize(
    ("function", "more", "sentence"),
    [
        ("nothing", (), "my_rewards.py has no 'nothing'"),
        ("misspelt", (), "needs the argument 'tag', which is not a field of problem data/train-"),
        ("reward", ("--set", "verifier.correct_reward=2"), "verifier.correct_reward = 2.0 has no effect here"),
        ("broken", (), "my_rewards.py:broken returned 'much' (a str) for the completion"),
    ],
)
def test_bad_input_is_one_sentence_before_any_model(
    there: Path, function: str, more: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    never: Callable[..., object] = lambda *_: pytest.fail("a model was loaded")  # noqa: E731
    monkeypatch.setattr("groupwise.trainers.rl.start_policy", never)
    said = train(function, "--set", "run.directory=runs/none", *more)
    assert (said.code, sentence in said.err) == (2, True), said.err
    assert "Traceback" not in said.err
    assert not (there / "runs" / "none").exists()


def test_a_new_project_trains_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert groupwise("init", "mine").code == 0
    dials = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    said = groupwise("train", "mine/recipe.toml", *dials)
    assert said.code == 0, said.err
    assert Path("runs/mine/finished.json").exists()
    refused = groupwise("init", "mine")
    assert (refused.code, refused.err) == (
        2, "groupwise: mine exists and is not an empty directory: name a new one\n",
    )  # fmt: skip
    assert pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", "mine", "--import-mode=prepend", "mine"]) == 0
