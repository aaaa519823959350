"""Audits: does a verifier pay only for right answers, answer in time and survive what a model may write? No torch here.

`cases` reads labelled files, `generator` makes cases whose verdict is known by construction (of `attacks` in the `form`
that a task asks for), `judge` runs them, `summary` counts; `quick.quick_audit` is the short form that runs before
training. `verify` judges a single completion, `sandbox` audits the sandbox.
"""
