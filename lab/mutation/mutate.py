"""Mutation run: for every small change of a formula some test must fail.

    python lab/mutation/mutate.py src/groupwise/algorithms [--file kl.py] [--tests tests/unit/algorithms]

The mutants of NAME.py are run against test_NAME.py and test_NAME_*.py, each in a forked child in which the changed
module stands in place of the real one, up to the first failure. Mutants that no test notices are listed. Those that
are no mistake are explained in survivors.toml beside this file; any other one makes the exit status 1, and so does an
explanation that no mutant needs.
"""

import argparse
import ast
import gc
import importlib
import linecache
import os
import signal
import sys
import time
import tomllib
import types
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a forked child has none of its parent's threads
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

import hypothesis
import pytest
from mutants import Mutant, mutants

HERE = Path(__file__).parent
FASTER = ["-x", "-q", "--noconftest", "--assert=plain", "--tb=no", "-p", "no:cacheprovider", "-p", "no:doctest"]
LEAST_TIMEOUT = 20.0
"""Seconds that a mutant's tests may take at least; beyond ten times what the real file's take they do not end."""


class Target(NamedTuple):
    """A file and its tests."""

    path: Path
    module: str
    """Its dotted name."""
    tests: list[str]


class Outcome(NamedTuple):
    """What became of a file's mutants."""

    survivors: list[Mutant]
    total: int
    seconds: float
    """Of processor time."""


def target(path: Path, tests: Path) -> Target:
    """The file's module name, from the packages around it, and its tests."""
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    found = [*tests.glob(f"test_{path.stem}.py"), *sorted(tests.glob(f"test_{path.stem}_*.py"))]
    return Target(path, ".".join(parts), [str(file) for file in found])


def mutated(one: Target) -> Outcome:
    """Run all mutants of a file.

    Raises:
        SystemExit: its tests fail, or do not exist, without any change.
    """
    source = one.path.read_text()
    _import_once(one)
    gc.freeze()  # the children's collections then pass over all of torch
    start, used = time.monotonic(), _processor_time()
    if not one.tests or _status(one, source, timeout=600.0) != pytest.ExitCode.OK:
        sys.exit(f"{one.path}: its tests {one.tests} do not pass without any change")
    timeout = max(LEAST_TIMEOUT, 10 * (time.monotonic() - start))
    every = mutants(source)
    statuses = [_status(one, mutant.source, timeout) for mutant in every]
    survivors = [mutant for mutant, status in zip(every, statuses, strict=True) if status == pytest.ExitCode.OK]
    return Outcome(survivors, len(every), _processor_time() - used)


def _processor_time() -> float:
    """Seconds that the children have used."""
    times = os.times()
    return times.children_user + times.children_system


def _import_once(one: Target) -> None:
    """Import what the module needs for all children, and forget the package's own part of it."""
    importlib.import_module(one.module)
    package = one.module.partition(".")[0]
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


def _status(one: Target, source: str, timeout: float) -> int | None:
    """Exit status of the file's tests with this source in its place; None when they did not end."""
    child = os.fork()
    if not child:
        _run_tests(one, source)
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _run_tests(one: Target, source: str) -> None:
    """In the child: put the module in place, run its tests silently, and exit with their status."""
    status = int(pytest.ExitCode.INTERNAL_ERROR)
    try:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)  # the first failure is enough
        hypothesis.settings.register_profile(
            "mutation", derandomize=True, database=None, deadline=None, phases=phases, max_examples=40
        )
        hypothesis.settings.load_profile("mutation")
        _put_in_place(one, source)
        status = int(pytest.main([*FASTER, *one.tests], plugins=[ExamplesFirst()]))
    finally:
        os._exit(status)


