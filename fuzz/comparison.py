"""Fuzzes everything between an answer's text and the worker: normal form, structure, units, numbers, guards."""

import re
import sys
import time

import atheris

with atheris.instrument_imports(include=["groupwise.verifiers"]):
    from groupwise.types import Outcome, Problem
    from groupwise.verifiers.extraction import Extracted
    from groupwise.verifiers.math import decide
    from groupwise.verifiers.math.guards import refusal, size
    from groupwise.verifiers.math.normalise import normalise
    from groupwise.verifiers.math.structure import read

MAX_S = 1.0
INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,40})")


def check(data: bytes) -> None:
    """Properties of `decide` for a reference and an answer, which a line break separates."""
    reference, _, answer = data.decode("utf-8", "surrogateescape").partition("\n")
    start = time.process_time()
    step = decide(Problem("", "", reference), Extracted(answer, "", False))
    if refusal(answer) is None:
        read(normalise(answer))
        assert size(normalise(answer)) >= 0
        alone = decide(Problem("", "", answer), Extracted(answer, "", False)).finding
        assert alone is None or alone.outcome is not Outcome.WRONG, "an answer is not wrong for itself"
    if INTEGER.fullmatch(reference) and INTEGER.fullmatch(answer):
        assert step.finding is not None, "integers need no worker"
        assert (step.finding.outcome is Outcome.CORRECT) == (int(reference) == int(answer)), "integers are exact"
        styled = decide(Problem("", "", reference), Extracted(rf"**\bm{{\color{{red}}{{{answer}}}}}**", "", False))
        assert styled.finding is not None, "style needs no worker"
        assert styled.finding.outcome is step.finding.outcome, "style changes no value"
    assert time.process_time() - start < MAX_S, "all of it is quick"


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
