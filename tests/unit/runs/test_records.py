"""The reader of what a run recorded: whole runs, growing ones and damaged ones, and their evaluations."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupwise.errors import ConfigError, DataError
from groupwise.runs.directory import RunDirectory
from groupwise.runs.records import Records
from groupwise.runs.rollouts import Detailed, read_rows, write_rollouts
from groupwise.runs.row import Index, flat_because, rows_of
from groupwise.runs.run import Run
from groupwise.types import (
    AdvantagedGroup,
    Completion,
    FinishReason,
    Group,
    Outcome,
    Problem,
    Prompt,
    ScoredGroup,
    Verdict,
)

LOGPROBS = np.array([-0.1, -1.5, -2.25], np.float32)


def scored(problem: str, rewards: list[float | None], put_in: bool = False) -> ScoredGroup:
    mask = np.array([True, not put_in, True])
    completions = tuple(
        Completion(i, np.array([7, 8, 9]), LOGPROBS, None, FinishReason.STOP, "ab", mask) for i in range(len(rewards))
    )
    verdicts = tuple(
        Verdict(Outcome.TIMEOUT, {}, "5 s")
        if reward is None
        else Verdict(Outcome.CORRECT if reward else Outcome.WRONG, {"accuracy": reward}, "so", "6")
        for reward in rewards
    )
    prompt = Prompt(Problem(problem, "2 × 3?", "6"), "2 × 3?\n", (1, 2))
    return ScoredGroup(Group(prompt, completions, step=3, policy_version=3), verdicts)


def detailed(problem: str, put_in: bool = False) -> Detailed:
    group = scored(problem, [1.0, 0.0], put_in)
    advantages = (np.where(group.group.completions[0].sampled, 0.5, 0.0), np.full(3, -0.5))
    update = {
        "trained": True, "old": "trainer", "loss_weight": 0.125, "trainer_logprobs": LOGPROBS + np.float32(1e-6),
        "ratio": np.array([1.25, 1, 0.5], np.float32), "bound": np.array([2, 0, 1], np.int8),
        "after_logprobs": LOGPROBS + np.float32(0.5), "token_ends": np.array([1, 2, 2]),
    }  # fmt: skip
    return Detailed(AdvantagedGroup(group, advantages), None, np.array([3, 7]), [update, {"trained": False}])


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run with step 3: two kept groups and a discarded one."""
    (tmp_path / "config.toml").write_text('algorithm = "grpo"\n')
    directory = RunDirectory(tmp_path)
    groups = [detailed("p/0"), detailed("p/1"), Detailed(scored("p/2", [1.0, 1.0]), "right")]
    found = write_rollouts(directory.rollouts(3), groups)
    Index(directory, 4).add("step-000003", found)
    directory.metrics.append({"kind": "step", "step": 3, "reward": 0.5, "distributions": {"ratio": None}})
    return directory


def test_a_completion_is_read_back_to_the_bit(run: RunDirectory) -> None:
    records = Records.open(run.path)
    assert (records.steps(), records.evaluations(), records.kinds()) == ([3], [], ["step"])
    one: Any = records.completion(3, "p/1", 0)
    assert (one.tokens, one.trained, one.loss_weight, one.outcome) == (["a", "b", ""], True, 0.125, "correct")
    assert (one.ratio.tolist(), one.bound.tolist()) == ([1.25, 1, 0.5], [2, 0, 1])
    expected = (LOGPROBS + np.float32(1e-6)) - LOGPROBS
    assert np.array_equal(one.mismatch, expected)
    assert expected.any()
    assert np.allclose(one.change, 0.5, atol=1e-5)
    assert records.damage == []


def test_what_was_not_measured_is_none_and_not_zero(run: RunDirectory) -> None:
    other = Records.open(run.path).completion(3, "p/0", 1)
    assert other.trained is False
    for value in (other.ratio, other.kl, other.ref_logprobs, other.entropy, other.values, other.mismatch, other.change):
        assert value is None


def test_tokens_that_were_put_in_have_no_values(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    write_rollouts(RunDirectory(tmp_path).rollouts(0), [detailed("p/0", put_in=True)])
    stored = pq.read_table(RunDirectory(tmp_path).rollouts(0))["sampling_logprobs"].to_pylist()[0]
    assert stored[1] is None
    assert stored[0] == pytest.approx(-0.1)
    one: Any = Records.open(tmp_path).completion(0, "p/0", 0)
    assert one.sampled.tolist() == [True, False, True]
    assert np.isnan(one.sampling_logprobs).tolist() == [False, True, False]


def test_every_group_is_a_row_group_and_the_index_says_the_same_as_the_file(run: RunDirectory) -> None:
    with pq.ParquetFile(run.rollouts(3)) as file:
        assert [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)] == [2, 2, 2]
    indexed = Records.open(run.path).groups(3)
    run.index.path.unlink()
    assert Records.open(run.path).groups(3) == indexed
    first, _, left_out = indexed
    assert (first.reward, first.reward_std, first.num_trained, first.flat, first.discarded) == (0.5, 0.5, 1, None, None)
    assert (left_out.flat, left_out.discarded, left_out.row_group, left_out.first_row) == ("right", "right", 2, 4)