class ExamplesFirst:
    """Puts the tests that draw many random inputs behind all others: most mutants fall to a single example."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: hypothesis.is_hypothesis_test(item.obj))


def _put_in_place(one: Target, source: str) -> None:
    package, _, name = one.module.rpartition(".")
    module = types.ModuleType(one.module)
    module.__file__ = str(one.path)
    parent = importlib.import_module(package)
    sys.modules[one.module] = module
    # sections read the docstrings of their fields from the source, which is not what stands in the file
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(keepends=True), module.__file__)
    exec(compile(source, str(one.path), "exec"), module.__dict__)
    setattr(parent, name, module)


class Explanation(NamedTuple):
    """Why a survivor is no mistake: stays the same when lines move, break elsewhere, or their function is renamed."""

    file: str
    before: str
    """First line of the statement, however it is formatted."""
    after: str
    """The same line, changed."""
    where: str | None = None
    """The function, where the same line stands in several."""

    def explains(self, file: str, mutant: Mutant) -> bool:
        places = (None, mutant.where)
        return self.where in places and (self.file, self.before, self.after) == (file, mutant.before, mutant.after)


def explanations(file: Path) -> list[Explanation]:
    """Of all known survivors.

    Raises:
        SystemExit: one gives no reason.
    """
    entries = tomllib.loads(file.read_text())["survivor"] if file.exists() else []
    if unreasoned := [entry for entry in entries if not entry.get("why")]:
        sys.exit(f"{file}: no reason (`why`) is given for {unreasoned[0]}")
    return [
        Explanation(entry["file"], normalised(entry["before"]), normalised(entry["after"]), entry.get("where"))
        for entry in entries
    ]


def normalised(line: str) -> str:
    """First line of a statement as `ast.unparse` writes it."""
    return ast.unparse(ast.parse(f"{line} pass" if line.endswith(":") else line)).partition("\n")[0]


def main(argv: list[str] | None = None) -> int:
    """Run, report, and say whether every survivor is explained."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of the package whose files are changed")
    parser.add_argument("--file", help="only this one")
    parser.add_argument("--tests", type=Path, help="folder of its tests (default: tests/unit/NAME)")
    parser.add_argument("--survivors", type=Path, default=HERE / "survivors.toml", help="explanations")
    options = parser.parse_args(argv)
    tests = (options.tests or Path("tests/unit") / options.folder.name).resolve()
    files = [path for path in sorted(options.folder.resolve().glob("*.py")) if options.file in (None, path.name)]
    files = [path for path in files if path.read_text().strip()]
    if not files:
        parser.error(f"no file {options.file or '*.py'} in {options.folder}")
    names = {path.name for path in files}
    return report(files, tests, [one for one in explanations(options.survivors) if one.file in names])


def report(files: list[Path], tests: Path, reasons: list[Explanation]) -> int:
    """Run file by file and print counts and survivors; 1 where something is unexplained."""
    needed: set[Explanation] = set()
    left, counts = 0, [0, 0, 0]
    print(f"{'file':<22}{'mutants':>8}{'killed':>8}{'explained':>11}{'left':>6}{'seconds':>9}", flush=True)
    for path in files:
        outcome = mutated(target(path, tests))
        unexplained = []
        for mutant in outcome.survivors:
            fitting = {one for one in reasons if one.explains(path.name, mutant)}
            same = {m.where for m in outcome.survivors if any(one.explains(path.name, m) for one in fitting)}
            needed |= fitting
            if len(same) != 1:  # unknown, or in several functions of which the explanation does not name one
                unexplained.append(mutant)
        known = len(outcome.survivors) - len(unexplained)
        killed = outcome.total - len(outcome.survivors)
        print(f"{path.name:<22}{outcome.total:>8}{killed:>8}{known:>11}{len(unexplained):>6}{outcome.seconds:>9.1f}")
        for mutant in unexplained:
            print(f"  {path.name}:{mutant.line} {mutant.where}\n    - {mutant.before}\n    + {mutant.after}")
        sys.stdout.flush()
        left += len(unexplained)
        counts = [a + b for a, b in zip(counts, (outcome.total, killed, known), strict=True)]
    unused = [one for one in reasons if one not in needed]
    for one in unused:
        print(f"explained, but no survivor: {one.file} {one.where or ''}\n    - {one.before}\n    + {one.after}")
    print(f"{counts[0]} mutants, {counts[1]} killed, {counts[2]} explained, {left} left")
    return int(bool(left or unused))


if __name__ == "__main__":
    sys.exit(main())
