"""Suites: protocols as their harnesses have them, a table beside published values, and nothing sampled twice."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from groupwise.algorithms.statistics import Estimate
from groupwise.cli.evaluate import evaluate_suite as command
from groupwise.errors import ConfigError
from groupwise.evaluation import suite
from groupwise.evaluation.checkpoints import Context
from groupwise.evaluation.suite import (
    BENCHMARKS,
    TRUTH,
    Protocol,
    Published,
    Score,
    evaluate_suite,
    published,
    weighted_share,
)
from groupwise.rollout import in_process
from groupwise.runs.records import Records
from groupwise.tasks.base import Template
from groupwise.types import Problem

DATA = Path(__file__).parents[4] / "shared" / "data"
ROWS = [{"question": f"What is {n} + 1?", "answer": f"It is {n + 1}\n#### {n + 1}"} for n in range(8)]
EVERY = [
    f"{name}:{protocol}"
    for name, table in BENCHMARKS.items()
    for protocol in BENCHMARKS.get(table.get("protocols_of"), {}).get("protocols", {}) | table.get("protocols", {})
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data/gsm8k").mkdir(parents=True)
    for name in ("train", "test"):
        rows = ROWS if name == "test" else [{**row, "question": f"What is 50 + {n}?"} for n, row in enumerate(ROWS)]
        (tmp_path / f"data/gsm8k/{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path / "data"


def context_of(protocol: Protocol, reading: str = "") -> Context:
    verifier = protocol.readings[reading or next(iter(protocol.readings))]
    return Context.parse({"task": protocol.task, "sampling": protocol.sampling, "verifier": verifier}, ())


@pytest.mark.parametrize("spec", EVERY)
def test_every_protocol_is_whole(spec: str) -> None:
    protocol = Protocol.find(spec, is_chat=True)
    for reading in protocol.readings:
        context = context_of(protocol, reading)
    problem = Problem("p", "Why?", "42", data=dict.fromkeys(("stub", "shots", "text", "tests_shown"), "why"))
    assert "why" in context.task.template.render(problem).lower()
    assert protocol.harness


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_has_a_usual_protocol_for_either_kind_of_model(name: str) -> None:
    assert Protocol.find(name, is_chat=True).name == BENCHMARKS[name]["chat"]
    assert not Protocol.find(name, is_chat=False).task["template"].get("chat")


def test_unknown_names() -> None:
    with pytest.raises(ConfigError, match="there is no benchmark 'gsm9k'; there are gsm8k, "):
        Protocol.find("gsm9k", is_chat=True)
    with pytest.raises(ConfigError, match="gsm8k has no protocol 'x'; it has lm_eval_5shot, "):
        Protocol.find("gsm8k:x", is_chat=True)
    with pytest.raises(ConfigError, match=r"gsm8k:verl is for chat models.*allowed are lm_eval_5shot, lm_eval_0shot"):
        Protocol.find("gsm8k:verl", is_chat=False)


@pytest.mark.skipif(not DATA.is_dir(), reason="benchmark files are not beside the repository")
def test_five_shot_prompts_are_those_of_lm_eval() -> None:
    protocol = Protocol.find("gsm8k:lm_eval_5shot", is_chat=False, data=str(DATA))
    context = context_of(protocol)
    prompts = [context.task.template.render(problem) for problem in protocol.problems(context.task, None)]
    # of the 1,319 prompts that the sampler of lm-eval 0.4.13 makes of these files with its seed, 1234
    assert hashlib.sha256("\0".join(prompts).encode()).hexdigest().startswith("84119a05b6c77e92")


def test_shots_are_drawn_for_one_problem_after_the_other(data: Path) -> None:
    protocol = Protocol.find("gsm8k:lm_eval_5shot", is_chat=False, data=str(data))
    task = context_of(protocol).task
    some, more = protocol.problems(task, 2), protocol.problems(task, 3)
    assert some == more[:2]
    assert len({problem.data["shots"] for problem in more}) == 3
    assert some[0].data["shots"].count("\nAnswer: It is ") == 5


def run(data: Path, directory: Path, **options: Any) -> list[Score]:
    options = {"sampling": {"max_tokens": 6}, **options}
    names = ["gsm8k:lm_eval_0shot"]
    return list(evaluate_suite("base", names, data=data, directory=directory, dtype="float32", **options))


def test_a_suite_is_a_table_and_a_run(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []

    def generate(policy: Any, requests: Any, *others: Any) -> Any:
        killed.append(len(requests))
        return original(policy, requests[: 3 if len(killed) == 1 else None], *others)

    original = in_process.generate
    monkeypatch.setattr(in_process, "generate", generate)
    with pytest.raises(Exception, match="never finished"):
        run(data, tmp_path / "a")
    kept = next((tmp_path / "a/kept").glob("gsm8k-lm_eval_0shot-*.jsonl"))
    with kept.open("a") as file:
        file.write('{"prompt": [1, 2')  # what a kill leaves of a line
    (tmp_path / "a/metrics.jsonl").write_text('{"kind": "gsm')  # and a full disk
    strict, flexible = run(data, tmp_path / "a")
    assert killed == [8, 5], "what was finished is not sampled again"
    assert run(data, tmp_path / "a")[1].share == flexible.share
    assert killed[-1] == 0
    assert (strict.reading, strict.problems, strict.samples) == ("strict", 8, 1)
    assert 1 <= strict.tokens <= 6
    records = Records.open(tmp_path / "a")
    rows = records.rows("gsm8k-lm_eval_0shot")
    assert len(rows) == 8
    assert not records.damage
    assert [line["reading"] for line in records.lines()][:2] == ["strict", "flexible"]
    whole = run(data, tmp_path / "b")
    assert [row.text for row in Records.open(tmp_path / "b").rows("gsm8k-lm_eval_0shot")] == [row.text for row in rows]
    assert whole[0].share == strict.share
    (tmp_path / "c").mkdir()
    shutil.copy(tmp_path / "a/config.toml", tmp_path / "c")  # all that a kill at the very start leaves
    assert [run(data, tmp_path / "c")[0].share for _ in range(2)] == [strict.share] * 2


def test_other_settings_are_sampled_anew(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path / "a", problems=1)
    run(data, tmp_path / "a", problems=1, seed=1, changes=["sampling.temperature=0.5"])
    assert len(list((tmp_path / "a/kept").iterdir())) == 2


def test_memory_bounds_the_completions_sampled_at_one_time(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = list[int]()

    def generate(policy: Any, requests: Any, config: Any, *others: Any) -> Any:
        rooms.append(config.max_live_completions)
        return original(policy, requests, config, *others)

    original = in_process.generate
    monkeypatch.setattr(in_process, "generate", generate)
    run(data, tmp_path / "a", cache_mb=1, problems=2)
    run(data, tmp_path / "b", problems=2)
    assert 1 <= rooms[0] < rooms[1] == 256


def test_shares_over_what_was_judged() -> None:
    nan = float("nan")
    assert weighted_share([1.0, nan, 0.0, 0.0]).value == pytest.approx(1 / 3)
    low = weighted_share([0.0, 0.0, nan], [1.0, 3.0, nan])  # (1 + 3)² / (1 + 9) = 1.6 problems: 1.96² / (1.6 + 1.96²)
    assert low == pytest.approx((0.0, 0.0, 3.8415 / 5.4415), abs=1e-4)
    assert weighted_share([1.0, 1.0], [1.0, 3.0]) == pytest.approx((1.0, 1.6 / 5.4415, 1.0), abs=1e-4)
    share = weighted_share([1.0, 0.5, nan, 0.0], [1.0, 2.0, nan, 1.0])
    assert share.value == 0.5
    # residuals 0.375, 0, -0.375 about the mean of three
    assert share.high - share.value == pytest.approx(1.96 * 0.375 / 3**0.5, rel=1e-3)


def test_options_that_a_suite_does_not_read_are_refused() -> None:
    settings = {"task": "arithmetic", "seed": 0, "temperature": None}
    with pytest.raises(ConfigError, match="--task has no effect with --suite"):
        command("base", "gsm8k", {}, settings, [], as_json=True)


@pytest.mark.parametrize(
    ("path", "values"),
    [("hub/Qwen2.5-Coder-0.5B-Instruct", [61.6, 54.3]), ("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", [61.6, 54.3]),
     ("Qwen2.5-Coder-0.5B", []), ("qwen2.5-coder-0.5b-instruct-mine", []), ("base", []), (".", []), ("bf16", []),
     ("models/gguf", []), ("models/q8_0.gguf", [])],
)  # fmt: skip
def test_published_values_are_those_of_the_model(path: str, values: list[float]) -> None:
    found = published(path, "humaneval", "evalplus", "base")
    assert [value.value for value in found] == values
    assert [value.is_same for value in found] == [True, False][: len(values)]


@pytest.mark.parametrize(
    ("options", "protocol"),
    [
        ({}, "lm_eval_0shot"),
        ({"changes": ["sampling.max_live_completions=3"]}, "lm_eval_0shot"),
        ({"changes": ["verifier.rule=qwen"]}, ""),
        ({"sampling": {"max_tokens": 5}}, ""),
        ({"problems": 8}, "lm_eval_0shot"),
        ({"problems": 7}, ""),
    ],
)
def test_a_published_value_is_compared_with_its_own_settings_and_problems_alone(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], protocol: str
) -> None:
    asked = list[str]()
    monkeypatch.setattr(suite, "published", lambda *of: asked.append(of[2]) or ())
    monkeypatch.setitem(BENCHMARKS["gsm8k"]["protocols"]["lm_eval_0shot"], "sampling", {"max_tokens": 6})
    run(data, tmp_path / "a", **options)
    assert asked == [protocol] * 2


def test_a_directory_is_of_one_model(data: Path, tmp_path: Path) -> None:
    for source, told in (("x/step-5", "of x/step-5"), ("", "of training")):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a/config.toml").write_text(
            f'algorithm = "imported"\n[imported]\nsystem = "groupwise eval"\nsource = "{source}"\n' if source else
            'algorithm = "grpo"\n'
        )  # fmt: skip
        with pytest.raises(ConfigError, match=f"a holds another run, {told}, so completions of base cannot be kept"):
            run(data, tmp_path / "a")


@pytest.mark.parametrize(("benchmark", "stop"), [("humaneval_plus", "\ndef "), ("mbpp_plus", '\n"""')])
def test_base_models_stop_at_the_texts_of_the_benchmark(benchmark: str, stop: str) -> None:
    plus = Protocol.find(benchmark, is_chat=False)
    assert stop in plus.sampling["stop"]
    if benchmark == "humaneval_plus":
        assert plus.sampling == Protocol.find("humaneval", is_chat=False).sampling


