"""`groupwise explore`: pages about runs in a browser, or in one file."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import app, console, refuse
from groupwise.errors import ConfigError


@app.command()
def explore(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="[RUN]...",
        help="Run directories; default: those in `runs`.")] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one page (.html) that needs no server, and end.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0: any that is free.")] = 0,
) -> None:  # fmt: skip
    """Look at runs in a browser: figures, steps, groups, completions token by token; and a group to play with.

    The pages are served to this machine alone, read run directories and change nothing; a live run may continue.

    Examples:

        groupwise explore runs/arithmetic

        groupwise explore runs/arithmetic --export page.html
    """
    from groupwise.cli.runs import RUNS, runs_in

    paths = runs or runs_in(RUNS)
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"{path} is not a run directory; `groupwise runs` lists the runs")
    if export is not None:
        refuse("with --export", port=port)
        from groupwise.explorer.export import write_export
        from groupwise.explorer.results import found_in

        found = found_in(paths)
        if not found.results and not any((run / "config.toml").exists() for run in found.runs):
            raise ConfigError(f"{', '.join(map(str, paths)) or RUNS} holds no run and no result to export")
        target = write_export(paths, export)
        console.print(f"{target}: {target.stat().st_size / 1e6:.1f} MB, opens without a server", soft_wrap=True)
        return
    from groupwise.explorer.server import serve

    def show(address: str) -> None:
        console.print(f"Open {address}\nOnly this address holds the token. Ctrl-C ends it.", soft_wrap=True)

    with suppress(KeyboardInterrupt):
        serve(paths, port, show)
