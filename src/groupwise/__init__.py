"""Groupwise: reinforcement learning that teaches language models to reason."""

__version__ = "0.1.0"
