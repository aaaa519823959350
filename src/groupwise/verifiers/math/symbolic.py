"""Symbolic comparison with SymPy and Math-Verify, and the guards they lack. Runs in workers, never in a trainer.

Timeouts are off: the parent kills. Expressions are compared by their values (`parsing.py`), equations and inequalities
by the values of their sides, sets of real numbers by their ends (`real_sets.py`); what is left, Math-Verify decides.
"""

import logging
from fractions import Fraction
from functools import partial
from itertools import chain
from math import lcm
from typing import Any

import sympy as sp
from math_verify.grader import verify
from sympy.core.relational import Relational
from sympy.matrices import MatrixBase

from groupwise.verifiers.math.compare import equivalent, has_words, is_plain, same_plainly
from groupwise.verifiers.math.guards import size, unreadable
from groupwise.verifiers.math.letters import Declared, declared, letters_of
from groupwise.verifiers.math.numbers import DECIMALS, parse_number, rounded, split_unit
from groupwise.verifiers.math.parsing import UnreadableError, agree, constant_ratio, one_line, parse, parse_both, rounds
from groupwise.verifiers.math.real_sets import is_real_set, same_sets
from groupwise.verifiers.math.structure import Node, leaves, read

logging.getLogger("math_verify").setLevel(logging.ERROR)

_UNEVALUATED = (sp.Integral, sp.Sum, sp.Product, sp.Limit, sp.Derivative)
_MAX_FACTORED = 60  # digits of two equations whose common factors are looked for, which multiplies powers out
_WARM = (
    r"3+4i", r"e^{2}", r"\sqrt[3]{x}+\sqrt{2}", r"\binom{n}{k}", "x_1+x_{12}", r"|x-1|", r"\sin^2 x+\cos(2x)",
    r"\log_2 8", r"\ln(x+1)", r"\arctan x", "n!", "f(x)", "a(b+1)", r"2\pi r^2", "-x^2", "2^{-1}", "(0,1]", "x>1",
    r"\frac{3x^2y-1}{x^{2y}}", r"\tan^{-1}(x)", r"1.5\times10^{3}", r"2 \leq x < 3", r"[0,1]\cup(2,\infty)", "y=2x+1",
    r"\lfloor x\rfloor", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\frac{1}{2}\cdot 3", r"x\neq 0",
    r"\sum_{k=1}^{n}k", r"\cot t\sec t",
)  # fmt: skip


class _FaultError(Exception):
    """The answer can be parsed but is not an answer: it leaves something to compute."""


def judge(request: dict[str, Any]) -> dict[str, str]:
    """Compare normalised texts `reference` and `answer`, with `decimals` as in the settings; returns a finding.

    Without an answer the finding is whether the reference can be read: `correct` or `unparsable`.
    """
    reference, answer = request["reference"], request.get("answer")
    if answer is None:
        if not is_real_set(reference):
            for leaf in leaves(read(declared(reference).core)):
                try:
                    if has_words(split_unit(leaf)[0]) and not is_plain(leaf):
                        return _reply("unparsable", f"{leaf!r} holds words that are no known unit")
                    if not is_plain(leaf):
                        parse(split_unit(leaf)[0], True, False)
                except Exception as error:  # whatever the grammar raises
                    return _reply("unparsable", f"{leaf!r}: {one_line(error)}")
        return _reply("correct", "it can be read")
    decimals = request.get("decimals", DECIMALS)

    def same_whole(reference: str, answer: str) -> bool | None:
        if (is_same := same_sets(reference, answer)) is not None:
            return is_same
        left, right = declared(reference), declared(answer)
        if "Z" not in (*left.domains.values(), *right.domains.values()):
            return None
        gold, value = _families(left), _families(right)
        if gold is None or value is None:
            return None
        return (not gold[0] or not value[0] or gold[0] == value[0]) and _same_residues(gold[1], value[1])

    try:
        is_same = equivalent(reference, answer, partial(_same, decimals=decimals), same_whole, decimals)
    except UnreadableError as error:
        if not error.of_reference:
            return _reply("unparsable", f"the answer {answer!r} cannot be parsed: {error}")
        if is_real_set(reference):
            return _reply("wrong", f"{answer!r} is not a set, but {reference!r} is")
        return _reply("crashed", f"the reference answer {reference!r} cannot be parsed: {error}")
    except _FaultError as error:
        return _reply("wrong", f"{answer!r}: {error}")
    evidence = f"{answer!r} {'equals' if is_same else 'differs from'} {reference!r}"
    return _reply("correct" if is_same else "wrong", evidence)


