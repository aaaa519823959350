"""The sandbox and the code verifier, measured: speed, reference solutions, mutants, attacks.

Run as `python lab/benchmarks/sandbox.py`; it prints and needs HumanEval, MBPP and the attack probes below `--data-dir`.
"""

import argparse
import ast
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from groupwise.checks.audit.sandbox import read_probes, run_probes
from groupwise.sandbox.base import Program, Sandbox, SandboxConfig
from groupwise.sandbox.opening import open_sandbox
from groupwise.tasks import make_task
from groupwise.types import Outcome, Problem
from groupwise.verifiers import Request
from groupwise.verifiers.code import CodeVerifier

FILES = {"humaneval": "humaneval/HumanEval.jsonl.gz", "mbpp": "mbpp/mbpp.jsonl"}
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def main() -> None:
    """Measure and print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path("../shared/data"))
    parser.add_argument("--mutants", type=int, default=100, help="problems to mutate")
    data = parser.parse_args()
    start = time.monotonic()
    with open_sandbox(SandboxConfig()) as sandbox:
        print(f"opening with self-test    {time.monotonic() - start:.2f} s")
        speed(sandbox)
        for name, file in FILES.items():
            problems = make_task(
                {"kind": "code", "path": str(data.data_dir / file), "format": name, "only_test": True}
            ).problems("test")
            references(sandbox, name, problems)
            mutants(sandbox, name, problems, data.mutants // len(FILES))
        attacks(sandbox, data.data_dir / "attack_probes" / "code.jsonl")


def speed(sandbox: Sandbox, count: int = 1000) -> None:
    """Programs per second."""
    programs = [Program("print(sum(map(int, input().split())))", stdin=b"1 2 3")] * count
    start = time.monotonic()
    results = sandbox.run_many(programs)
    seconds = time.monotonic() - start
    assert all(result.stdout == b"6\n" for result in results)
    print(f"programs per second       {count / seconds:.0f} ({sandbox.config.num_workers} workers, {count} programs)")


def references(sandbox: Sandbox, name: str, problems: Sequence[Problem]) -> None:
    """Reference solutions that pass."""
    start = time.monotonic()
    outcomes = judge(sandbox, [(problem, problem.reference) for problem in problems])
    failed = [problem.id for problem, outcome in zip(problems, outcomes, strict=True) if outcome != Outcome.CORRECT]
    passed = len(problems) - len(failed)
    print(f"{name:25} {passed}/{len(problems)} references pass, {time.monotonic() - start:.1f} s; not: {failed}")


def mutants(sandbox: Sandbox, name: str, problems: Sequence[Problem], count: int) -> None:
    """Wrong mutants that fail: wrong is what, run plainly on the tests' arguments, prints something else."""
    plain_tests = [problem for problem in problems if problem.data["form"] == "calls"]
    chosen = plain_tests[:: len(plain_tests) // count][:count]
    made = [(problem, source) for problem in chosen for source in mutate(problem)]
    plain = sandbox.run_many([plain_program(problem, source) for problem, source in made])
    references = sandbox.run_many([plain_program(problem, problem.reference) for problem in chosen])
    expected = {problem.id: result for problem, result in zip(chosen, references, strict=True)}
    wrong = [one for one, result in zip(made, plain, strict=True) if result.stdout != expected[one[0].id].stdout]
    outcomes = judge(sandbox, wrong)
    accepted = [problem.id for (problem, _), outcome in zip(wrong, outcomes, strict=True) if outcome != Outcome.WRONG]
    print(
        f"{name + ' mutants':25} {len(wrong) - len(accepted)}/{len(wrong)} wrong ones of {len(chosen)} problems fail, "
        f"{len(made) - len(wrong)} behave the same on the tests; not: {accepted}"
    )


def mutate(problem: Problem) -> Iterator[str]:
    """Programs with one change each: every return gives None, one constant off by one, one operator swapped."""
    tree = ast.parse(problem.reference)
    yield ast.unparse(NoReturn().visit(ast.parse(problem.reference)))
    for number, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            yield changed(problem.reference, number)
            break
    for number, node in enumerate(ast.walk(tree)):
        if (isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS) or isinstance(node, ast.Compare):
            yield changed(problem.reference, number)
            break


class NoReturn(ast.NodeTransformer):
    """Every return returns None."""

    def visit_Return(self, node: ast.Return) -> ast.Return:
        return ast.Return(ast.Constant(None))


def changed(source: str, number: int) -> str:
    """The source with its so-manieth node changed."""
    tree = ast.parse(source)
    node = list(ast.walk(tree))[number]
    if isinstance(node, ast.Constant):
        node.value += 1
    elif isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = SWAPS[type(node.op)]()
    elif isinstance(node, ast.Compare):
        node.ops[0] = SWAPS.get(type(node.ops[0]), ast.NotIn)()
    return ast.unparse(tree)


def plain_program(problem: Problem, source: str) -> Program:
    """Prints, apart from the verifier's protocol, what a source returns for the tests' arguments."""
    calls = "".join(
        f"\ntry: print(repr({problem.data['entry_point']}(*{call['args']})))\nexcept Exception: print('raised')"
        for call in problem.data["calls"]
    )
    return Program(f"{source}\n{calls}")


def judge(sandbox: Sandbox, answers: Sequence[tuple[Problem, str]]) -> list[Outcome]:
    """Verdicts on sources, each in the form of a completion."""
    verifier = CodeVerifier(CodeVerifier.Config(kind="code"), sandbox)
    requests = [Request(problem, f"<think></think>\n```python\n{source}\n```") for problem, source in answers]
    return [verdict.outcome for verdict in verifier.verify_many(requests)]


def attacks(sandbox: Sandbox, file: Path) -> None:
    """One line per attack."""
    results = run_probes(sandbox, read_probes(file))
    print(f"attacks                   {sum(result.contained for result in results)}/{len(results)} contained")
    for result in sorted(results):
        what = "contained" if result.contained else "ESCAPED  "
        print(f"  {result.id:6} {what}  {' '.join(result.evidence.split())[:90]}")


if __name__ == "__main__":
    main()
