"""Mutants of a Python file: one small change each, of the kind that a slip in a formula makes."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

OTHER_OPERATOR: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,), ast.Pow: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,), ast.Mod: (ast.Mult,), ast.LShift: (ast.RShift,), ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,), ast.And: (ast.Or,), ast.Or: (ast.And,),
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
OTHER_CALL = {
    "minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min", "any": "all", "all": "any",
    "sum": "mean", "mean": "sum", "zeros_like": "ones_like", "zeros": "ones", "new_zeros": "new_ones",
    "exp": "expm1", "expm1": "exp",
}  # fmt: skip
IDENTITIES = {
    "detach", "exp", "expm1", "log", "abs", "square", "sqrt", "sigmoid", "clamp", "clamp_min", "masked_fill", "float",
    "to", "round", "sorted", "reversed", "any", "all",
}  # fmt: skip
"""Calls that may be forgotten: the receiver or the first argument stands in their place."""
SYMMETRIC = {"minimum", "maximum", "min", "max"}
UNTOUCHED = {"annotation", "returns", "decorator_list"}
"""Fields of syntax nodes that hold no formula."""


class Mutant(NamedTuple):
    """A changed file."""

    line: int
    where: str
    """The function or class, dotted; empty at the top of the file."""
    before: str
    """First line of the statement as it was."""
    after: str
    """The same line, changed."""
    source: str
    """The whole file."""


def mutants(source: str) -> list[Mutant]:
    """Every mutant of a file, each different from the file and from all others."""
    tree = ast.parse(source)
    seen = {ast.unparse(tree)}
    found = []
    for place in list(_places(tree, None, "")):
        original, before = place.get(), place.headline()
        for changed in _changes(original):
            place.put(ast.copy_location(changed, original))
            text = ast.unparse(ast.fix_missing_locations(tree))
            if text not in seen:
                seen.add(text)
                found.append(Mutant(original.lineno, place.where, before, place.headline(), text))
            place.put(original)
    return found


class _Place(NamedTuple):
    """Where a node hangs in the tree."""

    parent: ast.AST
    field: str
    index: int | None
    statement: ast.stmt | None
    """The smallest statement around it."""
    where: str

    def get(self) -> ast.AST:
        held = getattr(self.parent, self.field)
        return held if self.index is None else held[self.index]

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node

    def headline(self) -> str:
        node = self.get()
        return ast.unparse(node if isinstance(node, ast.stmt) else self.statement or node).partition("\n")[0]


def _places(node: ast.AST, statement: ast.stmt | None, where: str) -> Iterator[_Place]:
    """All places below a node but those in annotations, decorators, `raise` and docstrings."""
    if isinstance(node, ast.Raise):
        return
    statement = node if isinstance(node, ast.stmt) else statement
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        where = f"{where}.{node.name}".lstrip(".")
    for field, held in ast.iter_fields(node):
        if field in UNTOUCHED:
            continue
        for index, child in enumerate(held) if isinstance(held, list) else [(None, held)]:
            if isinstance(child, ast.AST):
                if hasattr(child, "lineno"):
                    yield _Place(node, field, index, statement, where)
                yield from _places(child, statement, where)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    match node:
        case ast.BinOp(left, op, right):
            yield from (ast.BinOp(left, other(), right) for other in OTHER_OPERATOR.get(type(op), ()))
            yield from (left, right)
        case ast.UnaryOp(ast.USub() | ast.Not() | ast.Invert(), operand):
            yield operand
        case ast.Compare(left, [op], comparators):
            yield from (ast.Compare(left, [other()], comparators) for other in OTHER_OPERATOR[type(op)])
        case ast.BoolOp(op, values):
            yield ast.BoolOp(OTHER_OPERATOR[type(op)][0](), values)
            yield from values
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.IfExp(test, body, orelse):
            yield from (body, orelse, ast.IfExp(test, orelse, body))
        case ast.If(test, body, orelse):
            yield from (ast.If(changed, body, orelse) for changed in _conditions(test))
        case ast.ListComp() | ast.GeneratorExp() | ast.DictComp() | ast.SetComp():
            yield from _comprehensions(node)
        case ast.Dict(keys, values):  # a table that names the wrong formula
            yield from (ast.Dict(keys, _swapped(values, i)) for i in range(len(values) - 1))
        case ast.AugAssign(target, op, value):
            yield from (ast.AugAssign(target, other(), value) for other in OTHER_OPERATOR.get(type(op), ()))
            yield from (ast.Assign([target], value), ast.Pass())
        case ast.Expr(ast.Call()):
            yield ast.Pass()
        case ast.Call():
            yield from _calls(node)


def _conditions(test: ast.expr) -> list[ast.expr]:
    return [ast.UnaryOp(ast.Not(), test), ast.Constant(True), ast.Constant(False)]


def _comprehensions(node: ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp) -> Iterator[ast.AST]:
    """The same without, or with the opposite of, its condition."""
    for number, loop in enumerate(node.generators):
        for test in _conditions(loop.ifs[0])[:2] if loop.ifs else []:
            changed = ast.comprehension(loop.target, loop.iter, [test, *loop.ifs[1:]], loop.is_async)
            fields = dict(ast.iter_fields(node))
            fields["generators"] = [*node.generators[:number], changed, *node.generators[number + 1 :]]
            yield type(node)(**fields)


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    """Another function, arguments in another order or missing, or no call at all."""
    func, args, keywords = node.func, node.args, node.keywords
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    if name in OTHER_CALL:
        renamed = ast.Attribute(func.value, OTHER_CALL[name]) if isinstance(func, ast.Attribute) else None
        yield ast.Call(renamed or ast.Name(OTHER_CALL[name]), args, keywords)
    if name in IDENTITIES:
        of_module = isinstance(func, ast.Name) or ast.unparse(func.value) in ("torch", "math", "np")
        yield args[0] if of_module else func.value
    if name == "where" and len(args) == 3:
        yield from args[1:]
    if name == "clamp" and len(args) == 2:
        yield from (ast.Call(func, [], [ast.keyword(bound, args[i])]) for i, bound in enumerate(("min", "max")))
    if name not in SYMMETRIC:
        yield from (ast.Call(func, _swapped(args, i), keywords) for i in range(len(args) - 1))
    yield from (ast.Call(func, args, keywords[:i] + keywords[i + 1 :]) for i in range(len(keywords)))


def _swapped(items: list[ast.expr], i: int) -> list[ast.expr]:
    """With the items i and i + 1 in each other's place."""
    return [*items[:i], items[i + 1], items[i], *items[i + 2 :]]
