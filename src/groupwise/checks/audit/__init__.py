"""Audits of verifiers: right answers are paid, wrong ones are not, in time, whatever a model writes. No torch here."""
