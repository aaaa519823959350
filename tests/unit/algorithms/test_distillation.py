"""Divergences: by hand, against a loop in plain Python, finite differences, what each claims; the chunked sum."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_logprobs import peak_allocated
from torch import Tensor
from torch.nn.functional import linear

from groupwise.algorithms import distillation as module
from groupwise.algorithms.distillation import (
    DIVERGENCES,
    Comparison,
    Outputs,
    divergence_of,
    forward_kl,
    jsd,
    reverse_kl,
    total_divergence,
)

NAMES = pytest.mark.parametrize("name", DIVERGENCES)


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    """Logits of a student and of a teacher for one token; of equal ones of the teacher top-k might take either."""
    count = draw(st.integers(2, 7))
    student = draw(st.lists(st.floats(-6, 6), min_size=count, max_size=count))
    teacher = draw(st.lists(st.integers(-48, 48), min_size=count, max_size=count, unique=True))
    return student, [z / 8 for z in teacher]


def softmax(logits: Sequence[float], temperature: float) -> list[float]:
    exponentials = [math.exp(z / temperature) for z in logits]
    return [e / sum(exponentials) for e in exponentials]


def kl(p: Sequence[float], q: Sequence[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def slow(name: str, student: Sequence[float], teacher: Sequence[float], comparison: Comparison) -> float:
    """One token's divergence from its definition."""
    q, p = softmax(student, comparison.temperature), softmax(teacher, comparison.temperature)
    if comparison.top_k:
        kept = sorted(range(len(p)), key=lambda v: -p[v])[: comparison.top_k]
        rest = [v for v in range(len(p)) if v not in kept]
        q, p = ([one[v] for v in kept] + [sum(one[v] for v in rest)] * bool(rest) for one in (q, p))
    if name == "forward_kl":
        return kl(p, q)
    if name == "reverse_kl":
        return kl(q, p)
    beta = comparison.beta
    m = [beta * a + (1 - beta) * b for a, b in zip(p, q, strict=True)]
    return beta * kl(p, m) + (1 - beta) * kl(q, m)


def one(student: Sequence[float], teacher: Sequence[float], comparison: Comparison) -> float:
    both = (torch.tensor([logits], dtype=torch.float64) for logits in (student, teacher))
    return divergence_of(*both, comparison).item()


def logits(count: int = 5, vocabulary: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    student, teacher = torch.randn(2, count, vocabulary, generator=draw, dtype=torch.float64) * 2
    return student, teacher


def test_numbers_worked_by_hand() -> None:
    """p = (3/4, 1/4), q = (1/2, 1/2), m = (5/8, 3/8)."""
    p, q = (torch.tensor([row], dtype=torch.float64).log() for row in ([0.75, 0.25], [0.5, 0.5]))
    assert forward_kl(q, p).item() == pytest.approx(0.75 * math.log(3) - math.log(2))  # ¾ log 3/2 + ¼ log 1/2
    assert reverse_kl(q, p).item() == pytest.approx(math.log(2) - 0.5 * math.log(3))  # ½ log 2/3 + ½ log 2
    to_p = 0.75 * math.log(6 / 5) + 0.25 * math.log(2 / 3)
    to_q = 0.5 * math.log(4 / 5) + 0.5 * math.log(4 / 3)
    assert jsd(q, p).item() == pytest.approx((to_p + to_q) / 2)


def test_the_rest_is_one_class_by_hand() -> None:
    """p = (1/2, 1/4, 1/4), q = (1/4, 1/4, 1/2); of the teacher's likeliest alone (1/2, 1/2) and (1/4, 3/4) is left."""
    p, q = [math.log(2), 0.0, 0.0], [0.0, 0.0, math.log(2)]
    assert one(q, p, Comparison()) == pytest.approx(0.25 * math.log(2))
    assert one(q, p, Comparison(top_k=1)) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))


