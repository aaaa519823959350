"""docs/compared.md names a test for every difference, and no test that does not exist."""

import re
from pathlib import Path

HERE = Path(__file__).parent
DOCUMENT = (HERE.parents[1] / "docs/compared.md").read_text(encoding="utf-8")


def test_every_difference_is_in_the_document() -> None:
    files = [HERE / "test_advantages.py", HERE / "test_differences.py"]
    tests = [name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)]
    assert len(tests) > 15
    assert set(re.findall(r"`(test_\w+)`", DOCUMENT)) == set(tests)