def warm_up() -> None:
    """Parse one expression of each kind: the grammar's tables are built on first use, once for all workers."""
    for text in _WARM:
        judge({"reference": text, "answer": f"{text} "})
        parse(text, True, True)


def _same(reference: str, answer: str, decimals: int) -> bool:
    if (is_equal := same_plainly(reference, answer, decimals)) is not None:
        return is_equal
    if fault := unreadable(answer):
        raise UnreadableError(fault)
    (reference, unit), (answer, other_unit) = split_unit(reference), split_unit(answer)
    if "circ" in (unit, other_unit) and unit != other_unit and r"\pi" in (answer if unit else reference):
        # degrees compared with a multiple of pi become radians
        pairs = ((reference, unit), (answer, other_unit))
        reference, answer = (rf"\frac{{({text}) \pi}}{{180}}" if key else text for text, key in pairs)
    gold, value = parse_both(reference, answer)
    if has_words(reference) or has_words(answer):
        return False
    if _has(value, _UNEVALUATED) and not _has(gold, _UNEVALUATED):
        raise _FaultError("it leaves an integral, sum, product, limit or derivative unevaluated")
    for text, expression in ((answer, gold), (reference, value)):
        number = parse_number(text)
        if number is None or number.places is None or not _is_expression(expression):
            continue
        if not expression.free_symbols and (not expression.is_Rational or ":" in answer):
            # a decimal against an expression without letters: only a correct rounding
            if number.places >= decimals or (text is reference and rounded(number)):
                return rounds(expression, number.exact, number.places + 2 * number.percent)
            break
    digits = size(reference) + size(answer)
    try:
        return _same_objects(gold, value, digits, (reference, answer))
    except Exception as error:  # the answer's fault, unless the reference alone causes it, too: that is a crash
        _same_objects(gold, gold, digits, (reference, reference))
        raise UnreadableError(one_line(error)) from None


def _same_objects(gold: Any, value: Any, digits: float, texts: tuple[str, str]) -> bool:
    if _is_expression(gold) and _is_expression(value) and not _has(gold, _UNEVALUATED):
        is_same = agree(gold, value, digits)
        return _verify(gold, value) if is_same is None else is_same
    if isinstance(gold, Relational) and isinstance(value, Relational) and not _has(gold, (sp.Set, sp.Tuple)):
        return _same_relation(gold, value, digits)
    if isinstance(gold, sp.Eq) and _is_expression(value):
        unknowns = (gold.lhs - gold.rhs).free_symbols - value.free_symbols
        return bool(len(unknowns) == 1 and value.free_symbols) and _solves(gold, next(iter(unknowns)), value, digits)
    if _is_expression(gold) and isinstance(value, sp.Set | sp.Tuple | Relational):
        return False
    is_same = same_sets(*texts)
    return _verify(gold, value) if is_same is None else is_same


def _same_relation(gold: Relational, value: Relational, digits: float) -> bool:
    """Compare `left - right` by their ratio: constant, positive for inequalities; for equations also of numerators."""
    (kind, left), (other_kind, right) = _standard_form(gold), _standard_form(value)
    if kind is not other_kind:
        return False
    ratio = constant_ratio(left, right, digits)
    if kind in (sp.Eq, sp.Ne):
        numerators = [sp.fraction(sp.together(side))[0] for side in (left, right)]
        if ratio is not None or constant_ratio(numerators[0], numerators[1], digits) is not None:
            return True
        solution, other_solution = _solved_form(gold), _solved_form(value)
        if kind is sp.Eq and (solution is None) != (other_solution is None):
            equation, solved = (gold, other_solution) if solution is None else (value, solution)
            return solved is not None and _solves(equation, solved[0], solved[1], digits)
        if kind is sp.Ne or solution is None or other_solution is None or solution[0] == other_solution[0]:
            return False
        # equations solved for different letters (`y = e^x`, `x = \ln y`) hold wherever the other does
        for equation, (name, term) in ((gold, other_solution), (value, solution)):
            left, right = (side.xreplace({name: term}) for side in (equation.lhs, equation.rhs))
            if agree(left, right, digits) is not True:
                return False
        return True
    return ratio is not None and bool(ratio.imag == 0 and ratio.real > 0)


