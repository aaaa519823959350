"""Reading assertions: which are only `function(literals) == literal`, and which names they leave to the program."""

import ast
import builtins
from collections.abc import Mapping, Sequence
from typing import Any


def assertions(source: str, function: str) -> list[ast.stmt]:
    """The statements of a test function, without those that state nothing (docstrings, `assert True`)."""
    tree = ast.parse(source)
    (checker,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    return [statement for statement in checker.body if not _states_nothing(statement)]


def _states_nothing(statement: ast.stmt) -> bool:
    content = statement.test if isinstance(statement, ast.Assert) else getattr(statement, "value", None)
    return isinstance(statement, ast.Assert | ast.Expr) and isinstance(content, ast.Constant) and bool(content.value)


def as_calls(statements: Sequence[ast.stmt], renamed: Mapping[str, str]) -> dict[str, Any] | None:
    """Tests of form `calls`; None unless every statement asserts that one and the same function returns a literal."""
    found = [_as_call(statement) for statement in statements]
    names = {call[0] for call in found if call}
    if not found or None in found or len(names) != 1:
        return None
    name = names.pop()
    calls = [{"args": call[1], "expected": call[2]} for call in found if call]
    return {"form": "calls", "entry_point": renamed.get(name, name), "calls": calls}


def _as_call(statement: ast.stmt) -> tuple[str, str, str] | None:
    """Name, arguments and expected value, the last two as texts of literals."""
    match statement:
        case ast.Assert(
            test=ast.Compare(
                left=ast.Call(func=ast.Name(id=name), args=args, keywords=[]), ops=[ast.Eq()], comparators=[expected]
            )
        ) if _is_literal(expected) and all(map(_is_literal, args)):
            return name, ast.unparse(ast.Tuple(elts=args, ctx=ast.Load())), ast.unparse(expected)
    return None


def _is_literal(node: ast.expr) -> bool:
    try:
        return ast.literal_eval(node) is not Ellipsis
    except (ValueError, TypeError):
        return False


def unbound_names(source: str) -> list[str]:
    """Names that a source reads and never binds, built-ins aside, in order."""
    names = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name | ast.arg | ast.alias)]
    bound = {
        node.arg if isinstance(node, ast.arg) else (node.asname or node.name).split(".")[0]
        for node in names
        if not isinstance(node, ast.Name)
    } | {node.id for node in names if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    read = (node.id for node in names if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    return [name for name in dict.fromkeys(read) if name not in bound and not hasattr(builtins, name)]
