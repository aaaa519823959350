"""The program in a completion: the last fenced Python block after the reasoning.

Rule: of the text after the last `</think>`, the last closed block marked python, python3 or py; if there is none, the
last closed block without a mark; otherwise there is no program. Text outside of fences is never run.
"""

from collections.abc import Iterator

from groupwise.verifiers.extraction import Extracted, after_thinking, thought_once

_FENCE = "```"
_MARKS = ("python", "python3", "py")


def extract_program(text: str) -> Extracted:
    """Read the program from a completion (prefill included)."""
    region = after_thinking(text)
    if region is None:
        return Extracted(None, "<think> was opened and not closed", False)
    programs = {mark: program for mark, program in _blocks(region.replace("\r\n", "\n")) if program.strip()}
    program = programs.get("python", programs.get(""))
    if program is None:
        return Extracted(None, "no fenced python block after the reasoning", False)
    return Extracted(program, "", thought_once(text))


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Mark and content of every closed block in order; all marks of Python are `python`."""
    mark: str | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        fence = line.strip()
        if mark is not None and fence == _FENCE:
            yield mark, "\n".join(lines) + "\n"
            mark = None
        elif mark is None and fence.startswith(_FENCE) and "`" not in fence[len(_FENCE) :]:
            mark, lines = fence[len(_FENCE) :].strip().lower(), []
            mark = "python" if mark in _MARKS else mark
        else:
            lines.append(line)
