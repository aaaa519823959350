"""Tasks of proofs: propositional logic and equations with our own kernels, statements for Lean and Coq."""
