"""From completions to the student's gradient, against separate eager sequences; what student and teacher must share."""

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.algorithms.distillation import DIVERGENCES, Comparison, divergence_of
from groupwise.config import dump_toml, parse
from groupwise.errors import ConfigError, DataError, ModelError
from groupwise.models.config import ModelConfig
from groupwise.models.new_model import byte_tokenizer, character_tokenizer, new_policy
from groupwise.models.packed import Sequences
from groupwise.models.policy import Policy, load_policy, make_policy
from groupwise.models.prompts import encode_prompt
from groupwise.pipeline import load_pipeline
from groupwise.tasks.base import Template
from groupwise.trainers import load_recipe
from groupwise.trainers.distill import DistillConfig, DistillRecipe, as_teacher_of, batches, distill_gradient
from groupwise.trainers.sft import alphabet_of
from groupwise.types import Problem

SEQUENCES = [
    Sequences([40, 41, 42], [[50, 51, 52, 1]]),
    Sequences([60, 61], [[70, 1], [71, 72, 73], [74]]),
    Sequences([80], [[81, 82, 83, 84, 85], [86, 1]]),
]
NUM_TOKENS = 17
BUDGETS = pytest.mark.parametrize("budget", [1, 12, 100_000])
SUMS = {"kind": "arithmetic", "kinds": ["sum"], "digits": [1, 1], "num_problems": 12, "num_eval_problems": 2}


@pytest.fixture
def student(tiny_policy: Callable[..., Policy]) -> Policy:
    return tiny_policy(seed=1)


@pytest.fixture
def teacher(tiny_policy: Callable[..., Policy]) -> Policy:
    """Another architecture and width."""
    return tiny_policy("llama", seed=2, hidden_size=48, num_hidden_layers=1, head_dim=12).freeze()


def flat(sequences: Sequence[Sequences]) -> list[tuple[list[int], list[int]]]:
    return [(list(one.prompt), list(completion)) for one in sequences for completion in one.completions]


def slow_gradient(
    eager_logits: Any, student: Policy, teacher: Policy, comparison: Comparison, vocabulary: int = 263
) -> tuple[float, float, dict[str, Tensor]]:
    """Mean divergence, share of agreements and gradients, each completion computed on its own in float64."""
    pairs = flat(SEQUENCES)
    model, ours = eager_logits(student, [prompt + completion for prompt, completion in pairs])
    _, theirs = eager_logits(teacher, [prompt + completion for prompt, completion in pairs])
    places = [slice(len(prompt) - 1, len(prompt) + len(completion) - 1) for prompt, completion in pairs]
    our_rows, their_rows = (
        torch.cat([row[place, :vocabulary] for row, place in zip(logits, places, strict=True)])
        for logits in (ours, theirs.detach())
    )
    loss = divergence_of(our_rows, their_rows, comparison).sum() / NUM_TOKENS
    loss.backward()
    agreement = (our_rows.argmax(-1) == their_rows.argmax(-1)).double().mean().item()
    return loss.item(), agreement, {name: p.grad for name, p in model.named_parameters()}


def check_gradient(policy: Policy, expected: dict[str, Tensor]) -> None:
    for name, parameter in policy.model.named_parameters():
        torch.testing.assert_close(parameter.grad.double(), expected[name], atol=2e-5, rtol=2e-4, msg=name)


@BUDGETS
@pytest.mark.parametrize("name", DIVERGENCES)
def test_loss_and_gradient_equal_those_of_separate_sequences(
    name: str, budget: int, student: Policy, teacher: Policy, eager_logits: Any
) -> None:
    beta = 0.3 if name == "jsd" else 0.5
    config = DistillConfig(divergence=name, beta=beta, temperature=1.5, tokens_per_micro_batch=budget)
    found = distill_gradient(student, teacher, SEQUENCES, config)
    loss, agreement, expected = slow_gradient(eager_logits, student, teacher, config.comparison)
    assert found.loss == pytest.approx(loss, rel=1e-4)
    assert (found.measured["teacher_agreement"], found.num_tokens) == (pytest.approx(agreement), NUM_TOKENS)
    check_gradient(student, expected)
    assert all(parameter.grad is None for parameter in teacher.model.parameters())


def test_top_k_reaches_the_loss(student: Policy, teacher: Policy, eager_logits: Any) -> None:
    config = DistillConfig(top_k=3)
    found = distill_gradient(student, teacher, SEQUENCES, config)
    loss, _, expected = slow_gradient(eager_logits, student, teacher, Comparison(top_k=3))
    assert found.loss == pytest.approx(loss, rel=1e-4)
    assert found.loss < slow_gradient(eager_logits, student, teacher, Comparison())[0]
    check_gradient(student, expected)


