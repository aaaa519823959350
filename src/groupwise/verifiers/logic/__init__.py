"""Verifiers of logic and structure: exact, in process, without a worker."""
