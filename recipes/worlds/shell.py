"""Files, a small shell, and a goal: what the model writes is run by `sh` in the sandbox, or not at all.

    [task.environment]
    kind = "shell"
    levels = ["write", "move", "remove", "collect", "count"]

Files are carried from command to command as data: each begins in a new sandbox with those that the one before has left,
all of the same age. With no program that reads a clock or draws at random, the files are a function of the turns. A
turn without a call ends the episode, and it earns 1 where the files are those of the goal.
"""

import asyncio
import io
import re
import tarfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from itertools import count
from typing import Literal, get_args

from pydantic import Field

from groupwise.errors import SandboxError
from groupwise.randomness import Draw, key
from groupwise.sandbox.base import Program, Sandbox, Status
from groupwise.sandbox.opening import open_sandbox
from groupwise.tasks.environments.base import Decided, EnvironmentConfig, Opening, Reply, Turn
from groupwise.tasks.environments.tools import Calling, CallingConfig, calling
from groupwise.types import Problem

Level = Literal["write", "move", "remove", "collect", "count"]
Files = Mapping[str, bytes]
"""Contents by path; the name of a directory ends in a slash."""

PROGRAMS = (
    "basename cat cp cut diff dirname expr find grep head join ls mkdir mv nl paste rev rm rmdir sed seq sort tac tail "
    "tee touch tr uniq wc xargs"
)
"""Programs that a command finds beside what `sh` itself can."""
OUTSIDE = re.compile(r"/(?:usr|s?bin|proc|sys|tmp|dev/(?!null\b))|\$\$")
"""Ways to other programs and to numbers that differ each time."""
MOST_OUTPUT = 4_000
"""Most bytes of the output of a command; the text is cut by `max_reply_tokens`, too."""
_RUN = f"""
mkdir files bin && ln -s {" ".join(f"/usr/bin/{name}" for name in PROGRAMS.split())} bin
tar -xf - -C files && cd files || exit 99
PATH=/tmp/bin TIME_STYLE=+ /usr/bin/sh ../command > ../said 2>&1 < /dev/null
code=$?
head -c {MOST_OUTPUT} ../said
tar -cf - --sort=name --hard-dereference . >&2 2> /dev/null
exit $code
"""
"""Runs a command; the files behind it go to the stream of errors."""
_NAMES = "amber birch coral delta ember fjord grove haze iris jade kelp lotus maple north olive pearl"
_WORDS = _NAMES.split()
_SUFFIXES = ("csv", "log", "txt")


class ShellConfig(CallingConfig):
    """Dials of the goals."""

    levels: tuple[Level, ...] = Field(get_args(Level), min_length=1)
    """Kinds of goals, each as often as it has new ones (`remove` has 240 in all): `write` a file, `move` some, `remove`
    some, `collect` lines, `count` them."""


