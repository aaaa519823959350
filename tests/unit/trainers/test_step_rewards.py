"""A process reward model in GRPO: what it reads, by eager forwards; no baseline knows the next token; a whole run."""

import copy
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.algorithms.step_advantages import ProcessGae
from groupwise.checks.memory import plan
from groupwise.config import parse
from groupwise.errors import ConfigError, ModelError, VerifierError
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy, load_policy
from groupwise.models.prompts import encode_prompt
from groupwise.models.reward_model import start_reward_model
from groupwise.models.steps import mark_reads
from groupwise.rollout.steps import step_ends as token_ends
from groupwise.runs.records import Records
from groupwise.tasks.base import Template
from groupwise.trainers.grpo import GrpoRecipe, advantaged, grpo_learner
from groupwise.trainers.replay import replay
from groupwise.trainers.report import StepReport
from groupwise.trainers.rl import train_rl
from groupwise.trainers.step_rewards import StepJudge, StepRewardsConfig, load_step_judge
from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, ScoredGroup, StepReward, Verdict
from groupwise.verifiers.steps import inner_ends, step_ends

PREFILL = "Well. <think>"
TEXTS = ["2+2=4. So it is 4. Yes.</think>4. Done.", "No", "5. 6. ", "", "9. 9. 9."]
OUTCOMES = [Outcome.CORRECT, Outcome.WRONG, Outcome.WRONG, Outcome.UNPARSABLE, Outcome.CRASHED]