@pytest.mark.parametrize(
    ("outcomes", "rewards", "reason"),
    [
        ("cw", [1.0, 0.0], None), ("cc", [1.0, 1.0], "right"), ("wu", [0.0, 0.0], "wrong"),
        ("cw", [0.5, 0.5], "equal"), ("tn", [None, None], "failed"), ("cc", [1.0, 0.5], None),
        ("wt", [0.0, None], "wrong"),
    ],
)  # fmt: skip
def test_why_a_group_is_flat(outcomes: str, rewards: list[float | None], reason: str | None) -> None:
    by_letter = {outcome.value[0]: outcome for outcome in Outcome if outcome is not Outcome.CRASHED}
    assert flat_because([by_letter[letter] for letter in outcomes], rewards) == reason


def test_groups_that_another_program_merged_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    path = RunDirectory(tmp_path).rollouts(3)
    write_rollouts(path, [detailed("p/0", put_in=True), detailed("p/1")])
    before = Records.open(tmp_path).groups(3)
    pq.write_table(pq.read_table(path), path)
    records = Records.open(tmp_path)
    assert [(g.problem, g.length, g.reward, g.row_group) for g in records.groups(3)] == [
        (g.problem, g.length, g.reward, 0) for g in before
    ]
    group = records.group(3, "p/1", tokens=False)
    assert [row.num_tokens for row in group.completions] == [3, 3]
    assert (group.completions[0].token_ids, group.completions[0].ratio) == (None, None)
    assert records.rows(3)[2:] == group.completions
    assert [(row.num_tokens, row.num_read, row.num_insertions) for row in records.rows(3)] == [
        (2, 3, 1), (2, 3, 1), (3, 3, 0), (3, 3, 0)
    ]  # fmt: skip
    assert records.damage == []


def test_a_file_without_a_column_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    path = RunDirectory(tmp_path).rollouts(3)
    write_rollouts(path, [detailed("p/0")])
    pq.write_table(pq.read_table(path).drop_columns(["trained"]), path)
    assert Records.open(tmp_path).groups(3) == []
    with pytest.raises(DataError, match="trained"):
        Records.open(tmp_path).rows(3)


def test_a_growing_run_is_read_as_far_as_it_got(run: RunDirectory) -> None:
    records = Records.open(run.path)
    assert len(records.metrics()) == 1
    with run.metrics.path.open("ab") as file:
        file.write(b'{"kind": "step", "st')
    assert len(records.metrics()) == 1
    assert [(one.file, one.line) for one in records.damage] == [("metrics.jsonl", 2)]
    with run.metrics.path.open("ab") as file:
        file.write(b'ep": 4, "reward": NaN}\n')
    assert [line.get("reward") for line in records.metrics()] == pytest.approx([0.5, float("nan")], nan_ok=True)
    assert records.damage == []
    write_rollouts(run.rollouts(4), [detailed("p/9")])
    assert records.steps() == [3, 4]
    assert records.groups(4)[0].problem == "p/9"


def test_damage_is_named_and_the_rest_is_read(run: RunDirectory) -> None:
    run.rollouts(4).write_bytes(run.rollouts(3).read_bytes()[:-40])
    run.index.path.write_bytes(b"[1]\nnot json\n" + b'{"name": "step-000003", "bytes": 1}\n')
    with run.metrics.path.open("ab") as file:
        file.write(b'{"kind": "step", "step": "../x"}\n')
    records = Records.open(run.path)
    assert records.groups(4) == []
    assert len(records.groups(3)) == 3  # of the file itself: the index speaks of another
    assert len(records.metrics()) == 1
    assert {one.file for one in records.damage} == {"rollouts/step-000004.parquet", "index.jsonl", "metrics.jsonl"}
    with pytest.raises(DataError, match=r"step-000004\.parquet"):
        records.group(4, "p/0")


def test_what_is_not_there_is_refused_with_what_is(run: RunDirectory, tmp_path: Path) -> None:
    records = Records.open(run.path)
    asked: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
        (records.groups, (5,), "recorded are steps 3 to 3"),
        (records.groups, ("../../etc/passwd",), "recorded are steps 3 to 3"),
        (records.group, (3, "p/7"), "there are p/0, p/1, p/2"),
        (records.completion, (3, "p/0", 9), "there are 0, 1"),
        (records.table, (3, ["secret"]), "no column 'secret'"),
    ]
    for method, arguments, said in asked:
        with pytest.raises(ConfigError, match=said):
            method(*arguments)
    assert records.table(3, ["problem", "values"]).schema.field("values").type == pa.list_(pa.float32())


