"""Several ranks give the run that one process gives: the same ledger and the same checkpoints, byte for byte.

The ranks are real processes with gloo between them, forked from a server that has imported the package once.
"""

import json
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from commands import save_random
from ranked_run import (
    FAILED,
    PATIENCE_S,
    Harm,
    averages,
    counts_alone,
    exit_codes,
    killed,
    lost_while_they_connect,
    run_on_ranks,
    start_ranks,
    stuck,
    told,
)
from safetensors.torch import load_file

from groupwise.config import parse
from groupwise.models.checkpoint import changing_a_little, save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.new_model import character_tokenizer
from groupwise.models.policy import load_policy
from groupwise.runs.directory import RunDirectory
from groupwise.trainers import TRAINERS
from groupwise.trainers.replay import replay

NUM_STEPS = 4
SUMS = {"kind": "arithmetic", "kinds": ["sum"], "digits": [1, 1], "num_problems": 24, "num_eval_problems": 3}
RL = {
    "task": SUMS,
    "verifier": {"extraction": "last_number"},
    "sampling": {"max_tokens": 6},
    "evaluation": {"every": 2, "num_problems": 3, "num_samples": 4, "test_problems": 1, "test_samples": 4},
    "optimizer": {"lr": 1e-2, "max_grad_norm": 0.05},
}
BATCH = {"prompts_per_step": 5, "group_size": 12}
KL = {"kl_coef": 0.05, "tokens_per_micro_batch": 60}
PAIRS = {"pairs_per_step": 5, "evaluate_every": 2, "tokens_per_micro_batch": 60}
RL_LOSS = {**KL, "mini_batches": 2}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "grpo": {**RL, "grpo": BATCH, "loss": RL_LOSS, "record": {"after_every": 1}},
    "ppo": {**RL, "ppo": BATCH, "loss": KL, "critic": {"lr": 1e-2}},
    "sft": {"sft": {"sequences_per_step": 5, "tokens_per_micro_batch": 12}, "optimizer": {"lr": 1e-2}},
    "dpo": {"data": {"source": "task", "task": SUMS}, "dpo": PAIRS, "optimizer": {"lr": 1e-2}},
    "reward_model": {"data": {"source": "task", "task": SUMS}, "reward_model": PAIRS, "optimizer": {"lr": 1e-2}},
    "process_reward_model": {
        "process_reward_model": {"rows_per_step": 3, "tokens_per_micro_batch": 20, "evaluate_every": 2},
        "optimizer": {"lr": 1e-2},
    },
    "distill": {
        "data": {
            "source": "student", "task": SUMS, "prompts_per_step": 3, "group_size": 2, "sampling": {"max_tokens": 6},
        },
        "distill": {"tokens_per_micro_batch": 40},
        "optimizer": {"lr": 1e-2},
    },
}  # fmt: skip
LORA = {"lora": {"rank": 4}, "optimizer": {"lr": 1e-1, "max_grad_norm": 0.05}}
TOOLS = {"counter": {"kind": f"{Path(__file__).with_name('ranked_tool.py')}:Counter", "max_calls": 3}}
ALGORITHMS |= {
    "grpo, tools": ALGORITHMS["grpo"]
    | {"grpo": {"prompts_per_step": 5, "group_size": 40}, "sampling": {"max_tokens": 6, "tools": TOOLS}},
    "grpo, lora": ALGORITHMS["grpo"] | LORA,
    "ppo, lora": ALGORITHMS["ppo"] | LORA | {"critic": {"lr": 1e-2, "backbone": "shared"}},
    "reward_model, lora": ALGORITHMS["reward_model"] | LORA,
}
PLAYED = {
    "kind": f"{Path(__file__).with_name('played.py')}:Digits", "max_turns": 3, "max_turn_tokens": 20, "num_workers": 1,
}  # fmt: skip
GAME = {"kind": "episodes", "environment": PLAYED}
EPISODES = {name: value for name, value in ALGORITHMS["grpo"].items() if name != "verifier"} | {
    "grpo": {"prompts_per_step": 3, "group_size": 12}, "sampling": {"max_tokens": 40}
}  # fmt: skip
ALGORITHMS |= {
    "grpo, episodes": EPISODES | {"task": GAME, "advantage": {"kind": "turn_return"}},
    "grpo, some episodes": EPISODES  # a share has episodes, and another none
    | {"task": {"kind": "mixture", "parts": {"game": {"task": GAME}, "sums": {"task": SUMS}}}},
}
OFFLOADED = {"grpo, offloaded": ALGORITHMS["grpo"] | {"ranks": {"partial_sums": 2, "deadline_s": 60, "offload": True}}}
"""By algorithm, and what else is special of the run after a comma."""
EVERYDAY, WITH_TOOLS = ("grpo", "sft", "grpo, episodes", "grpo, some episodes"), ("grpo, tools",)
OTHERS = tuple(name for name in ALGORITHMS if name not in (*EVERYDAY, *WITH_TOOLS))
KILLS = 10


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, server: None) -> Path:
    """A model of two layers with random weights that writes many digits, and files to learn from."""
    path = tmp_path_factory.mktemp("world")
    alphabet = "0123456789 What is?+-=\nThe answrboxed{}\\<>/tk"
    shape = {"architecture": "qwen3", "num_hidden_layers": 2, "intermediate_size": 40}
    model = save_random(path / "model", character_tokenizer(alphabet), **shape)
    teacher = load_policy(ModelConfig(path=str(model), device="cpu"))
    with changing_a_little(teacher):
        save_checkpoint(path / "teacher", teacher)
    pairs = [{"prompt": f"{i}+3=", "completion": f"{i + 3}{' ' * (i % 4)}"} for i in range(20)]
    (path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    steps = [
        {"prompt": f"{i}+1=", "completions": [f"{i + 1} ", "is ", "it"], "labels": [1.0, float(i % 2), 0.0]}
        for i in range(9)
    ]
    for name, rows in {"steps": steps[:6], "measured": steps[6:]}.items():
        (path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return path


def recipe(world: Path, algorithm: str, directory: Path, partial_sums: int, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "run": {"directory": str(directory), "num_steps": NUM_STEPS, "checkpoint_every": 2, "seed": 1},
        "ranks": {"partial_sums": partial_sums, "deadline_s": 60},
        "model": {"path": str(world / "model"), "device": "cpu", "num_threads": 1},
    }
    name, algorithm = algorithm, algorithm.split(",")[0]
    values["algorithm"] = algorithm
    if algorithm == "sft":
        values["data"] = {"source": "jsonl", "path": str(world / "pairs.jsonl")}
    if algorithm == "process_reward_model":
        values["data"] = {"path": str(world / "steps.jsonl"), "held_out": str(world / "measured.jsonl")}
    if algorithm == "distill":
        values["teacher"] = {"path": str(world / "teacher"), "device": "cpu"}
    return parse(TRAINERS.find(algorithm).recipe, values | (ALGORITHMS | OFFLOADED)[name] | changes)


def run_all(world: Path, folder: Path, algorithms: tuple[str, ...], size: int, partial_sums: int) -> dict[str, Any]:
    recipes = [recipe(world, name, folder / name, partial_sums) for name in algorithms]
    run_on_ranks(recipes, size)
    return {name: RunDirectory(folder / name) for name in algorithms}


@pytest.fixture(scope="module")
def alone(world: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunDirectory]:
    return run_all(world, tmp_path_factory.mktemp("alone"), EVERYDAY, 1, 2)


@pytest.fixture(scope="module")
def on_two(world: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunDirectory]:
    return run_all(world, tmp_path_factory.mktemp("two"), (*EVERYDAY, *OFFLOADED), 2, 2)


def assert_same(run: RunDirectory, expected: RunDirectory) -> None:
    lines, wanted = list(run.ledger.lines()), list(expected.ledger.lines())
    assert str(lines) == str(wanted)  # nan is no nan
    assert len({line["weights"] for line in lines if "weights" in line}) > 1
    assert run.ledger.path.read_bytes() == expected.ledger.path.read_bytes()
    saved, wanted_files = run.checkpoint(NUM_STEPS), expected.checkpoint(NUM_STEPS)
    names = {path.name for path in wanted_files.iterdir()}
    assert {path.name for path in saved.iterdir()} == names
    assert names & {"model.safetensors", "adapter_model.safetensors"}
    for name in names - {"trainer_state.json", "manifest.json"}:  # they hold sizes of files with times in them
        assert (saved / name).read_bytes() == (wanted_files / name).read_bytes(), name
    assert run.finished.exists()
    assert not list(run.path.rglob("*.tmp"))


@pytest.mark.parametrize("algorithm", EVERYDAY)
def test_two_ranks_give_the_run_of_one_process(
    alone: dict[str, RunDirectory], on_two: dict[str, RunDirectory], algorithm: str
) -> None:
    assert_same(on_two[algorithm], alone[algorithm])


def test_each_rank_plays_the_episodes_of_its_problems(on_two: dict[str, RunDirectory]) -> None:
    for step in range(NUM_STEPS):
        rows = pq.read_table(on_two["grpo, episodes"].rollouts(step)).to_pylist()
        assert any(len(json.loads(row["turns"])) > 1 for row in rows)
        played_by = {row["problem"]: set[str]() for row in rows}
        for row in rows:
            played_by[row["problem"]] |= {turn[4] for turn in json.loads(row["turns"])} - {""}
        assert sorted(map(list, played_by.values())) == [["rank 0"], ["rank 0"], ["rank 1"]]


def test_rows_in_the_processors_memory_give_the_same_run(
    alone: dict[str, RunDirectory], on_two: dict[str, RunDirectory]
) -> None:
    assert_same(on_two["grpo, offloaded"], alone["grpo"])


def test_the_runs_learn_and_some_groups_have_no_signal(alone: dict[str, RunDirectory]) -> None:
    steps = [line for line in alone["grpo"].ledger.lines() if "groups" in line]
    signals = [[len(set(group["rewards"])) > 1 for group in line["groups"]] for line in steps]
    assert any(map(any, signals))
    assert not all(map(all, signals))
    assert len({line["weights"] for line in steps}) >= NUM_STEPS // 2
    assert max(line["grad_norm"] for line in steps) > 0.05  # clipping is at work


def test_a_run_is_replayed_in_the_shares_and_sums_that_its_recipe_says(alone: dict[str, RunDirectory]) -> None:
    run = alone["grpo"]
    row = next(iter(pq.read_table(run.rollouts(3)).to_pylist()))
    again = replay(run.path, 3, row["problem"], row["sample"])
    assert (again.identical, again.steps_repeated) == (True, 1)  # the weights of a repeated step are the ledger's


@pytest.mark.slow
@pytest.mark.parametrize("others", [WITH_TOOLS, OTHERS], ids=["tools", "others"])
def test_the_other_trainers_too(world: Path, tmp_path: Path, others: tuple[str, ...]) -> None:
    one, two = (run_all(world, tmp_path / str(size), others, size, 2) for size in (1, 2))
    for name in others:
        assert_same(two[name], one[name])
        if name in WITH_TOOLS:
            rows = list(pq.read_table(one[name].rollouts(0)).to_pylist())
            assert len({sum(not drawn for drawn in row["sampled"] or ()) for row in rows}) > 2


@pytest.mark.slow
def test_four_ranks_two_and_one_give_the_same_run(world: Path, tmp_path: Path) -> None:
    runs = [run_all(world, tmp_path / str(size), ("grpo",), size, 4)["grpo"] for size in (1, 2, 4)]
    for run in runs[1:]:
        assert_same(run, runs[0])


@pytest.mark.slow
def test_products_in_bf16_from_shares_in_fp32(world: Path, tmp_path: Path) -> None:
    model = {"path": str(world / "model"), "device": "cpu", "num_threads": 1, "compute_dtype": "bfloat16"}
    runs = []
    for size in (1, 2):
        run_on_ranks([recipe(world, "grpo", tmp_path / str(size), 2, model=model)], size)
        runs.append(RunDirectory(tmp_path / str(size)))
    assert_same(runs[1], runs[0])
    weights = load_file(runs[1].checkpoint(NUM_STEPS) / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert any((tensor != tensor.bfloat16()).any() for tensor in weights.values())  # small updates are kept


def test_a_signal_to_one_rank_stops_all_after_the_step(world: Path, tmp_path: Path) -> None:
    one = recipe(world, "grpo", tmp_path / "run", 2)
    assert exit_codes(start_ranks([one], 2, told)) == [128 + signal.SIGTERM] * 2
    run = RunDirectory(tmp_path / "run")
    assert run.steps()[-1] == num_done(run) == 3  # the fifth update is one of the third step
    assert not run.finished.exists()


@pytest.mark.slow
def test_ten_lost_ranks_cost_nothing_but_time(world: Path, tmp_path: Path) -> None:
    """Each is killed at a moment of chance, some before they meet, and any number of ranks goes on."""
    chance, num_steps = random.Random(0), 40
    long = {"num_steps": num_steps, "checkpoint_every": 2, "seed": 1}
    [expected, killed] = [
        recipe(
            world,
            "grpo",
            tmp_path,
            4,
            run={"directory": str(tmp_path / name), **long},
            ranks={"partial_sums": 4, "deadline_s": 30},  # who is killed before they meet is waited for so long
        )
        for name in ("expected", "killed")
    ]
    run_on_ranks([expected], 1)
    run, seen = RunDirectory(tmp_path / "killed"), set()
    for _ in range(KILLS):
        size = chance.choice((2, 4))
        victim, began_with = chance.randrange(size), num_done(run)
        ranks = start_ranks([killed], size)
        goal, extra = began_with + chance.randint(0, 2), chance.random()
        until(lambda: num_done(run) >= min(goal, num_steps - 1))  # noqa: B023
        time.sleep(extra)
        ranks[victim].kill()
        began = time.monotonic()
        codes = exit_codes(ranks)
        assert time.monotonic() - began < 60
        assert codes.pop(victim) == -signal.SIGKILL
        assert set(codes) == {FAILED}
        said = [path.read_text() for path in tmp_path.glob("killed-rank-*.txt")]
        assert all(text.startswith("RankError: rank") and "the same command resumes" in text for text in said)
        seen.add(num_done(run))
    assert len(seen) > 3  # moments of which some work was done
    run_on_ranks([killed], chance.choice((1, 2, 4)))
    assert run.ledger.path.read_bytes() == expected_ledger(tmp_path)
    assert run.finished.exists()


def num_done(run: RunDirectory) -> int:
    return sum("groups" in line for line in run.ledger.lines())


def expected_ledger(folder: Path) -> bytes:
    return RunDirectory(folder / "expected").ledger.path.read_bytes()


@pytest.fixture
def servers(world: Path) -> Iterator[list[Any]]:
    """Two servers that compute with real weights, in threads of this process."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "rollout" / "vllm"))
    from lying_server import LyingServer

    policy = load_policy(ModelConfig(path=str(world / "model"), device="cpu"))
    both = [LyingServer(policy) for _ in range(2)]
    yield both
    for server in both:
        server.close()


def engine_on(servers: list[Any], **more: Any) -> dict[str, Any]:
    return {"kind": "vllm", "addresses": [server.address for server in servers], "start_s": 60, **more}


@pytest.mark.parametrize("name", ["grpo", pytest.param("grpo, tools", marks=pytest.mark.slow)])
def test_ranks_sample_from_servers_what_one_process_does(
    world: Path, tmp_path: Path, servers: list[Any], name: str
) -> None:
    small: dict[str, Any] = {
        "grpo": {"prompts_per_step": 3, "group_size": 4},
        "evaluation": {"num_problems": 2, "num_samples": 1, "test_problems": 0},
        "engine": engine_on(servers),
    }
    runs = []
    for size in (1, 2):
        directory = tmp_path / str(size)
        once = {"run": {"directory": str(directory), "num_steps": 2, "seed": 1}}
        run_on_ranks([recipe(world, name, directory, 2, **small, **once)], size)
        runs.append(RunDirectory(directory))
    one, two = (run.ledger.path.read_bytes() for run in runs)
    assert one == two
    steps = [line for line in runs[1].metrics.lines() if line["kind"] == "step"]
    assert [line["engine"]["version"] for line in steps] == [2, 4]  # two updates a step
    assert all(proof["sampled"] < 1e-4 for line in steps for proof in line["engine"]["servers"].values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("grpo", {}),
        ("grpo, lora", {}),
        ("grpo, lora", {"adapters": "native"}),
        ("grpo", {"steps_ahead": 1}),
        ("grpo, episodes", {"steps_ahead": 1}),
    ],
)
def test_servers_that_die_under_ranks_cost_nothing_but_time(
    world: Path, tmp_path: Path, servers: list[Any], name: str, settings: dict[str, Any]
) -> None:
    old = {**RL_LOSS, "correction": {"bound": "truncate"}}
    more = {"engine": engine_on(servers, **settings), "evaluation": {**RL["evaluation"], "test_problems": 0}}
    more |= {"loss": old} if "steps_ahead" in settings else {}
    run = {"num_steps": NUM_STEPS, "checkpoint_every": 4, "seed": 1}
    quiet = recipe(world, name, tmp_path, 2, **more, run={"directory": str(tmp_path / "quiet"), **run})
    run_on_ranks([quiet], 1)
    over, deaths, mortal = threading.Event(), [], servers[0]

    def kill_and_revive() -> None:
        while not over.is_set():
            mortal.dies_after = mortal.generated + (20 if deaths else 40)
            while not mortal.dead and not over.is_set():
                time.sleep(0.01)
            if mortal.dead:
                deaths.append(mortal.generated)
                mortal.restart()

    thread = threading.Thread(target=kill_and_revive)
    thread.start()
    run_on_ranks([recipe(world, name, tmp_path, 2, **more, run={"directory": str(tmp_path / "disturbed"), **run})], 2)
    over.set()
    thread.join()
    assert deaths
    ages = [line.get("ages") for line in RunDirectory(tmp_path / "quiet").ledger.lines() if "groups" in line]
    assert any(ages) == ("steps_ahead" in settings)
    assert_same(RunDirectory(tmp_path / "disturbed"), RunDirectory(tmp_path / "quiet"))


@pytest.mark.parametrize("harm", [averages, counts_alone])
def test_the_comparison_sees_a_wrong_denominator(
    world: Path, tmp_path: Path, alone: dict[str, RunDirectory], harm: Harm
) -> None:
    once = {"run": {"directory": str(tmp_path / "run"), "num_steps": 1, "seed": 1}}
    assert exit_codes(start_ranks([recipe(world, "grpo", tmp_path, 2, **once, evaluation=NONE)], 2, harm)) == [0, 0]
    wrong, right = (first_step(run) for run in (RunDirectory(tmp_path / "run"), alone["grpo"]))
    assert wrong["groups"] == right["groups"]
    assert wrong["grad_norm"] / right["grad_norm"] == pytest.approx(0.5 if harm is averages else 2.0, rel=1e-3)
    assert wrong["weights"] != right["weights"]


NONE = {"every": 9, "num_problems": 1, "num_samples": 1, "test_problems": 0}


def first_step(run: RunDirectory) -> dict[str, Any]:
    return next(line for line in run.ledger.lines() if "groups" in line)


@pytest.mark.parametrize(
    ("name", "harm", "why", "deadline_s"),
    [
        ("grpo", killed, "ended", 60),
        ("grpo", stuck, "did not answer in time", 15),
        ("grpo, episodes", killed, "ended", 60),
    ],
)
def test_a_lost_rank_ends_the_other_and_one_process_goes_on(
    world: Path, tmp_path: Path, alone: dict[str, RunDirectory], name: str, harm: Harm, why: str, deadline_s: int
) -> None:
    """The optimizer's moments, cut in two, are whole again in one process."""
    broken = recipe(world, name, tmp_path / "run", 2, ranks={"partial_sums": 2, "deadline_s": deadline_s})
    first, lost = start_ranks([broken], 2, harm)
    first.join(PATIENCE_S)
    lost.kill()
    lost.join(PATIENCE_S)
    assert (first.exitcode, lost.exitcode) == (FAILED, -signal.SIGKILL)
    said = (tmp_path / "run-rank-0.txt").read_text()
    assert said.startswith(f"RankError: rank 0 gives up: another rank {why}.")
    run = RunDirectory(tmp_path / "run")
    assert run.steps()[-1] == 2
    run_on_ranks([broken], 1)
    assert_same(run, alone[name])


@pytest.mark.slow
def test_a_rank_lost_while_they_connect_is_waited_for_until_the_deadline(world: Path, tmp_path: Path) -> None:
    """gloo waits five of its timeouts for a connection that the other rank makes; chance decides who makes it."""
    deadline_s = 25
    broken = recipe(world, "grpo", tmp_path / "run", 4, ranks={"partial_sums": 4, "deadline_s": deadline_s})
    began = time.monotonic()
    codes = exit_codes(start_ranks([broken], 4, lost_while_they_connect))
    assert time.monotonic() - began < 2 * deadline_s
    assert codes == [FAILED] * 3 + [-signal.SIGKILL]
    for path in tmp_path.glob("run-rank-*.txt"):
        assert "gives up: another rank " in path.read_text()


def until(is_so: Any) -> None:
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < PATIENCE_S
        time.sleep(0.05)


def test_what_ranks_cannot_do_is_said_in_a_sentence(world: Path, tmp_path: Path) -> None:
    few = {"grpo": {"prompts_per_step": 1, "group_size": 4}, "loss": {}}
    assert exit_codes(start_ranks([recipe(world, "grpo", tmp_path / "few", 2, **few)], 2)) == [FAILED] * 2
    said = (tmp_path / "few-rank-1.txt").read_text()
    assert said.startswith("ConfigError: 2 ranks are more than grpo.prompts_per_step = 1")
