"""`groupwise explore`: pages about runs in a browser, or in one file."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from groupwise.errors import ConfigError

FOLDER = Path("runs")


def run_explore(runs: Sequence[Path], export: Path | None, port: int, console: Console) -> None:
    """Serve the pages until Ctrl-C, or write them to a file."""
    paths = list(runs) or found_runs(FOLDER)
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"{path} is not a run directory; `groupwise runs` lists the runs")
    if export is not None:
        from groupwise.explorer.export import write_export

        target = write_export(paths, export)
        console.print(f"{target}: {target.stat().st_size / 1e6:.1f} MB, opens without a server", soft_wrap=True)
        return
    from groupwise.explorer.server import serve

    def say(address: str) -> None:
        console.print(f"Open {address}\nOnly this address holds the token. Ctrl-C ends it.", soft_wrap=True)

    serve(paths, port, say)


def found_runs(folder: Path) -> list[Path]:
    """Run directories in a folder, by name."""
    return sorted(
        config.parent for config in folder.glob("**/config.toml") if (config.parent / "ledger.jsonl").exists()
    )
