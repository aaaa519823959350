"""Recall of a corpus: from pages of a web to those that are worth training on (DeepSeekMath, arXiv:2402.03300, 2.1).

    pages -> extract -> dedup -> rounds of {train a classifier, rank, keep, domains, annotate, grow the seed}
          -> decontaminate -> corpus

`words` is the mathematics, without files or clocks; `run` does the work in a directory, piece by piece, so that a kill
loses one piece.
"""
