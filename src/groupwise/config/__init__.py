"""Recipes: TOML files read into frozen pydantic models, strictly.

The models themselves stand beside the component that reads them (a task's dials in the task, the optimizer's in
`training`). Here is what all of them share: `recipes` reads and writes files, `kinds` has the base of all sections and
those that are chosen by name, `schema` walks them, `places` loads the user's own Python.
"""

from groupwise.config.kinds import ARTIFACTS, FOLDER, KindSection, ReadIf, Section
from groupwise.config.places import RECIPES
from groupwise.config.recipes import (
    Changes,
    Source,
    as_overrides,
    dump_toml,
    load,
    merged,
    named,
    overridden,
    parse,
    read_recipe,
    read_toml,
    recipe_file,
    recipe_names,
    toml_literal,
)

__all__ = [
    "ARTIFACTS", "FOLDER", "RECIPES", "Changes", "KindSection", "ReadIf", "Section", "Source", "as_overrides",
    "dump_toml", "load", "merged", "named", "overridden", "parse", "read_recipe", "read_toml", "recipe_file",
    "recipe_names", "toml_literal",
]  # fmt: skip
