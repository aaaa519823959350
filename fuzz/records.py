"""Fuzzes the readers of data: what a user's file holds is rows, or one sentence that names the file."""

import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["groupwise.runs.jsonl", "groupwise.tasks"]):
    from groupwise.errors import ConfigError, DataError
    from groupwise.tasks.conversations import said, tools_of
    from groupwise.tasks.data_files import answer_of, read_file

ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".jsonl.gz", ".json.zst")
FOLDER = Path(tempfile.mkdtemp())
MAX_S = 1.0


def check(data: bytes) -> None:
    """Properties of `read_file` and of what reads its records; the first byte chooses the format."""
    path = FOLDER / f"data{ENDINGS[data[0] % len(ENDINGS)] if data else ''}"
    path.write_bytes(data[1:])
    start = time.process_time()
    try:
        for record in read_file(path):
            json.dumps(record.fields, ensure_ascii=False).encode()
            for field in record.fields:
                for read in (partial(answer_of, pattern=None), said, lambda record, field: tools_of(record)):
                    try:
                        read(record, field)
                    except DataError as error:
                        assert str(error).startswith(record.place), "a fault names its record"  # noqa: PT017
    except (ConfigError, DataError) as error:
        assert str(path) in str(error), "a fault names its file"  # noqa: PT017
    assert time.process_time() - start < MAX_S, "reading takes linear time"


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
