"""What a process keeps of the memory that it has freed."""

import os
from collections.abc import Callable

import pytest

from groupwise.models import allocator

Calls = list[tuple[str, tuple[int, ...]]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What the C library is asked for; the user has set nothing."""
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_"))]:
        monkeypatch.delenv(name)
    made: Calls = []

    def function(name: str) -> Callable[..., int]:
        return lambda *arguments: made.append((name, arguments)) or 1

    monkeypatch.setattr(allocator, "_function", function)
    return made


def test_freed_memory_stays_for_the_next_step(calls: Calls) -> None:
    allocator.keep_freed_memory()
    assert calls == [("mallopt", (-1, 512 << 20)), ("mallopt", (-3, 32 << 20))]  # as in malloc.h


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"])
def test_a_users_own_setting_wins(calls: Calls, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    allocator.keep_freed_memory()
    assert not calls


def test_memory_can_be_given_back(calls: Calls) -> None:
    allocator.return_freed_memory()
    assert calls == [("malloc_trim", (0,))]


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_function", lambda name: None)
    allocator.keep_freed_memory()
    allocator.return_freed_memory()
