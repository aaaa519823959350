"""The interface of sandboxes: they run untrusted programs and return what became of them, as plain data."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from groupwise.config import Section

MAX_PROCESSES = 16  # threads of a Python program, which starts no processes; processes and threads of a command
FILES_MB = 16  # writable temporary space in MiB
OUTPUT_KB = 256  # output that is read, per stream, where a program states no other number


class Closing:
    """A part that may start something (a verifier, a tool, a sandbox); `with part:` ends it."""

    def close(self) -> None:
        """End what was started. The part may be used again afterwards."""
        return  # most start nothing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SandboxConfig(Section):
    """Confinement of programs."""

    tier: Literal["bubblewrap", "landlock", "remote"] = "bubblewrap"
    """`bubblewrap`: own namespaces, seccomp, limits (Debian package `bubblewrap`). `landlock`: weaker, shares process
    and network namespaces with the host, no threads, no files; for containers that forbid namespaces. `remote`: an
    HTTP executor at `url`. No other tier takes the place of one that does not open here: that is an error."""
    url: str = ""
    """Address of the remote executor; only with `tier = "remote"`."""
    num_workers: int = Field(default=2, ge=1)
    """Programs that run at one time."""
    wall_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Seconds of wall-clock time a program may take; the parent keeps this deadline. It is meant for programs that
    wait: the others end by `cpu_s`, which does not depend on how busy the machine is."""
    cpu_s: int = Field(default=2, ge=1)
    """Seconds of processor time a process may take."""
    memory_mb: int = Field(default=512, ge=128)
    """Memory of a process in MiB (its address space, the interpreter included); of a command together, where control
    groups can be made."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if (self.tier == "remote") != bool(self.url):
            raise ValueError('`url` is needed with tier = "remote" and allowed only there')
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url {self.url!r} must begin with http:// or https://")
        return self


class Status(StrEnum):
    """End of a program."""

    EXITED = "exited"  # it ended without a signal; its status is `exit_code`
    SIGNALLED = "signalled"  # a signal ended it (a limit, a crash)
    TIMEOUT = "timeout"  # the deadline passed and it was killed
    FLOODED = "flooded"  # it wrote more than its `output_kb` and was killed
    FAILED = "failed"  # the sandbox (not the program) failed: nothing is known about the program


class Limits(NamedTuple):
    """Limits of one run."""

    wall_s: float
    cpu_s: int
    memory_mb: int
    max_processes: int = MAX_PROCESSES
    files_mb: int = FILES_MB


@dataclass(frozen=True, slots=True)
class Program:
    """One program to run: a Python source, or a command over files."""

    source: str = ""
    """Python source run as `__main__` in a fresh process of this interpreter, with the standard library only."""
    command: tuple[str, ...] = ()
    """Instead of a source: a program of the host's /usr and its arguments, for example ("coqc", "proof.v")."""
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files by plain name, readable in the working directory when it starts."""
    wall_s: float | None = None  # deadline in seconds; None: the configuration's
    cpu_s: int | None = None  # processor time in seconds; None: the configuration's
    memory_mb: int | None = None  # memory in MiB (a source: at most the configuration's); None: the configuration's
    output_kb: int = OUTPUT_KB  # output in KiB that is read, per stream; a program that writes more is ended

    def __post_init__(self) -> None:
        for name in self.files:
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise ValueError(f"a program's file is named {name!r}; a plain name without a slash is allowed")

    def limits(self, config: SandboxConfig) -> Limits:
        return Limits(self.wall_s or config.wall_s, self.cpu_s or config.cpu_s, self.memory_mb or config.memory_mb)


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a program. Its output comes from an attacker: never evaluate or trust it."""

    status: Status
    exit_code: int | None  # exit status, or minus the signal's number; None when the parent killed it or it never ran
    stdout: bytes
    stderr: bytes
    seconds: float
    evidence: str = ""  # explanation for a person where the status alone does not suffice

    @property
    def ending(self) -> str:
        """Describe the end, with the last line of its errors, for a person."""
        words = self.stderr.decode("utf-8", errors="replace").strip().splitlines()
        last = f" ({words[-1][:200]})" if words and self.exit_code else ""
        return f"{self.evidence or 'it ended early'}{last}"


class Sandbox(Closing, ABC):
    """Runs programs; made by `open_sandbox`, which first proves that the confinement holds."""

    config: SandboxConfig

    @abstractmethod
    def run_all(self, runs: Sequence[Sequence[Program]]) -> list[list[RunResult]]:
        """Return the results of every run, in the same order. A run leaves nothing behind.

        A run is a program alone, or a tester and a solver, each in its sandbox, that talk: the output of each is the
        other's input. The tester is trusted: it holds what the solver must not see, and reports on standard error.
        """

    def run_many(self, programs: Sequence[Program]) -> list[RunResult]:
        return [result for (result,) in self.run_all([(program,) for program in programs])]

    def run(self, program: Program) -> RunResult:
        return self.run_many([program])[0]
