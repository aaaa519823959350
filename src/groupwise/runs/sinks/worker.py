"""The process of one sink: follows the run's metrics until the run ends, however that ends.

    python -m groupwise.runs.sinks.worker RUN NAME SETTINGS

Its standard input is the run's lifeline: nothing is ever sent, and it is closed when the run is over, or killed.
"""

import faulthandler
import json
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from groupwise.config import read_toml
from groupwise.runs.directory import RunDirectory
from groupwise.runs.sinks import SINKS, Line, SinkConfig, SinkFiles, SinkRun

LOOK_EVERY_S = 1.0  # seconds between two looks at the metrics
GRACE_S = 5.0  # seconds that the process of a killed run has beyond `wait_s`
NICENESS = 10  # the sink gives way to the run where both want the processor


def main(path: str, name: str, settings: str) -> int:
    """Feed a sink; returns the exit status."""
    lifeline = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # processes that the store starts must not hold the lifeline
    os.nice(NICENESS)
    files, ended = SinkFiles(Path(path), name), threading.Event()

    def watch(wait_s: float) -> None:
        os.read(lifeline, 1)  # returns at the run's end; the process may then hang in a library's C code
        faulthandler.dump_traceback_later(wait_s + GRACE_S, exit=True)
        ended.set()

    try:
        config = SINKS.read(json.loads(settings), base=SinkConfig)
        threading.Thread(target=watch, args=(config.wait_s,), daemon=True).start()
        with files.held():
            run, state = RunDirectory(files.run), files.read()
            sink = SINKS.find(config.kind)(config, SinkRun(files.run, state.id, read_toml(run.config)))
            tail, done = _Tail(run.metrics.path), False
            held = state.lines if sink.held is None else sink.held
            # by kind and step: where a finished run goes on, other lines stand in the places of its last ones
            known, number = (state.taken, state.lines) if state.taken and held >= state.lines else ({}, 0)
            taken = dict(known)
            while not done:
                done = ended.wait(LOOK_EVERY_S)  # before the look, so that the last one sees everything
                lines = list[Line]()
                for line in tail.fresh():
                    if line.step > known.get(line.kind, -1):
                        lines += [line._replace(number=number)] if number >= held else []
                        taken[line.kind], number = line.step, number + 1
                if lines:
                    sink.write(lines)
                    files.write(state := replace(state, lines=number, taken=taken))
            sink.close()
            files.write(replace(state, closed=True))
    except Exception as error:
        traceback.print_exc()
        said = " ".join(f"{type(error).__name__}: {error}".split())
        if isinstance(error, ModuleNotFoundError) and error.name in SINKS.table:
            said += f"; pip install 'groupwise[{error.name}]'"
        files.write(replace(files.read(), failed=said))
        return 1
    return 0


class _Tail:
    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def fresh(self) -> Iterator[Line]:
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for text in file:
                if not text.endswith(b"\n"):
                    return
                yield Line.of(json.loads(text))
                self._offset += len(text)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