class Shell(Calling):
    """One tool, `run`."""

    Config = ShellConfig
    config: ShellConfig
    in_order = True

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        assert isinstance(config, ShellConfig)
        all_files = " ".join(f"*.{suffix}" for suffix in _SUFFIXES)
        for index in count():
            draw, level = Draw("shell", index), config.levels[index % len(config.levels)]
            (word, other), suffix, number = draw.shuffled(_WORDS)[:2], draw.choice(_SUFFIXES), draw.integer(10, 99)
            new = f"{other}{number}"
            question, command = {
                "write": (f"Write {word} {number} into the new file {new}.md.", f"echo {word} {number} > {new}.md"),
                "move": (
                    f"Move every file whose name ends in .{suffix} into the new directory {new}.",
                    f"mkdir {new} && mv *.{suffix} {new}",
                ),
                "remove": (
                    f"Remove every file that holds the word {word} or the word {other}.",
                    f"grep -l -e {word} -e {other} * | xargs rm",
                ),
                "collect": (
                    f"Write all lines with the word {word}, sorted, into the new file {new}.md.",
                    f"grep -h {word} {all_files} | sort > {new}.md",
                ),
                "count": (
                    f"Write the number of lines of all .{suffix} files together into the new file {new}.md.",
                    f"cat *.{suffix} | wc -l > {new}.md",
                ),
            }[level]
            data = {"level": level, "word": word, "other": other, "suffix": suffix, "number": number}
            yield Problem(f"shell/{key(question):016x}", question, command, f"shell: {level}", data=data)

    async def start(self, problem: Problem, seed: int) -> Opening:
        await asyncio.to_thread(_sandbox)  # a sentence where none can be had
        draw, word = Draw("files", problem.id, seed), problem.data["word"]
        files: dict[str, bytes] = {}
        for place, name in enumerate(draw.shuffled(_WORDS)[: draw.integer(4, 7)]):
            suffix = _SUFFIXES[place] if place < len(_SUFFIXES) else draw.choice(_SUFFIXES)  # each is there
            words = [word] * (place == 0) + [draw.choice(_WORDS) for _ in range(draw.integer(2, 4))]
            files[f"{name}.{suffix}"] = "".join(f"{each} {draw.integer(1, 9)}\n" for each in words).encode()
        self._files: Files = files
        self._goal, self._command = goal(files, **problem.data), problem.reference
        self._asked = set[str]()
        return self.begun([self.run], [{"role": "user", "content": problem.question}])

    async def run(self, command: str) -> str:
        """Run a command of sh in the directory of the files, and return what it prints.

        Args:
            command: the command, for example ls
        """
        self._asked.add(command)
        if place := OUTSIDE.search(command):
            return f"error: {place[0]} cannot be used here; name files by relative paths"
        program = Program(
            command=("sh", "-c", _RUN), stdin=packed(self._files), files={"command": command.encode() + b"\n"}
        )
        result = await asyncio.to_thread(_sandbox().run, program)
        if result.status is Status.FAILED:
            raise SandboxError(f"the shell failed: {result.evidence}")
        try:
            self._files = unpacked(result.stderr)
        except tarfile.TarError:
            return f"error: the command was killed ({result.status}), and no file is changed"
        said = result.stdout.decode("utf-8", "replace").rstrip("\n")
        return "\n".join([*[said] * bool(said), *[f"exit status {result.exit_code}"] * bool(result.exit_code)]) or "ok"

    async def step(self, turn: Turn) -> Reply:
        reply = await super().step(turn)
        return replace(reply, state=sha256(repr(sorted(self._files.items())).encode()).hexdigest()[:16])

    async def judged(self, text: str) -> Reply:
        now, wanted = ({name: text.rstrip() for name, text in files.items() if name[-1] != "/"}
                       for files in (self._files, self._goal))  # fmt: skip
        others = sorted(name for name in now.keys() | wanted.keys() if now.get(name) != wanted.get(name))
        evidence = f"not as they should be: {', '.join(others)}" if others else "all files are as they should be"
        outcome: Decided = "wrong" if others else "correct"
        return Reply(reward=float(not others), done=True, outcome=outcome, evidence=evidence)

    def best(self) -> Turn:
        command = next((each for each in ("ls", self._command) if each not in self._asked), None)
        return calling("run", command=command) if command else Turn("done")

    def options(self) -> list[Turn]:
        commands = ["ls", "cat *", "wc -l *", "mkdir new", "rm *.log", "sort *.txt > all.md", "cd nowhere"]
        return [*(calling("run", command=command) for command in commands), Turn("done")]


def goal(files: Files, level: Level, word: str, other: str, suffix: str, number: int) -> Files:
    """Return the files that the question asks for."""
    new = f"{other}{number}"
    lines = [line for text in files.values() for line in text.decode().splitlines() if word in line]
    if level == "write":
        return {**files, f"{new}.md": f"{word} {number}\n".encode()}
    if level == "move":
        return {f"{new}/{name}" if name.endswith(suffix) else name: text for name, text in files.items()}
    if level == "remove":
        return {name: text for name, text in files.items() if not re.search(f"{word}|{other}", text.decode())}
    total = sum(text.count(b"\n") for name, text in files.items() if name.endswith(suffix))
    text = "\n".join(sorted(lines)) if level == "collect" else str(total)
    return {**files, f"{new}.md": text.encode()}


_opened, _opening = cache(open_sandbox), threading.Lock()


def _sandbox() -> Sandbox:
    with _opening:
        return _opened()


def packed(files: Files) -> bytes:
    """Return an archive of files that are all of one age."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, text in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(text), 10**9, 0o755 if name[-1] == "/" else 0o644
            member.type = tarfile.DIRTYPE if name[-1] == "/" else tarfile.REGTYPE
            archive.addfile(member, io.BytesIO(text))
    return stream.getvalue()


def unpacked(archive: bytes) -> Files:
    """Return the files and directories of an archive, and nothing else that may be in it."""
    files = dict[str, bytes]()
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members:
            name = member.name.removeprefix("./")
            if member.isdir() and name != ".":
                files[f"{name}/"] = b""
            elif found := members.extractfile(member) if member.isreg() else None:
                files[name] = found.read()
    return files
