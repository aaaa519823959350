"""Runs of other systems: read as they write them, shown and diagnosed as far as their data goes.

The fixtures follow TRL 1.16 (GRPOTrainer.log) and verl (`_dump_generations`, FileLogger).
"""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from groupwise_lab.imports import read_prime_rl, read_trl, read_verl, write_imported
from groupwise_lab.imports.foreign import Correct, as_text
from typer.testing import CliRunner

from groupwise.checks.doctor import doctor
from groupwise.cli.main import app
from groupwise.errors import ConfigError, DataError
from groupwise.explorer.views import Views
from groupwise.runs.records import Records
from groupwise.runs.run import Run

NAN = float("nan")


def trl_output(folder: Path, steps: range, right: Any = lambda step, i: i == 0) -> Path:
    """An output directory with two prompts of four completions each in every step that was logged."""
    history: list[dict[str, Any]] = []
    (folder / "completions").mkdir(parents=True)
    for step in steps:
        rows: dict[str, list[Any]] = {
            name: [] for name in ("step", "prompt", "completion", "accuracy", "style", "advantage")
        }
        for i in range(8):
            values = (step, f"What is {i // 4} + 1?\n", f"I say {i}.", float(right(step, i)), 0.25 if i else NAN, 0.5)
            for name, value in zip(rows, values, strict=True):
                rows[name].append(value)
        pq.write_table(pa.table(rows), folder / "completions" / f"completions_{step:05d}.parquet")
        history.append({
            "step": step, "epoch": 0.1, "loss": 0.0, "reward": 0.34, "reward_std": 0.1, "frac_reward_zero_std": 0.25,
            "completions/mean_length": 20.0 + step, "completions/clipped_ratio": 0.125, "grad_norm": NAN, "kl": 0.001,
            "entropy": 0.3, "clip_ratio/region_mean": 0.0, "learning_rate": 1e-6, "rewards/accuracy/mean": 0.125,
            "rewards/style/mean": 0.25,
        })  # fmt: skip
        history.append({"step": step - 1, "eval_reward": 0.9, "entropy": 99.0})
    history.append({"step": steps[-1], "train_runtime": 12.0})
    for number in (steps[0], steps[-1]):
        state = folder / f"checkpoint-{number}" / "trainer_state.json"
        state.parent.mkdir()
        state.write_text(json.dumps({"log_history": [line for line in history if line["step"] <= number]}))
    return folder


