"""`groupwise init`: a small project with a reward, data, a recipe and a test, that trains at once."""

from pathlib import Path

from groupwise.errors import ConfigError
from groupwise.runs.atomic import translated_disk_errors, write_file

PROJECT = Path(__file__).parent / "project"
"""The files; those of `WITH_NAMES` have placeholders for the directory's path and name."""
WITH_NAMES = ("recipe.toml", "README.md")


def write_project(directory: Path) -> list[Path]:
    """Write the project's files.

    Raises:
        ConfigError: the directory exists and is not empty.
    """
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise ConfigError(f"{directory} exists and is not an empty directory: name a new one")
    files = []
    with translated_disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for file in sorted(path for path in PROJECT.iterdir() if path.is_file()):
            text = file.read_text(encoding="utf-8")
            if file.name in WITH_NAMES:
                text = text.format(directory=directory, name=directory.resolve().name)
            write_file(directory / file.name, text.encode())
            files.append(directory / file.name)
    return files
