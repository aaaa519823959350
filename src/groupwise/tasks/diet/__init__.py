"""The text that the second edition of the shipped base model is pretrained on: many families, each solved in many ways.

Where the first edition (`tasks/corpus.py`) knows products and stories, this one adds calculations, puzzles, calls of a
calculator and everyday answers. Every problem is from a train split.
"""

from groupwise.tasks.diet.config import DietConfig
from groupwise.tasks.diet.document import alphabet, document

__all__ = ["DietConfig", "alphabet", "document"]
