"""The stage `step_labels`: rows that a process reward model learns from, by the plan and by rollouts."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import ConfigError, DataError, VerifierError
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy, load_policy
from groupwise.models.prompts import encode_prompt
from groupwise.models.steps import encode_steps
from groupwise.pipeline import load_pipeline, step_labels
from groupwise.pipeline.base import Made, Workplace
from groupwise.pipeline.directory import StageDirectory
from groupwise.pipeline.step_labels import StepLabelsConfig, estimated
from groupwise.pipeline.step_rollouts import Completer, Cut, Rolled, Rollouts, by_search, cut_rows, searched, shared
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.sample_and_score import Actors
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tools.calculator import CalculatorConfig
from groupwise.rollout.tools.python import PythonToolConfig
from groupwise.runs.row import Row
from groupwise.tasks import make_task
from groupwise.tasks.base import Template
from groupwise.tasks.step_rows import StepRow, read_steps
from groupwise.types import FinishReason, Outcome, Problem, Verdict
from groupwise.verifiers import Request as Judged
from groupwise.verifiers import Verifier, make_verifier


def pipeline(folder: Path, **stage: Any) -> dict[str, Any]:
    return {
        "pipeline": {"directory": str(folder / "made"), "seed": 3},
        "model": {"path": "base", "device": "cpu", "num_threads": 1},
        "sampling": {"max_tokens": 96},
        "tasks": {"sums": {"kind": "arithmetic"}},
        "stages": {"labels": {"kind": "step_labels", "task": "sums", **stage}},
    }


SAMPLED = {"path": "{base}", "num_problems": 2, "num_samples": 2}


def result_of(folder: Path, table: dict[str, Any]) -> Made:
    _, [stage] = load_pipeline(table)
    folder.mkdir(exist_ok=True)
    return stage.run(stage.config, Workplace(StageDirectory(folder), pytest.fail))


def made(folder: Path, **settings: Any) -> tuple[list[StepRow], bytes]:
    output = result_of(folder, pipeline(folder, **{**SAMPLED, **settings})).output
    return read_steps(output), output.read_bytes()


def imported_from(folder: Path, *rows: dict[str, Any], **settings: Any) -> tuple[list[StepRow], Mapping[str, Any]]:
    folder.mkdir()
    (folder / "steps.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = result_of(folder, pipeline(folder, method="import", file=str(folder / "steps.jsonl"), **settings))
    return read_steps(result.output), result.statistics


def test_labels_by_the_plan(tmp_path: Path) -> None:
    rows, _ = made(tmp_path)
    assert rows
    for row in rows:
        kinds = row.provenance["kinds"]
        assert row.labels == tuple(float(kind in ("sound", "idle")) for kind in kinds)
        assert row.provenance["method"] == "exact"
        assert row.provenance["model"] == "base"
        assert row.split == "train"
        assert row.final_answer_correct or row.labels[-1] == 0


def test_what_a_chat_template_wrote_is_read_as_it_was_sampled(tmp_path: Path) -> None:
    policy = load_policy(ModelConfig(device="cpu"))
    policy.tokenizer.chat_template = "{%for m in messages%}{{m.content}}{%if loop.first%}<|end|>{%endif%}{%endfor%}"
    save_checkpoint(tmp_path / "chat", policy)
    table = pipeline(tmp_path, **{**SAMPLED, "path": str(tmp_path / "chat"), "method": "monte_carlo", "rollouts": 1})
    table["tasks"]["sums"]["template"] = template = {"chat": True, "system": "Sums.", "prompt": "{question}\n"}
    rows: list[Any] = read_steps(result_of(tmp_path / "stage", table).output)
    problems = {problem.id: problem for problem in make_task(table["tasks"]["sums"]).problems("train")}
    for row in rows:
        prompt = encode_prompt(policy, Template.model_validate(template), problems[row.problem])
        assert (row.rendered, prompt.text[:16]) == (True, "Sums.<|end|>What")
        assert tuple(encode_steps(policy, row).prompt) == prompt.token_ids  # type: ignore[arg-type]


def test_labels_by_rollouts_are_the_same_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.pipeline.step_rollouts.PROBLEMS_PER_PART", 1)
    settings = {"method": "monte_carlo", "rollouts": 2, "estimate": "soft", "num_problems": 6}
    rows, whole = made(tmp_path / "a", **settings)
    for row in rows:
        expected = [s / n for s, n in zip(row.provenance["successes"], row.provenance["rollouts"], strict=True)]
        assert row.labels == (*expected, float(bool(row.final_answer_correct)))
    right, calls = Completer.roll, []

    def killed(self: Completer, prefixes: Any) -> list[Rolled]:
        calls.append(prefixes)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return right(self, prefixes)

    monkeypatch.setattr(Completer, "roll", killed)
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path / "b", **settings)
    assert len(calls) == 2
    assert made(tmp_path / "b", **settings)[1] == whole
    assert calls[1] == calls[2]  # what was lost is done again
    assert calls[0] not in calls[2:]  # what was kept is not


def test_a_verifier_that_crashes_on_half_of_the_rollouts_stops_the_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_verifier(make_task({"kind": "arithmetic"}).verifier_config) as verifier:
        kind: Any = type(verifier)
    judge, roll, rolling_out = kind.verify_many, Completer.roll, list[bool]()

    def crashing(self: Verifier, requests: Sequence[Judged]) -> list[Verdict]:
        crash = Verdict(Outcome.CRASHED, {}, "it is broken")
        crashes = [bool(rolling_out) and number % 2 == 0 for number in range(len(requests))]
        return [crash if crashed else real for crashed, real in zip(crashes, judge(self, requests), strict=True)]

    def then_crashing(self: Completer, prefixes: Any) -> list[Rolled]:
        rolling_out.append(True)
        return roll(self, prefixes)

    monkeypatch.setattr(kind, "verify_many", crashing)
    monkeypatch.setattr(Completer, "roll", then_crashing)
    with pytest.raises(VerifierError, match="more than max_failure_share"):
        made(tmp_path, method="monte_carlo", rollouts=2)
    assert len(rolling_out) == 1


WRITTEN = {
    "Q<think><<2+3=5>>": "b<<5*2=",  # nothing is open behind a result
    "Q<think><<2+3=5>>b<<5*2=10>>": "x",
    "Q<think><<2+3=5>> a <<5*": "2=",  # the call had begun
    "Q<think><<2+3=5>> a <<5*2=10>>": "y",
    "Q<think>no": "thing 4",
    "Q<think>bad": "<<1<<2",
}


class Writes:
    """Writes after every text what `after` says, and ends."""

    version = 0

    def __init__(self, policy: Policy, after: Callable[[str], str | None]) -> None:
        self.policy, self.after, self.asked = policy, after, list[Request]()

    def generate(self, requests: Sequence[Request], config: SamplingConfig, on_finished: Any) -> None:
        self.asked.extend(requests)
        tokenizer = self.policy.tokenizer
        for index, request in enumerate(requests):
            text = self.after(tokenizer.decode(request.token_ids))
            ids = np.array([*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id], np.int64)
            numbers = np.zeros(len(ids), np.float32)
            on_finished(index, [Sampled(ids, numbers, numbers, FinishReason.STOP)])


class Right(Verifier):
    """Judges everything right, and keeps what it was asked."""

    def __init__(self, judged: list[Judged]) -> None:
        super().__init__()
        self.judged = judged

    def verify_many(self, requests: Sequence[Judged]) -> list[Verdict]:
        self.judged.extend(requests)
        return [Verdict(Outcome.CORRECT, {}, "", "") for _ in requests]


def test_rollouts_go_on_with_tools(tiny_policy: Callable[..., Policy]) -> None:
    policy, judged = tiny_policy(), list[Judged]()
    template = Template(prompt="{question}", prefill="<think>")
    actors = Actors(policy, Writes(policy, WRITTEN.get), template, Right(judged))
    problem, draws = Problem("p", "Q", ""), Draws(0, Purpose.STEP_LABELS)

    def roll(prefixes: Sequence[str], **settings: Any) -> list[Rolled]:
        judged.clear()
        tools = {"calculator": CalculatorConfig(**settings)}
        sampling = SamplingConfig(max_tokens=20).model_copy(update={"tools": tools})
        return Completer(actors, sampling, draws, 1).roll([(problem, prefix) for prefix in prefixes])

    prefixes = ["<think><<2+3=5>>", "<think><<2+3=5>> a <<5*", "<think>no"]
    sampled = [len("b<<5*2=") + 2, len("2=") + 2, len("thing 4") + 1]  # results count as nothing
    assert roll(prefixes) == [Rolled(1, 1, tokens) for tokens in sampled]
    assert [(one.text, one.own, one.prefill, one.num_calls) for one in judged[:3]] == [
        ("<think><<2+3=5>>b<<5*2=10>>x", "<think><<2+3= b<<5*2= x", "<think>", 2),
        ("<think><<2+3=5>> a <<5*2=10>>y", "<think><<2+3=  a <<5*2= y", "<think>", 2),
        ("<think>nothing 4", None, "<think>", 0),
    ]
    # the prefix's calls count, and a rollout without a call of its own keeps to what the policy wrote
    assert roll(prefixes[:1], max_calls=1) == [Rolled(1, 1, len("b<<5*2="))]
    assert judged[0].own == "<think><<2+3= b<<5*2="
    assert roll(prefixes[:1], may_answer=True)
    assert judged[0].own is None
    assert roll(["<think>bad"]) == [Rolled(0, 1, len("<<1<<"))]  # whatever the verifier says


@pytest.mark.parametrize("prefill", ["", "<think>", "<think>\n", "```python\n"])
def test_tools_look_at_what_follows_a_prefill(tiny_policy: Callable[..., Policy], prefill: str) -> None:
    policy = tiny_policy()
    text = "```python\nprint(7)\n```\n```output\n7\n```\nSo"
    engine = Writes(policy, lambda text: "")
    actors = Actors(policy, engine, Template(prompt="{question}", prefill=prefill), Right([]))  # type: ignore[arg-type]
    sampling = SamplingConfig(max_tokens=20).model_copy(update={"tools": {"python": PythonToolConfig()}})
    completer = Completer(actors, sampling, Draws(0, Purpose.STEP_LABELS), 1)
    assert completer.roll([(Problem("p", "Q", ""), prefill + text)]) == [Rolled(1, 1, 1)]
    [request] = engine.asked
    assert [call.content for call in request.calls] == ["print(7)"]
    since = request.token_ids[len(request.token_ids) - request.since_result :]
    assert policy.tokenizer.decode(since) == "So"


def test_a_step_that_ends_within_a_result_is_gone_on_from_behind_it() -> None:
    row = a_row(text="<<1+2=3>>. <<3*3=9>>. <<4<<", outcome=Outcome.WRONG, finish_reason=FinishReason.MALFORMED_CALL)
    [cut], _ = cut_rows([row], "equation", {"calculator": CalculatorConfig()})
    assert cut.results == ((6, 9), (17, 20))
    assert cut.prefixes == ["<think><<1+2=3>>", "<think><<1+2=3>>. <<3*3=9>>"]
    assert "".join(cut.steps) == row.text


def test_estimates() -> None:
    rolled = [Rolled(0, 8, 1), Rolled(1, 8, 1), Rolled(4, 4, 1), Rolled(0, 0, 1)]

    def config(**more: Any) -> Any:
        return StepLabelsConfig.model_construct(**{"method": "monte_carlo", "estimate": "hard", **more})

    assert estimated(rolled, True, config()) == [0.0, 1.0, 1.0, None, 1.0]
    assert estimated(rolled, False, config()) == [0.0, 1.0, 1.0, None, 0.0]
    assert estimated(rolled, True, config(estimate="soft")) == [0.0, 0.125, 1.0, None, 1.0]
    assert estimated([None, Rolled(1, 2, 0)], True, config(method="group_tree", estimate="soft")) == [None, 0.5, 1.0]


def a_row(**changes: Any) -> Row:
    fields: dict[str, Any] = {
        "problem": "p", "difficulty": "", "language": "en", "question": "", "reference": "", "open_ended": False,
        "prefill": "<think>", "sample": 0, "text": "1+1=2. Two.</think>2. Yes.", "evidence": "", "num_tokens": 3,
        "finish_reason": FinishReason.STOP, "outcome": Outcome.CORRECT, "answer": "2",
    }  # fmt: skip
    return Row(**{**fields, **changes})


def steps_of(size: int, outcome: Outcome) -> Cut:
    return Cut(a_row(text="abcdefghij"[:size], outcome=outcome), tuple(range(1, size + 1)))


def rolling(folder: Path, successes: Callable[[str], int], judged: int = 8) -> tuple[Rollouts, list[str]]:
    """Rollouts of which so many succeed by prefix, and the prefixes that were asked."""
    asked: list[str] = []

    def roll(prefixes: Sequence[tuple[Problem, str]]) -> list[Rolled]:
        asked.extend(prefix for _, prefix in prefixes)
        return [Rolled(successes(prefix), judged, 10) for _, prefix in prefixes]

    completer: Any = SimpleNamespace(roll=roll)
    return Rollouts(completer, {"p": Problem("p", "", "")}, folder, {}), asked


@given(st.integers(1, 10), st.integers(0, 9))
def test_halving_finds_what_a_scan_finds_where_nobody_recovers(size: int, error: int) -> None:
    error = min(error, size - 1)
    with TemporaryDirectory() as folder:
        rollouts, asked = rolling(Path(folder), lambda prefix: int(len(prefix) - len("<think>") <= error))
        [found] = searched([steps_of(size, Outcome.WRONG)], rollouts)
    assert by_search(found, False) == [1.0] * error + [0.0] * (size - error)
    assert len(asked) <= math.ceil(math.log2(size)) if size > 1 else not asked
    assert rollouts.tokens == 10 * len(asked)


def test_a_right_answer_is_not_searched_and_what_nobody_judged_is_unknown(tmp_path: Path) -> None:
    rollouts, asked = rolling(tmp_path, lambda prefix: 0, judged=0)
    right, wrong = searched([steps_of(4, Outcome.CORRECT), steps_of(8, Outcome.WRONG)], rollouts)
    assert by_search(right, True) == [1.0] * 4
    assert asked == ["<think>abcd"]
    assert by_search(wrong, False) == [None] * 8


def test_completions_that_begin_alike_label_each_other() -> None:
    rows = [
        a_row(text="1. 2. yes", sample=0), a_row(text="1. 2. no", sample=1, outcome=Outcome.WRONG),
        a_row(text="1. 9. no", sample=2, outcome=Outcome.WRONG), a_row(text="1. 2", sample=3, outcome=Outcome.CRASHED),
        a_row(text="1. 2. ", problem="q"),
    ]  # fmt: skip
    cut, _ = cut_rows(rows[:3], "sentence", {})
    assert shared(cut, rows) == [
        [Rolled(1, 3, 0), Rolled(1, 2, 0)], [Rolled(1, 3, 0), Rolled(1, 2, 0)], [Rolled(1, 3, 0), None],
    ]  # fmt: skip


@pytest.mark.parametrize("method", ["group_tree", "binary_search"])
def test_every_method_labels_by_the_tasks_verifier(tmp_path: Path, method: str) -> None:
    more = {"rollouts": 2} if method == "binary_search" else {"estimate": "soft"}
    rows, _ = made(tmp_path, method=method, num_samples=4, **more)
    for row in rows:
        assert row.labels[-1] == float(bool(row.final_answer_correct))
        successes, rollouts = row.provenance["successes"], row.provenance["rollouts"]
        for own, success, judged in zip(row.labels, successes, rollouts, strict=False):
            if method == "group_tree":
                assert own == (None if judged is None else success / judged)
            elif judged is not None:
                assert own == float(success > 0)
    assert any(judged is not None for row in rows for judged in row.provenance["rollouts"])


def test_imported_rows_say_where_they_are_from_and_held_out_problems_are_left_out(tmp_path: Path) -> None:
    questions = [problem.question for problem in make_task({"kind": "arithmetic"}).problems("test")[:1]]
    records = [
        StepRow(f"{question} \n", ("a\n", "b\n", "c\n"), (1.0, 0.3, 1.0)).record()
        for question in ("Anything else?", *questions)
    ]
    [row], statistics = imported_from(tmp_path / "a", *records, keep="until_first_error")
    assert row.labels == (1.0, 0.3, None)
    assert row.provenance == {"method": "import", "file": "steps.jsonl"}
    assert statistics["dropped"] == {"held-out problem": 1}
    with pytest.raises(DataError, match=r"no row is left \(1 held-out problem\)"):
        imported_from(tmp_path / "b", records[1], keep="until_first_error")


LABELLED = StepRow(
    "What is 8 + 1?\n", ("a. ", "b. ", "c. ", "d"), (0.0, 1.0, None, 0.0), "p", final_answer_correct=False,
    provenance={"successes": [0, 3, 0], "rollouts": [8, 8, 0], "kinds": ["sound"] * 4, "exact_first_error": 3},
)  # fmt: skip


def test_rollouts_that_are_there_make_other_labels(tmp_path: Path) -> None:
    [hard], _ = imported_from(tmp_path / "a", LABELLED.record(), from_rollouts="hard")
    assert hard.labels == (0.0, 1.0, None, 0.0)
    [soft], _ = imported_from(tmp_path / "b", LABELLED.record(), from_rollouts="soft")
    assert soft.labels == (0.0, 3 / 8, None, 0.0)
    assert soft.provenance["estimate"] == "soft"
    # the plan sees the first mistake at the last step, the rollouts at the first
    right = replace(LABELLED, labels=(1.0, 1.0, 1.0, 0.0))
    assert imported_from(tmp_path / "c", LABELLED.record(), right.record(), agree_with="exact")[0] == [
        replace(right, provenance={**right.provenance, "method": "import", "file": "steps.jsonl"})
    ]
    bare = replace(LABELLED, provenance={}).record()
    with pytest.raises(DataError, match="lacks the number of `rollouts` from each step"):
        imported_from(tmp_path / "d", bare, from_rollouts="soft")
    with pytest.raises(DataError, match="the truth of the row that starts with 'What is 8"):
        imported_from(tmp_path / "e", bare, agree_with="exact")


def test_without_a_plan_nobody_can_agree_with_it(tmp_path: Path) -> None:
    rows = [json.dumps({"question": f"{n}?", "answer": "1"}) for n in range(40)]
    (tmp_path / "own.jsonl").write_text("\n".join(rows))
    other = {"method": "group_tree", "agree_with": "exact"}
    for settings, said in (({}, 'method = "exact"'), (other, "agree_with = ")):
        table = pipeline(tmp_path, **SAMPLED, **settings)
        table["tasks"]["sums"] = {"kind": "jsonl", "path": str(tmp_path / "own.jsonl")}
        with pytest.raises(ConfigError, match=said + ".*needs problems with a plan, and 2 of 2 have none"):
            result_of(tmp_path / "x", table)


def test_a_text_without_a_boundary_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="step = 'QQQ' ends no step within any of the"):
        made(tmp_path / "many", step="QQQ", num_problems=4, num_samples=4)
    monkeypatch.setattr(step_labels, "ENOUGH", 1_000)
    assert made(tmp_path / "few", step="QQQ")


def test_what_cannot_be_cut_is_counted() -> None:
    rows = [a_row(), a_row(text=""), a_row(outcome=Outcome.CRASHED), a_row(finish_reason=FinishReason.LENGTH)]
    [cut], dropped = cut_rows(rows, "sentence", {})
    assert isinstance(cut, Cut)
    assert cut.steps == ("1+1=2. ", "Two.</think>2. Yes.")
    assert cut.prefixes == ["<think>1+1=2. "]
    assert dropped == {"empty": 1, "not judged": 1, "cut off": 1}


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"step": "("}, "no regular expression"),
        ({"rollouts": 4}, "rollouts"),
        ({"split": "test"}, "split"),
        ({"path": ""}, "needs a path"),
        ({"method": "import"}, "path = .* has no effect here"),
        ({"method": "group_tree", "num_samples": 1}, "leaves a group nothing to share"),
        ({"method": "binary_search", "estimate": "soft"}, "estimate = 'soft' has no effect here"),
        ({"from_rollouts": "soft"}, "from_rollouts = 'soft' has no effect here"),
    ],
)
def test_settings_that_cannot_be_used_are_named(tmp_path: Path, stage: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_pipeline(pipeline(tmp_path, **{**SAMPLED, **stage}))
