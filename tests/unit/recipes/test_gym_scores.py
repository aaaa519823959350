"""Answers to problems of reasoning-gym: the library may read them as data and mathematics, and run nothing else."""

import pytest

from gym_problems import evaluated


def test_what_stands_in_for_eval_reads_data_and_mathematics_alone() -> None:
    scope = {"Symbol": str, "Integer": int, "Integral": str}
    for source, value in (("['a', ('b', -1)]", ["a", ("b", -1)]), (" 3*(4-1) // 2", 4), ("{1: 0x1F << 2}", {1: 124}),
                          ("Integer('3') + 2", 5), ("Symbol('x') + Integral('y')", "xy")):  # fmt: skip
        assert evaluated(source, scope) == value
    for source in ("open('x')", "().__class__", "[c for c in 'ab']", "(lambda: 1)()", "f'{scope}'", "Symbol('x')('y')",
                   "scope[0]", "exec ('1')", "(x := 1)", "source", "Symbol(*'x')"):  # fmt: skip
        with pytest.raises((ValueError, NameError)):
            evaluated(source)