def verl_output(folder: Path, num_steps: int) -> Path:
    """Completions of every step, some of them paid, with the reward function's own `acc` beside them."""
    folder.mkdir(parents=True)
    for step in range(1, num_steps + 1):
        lines = [
            {"input": f"user\n{i // 4} + 1?", "output": f"{i}", "gts": str(i // 4 + 1), "step": step,
             "score": float(i % 4 == 0) - 0.5, "acc": i % 4 == 0, "note": "text"}
            for i in range(8)
        ]  # fmt: skip
        (folder / f"{step}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return folder


@pytest.fixture
def trl(tmp_path: Path) -> Records:
    source = trl_output(tmp_path / "out", range(10, 130, 10))
    write_imported(read_trl(source), "trl", source, tmp_path / "run", "accuracy")
    return Records.open(tmp_path / "run")


def test_a_run_of_trl_has_its_scalars_under_our_names(trl: Records) -> None:
    lines = trl.metrics()
    assert [line["step"] for line in lines] == list(range(10, 130, 10))
    first = lines[0]
    assert (first["reward"], first["signal"], first["length"], first["truncated"]) == (0.34, 0.75, 30.0, 0.125)
    assert (first["entropy"], first["lr"], first["kl"]) == (0.3, 1e-6, 0.001)  # not those of an evaluation
    assert math.isnan(first["grad_norm"])
    assert first["correct"] == 0.125  # from its completions
    assert first["parts"]["part/accuracy/mean"] == 0.125
    assert trl.config["imported"]["lacks"] == []
    assert Run.open(trl.path).finished


def test_completions_of_trl_are_groups_of_their_prompts(trl: Records) -> None:
    groups = trl.groups(10)
    assert [(group.num_completions, group.num_correct, group.flat, group.length) for group in groups] == [
        (4, 1, None, None), (4, 0, "wrong", None),
    ]  # fmt: skip
    group = trl.group(10, groups[0].problem)
    assert group.completions[0].question == "What is 0 + 1?\n"
    right, wrong = group.completions[:2]
    assert (right.outcome, right.reward, dict(right.reward_parts)) == ("correct", 1.0, {"accuracy": 1.0})
    assert (wrong.outcome, wrong.reward, wrong.advantage) == ("wrong", 0.25, 0.5)
    assert dict(wrong.reward_parts) == {"accuracy": 0.0, "style": 0.25}  # NaN was no 0, and no part
    assert (right.num_tokens, right.finish_reason, right.token_ids) == (None, "unknown", None)


def test_the_pages_show_an_imported_run(trl: Records) -> None:
    views = Views([trl.path])
    run = views.run(0)
    assert run["metrics"]
    place = run["places"][0]["id"]
    facts = views.place(0, place)
    assert facts["columns"]["length"] == [None] * 8
    assert facts["notices"] == []
    group = facts["groups"][0]["id"]
    assert views.group(0, place, group)["completions"][0]["outcome"] == "correct"
    completion = views.completion(0, place, group, 1)
    assert (completion["text"], completion["policy_version"], completion["replay"]) == ("I say 1.", None, None)


def test_the_doctor_names_what_is_lacking_and_every_finding_leads_to_its_completions(tmp_path: Path) -> None:
    source = trl_output(tmp_path / "out", range(5, 205, 5), right=lambda step, i: False)
    write_imported(read_trl(source), "trl", source, tmp_path / "run", "accuracy>0.5")
    found = doctor(tmp_path / "run")
    rules = {finding.check for finding in found.findings}
    assert "never_correct" in rules
    assert "record_damaged" not in rules  # steps of another rhythm are no damage
    assert found.not_judged["gradient_spikes"] == ["grad_norm: never finite"]
    views = Views([tmp_path / "run"])
    facts = views.findings(0)
    never = next(one for one in facts["findings"] if one["rule"] == "never_correct")
    assert never["advice"]
    assert never["evidence"]
    for place in never["evidence"]:
        _, _, index, _, at, group, *sample = place["address"].split("/")
        group_facts = views.group(int(index), at, group)
        assert group_facts["problem"] in place["text"]
        assert not sample or int(sample[0]) in [one["sample"] for one in group_facts["completions"]]
    assert any("gradient_spikes" in one for one in facts["not_judged"])
    assert views.findings(0) is facts  # asked once, while nothing changes


def test_a_run_that_the_doctor_cannot_read_has_a_page_that_says_so(
    trl: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.explorer.run.doctor", lambda path: 1 / 0)
    facts = Views([trl.path]).findings(0)
    assert facts["findings"] == []
    assert "cannot read this run" in facts["notices"][0]


def test_a_run_of_verl(tmp_path: Path) -> None:
    source, dev = verl_output(tmp_path / "rollouts", 6), verl_output(tmp_path / "validation", 4)
    scalars = tmp_path / "metrics.jsonl"
    lines = [
        {"step": step, "elapsed_seconds": 1.0, "data": {
            "critic/rewards/mean": 0.1 * step, "actor/entropy": 0.5, "actor/grad_norm": 2.0, "actor/ppo_kl": 9.0,
            "response_length/mean": 12.5, "response_length/clip_ratio": 0.0,
            "rollout_corr/rollout_is_eff_sample_size": 0.25, "val-core/gsm8k/acc/mean@1": 0.75}}
        for step in range(1, 7)
    ]  # fmt: skip
    scalars.write_text("\n".join(map(json.dumps, lines)) + "\n")
    made = write_imported(read_verl(source, scalars, dev), "verl", source, tmp_path / "run", "acc")
    assert (made.num_steps, made.num_completions, made.num_evaluations) == (6, 80, 6)
    assert made.lacks == ("kl", "clipped", "lr", "loss")
    records = Records.open(tmp_path / "run")
    third = records.metrics()[2]
    assert (third["reward"], third["grad_norm"], third["length"]) == (pytest.approx(0.3), 2.0, 12.5)
    assert (third["sampled_correct"], third["signal"]) == (0.25, 1.0)
    assert third["effective_samples"] == 0.25
    assert "kl_after_updates" not in third  # theirs is another quantity
    completion = records.group(3, records.groups(3)[0].problem).completions[0]
    assert (completion.reward, completion.outcome, dict(completion.measures)) == (0.5, "correct", {"acc": 1.0})
    assert records.evaluations() == [f"dev-step-{step:06d}" for step in range(1, 5)]
    passed = {line["step"]: line["pass_at_1"][0] for line in records.metrics("dev")}  # scalars where no completions are
    assert passed == {1: 0.25, 2: 0.25, 3: 0.25, 4: 0.25, 5: 0.75, 6: 0.75}
    assert doctor(tmp_path / "run").num_steps == 6
    scalars.write_text('{"step": 1, "data": {"actor/reward_kl_penalty": 0.5}}\n')  # with the KL term in the reward
    assert read_verl(source, scalars).scalars == {1: {"kl": 0.5}}


def test_without_scalars_the_completions_say_what_they_can(tmp_path: Path) -> None:
    source = verl_output(tmp_path / "rollouts", 2)
    made = write_imported(read_verl(source), "verl", source, tmp_path / "run", "score>0")
    assert {"entropy", "grad_norm", "length"} <= set(made.lacks)
    assert Records.open(tmp_path / "run").metrics()[0]["reward"] == -0.25
    with pytest.raises(ConfigError, match="exists already"):
        write_imported(read_verl(source), "verl", source, source, "acc")


def test_what_counts_as_correct_is_never_guessed(tmp_path: Path) -> None:
    source = trl_output(tmp_path / "out", range(1, 3))
    for correct, said in ((None, "accuracy, style"), ("acuracy", "accuracy, reward, style"), ("style>x", "no number")):
        with pytest.raises(ConfigError, match=said):
            write_imported(read_trl(source), "trl", source, tmp_path / "run", correct)
        assert not (tmp_path / "run").exists()


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no output directory of TRL"):
        read_trl(tmp_path)
    with pytest.raises(DataError, match=r"has no files N\.jsonl"):
        read_verl(tmp_path)
    (tmp_path / "trainer_state.json").write_text("[]")
    with pytest.raises(DataError, match="is no trainer's state"):
        read_trl(tmp_path)
    for text, message in (("{", "line 1: its last line has no end"), ("[]", "line 1: it is not an object"),
                          ('{"input": "a", "output": "b"}', "score is missing")):  # fmt: skip
        (tmp_path / "1.jsonl").write_text(text)
        with pytest.raises(DataError, match=message):
            read_verl(tmp_path)


def test_conversations_are_text_and_bounds_are_read() -> None:
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    assert as_text(talk) == "user: hi\nassistant: ho"
    assert (as_text(None), as_text(3)) == ("", "3")
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "now", "arguments": "{}"}}]}
    assert as_text([call]) == 'assistant: [{"function": {"name": "now", "arguments": "{}"}}]'
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert as_text([{"role": "user", "content": blocks}]) == "user: ab"
    assert Correct.of("acc > 0") == ("acc", 0.0)


