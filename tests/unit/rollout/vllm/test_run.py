"""A whole run on servers, one of which is killed again and again: it costs nothing but time."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.models.policy import Policy
from groupwise.trainers import load_recipe, train

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

    def start(name: str, *servers: Any) -> Path:
        text = RECIPE.replace("RUN", str(tmp_path / name)).replace("MODEL", str(tmp_path / "model"))
        text = text.replace("ADDRESSES", json.dumps([server.address for server in servers]))
        (tmp_path / f"{name}.toml").write_text(text)
        train(load_recipe(tmp_path / f"{name}.toml"))
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
                mortal.start()

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
