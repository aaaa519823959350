"""The rows of EvalPlus 0.3.1 that JSON or plain equality cannot hold: types of arguments, and special comparisons.

Source: Liu et al. 2023 (arXiv:2305.01210), `evalplus/data/mbpp.py` and `evalplus/eval`.
"""

from collections.abc import Callable, Mapping
from typing import Any

TUPLES = {2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596, 616, 630, 726, 740, 744, 809}
LISTS_OF_TUPLES = {63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780}
FIRST_TUPLE = {250, 307, 405, 446, 617, 720, 763, 808}
DEEP = {580, 615, 791}


def arguments(task: str, entered: list[Any]) -> list[Any]:
    """Return the arguments of a call with the types that the reference solution of `Mbpp/N` expects.

    >>> arguments("Mbpp/2", [[3, 4], [5]]), arguments("Mbpp/75", [[[6, 24], [7]], 6]), arguments("HumanEval/0", [[1]])
    ([(3, 4), (5,)], [[(6, 24), (7,)], 6], [[1]])
    """
    suite, _, number = task.partition("/")
    mend = _MENDED.get(int(number)) if suite == "Mbpp" else None
    return mend(_bare(entered)) if mend else _bare(entered)


def _bare(value: Any) -> Any:
    """Return data of JSON without the texts of its numbers."""
    if isinstance(value, Mapping):
        return {key: _bare(item) for key, item in value.items()}
    return [*map(_bare, value)] if isinstance(value, list) else float(value) if isinstance(value, float) else value


def _tuples(items: list[Any]) -> list[Any]:
    return [tuple(item) for item in items]


def _deep(value: Any) -> Any:
    return tuple(map(_deep, value)) if isinstance(value, list) else value


_MENDED: Mapping[int, Callable[[list[Any]], list[Any]]] = {
    **dict.fromkeys(TUPLES, _tuples),
    **dict.fromkeys(LISTS_OF_TUPLES, lambda entered: [_tuples(items) for items in entered]),
    **dict.fromkeys((75, 413, 444, 753), lambda entered: [_tuples(entered[0]), *entered[1:]]),
    **dict.fromkeys((106, 750), lambda entered: [entered[0], tuple(entered[1])]),
    **dict.fromkeys(FIRST_TUPLE, lambda entered: [tuple(entered[0]), *entered[1:]]),
    **dict.fromkeys((259, 401, 445), lambda entered: [tuple(_tuples(items)) for items in entered]),
    **dict.fromkeys(DEEP, lambda entered: [_deep(value) for value in entered]),
    115: lambda entered: [[set(item) if isinstance(item, list) and item else {} for item in entered[0]]],
    124: lambda entered: [float(entered[0]), complex(entered[1])],
    252: lambda entered: [complex(entered[0])],
    278: lambda entered: [tuple(tuple(i) if isinstance(i, list) else i for i in items) for items in entered],
    722: lambda entered: [{key: tuple(value) for key, value in entered[0].items()}, *entered[1:]],
}

SETS = {
    "similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum",
    "intersection_array", "find_dissimilar", "Diff",
}  # fmt: skip
"""Functions whose results are compared as sets."""
NOT_NONE = {"check_str", "text_match_three", "text_starta_endb"}
"""Functions of whose results only counts whether there is one."""
ALSO = {
    "sum_div": "def sum_div(n):\n    return 0\n",
    "surface_Area": (
        "import math\ndef surface_Area(base_edge, height):\n    slant = math.sqrt((base_edge / 2) ** 2 + height**2)\n"
        "    return round(base_edge**2 + 4 * (base_edge * slant) / 2)\n"
    ),
    "digit_distance_nums": (
        "def digit_distance_nums(num1, num2):\n    width = max(len(str(num1)), len(str(num2)))\n"
        "    pairs = zip(str(num1).zfill(width), str(num2).zfill(width))\n"
        "    return sum(abs(int(a) - int(b)) for a, b in pairs)\n"
    ),
}
"""Second answers that are right."""


def oracle(entry: str) -> dict[str, str]:
    """Return what the data of a problem of MBPP+ needs beside its reference solution."""
    around = {
        entry in SETS: "set({0})",
        entry in NOT_NONE: "{0} if isinstance({0}, bool) else {0} is not None",
        entry == "are_equivalent": "True",
    }.get(True)
    data = {"around": _around(entry, f"return {around.format('result')}")} if around else {}
    return data | ({"also": ALSO[entry]} if entry in ALSO else {})


def _around(entry: str, body: str) -> str:
    """Return source that lets a function defined above it return something made of its `result` and `args`."""
    lines = (
        "def wrapped(function):", "    def changed(*args):", "        result = function(*args)", f"        {body}",
        "    return changed", f"{entry} = wrapped({entry})",
    )  # fmt: skip
    return "\n" + "\n".join(lines) + "\n"


ROOTS = {
    "find_zero": {
        "around": _around("find_zero", "return abs(sum(c * result**i for i, c in enumerate(args[0]))) <= 1e-4")
    }
}
"""The problem of HumanEval+ that has many right answers: a root is one where the polynomial is 0."""
