"""A planted hole in the training verifier raises the alarm; an honest verifier does not."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.algorithms.statistics import mean_share
from groupwise.errors import ConfigError, VerifierError
from groupwise.evaluation.evaluate import HeldOutCheck, look_again, open_second, second_section, unparsable
from groupwise.tasks.arithmetic import Arithmetic, ArithmeticConfig
from groupwise.tasks.base import Template, asking
from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, Prompt, ScoredGroup, Verdict
from groupwise.verifiers import Request, Verifier, score, verifier_config
from groupwise.verifiers.math import MathVerifier, NumberVerifier

HONEST = "<think>6×7=42</think>\\boxed{42}"
WRONG = "<think>6×7=41</think>\\boxed{41}"
HACK = "<think>6×7=?</think>\\boxed{41}, or 43, or 42"
"""No answer, but its last number is right."""


def group(name: str, texts: Sequence[str], **more: Any) -> Group:
    prompt = Prompt(Problem(name, f"{name}?", "42", **more), f"{name}?\n", (1,))
    none = np.zeros(1, np.float32)
    completions = [Completion(i, np.zeros(1, np.int64), none, none, FinishReason.STOP, t) for i, t in enumerate(texts)]
    return Group(prompt, tuple(completions), 0, 0)


def trained(groups: Sequence[Group], extraction: Any) -> list[ScoredGroup]:
    with NumberVerifier(NumberVerifier.Config(kind="number", extraction=extraction)) as verifier:
        return score(groups, verifier, 64)


def check(scored: Sequence[ScoredGroup], **changed: Any) -> HeldOutCheck:
    settings: dict[str, Any] = {"size": 100, "alarm": 0.05, "max_tokens": 64, "seed": 0}
    with MathVerifier() as verifier:
        return look_again(scored, "math", verifier, **{**settings, **changed})


def test_a_hole_in_the_training_verifier_raises_the_alarm() -> None:
    groups = [group(str(i), [HACK, HACK, HONEST, WRONG]) for i in range(8)]
    found = check(trained(groups, "last_number"))
    # of the three that the last number pays in each group, two have no answer
    assert (found.judged, found.rejected, found.failed) == (24, 16, 0)
    assert found.share == pytest.approx(mean_share([2 / 3] * 8))
    assert found.alarm
    assert found.example is not None
    assert (found.example.problem, found.example.sample, found.example.text) == ("0", 0, HACK)
    assert "rejects 16 of 24 completions that training pays, 0.667" in str(found)


def test_an_honest_verifier_does_not() -> None:
    groups = [group(str(i), [HACK, HACK, HONEST, WRONG]) for i in range(8)]
    found = check(trained(groups, "boxed"))
    assert (found.judged, found.rejected, found.alarm, found.example) == (8, 0, False, None)


def test_one_rejection_is_no_alarm() -> None:
    groups = [group("0", [HACK, HONEST]), *(group(str(i), [HONEST] * 2) for i in range(1, 20))]
    found = check(trained(groups, "last_number"))
    assert (found.judged, found.rejected, found.alarm) == (40, 1, False)
    assert found.share.value == pytest.approx(0.5 / 20)
    assert check(trained(groups, "last_number"), alarm=0.0).alarm


def test_what_training_does_not_pay_is_not_asked_about() -> None:
    found = check(trained([group("0", [WRONG, WRONG])], "boxed"))
    assert (found.judged, found.alarm) == (0, False)
    assert found.record()["share"] is None
    assert str(found) == "math rejects 0 of 0 completions that training pays"


def test_problems_without_a_mathematical_answer_are_left_out() -> None:
    groups = [
        group("open", [HACK], open_ended=True),
        group("code", [HACK], verifier="code"),
        group("math", [HACK], verifier="math"),  # there it would agree with itself
        group("number", [HACK], verifier="number"),
    ]
    found = check(trained(groups, "last_number"))
    assert found.judged == 1
    assert found.example is not None
    assert found.example.problem == "number"


class Fickle(Verifier):
    """Fails on every second completion, and rejects the others."""

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        outcomes = (Outcome.TIMEOUT, Outcome.WRONG)
        return [Verdict(outcomes[i % 2], {}, "said so") for i in range(len(requests))]


def test_a_second_verifier_that_fails_is_no_rejection() -> None:
    scored = trained([group("0", [HONEST] * 5)], "boxed")
    found = look_again(scored, "fickle", Fickle(), size=100, alarm=0.05, max_tokens=64, seed=0)
    assert (found.judged, found.rejected, found.failed) == (2, 2, 3)
    assert str(found).endswith(", and failed on 3")


@given(st.integers(1, 30), st.integers(0, 5), st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_the_sample_is_drawn_by_the_seed_and_no_larger_than_asked(size: int, seed: int, hacks: list[int]) -> None:
    groups = [group(str(i), [HACK] * n + [HONEST]) for i, n in enumerate(hacks)]
    scored = trained(groups, "last_number")
    found = check(scored, size=size, seed=seed)
    assert found == check(scored, size=size, seed=seed)
    assert found.judged == min(size, sum(hacks) + len(hacks))
    value, low, high = (round(one, 9) for one in found.share)  # ends of intervals are rounded to twelve places
    assert 0 <= low <= value <= high <= 1
    assert 0 <= found.rejected <= min(found.judged, sum(hacks))


def test_different_seeds_take_different_samples() -> None:
    scored = trained([group(str(i), [HACK, HONEST]) for i in range(20)], "last_number")
    examples = {check(scored, size=3, seed=seed).example for seed in range(8)}
    assert len(examples) > 2


TASK = Arithmetic(ArithmeticConfig(kind="arithmetic", num_problems=4, num_eval_problems=4))


NUMBER = verifier_config("number")


def test_without_a_name_there_is_none() -> None:
    with open_second(None, TASK, NUMBER) as verifier:
        assert verifier is None


def test_it_reads_the_box_where_training_takes_any_last_number() -> None:
    last = {"kind": "number", "extraction": "last_number"}
    with open_second(verifier_config(second_section("math", last)), TASK, verifier_config(last)) as verifier:
        assert verifier is not None
        assert verifier.verify(Problem("0", "6×7?", "42"), HACK).outcome is not Outcome.CORRECT
        assert verifier.verify(Problem("0", "6×7?", "42"), HONEST).outcome is Outcome.CORRECT


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("number", {}, "'number' is used in training already"),
        ("math", {"parts": {"other": {"kind": "verifier", "verifier": "math"}}}, "'math' is used in training already"),
        ("maths", {}, "there is no verifier 'maths'; did you mean 'math'"),
    ],
)
def test_what_training_uses_is_refused(name: str, config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_second(verifier_config(name), TASK, verifier_config({"kind": "number", **config}))


def test_it_reads_answers_where_training_reads_them() -> None:
    assert second_section("math", {"kind": "number", "extraction": "tag", "correct_reward": 2.0}) == {
        "kind": "math", "extraction": "tag"
    }  # fmt: skip
    assert second_section({"kind": "math", "extraction": "boxed"}, {"extraction": "tag"})["extraction"] == "boxed"


def test_a_verifier_that_rejects_the_task_is_refused() -> None:
    with pytest.raises(VerifierError, match="second verifier 'code' cannot judge task arithmetic: it rejects the refe"):
        open_second(verifier_config("code"), TASK, NUMBER)


ASKS = asking("boxed", thinks=False)
SET = "the prompt does not ask for it: set task.template.prompt = "


def said(texts: list[str], template: Template, reason: FinishReason = FinishReason.STOP, **more: Any) -> str:
    completions = [SimpleNamespace(text=text, finish_reason=reason) for text in texts]
    fine = more.pop("fine", 0)
    outcomes = [Outcome.CORRECT] * fine + [Outcome.UNPARSABLE] * (len(texts) - fine)
    verdicts = [Verdict(outcome, {}, "not JSON: line 1") for outcome in outcomes]
    group: Any = SimpleNamespace(group=SimpleNamespace(completions=completions), verdicts=verdicts)
    tokenizer = SimpleNamespace(chat_template=more.pop("chat_template", None))
    judge = SimpleNamespace(config=verifier_config({"kind": "math", **more}))
    actors: Any = SimpleNamespace(policy=SimpleNamespace(tokenizer=tokenizer), template=template, verifier=judge)
    return unparsable(actors, [group], 32)


@pytest.mark.parametrize(
    ("template", "more", "sentence"),
    [
        (Template(), {}, f"4 of 4 completions are unparsable: none of 4 contains \\boxed{{}}, and {SET}{ASKS!r}"),
        (Template(), {"extraction": "tag"}, "none of 4 contains <answer></answer>, and the prompt does not ask for it"),
        (Template(prompt=ASKS), {"chat_template": "x"}, "which the prompt does without: set task.template.chat = true"),
        (Template(prompt=ASKS, chat=True), {"chat_template": "x", "reason": FinishReason.LENGTH},
         "4 were cut at 32 tokens: set sampling.max_tokens = 64"),
        (Template(), {"reason": FinishReason.LENGTH},
         f"contains \\boxed{{}}, and 4 were cut at 32 tokens: set sampling.max_tokens = 64, and {SET}{ASKS!r}"),
        (Template(prompt=ASKS, chat=True), {"chat_template": "x"}, "the prompt asks for it: show the model an example"),
        (Template(), {"kind": "json"}, "4 of 4 completions are unparsable: not JSON: line 1, and the prompt asks"),
        (Template(), {"fine": 1}, "3 of 4 completions are unparsable: none of 3"),
    ],
)  # fmt: skip
def test_the_sentence(template: Template, more: dict[str, Any], sentence: str) -> None:
    told = said(["It is 4"] * 4, template, **more)
    assert sentence in told
    assert told.endswith("; one ends in 'It is 4'")
    assert "\n" not in told


def test_a_half_is_not_most() -> None:
    assert said(["It is 4"] * 4, Template(), fine=2) == ""


def test_those_that_hold_it_are_counted() -> None:
    assert "only 1 of 4 contains \\boxed{}" in said(["\\boxed{1} \\boxed{2}", "a", "b", "c"], Template())
    assert "4 of 4 completions are unparsable: not JSON: line 1, and" in said(["\\boxed{1"] * 4, Template())
