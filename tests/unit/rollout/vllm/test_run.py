"""A whole run on servers, one of which is killed again and again: it costs nothing but time."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from groupwise.errors import ConfigError
from groupwise.evaluation.measure import evaluate
from groupwise.models.policy import Policy
from groupwise.trainers import load_recipe, train
from groupwise.trainers.replay import replay
from groupwise.trainers.rl_run import RlRun

RECIPE = """
algorithm = "grpo"
run = { directory = "RUN", num_steps = 3 }
model = { path = "MODEL", device = "cpu" }
task = { kind = "arithmetic" }
grpo = { prompts_per_step = 2, group_size = 3 }
sampling = { max_tokens = 4 }
evaluation = { num_problems = 1, num_samples = 1, test_problems = 0 }
optimizer = { lr = 0.01 }
loss = { entropy_coef = 0.1 }  # a gradient, whatever is earned
engine = { kind = "vllm", addresses = ADDRESSES, rehearse = false }
"""


@pytest.fixture
def run(tmp_path: Path, trained: Policy) -> Callable[..., Path]:
    trained.save(tmp_path / "model")

    def start(name: str, *servers: Any, changes: Sequence[str] = ()) -> Path:
        text = RECIPE.replace("RUN", str(tmp_path / name)).replace("MODEL", str(tmp_path / "model"))
        text = text.replace("ADDRESSES", json.dumps([server.address for server in servers]))
        (tmp_path / f"{name}.toml").write_text(text)
        train(load_recipe(tmp_path / f"{name}.toml", list(changes)))
        return tmp_path / name

    return start


@pytest.mark.slow
def test_a_run_whose_servers_die_leaves_the_same_ledger(
    run: Callable[..., Path], make_server: Callable[..., Any]
) -> None:
    quiet = run("quiet", make_server())
    mortal, over = make_server(), threading.Event()

    def kill_and_revive() -> None:
        while not over.is_set():
            # start, publish and dev ask it eight times, the first step at least three times more
            mortal.dies_after = mortal.generated + (6 if deaths else 9)
            while not mortal.dead and not over.is_set():
                time.sleep(0.01)
            if mortal.dead:
                deaths.append(mortal.generated)
                mortal.restart()

    deaths: list[int] = []
    thread = threading.Thread(target=kill_and_revive)
    thread.start()
    disturbed = run("disturbed", mortal, make_server())
    over.set()
    thread.join()
    assert deaths
    assert (disturbed / "ledger.jsonl").read_bytes() == (quiet / "ledger.jsonl").read_bytes()
    lines = [json.loads(line) for line in (disturbed / "metrics.jsonl").read_text().splitlines()]
    engines = [line["engine"] for line in lines if line["kind"] == "step"]
    assert [facts["version"] for facts in engines] == [1, 2, 3]
    assert all(facts["publish_s"] > 0 and len(facts["servers"]) == 2 for facts in engines)


AHEAD = [
    "engine.steps_ahead=1", 'loss.correction={bound="truncate", cap=1.05}', "run.num_steps=5", "run.checkpoint_every=3",
    "evaluation.every=10", "optimizer.lr=0.05",
]  # fmt: skip


def steps_of(run: Path, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / f"{name}.jsonl").read_text().splitlines()]
    return [line for line in lines if "groups" in line or line.get("kind") == "step"]


def test_one_step_off_trains_on_completions_of_the_weights_before(
    run: Callable[..., Path], make_server: Callable[..., Any]
) -> None:
    ahead = run("ahead", make_server(), changes=AHEAD)
    ledger, metrics = steps_of(ahead, "ledger"), steps_of(ahead, "metrics")
    # a step is on-policy at the start, and after a checkpoint, from which a resumed run would begin
    assert [line.get("ages") for line in ledger] == [None, [1, 1], [1, 1], None, [1, 1]]
    assert [line["age"] for line in metrics] == [0, 1, 1, 0, 1]
    assert all(line["effective_samples"] < 1 for line in metrics if line["age"])
    assert any(line["weights_bounded"] > 0 for line in metrics if line["age"])
    assert all(abs(line["effective_samples"] - 1) < 1e-4 for line in metrics if not line["age"])
    assert all(line["logprob_difference"] > 1e-3 for line in metrics if line["age"])  # other weights sampled them
    # the first step off samples what an on-policy run samples one step before: from the very first weights
    rows = pq.read_table(ahead / "rollouts" / "step-000001.parquet").to_pylist()
    assert {row["policy_version"] for row in rows} == {0}
    with pytest.raises(ConfigError, match=r"ahead sampled a step ahead, .*steps_ahead = 1"):
        replay(ahead, 1, rows[0]["problem"])


@pytest.mark.slow
def test_one_step_off_resumes_to_the_same_ledger(
    run: Callable[..., Path], make_server: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run("whole", make_server(), changes=AHEAD)

    def die(self: Any, *args: Any) -> None:
        if self.session.progress.step == 3 and self.session.optimizer.updates_done == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RlRun, "examine", die)
        with pytest.raises(KeyboardInterrupt):
            run("killed", make_server(), changes=AHEAD)
    assert len(steps_of(run("killed", make_server(), changes=AHEAD), "ledger")) == 5
    assert (whole / "ledger.jsonl").read_bytes() == (whole.parent / "killed" / "ledger.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["engine.steps_ahead=1"], "loss.correction.bound = 'none' takes them for the policy's own"),
        ([*AHEAD, "grpo.curriculum=true"], "grpo.curriculum = true chooses problems by what this step finds"),
        ([*AHEAD, "grpo.refill_rounds=2"], "grpo.refill_rounds = 2 chooses problems by what this step finds"),
        ([*AHEAD, "engine.steps_ahead=2"], "less than or equal to 1"),
        (
            [*AHEAD, 'sampling.tools.calc={kind="calculator"}'],
            "after a kill its tools or its environment would be asked again",
        ),
    ],
)
def test_what_one_step_off_cannot_have(
    run: Callable[..., Path], changes: list[str], said: str, make_server: Callable[..., Any]
) -> None:
    with pytest.raises(ConfigError, match=said):
        run("refused", make_server(), changes=changes)


def test_a_replay_asks_servers_for_the_same(run: Callable[..., Path], make_server: Callable[..., Any]) -> None:
    done = run("recorded", make_server(), changes=["run.num_steps=2"])
    row = pq.read_table(done / "rollouts" / "step-000001.parquet").to_pylist()[-1]
    assert replay(done, 1, row["problem"], row["sample"]).identical


def test_a_checkpoint_is_evaluated_through_servers(
    tmp_path: Path, trained: Policy, make_server: Callable[..., Any]
) -> None:
    trained.save(tmp_path)
    server = make_server()
    engine = f'engine={{kind="vllm", addresses=["{server.address}"], rehearse=false}}'
    asked = {"task": "arithmetic", "problems": 2, "samples": 2, "max_tokens": 4, "changes": [engine]}
    found = evaluate(tmp_path, **asked)
    assert server.loads == 1
    assert len(found.rows) == 4
