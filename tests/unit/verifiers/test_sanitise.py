"""Programs read as EvalPlus reads them; its own sanitiser, with tree-sitter, gave these results."""

import pytest

from groupwise.verifiers.extraction import longest_run, sanitised

F = "def f(x):\n    return x"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (f"Sure, here it is:\n```python\n{F}\n```\nIt works.", F),
        (f"import os, re as r\n{F}\nprint(f(2))", f"import os, re as r\n{F}"), (f"{F}\n\ndef g():\n    return 2", F),
        ("K = 3\ndef f(x):\n    return h(x)\nh = K", "K = 3\ndef f(x):\n    return h(x)\nh = K"),
        ("def f(x):\n    return g(x)\ndef g(x):\n    print(x)", "def f(x):\n    return g(x)"),
        ("def f(x):\n    return 1\ndef f(x):\n    return 2", "def f(x):\n    return 1"),
        ("@cache\ndef f(x):\n    return 1\nimport re", "import re"),
        ("class C:\n    x: int = 0\ndef f(x):\n    return C()", "class C:\n    x: int = 0\ndef f(x):\n    return C()"),
        ("ä = 'é'; def_ = 1\nf = ä", "ä = 'é'\nf = ä"), ("def f(x):\n    return (x", "def f(x):"),
        ("no program here\nat all", "no program here"),
    ],
)  # fmt: skip
def test_the_program_of_a_text(text: str, program: str) -> None:
    assert sanitised(text, "f") == program


@pytest.mark.parametrize(
    ("text", "run"),
    [
        ("x = 1\ny = 2\n?\na = 1\nb = 2\nc = 3", "a = 1\nb = 2\nc = 3"), ("x = 1\n\n\n?\na = 1\nb = 2", "a = 1\nb = 2"),
        ("f(a,\n  b)\nIt is (so\nit goes)", "f(a,\n  b)"),
        ("s = '''\nnot Python\n'''\nend of it", "s = '''\nnot Python\n'''"),
        ("    indented\nx = 1\ny = 2\n", "x = 1\ny = 2"), ("x = 1", "x = 1"),
    ],
)  # fmt: skip
def test_the_longest_run_of_lines(text: str, run: str) -> None:
    assert longest_run(text) == run
