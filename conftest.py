"""Examples in docstrings are looked for only where there are some: to search every module takes seconds."""

from pathlib import Path

PACKAGE = Path(__file__).parent / "src"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a module of the package without examples."""
    if collection_path.suffix == ".py" and PACKAGE in collection_path.parents:
        return ">>>" not in collection_path.read_text(encoding="utf-8") or None
    return None