@NAMES
@given(both=rows(), temperature=st.sampled_from([0.5, 1.0, 3.0]), top_k=st.integers(0, 8), beta=st.floats(0.05, 0.95))
def test_it_equals_a_loop_from_the_definition(
    name: str, both: tuple[list[float], list[float]], temperature: float, top_k: int, beta: float
) -> None:
    comparison = Comparison(name, beta, min(top_k, len(both[0])), temperature)
    assert one(*both, comparison) == pytest.approx(slow(name, *both, comparison), abs=1e-9)


@NAMES
@pytest.mark.parametrize("top_k", [0, 2, 5])
def test_gradients_equal_finite_differences(name: str, top_k: int) -> None:
    student, teacher = logits()
    comparison = Comparison(name, beta=0.3, top_k=top_k, temperature=0.7)
    assert torch.autograd.gradcheck(lambda z: divergence_of(z, teacher, comparison), student.requires_grad_())


@NAMES
@pytest.mark.parametrize("top_k", [0, 2])
def test_the_vocabulary_is_the_last_dimension_of_any_number(name: str, top_k: int) -> None:
    student, teacher = logits(6, 5)
    comparison = Comparison(name, top_k=top_k)
    found = divergence_of(student.view(3, 2, 5), teacher.view(3, 2, 5), comparison)
    torch.testing.assert_close(found.flatten(), divergence_of(student, teacher, comparison))


def test_defaults_compare_everything_as_it_is() -> None:
    assert Comparison() == ("forward_kl", 0.5, 0, 1.0)


@NAMES
@given(both=rows(), top_k=st.integers(1, 6))
def test_fewer_classes_never_say_more(name: str, both: tuple[list[float], list[float]], top_k: int) -> None:
    """The data-processing inequality: 0 <= D over k + 1 classes <= D over k + 2 classes <= D over all tokens."""
    few, more, everything = (one(*both, Comparison(name, top_k=k)) for k in (top_k, top_k + 1, 0))
    assert -1e-12 <= few <= more + 1e-12 <= everything + 2e-12


@NAMES
def test_all_but_one_and_the_rest_is_everything(name: str) -> None:
    student, teacher = logits()
    everything = divergence_of(student, teacher, Comparison(name))
    for top_k in (5, 6, 7):
        torch.testing.assert_close(divergence_of(student, teacher, Comparison(name, top_k=top_k)), everything)
    assert not torch.allclose(divergence_of(student, teacher, Comparison(name, top_k=2)), everything)


@NAMES
def test_the_rest_survives_a_teacher_who_is_sure(name: str) -> None:
    """1 - p of the likeliest would round to 0 in fp32, and its logarithm to -inf."""
    student, teacher = torch.tensor([[0.0, 0.0, 0.0]], requires_grad=True), torch.tensor([[40.0, 0.0, 0.0]])
    found = divergence_of(student, teacher, Comparison(name, top_k=1))
    found.sum().backward()
    exact = slow(name, [0.0] * 3, [40.0, 0.0, 0.0], Comparison(top_k=1))
    assert found.item() == pytest.approx(exact, rel=1e-5)
    assert student.grad.isfinite().all()


@NAMES
@given(both=rows())
def test_it_is_zero_only_for_equal_distributions(name: str, both: tuple[list[float], list[float]]) -> None:
    student, teacher = both
    assert one(teacher, teacher, Comparison(name)) == pytest.approx(0, abs=1e-15)
    apart = max(abs(a - b) for a, b in zip(softmax(student, 1), softmax(teacher, 1), strict=True))
    # Pinsker: KL >= 2 apart²; JSD at β = ½ is the mean of two KL to a middle that is apart/2 from both
    assert one(student, teacher, Comparison(name)) >= (0.5 if name == "jsd" else 2) * apart**2 - 1e-12


