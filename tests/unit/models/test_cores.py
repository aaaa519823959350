"""Work on several cores: the same results in the same order for any number of threads; a busy core is left alone."""

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from groupwise.models import cores
from groupwise.models.cores import WAITING, CoreMeter, Sharing, in_threads

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def four_threads() -> Iterator[None]:
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(1)


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="this system has no large pages")
@pytest.mark.parametrize(("setting", "asks"), [({}, True), ({"THP_MEM_ALLOC_ENABLE": "0"}, False)])
def test_large_tensors_ask_for_large_pages_unless_the_user_says_no(setting: dict[str, str], asks: bool) -> None:
    look = """
import torch, groupwise.models.cores
large = torch.ones(1 << 20)
for first, *words in map(str.split, open("/proc/self/smaps")):
    if not first.endswith(":"):
        begin, end = (int(number, 16) for number in first.split("-"))
        lies = begin <= large.data_ptr() < end
    elif lies and first == "VmFlags:":
        print("hg" in words)
"""
    others = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    done = subprocess.run([sys.executable, "-c", look], env={**others, **setting}, capture_output=True, text=True)
    assert done.stdout.split() == [str(asks)], done.stderr


def test_results_come_in_the_order_of_the_items_whoever_is_first() -> None:
    def work(item: int) -> int:
        time.sleep(0.01 * (item % 3 == 0))
        return item * item

    assert list(in_threads(work, range(20), CPU)) == [item * item for item in range(20)]


@pytest.mark.parametrize(("num_items", "each"), [(1, 4), (2, 2), (3, 1), (9, 1)])
def test_workers_share_out_the_threads_and_the_caller_keeps_its_own(num_items: int, each: int) -> None:
    assert set(in_threads(lambda _: torch.get_num_threads(), range(num_items), CPU)) == {each}
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert [torch.get_num_threads(), *later] == [4, 4]


def test_no_more_than_so_many_are_in_hand() -> None:
    begun = 0

    def work(item: int) -> int:
        nonlocal begun
        begun += 1
        return item

    for number in in_threads(work, range(100), CPU):
        assert begun <= number + 1 + 4 + WAITING


def test_work_within_work_stays_in_its_thread() -> None:
    def outer(item: int) -> list[str]:
        return list(in_threads(lambda _: threading.current_thread().name, range(3), CPU))

    assert all(len(set(names)) == 1 for names in in_threads(outer, range(8), CPU))


def test_an_error_is_raised_and_nothing_is_left_running() -> None:
    finished: list[int] = []

    def work(item: int) -> int:
        if item == 3:
            raise ValueError("the third")
        time.sleep(0.02)
        finished.append(item)
        return item

    with pytest.raises(ValueError, match="the third"):
        list(in_threads(work, range(40), CPU))
    count = len(finished)
    time.sleep(0.1)
    assert len(finished) == count < 10


@pytest.mark.parametrize("enabled", [True, False])
def test_gradients_are_recorded_where_the_caller_records_them(enabled: bool) -> None:
    with torch.set_grad_enabled(enabled):
        assert set(in_threads(lambda _: torch.is_grad_enabled(), range(6), CPU)) == {enabled}


def test_elsewhere_one_follows_the_other() -> None:
    def name(_: int) -> str:
        return threading.current_thread().name

    assert set(in_threads(name, range(6), torch.device("meta"))) == {threading.current_thread().name}


def test_a_forked_process_has_workers_of_its_own() -> None:
    list(in_threads(str, range(6), CPU))
    child = os.fork()
    if child == 0:
        os._exit(0 if list(in_threads(str, range(6), CPU)) == [str(i) for i in range(6)] else 1)
    deadline = time.monotonic() + 20
    while (status := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert status == (child, 0)


STAT = """cpu  0 0 0 0 0 0 0 0 0 0
cpu0 {} 7 {} 900 5 {} {} {} 0 0
cpu1 {} 0 0 0 0 0 0 0 0 0
cpu2 9999 0 0 0 0 0 0 0 0 0
intr 5
"""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """machine(second, own, cpu0..., cpu1): a machine of two cores for this process, at a moment."""
    monkeypatch.setattr(cores, "_STAT", tmp_path / "stat")
    monkeypatch.setattr(cores, "_PROCESSES", tmp_path)
    monkeypatch.setattr(cores, "_TICKS", 100)
    monkeypatch.setattr(cores, "_GIVES_WAY", False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})

    def at(second: float, own: float, *ticks: int) -> None:
        (tmp_path / "stat").write_text(STAT.format(*ticks))
        monkeypatch.setattr(time, "monotonic", lambda: second)
        monkeypatch.setattr(time, "process_time", lambda: own)

    return at