def test_the_table_of_truth_names_what_there_is() -> None:
    for row in TRUTH:
        assert row.keys() >= {"model", "benchmark", "value", "how", "source"}
        if "protocol" in row:
            assert row["reading"] in [
                *(protocol := Protocol.find(f"{row['benchmark']}:{row['protocol']}", is_chat=True)).readings,
                *protocol.measures,
            ]


def test_a_line_says_where_a_published_value_lies() -> None:
    value = Published(61.6, "EvalPlus", "report", is_same=True)
    other = Published(54.3, "endpoint", "blog", is_same=False)
    share = Estimate(0.5, 0.42, 0.58)
    score = Score("b", "B", "p", "h", "base", 164, 1, 0.0, share, 210.0, 0.01, 75.0, (value, other))
    assert score.cells() == (
        "b", "p, base", "50.0 [42.0, 58.0]", "164", "61.6 OUTSIDE\n54.3", "210", "1.0%",
    )  # fmt: skip
    assert score.notes() == (
        "b: B", "b, p: h; greedy, n 1; sampled in 1 min 15 s", "published 61.6: EvalPlus (report)",
        "published 54.3: endpoint (blog)",
    )  # fmt: skip


def test_a_prompt_takes_texts_of_the_data() -> None:
    template = Template(prompt="{data.stub}|{question}")
    assert template.render(Problem("p", "{data.stub}", "1", data={"stub": "{question}"})) == "{question}|{data.stub}"
    with pytest.raises(ConfigError, match=r"template.prompt has \{data.stub\}; texts in the data of p are more"):
        template.render(Problem("p", "?", "1", data={"stub": 3, "more": "x"}))