def test_limits_of_the_jsd() -> None:
    student, teacher = logits()
    for beta, limit in ((1e-6, "forward_kl"), (1 - 1e-6, "reverse_kl")):
        found = divergence_of(student, teacher, Comparison("jsd", beta)) / min(beta, 1 - beta)
        torch.testing.assert_close(found, divergence_of(student, teacher, Comparison(limit)), rtol=1e-3, atol=1e-4)
    swapped = divergence_of(teacher, student, Comparison("jsd", 0.3))
    torch.testing.assert_close(divergence_of(student, teacher, Comparison("jsd", 0.7)), swapped)
    opposite = divergence_of(50 * student, -50 * student, Comparison("jsd"))
    assert opposite.max().item() == pytest.approx(math.log(2))


TOKENS, VOCABULARY = 13, 17


def outputs(dtype: torch.dtype = torch.float32) -> tuple[list[Tensor], Outputs]:
    """The student's hidden states, weight and bias, and a wider teacher's outputs."""
    draw = torch.Generator().manual_seed(0)

    def made(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw).to(dtype)

    student = [made(*shape).requires_grad_() for shape in ((TOKENS, 6), (VOCABULARY, 6), (VOCABULARY,))]
    return student, Outputs(made(TOKENS, 9), made(VOCABULARY, 9))


@pytest.fixture(params=[1, 3 * VOCABULARY, 1 << 22], ids=["one token a chunk", "three tokens a chunk", "one chunk"])
def max_logits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "MAX_LOGITS", {"cpu": request.param})
    return int(request.param)


@NAMES
@pytest.mark.usefixtures("max_logits")
@pytest.mark.parametrize("top_k", [0, 4])
@pytest.mark.parametrize("with_bias", [True, False])
def test_value_and_gradients_equal_those_of_whole_logits(name: str, top_k: int, with_bias: bool) -> None:
    student, teacher = outputs()
    parts = student if with_bias else student[:2]
    exact = [part.detach().double().requires_grad_() for part in parts]
    comparison = Comparison(name, 0.3, top_k, 0.8)
    found = total_divergence(Outputs(*parts), teacher, comparison)
    ours, theirs = linear(*exact), linear(teacher.hidden.double(), teacher.weight.double())
    expected = divergence_of(ours, theirs, comparison).sum()
    torch.testing.assert_close(found.divergence.double(), expected, atol=1e-5, rtol=1e-5)
    assert found.agreements.item() == (ours.argmax(-1) == theirs.argmax(-1)).sum().item()
    assert found.agreements.dtype is torch.int64
    assert not found.agreements.requires_grad
    slopes = torch.autograd.grad(0.5 * found.divergence, parts)
    exact_slopes = torch.autograd.grad(0.5 * expected, exact)
    for slope, exact_slope in zip(slopes, exact_slopes, strict=True):
        torch.testing.assert_close(slope.double(), exact_slope, atol=1e-5, rtol=1e-5)


