"""The planted faults are found by name, where the benchmark of the doctor has them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "lab" / "benchmarks" / "doctor"))
