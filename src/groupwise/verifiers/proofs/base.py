"""What the verifiers of proofs share: the statement comes from the problem, only the proof from the completion."""

import re
from abc import abstractmethod
from collections.abc import Sequence

from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.base import Finding, Request, Verifier, verdict
from groupwise.verifiers.extraction import extract
from groupwise.verifiers.proofs.expressions import UnreadableError
from groupwise.verifiers.proofs.natural_deduction import RuleError

MAX_LENGTH = 20_000
"""Characters of a proof that are read at most."""
_FENCED = re.compile(r"```[A-Za-z0-9]*\n(.*?)\n?[ \t]*```", re.DOTALL)


class ProofVerifier(Verifier):
    """Reads the proof where the answer stands; a code fence around it is taken off. Subclasses judge proofs."""

    @abstractmethod
    def find_many(self, proofs: Sequence[tuple[Problem, str]]) -> list[Finding]:
        """One finding per problem and proof, in the same order."""

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        """One verdict per request, in the same order."""
        extracted = [extract(request.text, self.config.extraction) for request in requests]
        early = [
            _unreadable(one.reason) if one.answer is None else _too_long(unfenced(one.answer)) for one in extracted
        ]
        proofs = [
            (request.problem, unfenced(one.answer))
            for request, one, fault in zip(requests, extracted, early, strict=True)
            if fault is None and one.answer is not None
        ]
        found = iter(self.find_many(proofs))
        return [
            verdict(fault or next(found), self.config, tags_right=one.tags_right)
            for fault, one in zip(early, extracted, strict=True)
        ]


class KernelVerifier(ProofVerifier):
    """Judges in this process with a kernel of our own: exact, and in time that the proof's size bounds."""

    @abstractmethod
    def find(self, problem: Problem, proof: str) -> Finding:
        """What is found out about a proof.

        Raises:
            UnreadableError: names the line of the proof.
            RuleError: names the line at which the proof goes wrong.
        """

    def find_many(self, proofs: Sequence[tuple[Problem, str]]) -> list[Finding]:
        """One finding per problem and proof, in the same order."""
        return [self._attempt(problem, proof) for problem, proof in proofs]

    def _attempt(self, problem: Problem, proof: str) -> Finding:
        try:
            return self.find(problem, proof)
        except UnreadableError as error:
            return _unreadable(str(error))
        except RuleError as error:
            return Finding(Outcome.WRONG, str(error), " ".join(proof.split()))
        except (KeyError, TypeError, ValueError) as error:
            return Finding(Outcome.CRASHED, f"problem {problem.id} has no usable statement: {error!r}"[:300])


def unfenced(answer: str) -> str:
    """The answer without a code fence around all of it."""
    fenced = _FENCED.fullmatch(answer)
    return fenced[1] if fenced else answer


def _unreadable(reason: str) -> Finding:
    return Finding(Outcome.UNPARSABLE, reason)


def _too_long(proof: str) -> Finding | None:
    if len(proof) <= MAX_LENGTH:
        return None
    return _unreadable(f"the proof has {len(proof)} characters, at most {MAX_LENGTH} are read")