def test_a_student_equal_to_its_teacher_has_nothing_to_learn(student: Policy) -> None:
    found = distill_gradient(student, copy.deepcopy(student).freeze(), SEQUENCES, DistillConfig(divergence="jsd"))
    assert found.loss == pytest.approx(0, abs=1e-6)
    assert found.measured["teacher_agreement"] == 1
    assert max(p.grad.abs().max().item() for p in student.model.parameters() if p.grad is not None) < 1e-6


def test_bf16_is_near(tiny_policy: Callable[..., Policy], student: Policy, teacher: Policy) -> None:
    half = tiny_policy(seed=1, compute_dtype="bfloat16")
    exact = distill_gradient(student, teacher, SEQUENCES, DistillConfig())
    found = distill_gradient(half, teacher, SEQUENCES, DistillConfig())
    assert found.loss == pytest.approx(exact.loss, rel=0.05)
    for ours, theirs in zip(half.model.parameters(), student.model.parameters(), strict=True):
        assert ours.grad.dtype is torch.float32
        assert torch.cosine_similarity(ours.grad.flatten(), theirs.grad.flatten(), dim=0) > 0.98


def test_the_same_vocabulary_padded_to_another_size_is_compared_where_both_have_tokens(
    tiny_policy: Callable[..., Policy], student: Policy, eager_logits: Any
) -> None:
    padded = tiny_policy(seed=3, vocab_size=270).freeze()
    found = distill_gradient(student, as_teacher_of(student, padded), SEQUENCES, DistillConfig())
    loss, _, expected = slow_gradient(eager_logits, student, padded, Comparison())
    assert found.loss == pytest.approx(loss, rel=1e-4)
    check_gradient(student, expected)
    with pytest.raises(DataError, match=r"token 265 occurs.*allowed are tokens below 263"):
        distill_gradient(student, padded, [Sequences([4], [[265, 5]])], DistillConfig())


def test_other_vocabularies_are_refused(make_model: Callable[..., Any], student: Policy) -> None:
    other = make_policy(make_model(vocab_size=20), character_tokenizer("0123456789+="))
    with pytest.raises(ModelError, match=r"student \(263 tokens\) and teacher \(20 tokens\).*'!' \(2 and none\)"):
        as_teacher_of(student, other)


def test_an_end_that_the_student_does_not_know_is_refused(make_model: Callable[..., Any], student: Policy) -> None:
    other = make_policy(make_model(eos_token_id=[1, 33]), byte_tokenizer())
    with pytest.raises(ModelError, match=r"ends completions with '.', at which the student does not stop"):
        as_teacher_of(student, other)
    assert as_teacher_of(other, student).stop_ids == other.stop_ids == {1, 33}


def test_both_read_the_same_prompts(make_model: Callable[..., Any], student: Policy) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[{% endif %}"
    )
    talker = make_policy(make_model(), tokenizer)
    problem = Problem("a", "1+1", "2")
    with pytest.raises(ModelError, match="no chat template"):
        encode_prompt(student, Template(chat=True), problem)
    assert encode_prompt(as_teacher_of(talker, student), Template(chat=True), problem).text == "[1+1\n]["


def test_top_k_leaves_a_rest(student: Policy, teacher: Policy) -> None:
    assert as_teacher_of(student, teacher, top_k=262)
    with pytest.raises(ConfigError, match=r"distill.top_k = 263 .*vocabulary of 263; allowed are smaller numbers"):
        as_teacher_of(student, teacher, top_k=263)


def test_what_the_teacher_cannot_read_is_refused(tiny_policy: Callable[..., Policy], student: Policy) -> None:
    short = tiny_policy(max_position_embeddings=6).freeze()
    distill_gradient(student, short, SEQUENCES[:2], DistillConfig())
    with pytest.raises(DataError, match="7 tokens of a prompt and its completion; at most 6"):
        distill_gradient(student, short, [Sequences([3, 4], [[5] * 6])], DistillConfig())


def recipe(data: dict[str, Any], **sections: Any) -> DistillRecipe:
    values = {"run": {"directory": "unused", "num_steps": 1}, "model": {"path": "student"}, "data": data}
    return parse(DistillRecipe, {**values, **sections})


