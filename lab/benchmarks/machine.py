"""Facts of the machine for the benchmarks: its name, its speed in matrix products, the memory of this process."""

import contextlib
import os
import platform
import resource
import sys
import time
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def describe() -> str:
    """Processor, cores, threads and torch's version in one line."""
    return f"{_processor()}, {_cores()} cores, {torch.get_num_threads()} threads, torch {torch.__version__}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def gemm_rate(size: int = 2048, repeats: int = 10) -> float:
    """Floating point operations per second of an fp32 product of two square matrices, the fastest of the repeats."""
    left, right = torch.randn(size, size), torch.randn(size, size)
    out = torch.empty(size, size)
    best = float("inf")
    for _ in range(repeats + 2):  # the first two start threads and touch memory; they cannot be the fastest
        start = time.perf_counter()
        torch.mm(left, right, out=out)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def resident_bytes() -> int:
    """Resident memory of this process now (where the system does not tell: the most it ever had)."""
    return _status("VmRSS") or peak_bytes()


def forget_peak() -> None:
    """Let the peak start from what is resident now (Linux; elsewhere the peak is that of the whole process)."""
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5")


def peak_bytes() -> int:
    """Most resident memory since `forget_peak`.

    On Linux this is VmHWM; getrusage would also count what the parent had resident when it started this process.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(name: str) -> int:
    with contextlib.suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0
