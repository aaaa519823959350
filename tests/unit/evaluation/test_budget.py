"""Test-time compute, measured: figures that must hold whatever the model, costs, and what a kill leaves."""

import fcntl
import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from groupwise.algorithms.statistics import pass_at_k
from groupwise.cli.main import app
from groupwise.errors import CheckpointError, ConfigError, DataError, ModelError
from groupwise.evaluation.test_time.budget import measure_budget
from groupwise.evaluation.test_time.methods import BudgetConfig, Cost, Measured, Pools, Sizes, measure_pools
from groupwise.evaluation.test_time.pool import (
    Pool,
    Sample,
    Scored,
    ScoredPool,
    Scorer,
    Store,
    Told,
    check_budgets,
    enough,
)
from groupwise.evaluation.test_time.result import BudgetResult, Difficulty, at_equal_tokens
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy
from groupwise.models.reward_model import start_reward_model
from groupwise.models.steps import mark_reads
from groupwise.rollout.tools import ToolResult
from groupwise.rollout.tools.calculator import Calculator
from groupwise.types import Problem

CONFIG = BudgetConfig(budgets=(1, 2, 4), samples=6, difficulty_samples=2, width=2, chains=2)
ASKED: dict[str, Any] = {"task": "arithmetic", "problems": 4, "max_tokens": 64}
PLAYED: dict[str, Any] = {"task": "episodes", "changes": {"task.environment.kind": "guess"}}