@pytest.mark.parametrize("source", ["teacher", "student"])
def test_completions_are_those_of_the_one_who_is_named(source: str, student: Policy, teacher: Policy) -> None:
    data = {"source": source, "task": SUMS, "prompts_per_step": 3, "group_size": 2, "sampling": {"max_tokens": 8}}
    draw = batches(recipe(data))
    (sequences, facts), (_, again), (_, later) = (draw(step, student, teacher) for step in (1, 1, 2))
    opposite = batches(recipe({**data, "source": {"teacher": "student", "student": "teacher"}[source]}))
    assert facts == again == opposite(1, teacher, student)[1]
    other_seed = batches(recipe(data, run={"directory": "unused", "num_steps": 1, "seed": 1}))
    assert other_seed(1, student, teacher)[1]["tokens"] != facts["tokens"]
    assert draw(1, teacher, student)[1]["tokens"] != facts["tokens"]
    assert len({*facts["problems"], *later["problems"]}) == 6
    assert [len(one.completions) for one in sequences] == [2, 2, 2]
    lengths = [len(completion) for _, completion in flat(sequences)]
    assert sum(lengths) == sum(one.num_predicted for one in sequences)
    assert len(lengths) == 6


def test_pairs_come_in_shuffled_epochs(tmp_path: Path, student: Policy, teacher: Policy) -> None:
    rows = [{"prompt": f"{i}+{i}=", "completion": str(2 * i)} for i in range(6)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    one = recipe({"source": "jsonl", "path": str(tmp_path / "pairs.jsonl"), "sequences_per_step": 3})
    draw = batches(one)
    (first, facts), (second, _) = draw(0, student, teacher), draw(1, student, teacher)
    assert facts == {}
    texts = [student.tokenizer.decode(ids) for ids in (p + c for p, c in flat(first + second))]
    assert sorted(texts) == sorted(f"{i}+{i}={2 * i}<|end|>" for i in range(6))
    assert texts != sorted(texts)


STUDENT = {"source": "student", "task": SUMS}


@pytest.mark.parametrize(
    ("data", "sections", "fault"),
    [
        (STUDENT, {"distill": {"divergence": "kl"}}, "divergence = 'kl': allowed are forward_kl, reverse_kl, jsd"),
        (STUDENT, {"distill": {"temperature": 0}}, "distill.temperature = 0: .*greater than 0"),
        (STUDENT, {"distill": {"beta": 1, "divergence": "jsd"}}, "distill.beta = 1: .*less than 1"),
        (STUDENT, {"distill": {"beta": 0.3}}, "beta = 0.3 has no effect here: .* only with divergence = 'jsd'"),
        (STUDENT, {"distill": {"top_k": -1}}, "distill.top_k = -1: .*greater than or equal to 0"),
        ({**STUDENT, "sequences_per_step": 9}, {}, "data.sequences_per_step: unknown key"),
        (STUDENT, {"teacher": {"path": "student"}}, "are both 'student': a model has nothing to learn from itself"),
        ({**STUDENT, "sampling": {"temperature": 0}}, {}, "draws 8 equal completions .* allowed are temperature > 0"),
        ({**STUDENT, "path": "a.jsonl"}, {}, "data.path: unknown key"),
        ({"source": "jsonl"}, {}, "data.path: Field required"),
        ({**STUDENT, "source": "corpus"}, {}, "'jsonl', 'teacher', 'student'"),
    ],
)
def test_contradictions_are_refused(data: dict[str, Any], sections: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        recipe(data, **sections)


def test_one_greedy_completion_is_allowed_and_so_is_every_divergence() -> None:
    one = recipe({**STUDENT, "group_size": 1, "sampling": {"temperature": 0}}, distill={"divergence": "forward_kl"})
    assert one.distill.comparison == Comparison("forward_kl", 0.5, 0, 1.0)
    assert one.teacher == ModelConfig(path="base")


def test_a_written_recipe_reads_back_and_more_prompts_than_problems_are_refused(tmp_path: Path) -> None:
    one = recipe(STUDENT, distill={"divergence": "jsd", "beta": 0.2})
    (tmp_path / "config.toml").write_text(dump_toml(one))
    assert load_recipe(tmp_path / "config.toml") == one
    with pytest.raises(ConfigError, match=r"data.prompts_per_step = 13 is more than the 12 training problems"):
        batches(recipe({**STUDENT, "prompts_per_step": 13}))


def test_the_student_of_the_shipped_recipe_has_the_tokens_of_its_teacher(tmp_path: Path) -> None:
    _, stages = load_pipeline("distill", {"pipeline.directory": str(tmp_path)})
    recipe = next(stage.config for stage in stages if stage.name == "student_base")
    student = new_policy(recipe.new_model, character_tokenizer(alphabet_of(recipe.data)), recipe.model)
    assert as_teacher_of(student, load_policy(ModelConfig())).vocabulary == student.vocabulary
