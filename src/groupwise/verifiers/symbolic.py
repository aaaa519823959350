"""Symbolic comparison by Math-Verify and SymPy, with the guards they lack. Runs in workers, never in a trainer.

Both sides go through a LaTeX grammar; no text of a model ever reaches `eval`, `sympify` or `parse_expr`. Timeouts are
off: the parent kills. Each guard answers a measured failure: Math-Verify compares absolutely to 15 digits, takes the
last link of a false chain, evaluates an integral that merely restates the question, and strips a final `m` as metres.
"""

import logging
import re
from typing import Any

from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
from math_verify.grader import should_treat_as_complex, verify
from sympy import Derivative, Eq, Expr, Integral, Limit, Product, Set, Sum, Symbol, Tuple, nan, zoo
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational
from sympy.matrices import MatrixBase

logging.getLogger("math_verify").setLevel(logging.ERROR)

_NORMALISATION = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
)
_UNEVALUATED = (Integral, Sum, Product, Limit, Derivative)
_LINK = re.compile(r"(?<![\\<>!=])=(?!=)|\\approx(?![a-zA-Z])")
_RELATION = re.compile(r"[=<>≤≥]|\\(?:leq?|geq?|lt|gt|neq?|in|approx)(?![a-zA-Z])")
_DIGITS = 40
_EXACT = 1e-20
_ROUNDED = 5e-6


def judge(request: dict[str, Any]) -> dict[str, str]:
    """Compare normalised texts `reference` and `answer`; returns `outcome` and `evidence` of a verdict."""
    reference, answer = request["reference"], request["answer"]
    real = not (should_treat_as_complex(reference) or should_treat_as_complex(answer))
    try:
        gold = _parse(reference, real)
    except Exception as error:
        return _reply("crashed", f"the reference answer {reference!r} cannot be parsed: {_line(error)}")
    try:
        links = _links(reference, answer)
        parsed = [_parse(link, real) for link in links]
    except Exception as error:
        return _reply("unparsable", f"the answer {answer!r} cannot be parsed: {_line(error)}")
    fault = _chain_fault(parsed) or _fault(gold, parsed[-1])
    if fault:
        return _reply("wrong", f"{answer!r}: {fault}")
    same = _same(gold, parsed[-1])
    return _reply("correct" if same else "wrong", f"{answer!r} {'equals' if same else 'differs from'} {reference!r}")


def _parse(text: str, real: bool) -> Any:
    latex = normalize_latex(text, _NORMALISATION)
    return latex2sympy(latex, is_real=real, convert_degrees=False, normalization_config=None)


def _links(reference: str, answer: str) -> list[str]:
    """The links of a chain `a = b = c` when the reference is not a relation itself, else the whole answer."""
    outer = _outer(answer)
    if _RELATION.search(_outer(reference)) or re.search(r"[,;]", outer) or re.search(r"\b(?:and|or)\b", answer):
        return [answer]
    links, start = [], 0
    for match in _LINK.finditer(outer):
        links.append(answer[start : match.start()].strip())
        start = match.end()
    return [*links, answer[start:].strip()]


def _outer(text: str) -> str:
    """The text with everything inside brackets blanked out, position by position."""
    shown, depth = [], 0
    for char in text:
        depth -= char in ")]}"
        shown.append(char if depth <= 0 else " ")
        depth += char in "([{"
    return "".join(shown)


def _chain_fault(links: list[Any]) -> str | None:
    for link in links[:-1]:
        if not _is_name(link) and not _same(link, links[-1]):
            return f"it chains {link} = {links[-1]}, which does not hold or is not solved"
    return None


def _is_name(expression: Any) -> bool:
    """True for what an equation may define: `x`, `f(x)`, `AB` (read as a product of letters), `(x, y)`."""
    if isinstance(expression, Symbol | AppliedUndef):
        return True
    parts = getattr(expression, "args", ())
    return bool(parts) and (expression.is_Mul or isinstance(expression, Tuple)) and all(map(_is_name, parts))


def _fault(gold: Any, answer: Any) -> str | None:
    if _has(answer, _UNEVALUATED) and not _has(gold, _UNEVALUATED):
        return "it leaves an integral, sum, product, limit or derivative unevaluated"
    if _is_scalar(gold) and isinstance(answer, Set | Tuple):
        return "it gives several values or a set where one value is asked for"
    if _is_scalar(gold) and isinstance(answer, Relational):
        return "it gives a relation where a value is asked for"
    if any(_is_false(equation) for equation in _find(answer, Eq)):
        return "it holds a false equation"
    return None


def _same(gold: Any, answer: Any) -> bool:
    if _has_nan(gold) or _has_nan(answer):
        return False
    # errors are raised, not taken for "differs": the worker reports them and the outcome is CRASHED
    options = {"float_rounding": 6, "numeric_precision": 15, "strict": True, "timeout_seconds": None}
    if not verify(gold, answer, raise_on_error=True, **options):
        return False
    return _close(gold, answer) if _is_constant(gold) and _is_constant(answer) else True


def _close(gold: Any, answer: Any) -> bool:
    """Relative comparison at 40 digits, so that 2^-99 and 2^-98, or 10^-30 and 0, differ."""
    if gold == answer:
        return True
    a, b = gold.doit().evalf(_DIGITS), answer.doit().evalf(_DIGITS)
    tolerance = _ROUNDED if _has_float(gold) or _has_float(answer) else _EXACT
    scale = max(abs(a), abs(b))
    return bool(scale == 0 or abs(a - b) <= tolerance * scale)


def _is_false(equation: Any) -> bool:
    return _is_constant(equation.lhs) and _is_constant(equation.rhs) and not _same(equation.lhs, equation.rhs)


def _is_scalar(expression: Any) -> bool:
    return isinstance(expression, Expr) and not isinstance(expression, MatrixBase)


def _is_constant(expression: Any) -> bool:
    return _is_scalar(expression) and not expression.free_symbols and not _has(expression, AppliedUndef)


def _find(expression: Any, kind: Any) -> list[Any]:
    if isinstance(expression, kind):
        return [expression]
    return [found for part in getattr(expression, "args", ()) for found in _find(part, kind)]


def _has(expression: Any, kinds: Any) -> bool:
    return bool(_find(expression, kinds))


def _has_nan(expression: Any) -> bool:
    return any(atom in (nan, zoo) for atom in getattr(expression, "atoms", set)())


def _has_float(expression: Any) -> bool:
    return any(atom.is_Float for atom in expression.atoms() if atom.is_Number)


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _reply(outcome: str, evidence: str) -> dict[str, str]:
    return {"outcome": outcome, "evidence": evidence[:600]}