def episode(step: int, group: int, sample: int, kind: str = "train") -> dict[str, Any]:
    nodes = [
        {"message": {"role": "user", "content": f"What is {group} + 1?"}, "token_ids": [1, 2]},
        {"message": {"role": "assistant", "content": f"I say {sample}."}, "parent": 0, "token_ids": [3], "mask": [1]},
    ]
    info = {"kind": kind, "dispatch": {"step": step - 1, "time": 0.0}, "arrival": {"step": step, "time": 1.0}}
    rewards = {"right": {"score": float(sample == 0), "weight": 1.0}, "style": {"score": 1.0, "weight": 0.5}}
    own = {
        "id": f"t{step}-{group}-{sample}-{kind}", "nodes": nodes, "rewards": rewards, "metrics": {"turns": 1},
        "info": info,
    }  # fmt: skip
    return {"id": own["id"], "group": {"id": f"g{group}"}, "traces": [own, {"id": "judge", "nodes": [], "rewards": {}}]}


def lines(path: Path, values: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Two chunks, the first of them sealed; what was shipped is said later."""
    out = tmp_path / "outputs"
    stream = out / "traces" / "stream"
    every = [episode(step, group, sample) for step in (1, 2, 3) for group in (1, 2) for sample in (0, 1)]
    lines(stream / "00001.jsonl", [*every[6:], episode(2, 7, 0, "eval")])
    with pa.output_stream(str(stream / "00000.jsonl.zst"), compression="zstd") as file:
        file.write("".join(json.dumps(one) + "\n" for one in every[:6]).encode())
    known = {"effective": True, "ship": {"step": 2}, "advantage": 0.5}
    shipped = [{"version": 1, "trace_id": one["id"], "branches": [], "info": known} for one in every[:4]]
    lines(out / "traces" / "annotations" / "orchestrator" / "00000.jsonl", shipped)
    lines(stream / "index.jsonl", [{"line": 1, "offset": 0}])
    told = {"time": 0.0, "train/agg/effective/reward/mean": 0.75, "entropy/all/mean": 0.5, "optim/grad_norm": 1.0}
    metrics = [{"step": 1, **told}, {"step": 2, **told}, {"step": None, "time": 1.0, "vllm/requests": 3}]
    lines(out / "monitors" / "metrics.jsonl", metrics)
    return out


def test_episodes_are_at_the_step_that_shipped_them_with_what_was_known_later(output: Path) -> None:
    foreign = read_prime_rl(output)
    assert foreign.damage == ()
    assert {step: len(own) for step, own in foreign.answers.items()} == {2: 8, 3: 4}  # step 1 shipped at 2
    first = foreign.answers[2][0]
    assert (first.prompt, first.text) == ("What is 1 + 1?", "I say 0.")
    assert (first.reward, first.parts, first.advantage) == (1.5, {"right": 1.0, "style": 0.5}, 0.5)
    assert foreign.answers[3][0].advantage is None
    assert Correct.of("style").judge(first) == "correct"  # by its score of 1, for which its weight pays 0.5
    assert [len(own) for own in foreign.dev.values()] == [1]
    assert foreign.scalars == {step: {"reward": 0.75, "entropy": 0.5, "grad_norm": 1.0} for step in (1, 2)}


def test_the_explorer_shows_an_imported_run(output: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["import", "prime-rl", str(output), str(tmp_path / "run"), "--correct", "right"])
    assert result.exit_code == 0, result.output
    assert "3 steps, 13 completions, 1 evaluations" in result.output
    place = Views([tmp_path / "run"]).place(0, "s2")
    assert place["columns"]["outcome"] == ["correct", "wrong"] * 4
    assert [group["num_completions"] for group in place["groups"]] == [4, 4]


def test_a_stream_that_was_cut_is_read_to_there_and_named(output: Path) -> None:
    path = output / "traces" / "stream" / "00001.jsonl"
    path.write_text(path.read_text()[:-30])
    foreign = read_prime_rl(output)
    assert sum(map(len, foreign.answers.values())) == 12
    assert foreign.dev == {}
    assert foreign.damage == ("00001.jsonl, line 7: it is not JSON; the stream ends there",)


def test_hostile_and_damaged_streams_are_named(output: Path, tmp_path: Path) -> None:
    traces: list[Any] = [
        {"rewards": {"a": 3}, "info": []},
        {"rewards": {"a": {"score": "x"}}},
        {"rewards": {"a": {"score": 1}}, "nodes": [{"message": 7}], "info": {"arrival": {"step": "../x"}}},
    ]
    bad = [[], 3, {"traces": 3}, {"traces": traces}]
    lines(output / "traces" / "stream" / "00002.jsonl", bad)
    assert sum(map(len, read_prime_rl(output).answers.values())) == 12
    (output / "traces" / "stream" / "00000.jsonl.zst").write_bytes(b"no zstd")
    with pytest.raises(DataError, match=r"00000\.jsonl\.zst cannot be read"):
        read_prime_rl(output)
    with pytest.raises(DataError, match="has no episodes of prime-rl"):
        read_prime_rl(tmp_path / "nothing")
