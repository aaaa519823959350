"""Tasks of proofs: propositional logic and equations with kernels of our own, statements for Lean and Coq."""

from groupwise.tasks.base import Task
from groupwise.tasks.proofs.equational import EquationalProofs, EquationalProofsConfig
from groupwise.tasks.proofs.propositional import PropositionalProofs, PropositionalProofsConfig
from groupwise.tasks.proofs.statements import CoqStatements, CoqStatementsConfig, Minif2f, Minif2fConfig

PROOF_TASKS: tuple[type[Task], ...] = (PropositionalProofs, EquationalProofs, Minif2f, CoqStatements)
"""Task classes."""

ProofOptions = PropositionalProofsConfig | EquationalProofsConfig | Minif2fConfig | CoqStatementsConfig
"""Their configurations."""
