"""Groupwise: reinforcement learning that teaches language models to reason.

    import groupwise as gw

    run = gw.train(gw.load_recipe("recipes/arithmetic.toml", {"run.num_steps": 3}))
    run.steps().to_pandas()

The names stand in `__init__.pyi`, which type checkers read, too. Each is what the command line itself calls, and is
imported when it is first used, so that `import groupwise` loads neither torch nor transformers.
"""

import re
from importlib import import_module
from pathlib import Path

__version__ = "0.1.0"

_NAME = re.compile(r"^from (\S+) import (\w+)(?: as \2)?(?:\s+(\w+) = \2)?$", re.MULTILINE)
_PLACES = {
    name or attribute: (module, attribute)
    for module, attribute, name in _NAME.findall(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
}
"""By name, its module and its name there."""

__all__ = ["__version__", *_PLACES]


def __getattr__(name: str) -> object:
    """Import a name of the table when it is first used (PEP 562)."""
    if name not in _PLACES:
        raise AttributeError(f"module 'groupwise' has no attribute {name!r}; it has {', '.join(_PLACES)}")
    module, attribute = _PLACES[name]
    value = globals()[name] = getattr(import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
