"""Docstrings of installed packages, as a source of real text for `groupwise pipeline recipes/recall.toml`."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from pydantic import Field

from groupwise.errors import ConfigError
from groupwise.randomness import permutation
from groupwise.recall.page import RawPage, Truth, Unreadable
from groupwise.recall.sources import PageSource

MIN_DOCSTRING = 200
"""Shortest text, in characters."""


class Docstrings(PageSource):
    """Docstrings of the functions of installed packages."""

    mathematics: tuple[str, ...] = ("mpmath", "sympy.ntheory", "sympy.functions", "sympy.combinatorics")
    """Packages whose docstrings are mathematics."""
    others: tuple[str, ...] = ("networkx.algorithms", "asyncio", "email", "http", "logging")
    """Packages whose docstrings are technical, and no mathematics."""
    known: int = Field(0, ge=0)
    """Docstrings of the first mathematical package that are known before the first round, beside the texts of `begin`.
    With 0 the rounds find no docstring: none of those texts looks like one."""

    def seed_texts(self, seed: int, number: int) -> list[str]:
        return [] if self.known else super().seed_texts(seed, number)  # `known_texts` come in any case

    def known_texts(self, seed: int) -> list[str]:
        if not self.known or not self.mathematics:
            return []
        found, _ = docstrings(self.mathematics[0])
        if self.known > len(found):
            raise ConfigError(f"known = {self.known}, but {self.mathematics[0]} has {len(found)} docstrings")
        order = permutation(len(found), "known docstrings", seed)[: self.known]
        return [found[number][1] for number in order.tolist()]

    def pages(self, seed: int, max_bytes: int) -> Iterator[RawPage | Unreadable]:
        for is_mathematics, names in ((True, self.mathematics), (False, self.others)):
            for name in names:
                found, unreadable = docstrings(name)
                yield from unreadable
                for place, text in found:
                    truth = Truth("docstrings", is_mathematics)
                    url = f"https://{name.partition('.')[0]}.docs.example/{'/'.join(place.split('.')[1:-1])}/{place}"
                    yield RawPage(url, text, False, place, truth)


def docstrings(name: str) -> tuple[list[tuple[str, str]], list[Unreadable]]:
    """Return dotted name and docstring of everything public in a package, each text once, and unimportable modules."""
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"the docstrings of {name} cannot be read: {error}") from None
    modules = [package, *_modules(package)]
    found: dict[str, str] = {}
    for module in (module for module in modules if isinstance(module, ModuleType)):
        for key, member in sorted(vars(module).items()):
            text = getattr(member, "__doc__", None) if not isinstance(member, ModuleType) else None
            is_of_package = str(getattr(member, "__module__", "") or "").startswith(name.partition(".")[0])
            is_public = is_of_package and not key.startswith("_")
            if is_public and isinstance(text, str) and len(text) >= MIN_DOCSTRING:
                found.setdefault(text, f"{module.__name__}.{key}")
    unreadable = [module for module in modules if isinstance(module, Unreadable)]
    return sorted((place, text) for text, place in found.items()), unreadable


def _modules(package: ModuleType) -> Iterator[ModuleType | Unreadable]:
    # a package that cannot be imported is listed all the same, and named when it is its turn below
    found = pkgutil.walk_packages(getattr(package, "__path__", ()), f"{package.__name__}.", onerror=lambda name: None)
    for name in sorted(info.name for info in found):
        if any(part in ("tests", "conftest", "__main__", "benchmarks") for part in name.split(".")):
            continue
        try:
            yield importlib.import_module(name)
        except Exception as error:  # whatever code of others raises, for example where a package is not installed
            yield Unreadable(name, f"a module that cannot be imported ({type(error).__name__}: {error})")
