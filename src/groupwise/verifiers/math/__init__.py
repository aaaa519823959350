"""Mathematical answers: numbers, expressions, sets, intervals, relations, matrices and words."""

from groupwise.verifiers.math.verifier import MathVerifier, NumberVerifier

__all__ = ["MathVerifier", "NumberVerifier"]
