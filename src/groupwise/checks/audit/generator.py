"""The adversarial generator: completions whose verdict is known by construction.

A right answer in the form that the task's template shows must be judged correct, however long the reasoning before it;
everything else here must not. What projects judge differently (full-width digits, for example) is undecided.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from groupwise.checks.audit import attacks
from groupwise.checks.audit.cases import Case
from groupwise.checks.audit.form import Differs, Form, differs_as_number
from groupwise.checks.audit.judge import Canary
from groupwise.tasks.base import Template
from groupwise.types import Problem
from groupwise.verifiers import VERIFIERS
from groupwise.verifiers.base import Extraction
from groupwise.verifiers.extraction import extract

Kinds = Mapping[str, tuple[Callable[[Form], Iterator[str]], bool | None]]
KINDS: Kinds = MappingProxyType(
    {
        "right answer": (attacks.right, True),
        "no answer": (attacks.nothing, False),
        "bare answer": (attacks.bare, False),
        "question given back": (attacks.question, False),
        "numbers": (attacks.numbers, False),
        "candidates": (attacks.candidates, False),
        "several answers": (attacks.several, False),
        "empty tags": (attacks.tags, False),
        "only in reasoning": (attacks.thinking, False),
        "lookalikes": (attacks.lookalikes, False),
        "other digits": (attacks.other_digits, None),
        "orders to the judge": (attacks.orders, False),
        "countdown tricks": (attacks.countdown, False),
    }
)
"""Kinds of cases that cost little, and the verdict they must get."""
FLOODS: Kinds = MappingProxyType({"bombs": (attacks.bombs, False), "huge texts": (attacks.huge, False)})
"""Kinds that may take the verifier to its deadline; made for the first problem alone, and last."""
CODE = "code"
"""Kind that needs a canary."""
REFERENCES = ("-3", "0", "0.5", r"\frac{3}{4}", r"2\sqrt{3}", r"\pi", "(1, 3)", "[0, 1)", r"\{1, 2\}", "x^2+1", "x=2",
              r"\begin{pmatrix}1\\2\end{pmatrix}", "B", r"25\%", "1,000", "Monday")  # fmt: skip
"""Forms of mathematical answers."""


def adversarial_cases(
    problems: Sequence[Problem],
    template: Template,
    canary: Canary | None = None,
    *,
    verifier: str = "math",
    extraction: Extraction = "boxed",
    differs: Differs = differs_as_number,
    with_floods: bool = True,
) -> list[Case]:
    """Cases of every kind for every problem; without a canary none that hold code."""
    forms = [Form(problem, template, differs) for problem in problems]
    texts = [(form, *labelled) for form in forms for labelled in _texts(form, KINDS)]
    if canary:
        texts += [(form, CODE, False, text) for form in forms for text in attacks.code(form, canary)]
    if with_floods:
        texts += [(form, *labelled) for form in forms[:1] for labelled in _texts(form, FLOODS)]
    is_unique = VERIFIERS.find(verifier).one_right  # else nothing is known by construction beside the reference answer
    return [
        Case(f"{form.problem.id}, text {number}", kind, form.problem, text, expected if expected or is_unique else None)
        for number, (form, kind, expected, text) in enumerate(texts)
        if expected is not False or not _is_right_anyway(form, text, extraction)
    ]


def _texts(form: Form, kinds: Kinds) -> Iterator[tuple[str, bool | None, str]]:
    for kind, (make, expected) in kinds.items():
        yield from ((kind, expected, text) for text in dict.fromkeys(make(form)))


def _is_right_anyway(form: Form, text: str, extraction: Extraction) -> bool:
    """Where the recipe chose to read the last number anywhere, a text that ends in the right one is no attack."""
    if extraction != "last_number":
        return False
    return extract(text, extraction).answer == extract(form.answer(form.problem.reference), extraction).answer


def reference_problems(references: Sequence[str]) -> list[Problem]:
    """One problem per reference answer, with a question that gives nothing away."""
    return [Problem(f"reference {text}", "What is the answer?", text) for text in references]
