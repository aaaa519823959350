"""Recipes that come with the package, and how one is found by its name."""

import difflib
from pathlib import Path

SHIPPED = Path(__file__).parents[1] / "recipes"
"""Their folder. In the repository `recipes` is a link to it."""
_LINK = "recipes"
"""What their folder is called in the documents: `recipes/ppo.toml` is found where there is no checkout, too."""
_SUFFIX = ".toml"


def recipe_file(name: str, folder: Path) -> Path:
    """The recipe of that name: the file in a folder, else the one that is shipped.

    A shipped one is found as `algorithms/dapo.toml`, `algorithms/dapo`, `arithmetic` or `recipes/arithmetic.toml`.
    Where there is neither, the path in the folder is given back, whose reading says what is missing.

    >>> recipe_file("arithmetic", Path("nowhere")).name
    'arithmetic.toml'
    """
    near = folder / name
    return near if near.is_file() else _shipped(name) or near


def _shipped(name: str) -> Path | None:
    parts = Path(name).parts
    if Path(name).is_absolute() or ".." in parts:
        return None
    inside = Path(*parts[1:]) if parts[:1] == (_LINK,) else Path(name)
    files = (SHIPPED / inside, (SHIPPED / inside).with_name(inside.name + _SUFFIX)) if inside.name else ()
    return next((file for file in files if file.is_file()), None)


def recipe_names() -> list[str]:
    """The names of the shipped recipes that can be run, without those that others extend."""
    return sorted(file.stem for file in SHIPPED.glob(f"*{_SUFFIX}"))


def no_recipe(path: Path) -> str:
    """What to say where there is no recipe: the nearest of the shipped ones, and all of them."""
    names = recipe_names()
    nearest = difflib.get_close_matches(path.stem, names, n=1, cutoff=0.6)
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    return f"there is no recipe {path}; {hint}Groupwise brings {', '.join(names)}"
