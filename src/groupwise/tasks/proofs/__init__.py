"""Tasks of proofs: propositional logic and equations with kernels of our own, statements for Lean and Coq."""