@pytest.fixture(scope="module")
def models(tiny_policy: Callable[..., Policy], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reward models whose tokenizer is not the policy's."""
    folder = tmp_path_factory.mktemp("models")
    save_checkpoint(folder / "language", tiny_policy())
    for seed, name in enumerate(("prm", "orm", "broken")):
        model = start_reward_model(ModelConfig(path=str(folder / "language"), device="cpu"))
        with torch.no_grad():
            draw = torch.randn(model.head.weight.shape, generator=torch.Generator().manual_seed(seed))
            model.head.weight.copy_(draw if name != "broken" else math.nan * draw)
        mark_reads(model, chat=False)
        save_checkpoint(folder / name, model)
    return folder


@pytest.fixture(scope="module")
def result(models: Path, tmp_path_factory: pytest.TempPathFactory) -> BudgetResult:
    methods = ("greedy", "majority", "best_of_n", "weighted", "beam", "revise", "force", "cut")
    config = CONFIG.model_copy(update={"methods": methods})
    folder = tmp_path_factory.mktemp("budget")
    return measure_budget("base", prm=models / "prm", orm=models / "orm", config=config, directory=folder, **ASKED)


def by_name(result: BudgetResult) -> dict[tuple[str, int], Any]:
    return {(one.method, one.budget): one for one in result.measured}


def test_the_controls_know_all_or_nothing(result: BudgetResult) -> None:
    found = by_name(result)
    rates = found["control/constant", 1].accuracy
    assert ((rates >= 0) & (rates <= 1)).all()
    for k in (1, 2, 4):
        np.testing.assert_allclose(found["control/constant", k].accuracy, rates)
        right = np.rint(6 * rates).astype(int).tolist()
        np.testing.assert_allclose(found["control/perfect", k].accuracy, [pass_at_k(6, c, k) for c in right])
        for method, budget in found:
            if budget == k and method.startswith(("best_of_n", "weighted", "majority", "control")):
                assert (found[method, k].accuracy <= found["control/perfect", k].accuracy + 1e-12).all()
    for method in ("control/perfect", "control/random", "best_of_n/orm", "best_of_n/prm_min"):
        np.testing.assert_allclose(found[method, 1].accuracy, rates, err_msg=method)


def test_every_point_says_what_it_costs(result: BudgetResult) -> None:
    found = by_name(result)
    for k in (1, 2, 4):
        sampled, chosen = found["majority", k].cost, found["best_of_n/prm_last", k].cost
        np.testing.assert_allclose(sampled.policy_tokens, k * found["majority", 1].cost.policy_tokens)
        assert (sampled.reward_tokens == 0).all()
        assert (chosen.reward_tokens >= 0).all()
        assert chosen.reward_tokens.sum() > 0
        np.testing.assert_allclose(chosen.policy_tokens, sampled.policy_tokens)
        assert (chosen.operations >= sampled.operations).all()
        assert (chosen.seconds >= sampled.seconds).all()
    assert {one.method for one in result.points} >= {"greedy", "beam/best", "beam/weighted", "beam/majority"}
    assert (found["beam/best", 4].cost.policy_tokens > 0).all()


def test_one_slot_is_one_sample(result: BudgetResult) -> None:
    found = by_name(result)
    assert set(found["beam/best", 1].accuracy) <= {0.0, 1.0}
    np.testing.assert_allclose(found["beam/best", 1].accuracy, found["beam/majority", 1].accuracy)


def test_chains_begin_with_independent_samples_and_say_what_they_changed(result: BudgetResult) -> None:
    found = by_name(result)
    for name in ("revise/last", "revise/majority", "revise/best", "force/last"):
        np.testing.assert_allclose(found[name, 1].accuracy, found["revise/last", 1].accuracy, err_msg=name)
        costs = [found[name, links].cost.policy_tokens.mean() for links in (1, 2, 4)]
        assert costs == sorted(costs)
    assert found["revise/best", 2].cost.reward_tokens.sum() > 0
    cuts = [found["cut", budget] for budget in (1, 2, 4)]
    assert [one.cost.policy_tokens.max() <= 64 for one in cuts] == [True] * 3
    assert {flip["method"] for flip in result.flips} == {"revise", "force"}
    for flip in result.flips:
        assert flip["right_to_wrong"] <= flip["right_before"] <= flip["chains"] == 8
    for method in ("revise", "force"):
        after = 8 * found[f"{method}/last", 1].accuracy.mean()
        for flip in (flip for flip in result.flips if flip["method"] == method):
            assert flip["right_before"] == round(after)
            after += flip["wrong_to_right"] - flip["right_to_wrong"]
        assert round(after) == round(8 * found[f"{method}/last", 4].accuracy.mean())


def test_points_have_intervals_and_the_way_to_go(result: BudgetResult) -> None:
    points = {(one.method, one.budget): one for one in result.points}
    for point in result.points:
        assert 0 <= point.accuracy.low <= point.accuracy.value <= point.accuracy.high <= 1
        assert set(point.by_difficulty) == set(result.labels)
    best = points["control/perfect", 4]
    if best.way is not None:
        assert best.way.value == pytest.approx(1)
    assert points["majority", 4].over_majority is None
    assert best.over_majority.value == pytest.approx(best.accuracy.value - points["majority", 4].accuracy.value)


def test_the_best_for_each_difficulty_is_no_control(result: BudgetResult) -> None:
    assert {one.difficulty for one in result.optimal} == {"label", "pass_rate", "pass_rate_absolute", "prm"}
    for one in result.optimal:
        assert sum(count for counts in one.methods.values() for count in counts.values()) == 4
        assert not any(name.startswith("control") for counts in one.methods.values() for name in counts)
        is_free = one.difficulty == "label"
        assert (one.difficulty_cost.policy_tokens.sum() == 0) == is_free
        assert (one.difficulty_cost.reward_tokens.sum() > 0) == (one.difficulty == "prm")


def test_files_have_every_figure(result: BudgetResult) -> None:
    lines = [json.loads(line) for line in (result.directory / "budget.jsonl").read_text().splitlines()]
    assert lines == json.loads(json.dumps(result.records()))
    assert [line["kind"] for line in lines][:2] == ["settings", "point"]
    assert not any("seconds" in line for line in lines)
    equal = [line for line in lines if line["kind"] == "equal_tokens"]
    assert {line["method"] for line in equal} <= {"beam/best", "beam/weighted"}
    assert all(1 <= line["samples"] <= 6 for line in equal)
    times = [json.loads(line) for line in (result.directory / "seconds.jsonl").read_text().splitlines()]
    assert all(line["seconds"] >= 0 for line in times)
    by_problem = [json.loads(line) for line in (result.directory / "by_problem.jsonl").read_text().splitlines()]
    assert len(by_problem) == 4 * len(result.measured)


def facts(folder: Path) -> dict[str, bytes]:
    """Every file but the times."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("seconds"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_kill_leaves_what_was_finished_and_changes_nothing(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.evaluation.test_time.pool.PROBLEMS_PER_PART", 2)
    config = CONFIG.model_copy(update={"methods": ("majority", "best_of_n", "beam"), "budgets": (2,), "samples": 2})
    asked = {**ASKED, "prm": models / "prm", "config": config, "max_tokens": 24}
    measure_budget("base", directory=tmp_path / "whole", **asked)
    kept, calls, limit = Store.file, 0, 0

    def killed(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > limit:
            raise KeyboardInterrupt
        return kept(*arguments)

    monkeypatch.setattr(Store, "file", killed)
    for limit in (1, 4, 7):  # noqa: B007  every call gets a little further
        calls = 0
        with pytest.raises(KeyboardInterrupt):
            measure_budget("base", directory=tmp_path / "killed", **asked)
    calls, limit = 0, 100
    measure_budget("base", directory=tmp_path / "killed", **asked)
    assert calls == 10
    assert facts(tmp_path / "killed") == facts(tmp_path / "whole")


@pytest.mark.slow
def test_the_command_survives_kill_9(models: Path, tmp_path: Path) -> None:
    def command(folder: str) -> list[str]:
        dials = ["--problems", "40", "--samples", "8", "--budgets", "1,8", "--methods", "majority,best_of_n,beam"]
        places = ["--prm", str(models / "prm"), "--directory", str(tmp_path / folder), "--report", f"{tmp_path}/page"]
        fixed = ["env", "OMP_NUM_THREADS=1"]  # the last bits of log-probabilities depend on the number, which adapts
        return [*fixed, sys.executable, "-m", "groupwise", "budget", "base", "--task", "arithmetic", *dials, *places]

    subprocess.run(command("whole"), check=True, capture_output=True)
    for wanted in (1, 3, 6):
        process = subprocess.Popen(command("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(list((tmp_path / "killed").glob("*/part-*"))) < wanted:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command("killed"), check=True, capture_output=True)
    assert facts(tmp_path / "killed") == facts(tmp_path / "whole")


def test_a_part_exists_whole_or_not_at_all(tmp_path: Path) -> None:
    made = Store.of(tmp_path, "pool", {"a": 1})

    def half(path: Path) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.file(0, ".json", half)
    [(item, value, seconds)] = made.values(["x"], lambda part: [[1, 2]])
    assert (item, value) == ("x", [1, 2])
    assert seconds >= 0
    assert [*made.values(["x"], lambda part: [3])] == [("x", value, seconds)]  # made once
    assert Store.of(tmp_path, "pool", {"a": 2}).folder != made.folder
    (made.folder / "part-000000.json").write_text("{")
    with pytest.raises(DataError, match=r"part-000000\.json"):
        [*made.values(["x"], lambda part: [3])]


def sample(text: str, right: bool = True, finished: bool = True) -> Sample:
    return Sample(text, "", finished, text, right, 3)


def test_choices_and_costs_by_hand() -> None:
    samples = tuple(
        Sample("", "", True, answer, answer == "a", size) for answer, size in (("a", 3), ("a", 6), ("b", 9))
    )
    pool = Pool(Problem("x", "", ""), "", 10, samples, 0.5)
    scored = ScoredPool((Scored((0.2, 0.1), 5), Scored((0.3, 0.9), 5), Scored((0.8, 0.5), 8)), 0.25)
    pools = Pools([pool], {"prm": [scored]}, Sizes(100, {"prm": 7}), seed=0)
    found = {one.method: one for one in measure_pools(pools, [2], ["majority", "best_of_n", "weighted"])}
    accuracy = {name: float(one.accuracy[0]) for name, one in found.items()}
    # subsets {1, 2}, {1, 3} and {2, 3}, of which the third sample is wrong
    assert accuracy["majority"] == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert accuracy["best_of_n/prm_last"] == pytest.approx((1 + 0 + 1) / 3)  # .1 < .5 < .9
    assert accuracy["best_of_n/prm_min"] == pytest.approx((1 + 0 + 0) / 3)  # .1 < .3 < .5
    assert accuracy["best_of_n/prm_product"] == pytest.approx(1 / 3)  # .02 < .27 < .4
    assert accuracy["best_of_n/prm_mean"] == pytest.approx((1 + 0 + 0) / 3)  # .15 < .6 < .65
    assert accuracy["weighted/prm_last"] == pytest.approx((1 + 0 + 1) / 3)
    assert accuracy["control/perfect"] == 1
    assert accuracy["control/constant"] == pytest.approx(2 / 3)
    # two samples: 12 tokens and the prompt once; two readings of 6 tokens
    plain, chosen = found["majority"].cost, found["best_of_n/prm_last"].cost
    assert [float(part[0]) for part in plain] == pytest.approx([12, 0, 2 * 100 * 22, 1.0])
    assert [float(part[0]) for part in chosen] == pytest.approx([12, 12, 2 * 100 * 22 + 2 * 7 * 12, 1.5])


def test_a_search_is_compared_with_as_many_tokens_of_samples() -> None:
    def pool(name: str, *answers: tuple[bool, float]) -> tuple[Pool, ScoredPool]:
        samples = tuple(sample("a" if right else "b", right) for right, _ in answers)  # of 3 tokens each
        made = Pool(Problem(name, "", "", difficulty=name), "", 10, samples, 0.0)
        return made, ScoredPool(tuple(Scored((score,), 5) for _, score in answers), 0.0)

    made = [pool("x", (True, 0.9), (False, 0.1), (False, 0.2)), pool("y", (True, 0.1), (False, 0.5), (False, 0.9))]
    pools = Pools([one for one, _ in made], {"prm": [one for _, one in made]}, Sizes(1, {"prm": 1}), seed=0)
    nothing = np.zeros(2)

    def search(method: str, tokens: float) -> Measured:
        return Measured(method, 4, np.array([1.0, 0.5]), Cost(np.full(2, tokens), nothing, nothing, nothing))

    ways = [Difficulty("label", np.array([0, 1]), Cost(nothing, nothing, nothing, nothing))]
    several = [search("beam/best", 7.5), search("dvts/best", 9.0), search("beam/best", 12.0), search("majority", 6.0)]
    between, whole = at_equal_tokens(several, pools, "last", ways)  # more than the pool holds is not compared
    # of x the best of 2 is right in 2 of 3 subsets, of 3 always; of y it never is beside another
    assert (between.samples, between.against, between.budget) == (2.5, "best_of_n/prm_last", 4)
    assert between.difference.value == pytest.approx(((1 - (2 / 3 + 1) / 2) + (0.5 - 0)) / 2)
    assert whole.difference.value == pytest.approx((0 + 0.5) / 2)
    assert {label: one.value for label, one in whole.by_difficulty["label"].items()} == {0: 0.0, 1: 0.5}
    [voted] = at_equal_tokens([search("lookahead/weighted", 3.0)], pools, "last", ways)
    assert (voted.against, voted.difference.value) == ("weighted/prm_last", pytest.approx(((1 + 0.5) - 2 / 3) / 2))
    assert at_equal_tokens(several, Pools(pools.pools, {}, pools.sizes, 0), "last", ways) == []


def test_every_method_works_with_tools(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for, real = list[str](), Calculator.run

    def watching(self: Calculator, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        asked_for.append(call)
        return real(self, call, earlier)

    monkeypatch.setattr(Calculator, "run", watching)
    methods = ("greedy", "majority", "best_of_n", "weighted", "beam", "dvts", "lookahead", "revise", "force", "cut")
    dials = {"methods": methods, "budgets": (1, 2), "samples": 2, "width": 2, "chains": 2, "cut_tokens": 8}
    asked: dict[str, Any] = {**ASKED, "problems": 2, "max_tokens": 32}
    asked["changes"] = ["sampling.tools.c.kind=calculator", "task.digits=[4, 4]", 'task.kinds=["product"]']
    result = measure_budget(
        "base", prm=models / "prm", config=BudgetConfig.model_validate(dials), directory=tmp_path, **asked
    )
    assert {one.method.partition("/")[0] for one in result.measured} >= set(methods)
    assert asked_for


def test_what_tools_put_in_costs_reading_and_no_sampling() -> None:
    plain, with_results = (sample("a")._replace(num_put_in=put_in) for put_in in (0, 7))
    pools = [Pool(Problem("x", "", ""), "", 3, (plain, with_results), 0.0)]
    cost = Pools(pools, {}, Sizes(10, {}), 0).sampled(4)
    assert cost.policy_tokens.tolist() == [4 * plain.num_tokens]
    assert cost.operations.tolist() == [2 * 10 * (3 + 4 * (plain.num_tokens + 3.5))]


def test_pools_smaller_than_the_budget_are_named() -> None:
    with pytest.raises(ConfigError, match="budgets 1, 8 from a pool of 4 samples: 1 to 4"):
        check_budgets([1, 8], 4)
    with pytest.raises(ConfigError, match="budgets 0"):
        check_budgets([0], 4)
    pools = [Pool(Problem(name, "", ""), "", 1, (sample("a"),) * size, 0.0) for name, size in (("x", 4), ("y", 3))]
    assert enough(pools, 4) == ([0], ["y"])
    with pytest.raises(DataError, match="at most 4 are judged"):
        enough(pools, 5)


def test_completions_without_steps_or_an_end_score_nothing(models: Path) -> None:
    scorer = Scorer.load(ModelConfig(path=str(models / "prm")), "prm", "sentence", False, "", 0.0)
    pool = Pool(Problem("x", "", ""), "2+2?", 4, (sample(""), sample("4. So.", finished=False), sample("4. So.")), 0.0)
    told = [Told.of(pool.prompt, one, "sentence", "x") for one in pool.samples]
    empty, cut, whole = scorer.texts(told)
    assert (empty.steps, empty.tokens) == (cut.steps, cut.tokens) == ((), 0)
    assert len(whole.steps) == 2
    orm = Scorer.load(ModelConfig(path=str(models / "prm")), "orm", "sentence", False, "", 0.0).texts(told)[2]
    assert orm.steps == pytest.approx(whole.steps[-1:])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"prm": "broken"}, ModelError, r"gives nan to a step of sample \d of arithmetic/"),
        ({"prm": "language"}, ModelError, "not a reward model"),
        (
            {"prm": "prm", "changes": {"task.template.chat": True}},
            ModelError,
            "from prompts that no chat template wrote",
        ),
        ({"temperature": 0.0}, ConfigError, "equal samples are no pool"),
        ({"config": {"methods": ["beam"]}}, ConfigError, "prm must name"),
        ({"config": {"methods": ["weighted"]}}, ConfigError, "prm or orm must name one"),
        ({"config": {"samples": 2}}, ConfigError, "from a pool of 2 samples"),
        ({**PLAYED, "config": {"methods": ["greedy", "cut"]}}, ConfigError, "in an environment, and cut"),
        ({**PLAYED, "config": {"methods": ["majority", "force"]}}, ConfigError, "in an environment, and force"),
        ({**PLAYED, "prm": "prm"}, ConfigError, "in an environment, and prm"),
    ],
)
def test_bad_input_is_named(
    models: Path, tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    config = BudgetConfig.model_validate({"budgets": [1, 4], "samples": 4, **options.get("config", {})})
    named = {name: models / options[name] for name in ("prm",) if name in options}
    rest = {name: value for name, value in options.items() if name not in ("prm", "config")}
    with pytest.raises(error, match=message):
        measure_budget("base", config=config, directory=tmp_path, **{**ASKED, "problems": 2, **named, **rest})


def test_a_reward_model_that_cannot_read_a_completion_is_named(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = Scorer.load(ModelConfig(path=str(models / "prm")), "prm", "sentence", False, "", 0.0)
    long = Told("What?", ("x" * 300,), "sample 3 of arithmetic/2+2")
    with pytest.raises(
        DataError, match=r"process reward model .* cannot read sample 3 of arithmetic/2\+2: .* 256 in all"
    ):
        scorer.texts([long])
    of_chat = [Told("2+2<|end|>?", ("4. ", "So."), "x")]  # its control tokens are tokens
    assert len(replace(scorer, chat=True).texts(of_chat)[0].steps) == 2
    with pytest.raises(ModelError, match="holds the stop token"):
        scorer.texts(of_chat)


def test_the_command_prints_and_writes_a_page(models: Path, tmp_path: Path) -> None:
    arguments = ["budget", "base", "--task", "arithmetic", "--problems", "2", "--samples", "2", "--budgets", "1,2"]
    more = [
        "--max-tokens", "24", "--difficulty-samples", "0", "--directory", str(tmp_path), "--prm", str(models / "prm"),
    ]  # fmt: skip
    printed = CliRunner().invoke(app, [*arguments, *more])
    assert printed.exit_code == 0, printed.output
    assert "best_of_n/prm_product" in printed.output
    page = (tmp_path / "report.html").read_text()
    assert "<noscript>" in page
    assert "best_of_n/prm_product" in page
    as_json = json.loads(CliRunner().invoke(app, [*arguments, *more, "--json"]).stdout)
    assert {point["budget"] for point in as_json["points"]} == {1, 2}
    assert all(point["seconds"] >= 0 for point in as_json["points"])
    wrong = CliRunner().invoke(app, ["budget", "base", "--task", "arithmetic", "--budgets", "1,two"])
    assert isinstance(wrong.exception, ConfigError)


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("verifier.kind=own.py:reward", "def reward(completion, reference):\n    return {}"),
        (
            "task.template.kind=own.py:Mine",
            "from groupwise.tasks.base import Template\nclass Mine(Template):\n    more: float = 0.5\n"
            "    def render(self, problem):\n        return f'{{problem.question}}\\n' * int(1 + {})",
        ),
    ],
)
def test_samples_that_other_code_made_or_judged_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    config = BudgetConfig(methods=("majority",), budgets=(1,), samples=1, difficulty_samples=0)
    pools = set[str]()
    for number, paid in enumerate((0.0, 0.0, 1.0)):
        Path("own.py").write_text(code.format(paid))
        measure_budget("base", config=config, directory="kept", **{**ASKED, "problems": 1, "changes": [key]})
        pools |= {folder.name for folder in Path("kept").glob("pool-*")}
        assert len(pools) == max(1, number)


def test_one_process_at_a_time_works_in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*arguments: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(fcntl, "lockf", busy)
    with pytest.raises(CheckpointError, match=r"another process works in .* or choose another directory"):
        measure_budget("base", directory=tmp_path, **{**ASKED, "problems": 1})


def test_episodes_of_another_environment_are_played_again(tmp_path: Path) -> None:
    config = BudgetConfig(methods=("majority",), budgets=(1,), samples=1, difficulty_samples=0)
    for turns in (1, 1, 2):
        changes = {**PLAYED["changes"], "task.environment.max_turns": turns}
        asked = {**ASKED, **PLAYED, "problems": 1, "max_tokens": 16, "changes": changes}
        measure_budget("base", config=config, directory=tmp_path, **asked)
    assert len(list(tmp_path.glob("pool-*"))) == 2