def _solves(equation: sp.Eq, unknown: Any, value: Any, digits: float) -> bool:
    """True for the value of a letter in an equation that is linear in it, and holds nowhere else."""
    difference = equation.lhs - equation.rhs
    slope, offset = difference.diff(unknown), difference.subs(unknown, 0)
    if slope.is_zero or slope.has(unknown) or agree(-offset / slope, value, digits) is not True:
        return False
    # where both are 0 any value holds: `(x - 1)(y - 2x) = 0`
    return digits <= _MAX_FACTORED and not sp.gcd(slope, offset).free_symbols


def _solved_form(equation: sp.Eq) -> tuple[Any, Any] | None:
    for name, term in ((equation.lhs, equation.rhs), (equation.rhs, equation.lhs)):
        if name.is_Symbol and _is_expression(term) and name not in term.free_symbols:
            return name, term
    return None


def _standard_form(relation: Relational) -> tuple[Any, Any]:
    difference = relation.lhs - relation.rhs
    opposite = {sp.Gt: sp.Lt, sp.Ge: sp.Le}.get(type(relation))
    return (opposite, -difference) if opposite else (type(relation), difference)


def _verify(gold: Any, value: Any) -> bool:
    # errors are raised, not taken for "differs": the worker reports them and the outcome is CRASHED
    options = {"float_rounding": 6, "numeric_precision": 15, "strict": True, "timeout_seconds": None}
    return bool(verify(gold, value, raise_on_error=True, allow_set_relation_comp=True, **options))


def _is_expression(expression: Any) -> bool:
    return isinstance(expression, sp.Expr) and not isinstance(expression, MatrixBase) and not expression.is_Matrix


def _has(expression: Any, kinds: Any) -> bool:
    return isinstance(expression, kinds) or any(_has(part, kinds) for part in getattr(expression, "args", ()))


def _reply(outcome: str, evidence: str) -> dict[str, str]:
    return {"outcome": outcome, "evidence": evidence[:600]}


_MOST_RESIDUES = 100  # residues that a side may have
_FAMILY_DIGITS = 40
_FAMILY_TOLERANCE = 1e-30

Family = tuple[Any, Any]


def _families(text: Declared) -> tuple[set[str], list[Family]] | None:
    node = read(text.core)
    items = node.items if node.kind == "list" else (node,)
    families = [_family(item, text) for item in items]
    names = {item.label for item in items if item.kind == "equation"}
    return None if None in families else (names, [family for family in families if family])


def _family(node: Node, text: Declared) -> Family | None:
    value = node.items[0] if node.kind == "equation" and node.label and len(node.items) == 1 else node
    letters = letters_of(value.text)
    if value.kind != "expression" or len(letters) != 1 or (text.domains and not letters <= text.domains.keys()):
        return None
    expression = parse(value.text, True, False)
    symbols = expression.free_symbols if isinstance(expression, sp.Expr) else set[sp.Symbol]()
    if len(symbols) != 1:
        return None
    letter = next(iter(symbols))
    period, offset = expression.diff(letter), expression.subs(letter, 0)
    return None if period.free_symbols or not period.is_real or period.is_zero else (offset, period)


def _same_residues(gold: list[Family], value: list[Family]) -> bool:
    unit = gold[0][1]
    shares = [sp.simplify(period / unit) for _, period in (*gold, *value)]
    if not all(share.is_Rational for share in shares):
        return False
    shares = [abs(Fraction(int(share.p), int(share.q))) for share in shares]
    denominator = lcm(*(share.denominator for share in shares))
    periods = [int(share * denominator) for share in shares]
    cycle = lcm(*periods)  # of the unit's parts
    if sum(cycle // period for period in periods) > _MOST_RESIDUES:
        return False
    residues = [
        [(offset / unit * denominator + step * period).evalf(_FAMILY_DIGITS) / cycle for step in range(cycle // period)]
        for (offset, _), period in zip((*gold, *value), periods, strict=True)
    ]
    left, right = list(chain(*residues[: len(gold)])), list(chain(*residues[len(gold) :]))
    table = [[abs(a - b - round(a - b)) < _FAMILY_TOLERANCE for b in right] for a in left]
    return all(map(any, table)) and all(map(any, zip(*table, strict=True)))