def test_capped_logits_have_the_gradient_of_whole_ones() -> None:
    student, teacher = outputs()
    exact = [part.detach().double().requires_grad_() for part in student]
    found = total_divergence(Outputs(*student, cap=1.5), teacher._replace(cap=0.7), Comparison("reverse_kl"))
    ours, theirs = linear(*exact), linear(teacher.hidden.double(), teacher.weight.double())
    capped = 1.5 * (ours / 1.5).tanh(), 0.7 * (theirs / 0.7).tanh()
    expected = divergence_of(*capped, Comparison("reverse_kl")).sum()
    torch.testing.assert_close(found.divergence.double(), expected, atol=1e-5, rtol=1e-5)
    slopes, exact_slopes = torch.autograd.grad(found.divergence, student), torch.autograd.grad(expected, exact)
    for slope, exact_slope in zip(slopes, exact_slopes, strict=True):
        torch.testing.assert_close(slope.double(), exact_slope, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bias", [None, torch.arange(5.0)])
def test_a_head_is_cut_to_the_tokens_that_both_know(bias: torch.Tensor | None) -> None:
    cut = Outputs(torch.zeros(1, 2), torch.arange(10.0).view(5, 2), bias).cut(3)
    assert cut.weight.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert cut.bias is None if bias is None else cut.bias is not None and cut.bias.tolist() == [0, 1, 2]


def test_agreements_are_counted() -> None:
    student, teacher = outputs()
    same = total_divergence(Outputs(*student), Outputs(*(part.detach() for part in student)), Comparison())
    assert same.agreements.item() == TOKENS
    assert same.divergence.item() == pytest.approx(0, abs=1e-5)
    assert 0 < total_divergence(Outputs(*student), teacher, Comparison()).agreements.item() < TOKENS


def test_only_what_needs_a_gradient_gets_one() -> None:
    student, teacher = outputs()
    hidden, weight, bias = student
    total_divergence(Outputs(hidden, weight.detach(), bias.detach()), teacher, Comparison()).divergence.backward()
    assert hidden.grad is not None
    assert weight.grad is None
    with torch.no_grad():
        assert not total_divergence(Outputs(*student), teacher, Comparison()).divergence.requires_grad


def test_no_tokens_are_no_divergence() -> None:
    student, teacher = outputs()
    ours, theirs = Outputs(student[0][:0], *student[1:]), Outputs(teacher.hidden[:0], teacher.weight)
    none = total_divergence(ours, theirs, Comparison())
    assert none.divergence.item() == none.agreements.item() == 0


def test_bf16_gradients_of_the_head_do_not_depend_on_the_number_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = 1024
    hidden = torch.ones(tokens, 4, dtype=torch.bfloat16)  # every token pulls the same way, so nothing averages out
    sure = torch.zeros(VOCABULARY, 4, dtype=torch.bfloat16)
    sure[0] = 100
    found = []
    for size in (tokens * VOCABULARY, VOCABULARY):
        monkeypatch.setattr(module, "MAX_LOGITS", {"cpu": size})
        weight = torch.zeros(VOCABULARY, 4, dtype=torch.bfloat16, requires_grad=True)
        bias = torch.zeros(VOCABULARY, dtype=torch.bfloat16, requires_grad=True)
        compared = total_divergence(Outputs(hidden, weight, bias), Outputs(hidden, sure), Comparison())
        assert compared.divergence.dtype is torch.float32
        compared.divergence.backward()
        assert weight.grad.dtype is bias.grad.dtype is torch.bfloat16
        torch.testing.assert_close(bias.grad, weight.grad[:, 0])  # all hidden states are 1
        found.append(weight.grad.float())
    torch.testing.assert_close(found[0][0], torch.full((4,), -tokens * (1 - 1 / VOCABULARY)), rtol=0.01, atol=0)
    torch.testing.assert_close(found[1], found[0], rtol=0.01, atol=0)


@NAMES
@pytest.mark.parametrize("top_k", [0, 8])
def test_memory_does_not_grow_with_vocabulary_times_tokens(name: str, top_k: int, monkeypatch: Any) -> None:
    vocabulary = 20_000
    monkeypatch.setattr(module, "MAX_LOGITS", {"cpu": 16 * vocabulary})

    def peak(tokens: int) -> int:
        draw = torch.Generator().manual_seed(0)
        hidden, weight = (torch.randn(n, 4, generator=draw, requires_grad=True) for n in (tokens, vocabulary))
        teacher = Outputs(hidden.detach() + 1, weight.detach())
        comparison = Comparison(name, top_k=top_k)
        return peak_allocated(
            lambda: total_divergence(Outputs(hidden, weight), teacher, comparison).divergence.backward()
        )

    few, many = peak(32), peak(256)
    assert few > 16 * vocabulary * 4  # the profiler sees the allocations
    assert many < 256 * vocabulary * 4
    assert many < 1.1 * few