def test_links_out_of_the_run_are_not_followed(run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "secret.parquet"
    elsewhere.write_bytes(run.rollouts(3).read_bytes())
    run.rollouts(8).symlink_to(elsewhere)
    records = Records.open(run.path)
    assert records.steps() == [3]
    assert [one.file for one in records.damage] == ["rollouts/step-000008.parquet"]


def test_a_resumed_run_forgets_what_comes_after_its_checkpoint(run: RunDirectory) -> None:
    index = Index(run, 4)
    for step in (4, 5):
        index.add(run.rollouts(step).stem, write_rollouts(run.rollouts(step), [detailed("p/0")]))
    with run.index.path.open("ab") as file:
        file.write(b'{"name": "step-0000')  # killed here
    again = Index(run, 5)
    assert Records.open(run.path).steps() == [3, 4]
    for _ in range(2):  # the same file twice is one line
        again.add("step-000005", write_rollouts(run.rollouts(5), [detailed("p/0")]))
    names = [json.loads(line)["name"] for line in run.index.path.read_text().splitlines()]
    assert names == ["step-000003", "step-000004", "step-000005"]


def test_a_finished_run(finished_run: Any) -> None:
    run = Records.open(finished_run.path).intact()
    assert [line["step"] for line in run.metrics()] == [0, 1, 2, 3]
    assert [evaluation.step for evaluation in run.dev] == [0, 4]
    assert (run.finished, run.planned_steps, run.best_step) == (True, 4, 4)
    assert run.best == finished_run.path / "checkpoints" / "best"
    assert run.test_before is not None
    first = run.test_after.rows[0]
    assert (first.problem, first.outcome, first.num_tokens) == ("6×7", Outcome.CORRECT, len(first.text))
    assert "versions" in run.environment


def test_a_run_that_has_just_begun(fake_run: Any) -> None:
    run = Records.open(fake_run.path).intact()
    assert (run.metrics(), run.dev, run.test_before, run.test_after) == ([], [], None, None)
    assert (run.finished, run.best_step, run.best) == (False, None, None)


def test_a_step_done_twice_counts_once_and_a_torn_line_not_at_all(fake_run: Any) -> None:
    fake_run.steps(0, 1, 1)
    fake_run.directory.metrics.append({"step": 2, "loss": 5.5})  # lines without a kind are steps
    with fake_run.directory.metrics.path.open("a") as file:
        file.write('{"kind": "step", "st')
    run = Records.open(fake_run.path).intact()
    assert [line["step"] for line in run.metrics()] == [0, 1, 2]
    assert len(run.lines()) == 4


def test_an_evaluation_outlives_its_completions(fake_run: Any, group: Any) -> None:
    fake_run.evaluation("dev", 0, [group("a", [("x", Outcome.WRONG)])], best=True)
    fake_run.directory.rollouts("dev-step-000000").unlink()
    (evaluation,) = Records.open(fake_run.path).dev
    assert (evaluation.rows, evaluation.line["pass_at_1"]) == ((), [0.5, 0.4, 0.6])


def test_what_cannot_be_read_is_refused_by_name(finished_run: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a run directory"):
        Records.open(tmp_path)
    run = Records.open(finished_run.path)
    finished_run.directory.rollouts("test-after").write_bytes(b"no parquet")
    with pytest.raises(DataError, match="test-after"):
        _ = run.test_after
    (finished_run.path / "environment.json").write_text("no json\n")
    with pytest.raises(DataError, match=r"environment\.json"):
        _ = run.environment
    with finished_run.directory.metrics.path.open("a") as file:
        file.write("no json\n")
    with pytest.raises(DataError, match=r"metrics\.jsonl cannot be read: line 9"):
        run.intact()


def test_a_row_is_the_same_from_memory_and_from_disk(tmp_path: Path, group: Any) -> None:
    groups = [group("a", [("x</think>1", Outcome.CORRECT), ("y", Outcome.UNPARSABLE)])]
    write_rollouts(tmp_path / "some.parquet", groups)
    assert read_rows(tmp_path / "some.parquet") == rows_of(groups)


def test_every_reading_of_a_benchmark_has_its_line(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.config.write_text("[run]\nnum_steps = 1\n")
    for share in (0.0, 0.5):  # the command was given twice
        for reading in ("strict", "flexible"):
            run.metrics.append({"kind": "gsm8k-lm_eval", "step": 0, "reading": reading, "share": share})
    lines = Records.of(run).metrics("gsm8k-lm_eval")
    assert [(line["reading"], line["share"]) for line in lines] == [("flexible", 0.5), ("strict", 0.5)]
    assert list(Run(run).evaluations()["reading"]) == ["flexible", "strict"]
