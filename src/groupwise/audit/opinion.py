"""The second opinion: a checker that shares no code with the verifier, where there is one."""

from groupwise.audit.cases import Case
from groupwise.audit.form import Differs, differs_as_number
from groupwise.audit.judge import SecondOpinion
from groupwise.verifiers.base import Extraction
from groupwise.verifiers.extraction import extract
from groupwise.verifiers.math.second_opinion import second_opinion

LONGEST = 200
"""Characters of an answer up to which a second opinion is asked for; what is longer is an attack on time."""


def differs_for(verifier: str) -> Differs:
    """How attacks on a verifier know that an answer is wrong."""
    return _differs_as_mathematics if verifier == "math" else differs_as_number


def opinion_for(verifier: str, extraction: Extraction) -> SecondOpinion:
    """The independent check of a verifier's verdicts; one that never can say where there is none."""
    if verifier != "math":
        return lambda case: None
    return lambda case: _opinion(case, extraction)


def _differs_as_mathematics(reference: str, answer: str) -> bool:
    return second_opinion(reference, answer) is False


def _opinion(case: Case, extraction: Extraction) -> bool | None:
    answer = extract(case.text, extraction).answer
    return None if answer is None or len(answer) > LONGEST else second_opinion(case.problem.reference, answer)
