"""The commands, a file each: what may be asked for. What a command does stands in the file of its name one folder up.

Heavy imports are inside the functions, so that `--help` and mistakes in a recipe answer at once. A new command is a
file here and its name in `COMMANDS`.
"""

from importlib import import_module
from importlib.metadata import entry_points

COMMANDS = (
    "init", "demo", "train", "preflight", "pipeline", "evaluate", "budget", "sample", "verify", "audit", "doctor",
    "replay", "explore", "imports", "report", "steps", "recall", "compare", "memory", "keys",
    "runs", "export", "new_model",
)  # fmt: skip
"""In the order of the help."""

for name in COMMANDS:
    import_module(f"{__name__}.{name}")

for point in entry_points(group="groupwise.command"):  # of installed packages; importing one registers it
    point.load()
