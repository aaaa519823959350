"""The program in a text as EvalPlus 0.3.1 reads it, by Python's own parser.

It is the longest run of lines that parses, and of that what the entry point reaches.

Source: Liu et al. 2023 (arXiv:2305.01210), `evalplus/sanitize.py`, which parses with tree-sitter.
"""

import ast
import warnings
from collections.abc import Sequence

Assigned = ast.Assign | ast.AnnAssign
_NAMES = ("id", "attr", "arg", "name", "asname", "module")
Defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | Assigned


def sanitised(text: str, entry_point: str) -> str:
    r"""Return imports and the definitions that the entry point reaches; without any, the longest run of lines.

    >>> sanitised("Sure:\nimport re\ndef f(x):\n    return g(x)\ng = len\nprint(f(2))\nDone!", "f")
    'import re\ndef f(x):\n    return g(x)\ng = len'
    """
    run = longest_run(text)
    try:
        statements = _parsed(run).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return run
    imports = [statement for statement in statements if isinstance(statement, ast.Import | ast.ImportFrom)]
    defined: dict[str, Defined] = {}
    for statement in statements:
        if name := _name(statement):
            defined.setdefault(name, statement)  # type: ignore[arg-type]
    reached, waiting = {entry_point}, [entry_point]
    while waiting:
        if (node := defined.get(waiting.pop())) is not None:
            said = [getattr(n, f, None) for n in ast.walk(node) for f in _NAMES]
            names = {name for text in said if isinstance(text, str) for name in text.split(".")} - reached
            reached |= names
            waiting += names
    kept = [*imports, *(node for name, node in defined.items() if name in reached)]
    return "\n".join(ast.get_source_segment(run, node) or "" for node in kept).strip() or run


def longest_run(text: str) -> str:
    """Return the lines, two at least, of the longest run that is Python; blank lines do not count."""
    lines = text.split("\n")
    weight = [0]
    for line in lines:
        weight.append(weight[-1] + bool(line.strip()))
    best, chosen = 0, (0, 1)
    for start in range(len(lines) - 1):
        end = len(lines)
        while end - start >= 2 and weight[end] - weight[start] > best:
            fault = _fault("\n".join(lines[start:end]))
            if fault is None:
                while end - start > 2 and not lines[end - 1].strip():
                    end -= 1
                best, chosen = weight[end] - weight[start], (start, end)
            else:  # a run that holds this line and the next has the same fault
                end = min(end - 1, max(start + fault, start + 1))
    return "\n".join(lines[chosen[0] : chosen[1]])


def _fault(source: str) -> int | None:
    """Return the line, from 1, of the first fault of a source; None where it is Python."""
    try:
        _parsed(source)
    except SyntaxError as error:
        return error.lineno or 1
    except (ValueError, RecursionError, MemoryError):
        return len(source.split("\n"))
    return None


def _parsed(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes in what a model wrote
        return ast.parse(source)


def _name(statement: ast.stmt) -> str:
    """Return the name that a statement defines, empty where EvalPlus leaves it out: functions that return nothing."""
    match statement:
        case ast.ClassDef(decorator_list=[]):
            return statement.name
        case ast.FunctionDef(decorator_list=[]) | ast.AsyncFunctionDef(decorator_list=[]):
            return statement.name if any(isinstance(node, ast.Return) for node in ast.walk(statement)) else ""
        case ast.Assign(targets=[target, *_], value=value) | ast.AnnAssign(target=target, value=value):
            names: Sequence[ast.expr | None] = (target, value)  # it takes the first identifier that stands alone
            return next((node.id for node in names if isinstance(node, ast.Name)), "")
    return ""