@pytest.fixture(scope="module")
def paths(tiny_policy: Callable[..., Policy], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A policy and a process reward model on disk."""
    folder = tmp_path_factory.mktemp("models")
    save_checkpoint(folder / "policy", tiny_policy())
    made = start_reward_model(ModelConfig(path=str(folder / "policy"), device="cpu"))
    with torch.no_grad():
        made.head.weight.copy_(0.3 * torch.randn(made.head.weight.shape, generator=torch.Generator().manual_seed(0)))
    mark_reads(made, chat=False)
    save_checkpoint(folder / "prm", made)
    return {name: str(folder / name) for name in ("policy", "prm")}


@pytest.fixture
def policy(paths: dict[str, str]) -> Policy:
    return load_policy(ModelConfig(path=paths["policy"], device="cpu"))


@pytest.fixture
def judge(paths: dict[str, str], policy: Policy) -> StepJudge:
    made = load_step_judge(StepRewardsConfig(path=paths["prm"]), ModelConfig(device="cpu"), policy, False)
    assert made is not None
    return made


def group(policy: Policy, texts: Sequence[str] = TEXTS, outcomes: Sequence[Outcome] = OUTCOMES) -> ScoredGroup:
    prompt = encode_prompt(policy, Template(prefill=PREFILL), Problem("p", "2+2?", "4"))
    completions = []
    for i, text in enumerate(texts):
        ids = np.array([*policy.tokenizer(text, add_special_tokens=False)["input_ids"], 1])
        empty = np.zeros(len(ids), np.float32)
        completions.append(Completion(i, ids, empty, empty, FinishReason.STOP, text))
    verdicts = [Verdict(one, {"accuracy": float(one is Outcome.CORRECT)} if one.judged else {}, "") for one in outcomes]
    return ScoredGroup(Group(prompt, tuple(completions), 0, 0), tuple(verdicts))


def test_scores_are_those_of_each_prefix_alone_and_the_last_step_has_the_outcome(
    policy: Policy, judge: StepJudge
) -> None:
    twin = copy.deepcopy(judge.model.model).double()
    twin.set_attn_implementation("eager")

    def chance(prefix: str) -> float:
        ids = torch.tensor([[*policy.tokenizer("2+2?\n")["input_ids"], *policy.tokenizer(prefix)["input_ids"]]])
        return float(twin.score(twin.base_model(ids, use_cache=False).last_hidden_state[0, -1])[0].sigmoid())

    [found] = judge([group(policy)])
    prefixes = [
        ["2+2=4. ", "2+2=4. So it is 4. "],  # what the prefill ends is no step, and `</think>` opens the last one
        [],
        ["5. ", "5. 6. "],  # the stop token is a step of its own: its baseline knows all of the text
        [],
    ]
    for verdict, text, starts, outcome in zip(found.verdicts, TEXTS, prefixes, OUTCOMES, strict=False):
        assert [step.end for step in verdict.steps] == [len(PREFILL + one) for one in (*starts, text)]
        expected = [chance(PREFILL + one) for one in starts]
        assert [step.reward for step in verdict.steps[:-1]] == pytest.approx(expected, abs=1e-5)
        assert verdict.steps[-1].reward == float(outcome is Outcome.CORRECT)
        assert verdict.measures["steps/num"] == len(starts) + 1
    assert found.verdicts[4].steps == ()  # where the verifier failed there is nothing to learn
    assert found.verdicts[0].measures["steps/lowest"] == min(step.reward for step in found.verdicts[0].steps[:-1])


def test_advantages_follow_from_them_token_by_token(policy: Policy, judge: StepJudge) -> None:
    [found] = judge([group(policy)])
    [result] = advantaged([found], ProcessGae(kind="process_gae", lam=1.0), policy)
    outcomes = [1.0, 0.0, 0.0, 0.0]
    for i, (array, text) in enumerate(zip(result.advantages[:4], TEXTS, strict=False)):
        assert array is not None
        start = (sum(outcomes) - outcomes[i]) / 3
        expected = []
        ids = found.group.completions[i].token_ids.tolist()
        assert policy.tokenizer.decode(ids[:-1]) == text
        for t in range(len(ids)):
            read = len(PREFILL + policy.tokenizer.decode(ids[:t]))
            before = [s.reward for s in found.verdicts[i].steps[:-1] if s.end <= read]
            expected.append(outcomes[i] - (before[-1] if before else start))
        assert array.tolist() == pytest.approx(expected, abs=1e-6)
    assert result.advantages[4] is None


def bias(ends_of: Callable[[str], list[int]], alphabet: str, length: int) -> float:
    """Largest entry of E[Σ A ∇log π] - E[Σ R ∇log π] over all texts; tokens are characters, `$` is the stop token."""
    policy: Any = SimpleNamespace(tokenizer=SimpleNamespace(decode=lambda ids: _text(ids, alphabet)))
    difference: dict[str, np.ndarray[Any, Any]] = {}
    total = 0.0
    for ids in _sequences(alphabet, length):
        text = _text(ids, alphabet)
        chance, places = 1.0, []
        for t, token in enumerate(ids):
            before = _text(ids[:t], alphabet)
            probs = _random(before + "?", len(alphabet))
            chance *= probs[token]
            places.append((before, np.eye(len(alphabet))[token] - probs))
        total += chance
        reward = _random(text + "!", 2)[0]
        completion: Any = SimpleNamespace(token_ids=np.array(ids), text=text)
        inner = ends_of(text)
        ends = token_ends(policy, SimpleNamespace(prefill=""), completion, [*inner, len(text)])  # type: ignore[arg-type]
        worth = [_random(text[:end], 2)[0] for end in inner]
        [advantages] = ProcessGae(kind="process_gae", lam=1.0).of_steps(
            [torch.tensor([*worth, reward], dtype=torch.float64)], [torch.tensor(ends)], [len(ids)]
        )
        for (state, score), advantage in zip(places, advantages.tolist(), strict=True):
            difference[state] = difference.get(state, 0.0) + chance * (advantage - reward) * score
    assert total == pytest.approx(1.0)
    return max(float(abs(entry).max()) for entry in difference.values())


def _sequences(alphabet: str, length: int) -> list[tuple[int, ...]]:
    stop = alphabet.index("$")
    return [
        ids
        for size in range(1, length + 1)
        for ids in itertools.product(range(len(alphabet)), repeat=size)
        if stop not in ids[:-1] and (ids[-1] == stop or size == length)
    ]


def _text(ids: Sequence[int], alphabet: str) -> str:
    return "".join(alphabet[i] for i in ids).replace("$", "")


def _random(text: str, size: int) -> np.ndarray[Any, Any]:
    drawn = np.random.default_rng(list(text.encode()) or [0]).random(size) + 0.2
    return drawn / drawn.sum()


def test_the_baseline_of_steps_read_from_left_to_right_is_unbiased() -> None:
    assert bias(lambda text: inner_ends(text, "sentence"), "a. $", 4) < 1e-12
    assert bias(lambda text: inner_ends(text, "newline"), "a\n $", 4) < 1e-12
    assert bias(lambda text: inner_ends(text, r"\n\n+"), "a\n$", 5) < 1e-12
    assert bias(lambda text: inner_ends(text, r"a(?=b)"), "ab$", 5) < 1e-12


def test_ends_that_the_next_token_decides_bend_the_gradient() -> None:
    assert bias(lambda text: inner_ends(text, "equation"), "1=$", 5) > 5e-4
    assert bias(lambda text: step_ends(text, "sentence")[:-1], "a. $", 4) > 1e-3  # joins a step that ends the text
    assert bias(lambda text: step_ends(text, r"\n\n+")[:-1], "a\n$", 5) > 1e-3


def test_steps_that_do_not_reach_the_end_are_refused(policy: Policy) -> None:
    scored = group(policy, TEXTS[:2], OUTCOMES[:2])
    verdicts = tuple(
        Verdict(one.outcome, one.parts, "", steps=(StepReward(len(PREFILL) + 1, 1.0),)) for one in scored.verdicts
    )
    with pytest.raises(VerifierError, match=r"end at the tokens \[1\] of \d+"):
        advantaged([ScoredGroup(scored.group, verdicts)], ProcessGae(kind="process_gae"), policy)


ONLINE = {"beta": 0.5, "online": "after", "lr": 3e-3}


def online(paths: dict[str, str], policy: Policy, **changes: Any) -> StepJudge:
    config = StepRewardsConfig(path=paths["policy"], reference=paths["policy"], **{**ONLINE, **changes})
    made = load_step_judge(config, ModelConfig(device="cpu"), policy, False)
    assert made is not None
    return made


def inner(found: ScoredGroup) -> list[list[float]]:
    return [[step.reward for step in verdict.steps[:-1]] for verdict in found.verdicts]


def test_after_it_has_judged_it_learns_outcomes_and_before_it_knows_them(paths: dict[str, str], policy: Policy) -> None:
    judge = online(paths, policy)
    [first], [second] = judge([group(policy)]), judge([group(policy)])
    assert inner(first) == [[0.5, 0.5], [], [0.5, 0.5], [], []]  # the model is its reference still
    assert inner(second)[0][-1] > 0.5  # of the right answer
    assert inner(second)[0][-1] > inner(second)[2][-1]
    losses = [found.verdicts[0].measures["steps/model_loss"] for found in (first, second)]
    assert losses[0] == pytest.approx(np.log(2))
    assert losses[1] < losses[0]
    # PRIME's order: it has learnt the step once when it judges it
    [knowing] = online(paths, policy, online="before")([group(policy)])
    assert inner(knowing) == inner(second)
    [frozen] = online(paths, policy, online="no", lr=1e-6)([group(policy)])
    assert inner(frozen) == inner(first)
    assert "steps/model_loss" not in frozen.verdicts[0].measures


def test_it_may_begin_as_the_shipped_model(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()  # what lies beside the recipe is not meant
    rewards = {"path": "base", "reference": "base", "online": "after"}
    recipe = parse(GrpoRecipe, {**BASE, "advantage": "process_gae", "step_rewards": rewards}, folder=tmp_path)
    assert recipe.step_rewards.path == recipe.step_rewards.reference == "base"


def test_only_judged_completions_with_a_text_are_learnt_from(paths: dict[str, str], policy: Policy) -> None:
    judge, less = online(paths, policy), online(paths, policy)
    judge([group(policy)])
    less([group(policy, TEXTS[:3], OUTCOMES[:3])])
    assert inner(judge([group(policy)])[0]) == inner(less([group(policy)])[0])
    nothing = online(paths, policy)
    [found] = nothing([group(policy, ["9. 9"], [Outcome.CRASHED])])
    assert nothing.online.optimizer.updates_done == 0
    assert found.verdicts[0].steps == ()


def test_a_score_that_is_no_number_is_named(policy: Policy, judge: StepJudge) -> None:
    with torch.no_grad():
        judge.model.head.weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="gives nan to step 0 of completion 0 of problem p: only numbers"):
        judge([group(policy)])


def test_another_tokenizer_and_other_prompts_are_refused(paths: dict[str, str], policy: Policy) -> None:
    other = copy.deepcopy(policy.tokenizer)
    other.add_tokens(["<more>"])
    stranger: Any = SimpleNamespace(tokenizer=other)
    with pytest.raises(ModelError, match=r"has another tokenizer than the policy \(263 tokens, 264 here, 263 in"):
        load_step_judge(StepRewardsConfig(path=paths["prm"]), ModelConfig(device="cpu"), stranger, False)
    assert load_step_judge(StepRewardsConfig(), ModelConfig(), stranger, False) is None
    with pytest.raises(ModelError, match="learnt from prompts that no chat template wrote, and would read others"):
        load_step_judge(StepRewardsConfig(path=paths["prm"]), ModelConfig(device="cpu"), policy, True)


def test_a_completion_that_is_too_long_is_named(policy: Policy, judge: StepJudge) -> None:
    long = group(policy, ["a. " * 200, "no"], OUTCOMES[:2])
    with pytest.raises(ModelError, match=r"cannot judge problem p: it reads 256 tokens, but a completion has \d+"):
        judge([long])


BASE = {"run": {"directory": "unused", "num_steps": 1}, "task": {"kind": "arithmetic"}}
R = "step_rewards."


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["step_rewards.path=prm"], "step_rewards.path = .* has no effect with advantage.kind = 'group_mean'"),
        (["step_rewards.step=newline"], "step = 'newline' has no effect here"),
        (["advantage=process", "step_rewards.path=prm", "verifier.steps=equations"], "both say what steps are worth"),
        (["advantage=process_gae", "verifier.steps=equations"], "verifier.steps = 'equations': where an equation ends"),
        (["advantage=process_gae", f"{R}path=prm", f"{R}step=equation"], "step = 'equation': where an equation ends"),
        (["advantage=process", f"{R}path=p", f"{R}online=after"], "online = 'after' has no effect here"),
        (["advantage=process", f"{R}path=p", f"{R}reference=base", f"{R}lr=1e-3"], "lr = 0.001 has no effect here"),
        (["advantage=process_gae", f"{R}path=p", f"{R}reference=base", f"{R}online=before"],
         "online = 'before': the model would have learnt the outcomes of the very completions"),
        (["advantage=process", "loss.kl_coef=0.1", "loss.kl_in=reward"], "kl_in = 'reward' has no effect with"),
    ],
)  # fmt: skip
def test_contradictions_are_named(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(GrpoRecipe, BASE, overrides)


def whole_run(paths: dict[str, str], directory: Path, steps: int, every: int, **rewards: Any) -> GrpoRecipe:
    table = {
        "run": {"directory": str(directory), "num_steps": steps, "checkpoint_every": every},
        "model": {"path": paths["policy"], "device": "cpu", "num_threads": 1},
        "task": {"kind": "arithmetic", "kinds": ["sum"], "digits": [1, 1], "num_problems": 24, "num_eval_problems": 3},
        "grpo": {"prompts_per_step": 2, "group_size": 3}, "sampling": {"max_tokens": 12},
        "advantage": {"kind": "process_gae", "lam": 0.5}, "step_rewards": {"step": "[0-9a-zA-Z]", **rewards},
        "evaluation": {"num_problems": 1, "num_samples": 1, "test_problems": 0},
    }  # fmt: skip
    return parse(GrpoRecipe, table)


def test_what_goes_on_learning_is_resumed_as_it_was_left(paths: dict[str, str], tmp_path: Path) -> None:
    def recipe(name: str) -> GrpoRecipe:
        return whole_run(paths, tmp_path / name, 3, 1, path=paths["policy"], reference=paths["policy"], **ONLINE)

    def killed(report: Any) -> None:
        if isinstance(report, StepReport) and report.step == 1:
            raise KeyboardInterrupt

    train_rl(recipe("whole"), grpo_learner)
    with pytest.raises(KeyboardInterrupt):  # the second step is done, its checkpoint is not written
        train_rl(recipe("killed"), grpo_learner, on_report=killed)
    train_rl(recipe("killed"), grpo_learner)
    lines = [(tmp_path / name / "ledger.jsonl").read_text() for name in ("whole", "killed")]
    assert lines[0] == lines[1]
    losses = [line["parts"]["measure/steps/model_loss/mean"] for line in Records.open(tmp_path / "whole").metrics()
              if line["kind"] == "step"]  # fmt: skip
    assert losses[0] == pytest.approx(np.log(2))
    assert losses[1] != losses[0]
    assert replay(tmp_path / "whole", 2, Records.open(tmp_path / "whole").groups(2)[0].problem, 0).identical
    assert plan(recipe("plan")).weights["process reward model's optimizer"] > 0


def test_a_run_records_what_the_model_said_and_is_replayed(paths: dict[str, str], tmp_path: Path) -> None:
    recipe = whole_run(paths, tmp_path / "run", 2, 2, path=paths["prm"])
    assert plan(recipe).weights["process reward model"] > 0
    train_rl(recipe, grpo_learner)
    records = Records.open(tmp_path / "run")
    groups = [records.group(1, entry.problem) for entry in records.groups(1)]
    steps = [one.steps for of_group in groups for one in of_group.completions]
    assert any(len(one or ()) > 1 for one in steps)
    assert all(0 < reward < 1 for one in steps for _, reward in (one or ())[:-1])
    [facts] = [line for line in records.ledger() if line.get("step") == 1 and "groups" in line]
    assert all(len(own) == 16 for of_group in facts["groups"] for own in of_group["steps"])
    [line] = [line for line in records.metrics() if line["step"] == 1]
    assert line["parts"]["measure/steps/num/mean"] > 1
    again = replay(tmp_path / "run", 1, groups[0].entry.problem, 0)
    assert (again.identical, again.steps_repeated) == (True, 1)
