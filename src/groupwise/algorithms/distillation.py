"""The divergence of a student's next token from a teacher's, without ever holding a [tokens, vocabulary] tensor.

A divergence takes log-probabilities (n, V) of n tokens, the student's with gradient, the teacher's without, and returns
(n,) in nats. `divergence_of` makes them from logits, `total_divergence` from hidden states, some tokens at a time.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from groupwise.algorithms.logprobs import MAX_LOGITS


def forward_kl(student: Tensor, teacher: Tensor, beta: float = 0.5) -> Tensor:
    """D = Σᵥ p (log p - log q), p the teacher's and q the student's: KL(p ‖ q) (Hinton et al. 2015, arXiv:1503.02531).

    Covers: it is large where the student gives too little to what the teacher may say. `beta` is not read.

    >>> forward_kl(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[1.0, 1e-9]]).log())
    tensor([0.6931])
    """
    return (teacher.exp() * (teacher - student)).sum(-1)


def reverse_kl(student: Tensor, teacher: Tensor, beta: float = 0.5) -> Tensor:
    """D = Σᵥ q (log q - log p), q the student's and p the teacher's: KL(q ‖ p) (MiniLLM, Gu et al., arXiv:2306.08543).

    Seeks modes: it is large where the student says what the teacher would not. `beta` is not read.

    >>> reverse_kl(torch.tensor([[1.0, 1e-9]]).log(), torch.tensor([[0.5, 0.5]]).log())
    tensor([0.6931])
    """
    return forward_kl(teacher, student)


def jsd(student: Tensor, teacher: Tensor, beta: float = 0.5) -> Tensor:
    """D = β KL(p ‖ m) + (1-β) KL(q ‖ m), m = β p + (1-β) q: generalised JSD (GKD, Agarwal et al., arXiv:2306.13649).

    At most log 2. D/β nears the forward KL as β goes to 0, and D/(1-β) the reverse KL as β goes to 1.

    >>> jsd(torch.tensor([[1.0, 1e-9]]).log(), torch.tensor([[1e-9, 1.0]]).log())
    tensor([0.6931])
    """
    mixture = torch.logaddexp(teacher + math.log(beta), student + math.log1p(-beta))
    return beta * forward_kl(mixture, teacher) + (1 - beta) * forward_kl(mixture, student)


class Comparison(NamedTuple):
    """Settings of the comparison of a student with its teacher."""

    divergence: str = "forward_kl"  # A name in `DIVERGENCES`
    beta: float = 0.5  # β, 0 < β < 1; read by `jsd` only
    top_k: int = 0
    """Compare the teacher's k likeliest tokens and, as one class, the rest; 0 compares all tokens."""
    temperature: float = 1.0  # Divides the logits of both


def divergence_of(student: Tensor, teacher: Tensor, comparison: Comparison) -> Tensor:
    """Return the (n,) divergence in nats between the distributions of logits (n, V) of student and teacher.

    It is that of the distributions at the temperature, without Hinton's factor T². With `top_k` both are reduced to the
    same k + 1 classes, so it never exceeds that of all tokens (data-processing inequality) and is a true divergence:
    dropping the rest instead, or renormalising without it, would let the student move mass there unseen.

    >>> logits = torch.tensor([[1.0, 2.0, 3.0]])
    >>> divergence_of(logits, logits + 1, Comparison())
    tensor([0.])
    """
    student, teacher = ((logits / comparison.temperature).log_softmax(-1) for logits in (student, teacher))
    if 0 < comparison.top_k < teacher.shape[-1]:
        likeliest = teacher.topk(comparison.top_k, dim=-1).indices
        student, teacher = (_with_rest(logprobs, likeliest) for logprobs in (student, teacher))
    return DIVERGENCES[comparison.divergence](student, teacher, comparison.beta)


def _with_rest(logprobs: Tensor, tokens: Tensor) -> Tensor:
    """(n, k + 1) log-probabilities of k tokens, and of all others together."""
    # a sum over the others, not 1 - the sum of these, of which rounding would leave nothing
    rest = logprobs.scatter(-1, tokens, -torch.inf).logsumexp(-1, keepdim=True)
    return torch.cat([logprobs.gather(-1, tokens), rest], dim=-1)


class Outputs(NamedTuple):
    """Input of a model's head, to predict M tokens."""

    hidden: Tensor  # (M, d) final hidden states; d and the dtype may differ between student and teacher
    weight: Tensor  # (V, d)
    bias: Tensor | None = None  # (V,)
    cap: float | None = None  # Logits z become cap · tanh(z / cap); None: they stay

    def cut(self, vocabulary: int) -> "Outputs":
        bias = None if self.bias is None else self.bias[:vocabulary]
        return self._replace(weight=self.weight[:vocabulary], bias=bias)

    def logits(self, rows: slice) -> Tensor:
        """(n, V) in fp32."""
        logits = torch.nn.functional.linear(self.hidden[rows], self.weight, self.bias).float()
        return logits if self.cap is None else self.cap * (logits / self.cap).tanh()


class Compared(NamedTuple):
    """Sums over M tokens."""

    divergence: Tensor  # () fp32 in nats; with gradient to the student
    agreements: Tensor  # () int64, tokens whose likeliest token is the same for both


def total_divergence(student: Outputs, teacher: Outputs, comparison: Comparison) -> Compared:
    """Sum the divergences of M tokens, differentiable with respect to the student's hidden states, weight and bias.

    Logits exist for a chunk of tokens at a time. As only the sum leaves, its gradient is made while they are there,
    and nothing is computed twice.
    """
    return Compared(*_ChunkedDivergence.apply(*student, teacher, comparison))  # type: ignore[no-untyped-call]


class _ChunkedDivergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        cap: float | None,
        teacher: Outputs,
        comparison: Comparison,
    ) -> tuple[Tensor, Tensor]:
        student = Outputs(hidden, weight, bias, cap)
        total = hidden.new_zeros((), dtype=torch.float32)
        agreements = hidden.new_zeros((), dtype=torch.int64)
        on_hidden = torch.empty_like(hidden)
        on_weight = torch.zeros_like(weight, dtype=torch.float32)  # a sum of hundreds of chunks stalls in bf16
        on_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        size = max(1, MAX_LOGITS[hidden.device.type] // len(weight))
        for start in range(0, len(hidden), size):
            rows = slice(start, start + size)
            ours, theirs = student.logits(rows), teacher.logits(rows)
            with torch.enable_grad():
                leaf = ours.detach().requires_grad_()
                divergence = divergence_of(leaf, theirs, comparison).sum()
                (on_logits,) = torch.autograd.grad(divergence, leaf)
            if cap is not None:
                on_logits *= 1 - (ours / cap).square()
            total += divergence.detach()
            agreements += (ours.argmax(-1) == theirs.argmax(-1)).sum()
            on_hidden[rows] = on_logits.to(weight.dtype) @ weight
            on_weight.addmm_(on_logits.T, hidden[rows].float())
            if on_bias is not None:
                on_bias += on_logits.sum(0)
        on_bias = None if on_bias is None else on_bias.to(weight.dtype)
        ctx.save_for_backward(on_hidden, on_weight.to(weight.dtype), on_bias)
        return total, agreements

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        scale, _ = grads
        return *(None if tensor is None else scale * tensor for tensor in ctx.saved_tensors), None, None, None


DIVERGENCES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "forward_kl": forward_kl,
    "reverse_kl": reverse_kl,
    "jsd": jsd,
}