def test_what_others_use_is_what_is_busy_without_our_own_time(machine: Callable[..., None]) -> None:
    machine(10.0, 1.0, 100, 10, 1, 2, 3, 50)
    meter = CoreMeter()
    # 2 s later: 150 + 10 + 1 + 2 + 7 ticks on the first core, 130 on the second, 1.2 s of them ours; 300 - 120 in 2 s
    machine(12.0, 2.2, 250, 20, 2, 4, 10, 180)
    assert meter.num_cores == 2
    assert meter.others() == pytest.approx((1.70 + 1.30 - 1.20) / 2)
    machine(13.0, 4.2, 300, 20, 2, 4, 10, 200)  # clocks tick at different times: never below 0
    assert meter.others() == 0.0


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="Linux tells what processes use")
def test_a_process_that_was_started_is_not_another_program() -> None:
    meter, burn = CoreMeter(), "import time\nwhile time.process_time() < 0.6: pass\n"
    nested = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\nimport time\ntime.sleep(9)"
    before = cores._started_seconds()
    with subprocess.Popen([sys.executable, "-c", nested]) as process:
        deadline = time.monotonic() + 60
        while (alive := cores._started_seconds()) - before < 0.5 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
    assert 0.5 <= alive - before < 2
    assert cores._started_seconds() - before < 2  # what ended counts once
    assert meter.others() >= 0


def test_products_are_split_over_the_cores_that_others_leave(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cores._meter.cache_clear()
    monkeypatch.setattr(cores, "_asked_for", False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(2)
    machine(0.0, 0.0, 0, 0, 0, 0, 0, 0)
    seen = []
    with Sharing() as sharing:
        # others use 0, 0.4, 0.6, 2, 2 (too soon to look), 0 cores
        for second, first, number in ((1, 0, 2), (2, 40, 2), (3, 100, 1), (4, 300, 1), (4.1, 300, 1), (5.1, 300, 2)):
            machine(second, 0.0, first, 0, 0, 0, 0, 0)
            sharing.look()
            seen.append((second, torch.get_num_threads(), number))
        torch.set_num_threads(1)
    cores._meter.cache_clear()
    assert [found for _, found, _ in seen] == [number for *_, number in seen]
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("how", ["OMP_NUM_THREADS", "model.num_threads"])
def test_a_number_of_threads_that_was_asked_for_stays(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    cores._meter.cache_clear()
    monkeypatch.setattr(cores, "_asked_for", False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if how == "OMP_NUM_THREADS":
        monkeypatch.setenv(how, "2")
    else:
        cores.ask_for_threads(4)
    machine(0.0, 0.0, 0, 0, 0, 0, 0, 0)
    with Sharing() as sharing:
        machine(5.0, 0.0, 500, 0, 0, 0, 0, 500)
        sharing.look()
        assert torch.get_num_threads() == 4


def test_a_system_that_does_not_tell_has_no_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cores, "_STAT", tmp_path / "missing")
    assert CoreMeter().others() == 0.0


@pytest.mark.parametrize(
    ("groups", "files", "cores_allowed"),
    [
        ("0::/a/b", {"cpu.max": "max 100000", "a/cpu.max": "250000 100000", "a/b/cpu.max": "300000 100000"}, 2.5),
        ("0::/elsewhere", {"cpu.max": "150000 100000"}, 1.5),  # from inside, where the own group is the root
        ("0::/", {"cpu.max": "max 100000"}, math.inf), ("0::/", {}, math.inf), ("", {}, math.inf),
        ("4:memory:/x\n3:cpuacct,cpu:/x\n0::/", {"cpu/x/cpu.cfs_quota_us": "50000\n",
                                               "cpu/x/cpu.cfs_period_us": "100000\n"}, 0.5),
        ("3:cpu:/x", {"cpu/x/cpu.cfs_quota_us": "-1", "cpu/x/cpu.cfs_period_us": "100000"}, math.inf),
        ("3:cpuset:/x", {"cpu/x/cpu.cfs_quota_us": "50000", "cpu/x/cpu.cfs_period_us": "100000"}, math.inf),
    ],
)  # fmt: skip
def test_a_containers_quota_bounds_the_threads(
    groups: str, files: dict[str, str], cores_allowed: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "_CONTROL", tmp_path / "control")
    monkeypatch.setattr(cores, "_GROUPS", tmp_path / "cgroup")
    (tmp_path / "cgroup").write_text(groups)
    for name, text in files.items():
        (tmp_path / "control" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "control" / name).write_text(text)
    assert cores.quota() == cores_allowed
    used: list[int] = []
    with monkeypatch.context() as patch:  # what runs after the test sets threads, too
        patch.setattr(torch, "set_num_threads", used.append)
        patch.setattr(torch, "get_num_threads", lambda: 8)
        patch.delenv("OMP_NUM_THREADS", raising=False)
        patch.setattr(cores, "_asked_for", False)
        cores.keep_to_quota()
    assert used == ([max(1, int(cores_allowed))] if cores_allowed < 8 else [])
