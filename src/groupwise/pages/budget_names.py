"""What methods of test-time compute are called on pages, and how their lines look."""

from collections.abc import Mapping

Look = tuple[str, str]
"""A colour's name in a theme, and a line style."""

METHODS: Mapping[str, tuple[str, Look]] = {
    "control/perfect": ("pass@k", ("muted", ":")),
    "control/constant": ("one sample", ("muted", "--")),
    "greedy": ("greedy", ("ink", "-")),
    "majority": ("majority", ("ink", "-")),
    "best_of_n/orm": ("best, outcome", ("orange", "-")),
    "best_of_n/prm_last": ("best, steps", ("blue", "-")),
    "weighted/prm_last": ("vote, steps", ("green", "-")),
    "beam/weighted": ("beam, vote", ("purple", "-")),
    "dvts/weighted": ("DVTS, vote", ("purple", "--")),
    "lookahead/weighted": ("lookahead", ("purple", ":")),
}
"""What the first picture and those of difficulties draw: name at the line's end, and look."""
JOINED: Mapping[str, tuple[str, Look]] = {
    "control/perfect": ("pass@k", ("muted", ":")),
    "best_of_n/prm_last": ("last", ("blue", "-")),
    "best_of_n/prm_min": ("lowest", ("orange", "-")),
    "best_of_n/prm_product": ("product", ("green", "-")),
    "best_of_n/prm_mean": ("mean", ("purple", "-")),
}
"""The same choice by scores of steps that are joined in four ways."""
