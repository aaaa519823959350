"""Style: pure functions of a request and its verdict to a bounded number. None of them pays for words.

To add one: a module with a `StylePart`, and a line in `PARTS` (`verifiers/table.py`).
"""
