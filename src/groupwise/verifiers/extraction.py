r"""The answer (or the program) in a completion: deterministic, linear in the length of the text, never a guess.

Only what follows the last `</think>` counts. Several different answers are no answer: a model that lists candidates
must not be paid for the one that fits. Two things are not several answers: the same box repeated, and boxes with
nothing but separators between them (`\boxed{1}, \boxed{2} and \boxed{3}`), which are one list and must equal the whole
reference.
"""

import ast
import re
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from groupwise.verifiers.base import Extraction

_BRACES = re.compile(r"(?P<box>\\{1,2}(?:boxed|fbox)\s*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL)
_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_NUMBER = re.compile(r"(?<![0-9A-Za-z.])[-−]?[0-9][0-9,]{0,200}(?:\.[0-9]{1,200})?(?:/[0-9]{1,200})?%?")
_SEPARATOR = re.compile(
    r"(?:\\(?:[()\[\],;:! ]|q?quad(?![a-zA-Z])|text\s*\{\s*(?:and|or)\s*\})|\b(?:and|or)\b|[$\s,;&*])+"
)
_NAME = re.compile(r"(?:[A-Za-z]|\\[a-z]{2,7})(?:_\{?[0-9A-Za-z]\}?)?(?:\([a-z0-9]\))?\s*=\s*")
_BLANK = re.compile(r"(?:\\(?:phantom|hspace)\s*\{[^{}]*\}|\\(?:[,;:! ]|q?quad|square|ldots)|[\s?_~.$])*")
THOUGHTS = (
    ("<think>", "</think>"), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"), ("<|begin_of_thought|>", "<|end_of_thought|>"),
)  # fmt: skip
"""Marks around reasoning, by families of models: all read alike."""
_MAX_GAP = 60  # characters between two boxes of one list


class Extracted(NamedTuple):
    """The answer as written, or why there is none."""

    answer: str | None
    reason: str  # the reason for having no answer; empty when there is one
    tags_right: bool  # one `<think>`, one `</think>`, in order, then an answer


def extract(text: str, mode: Extraction) -> Extracted:
    """Read the answer from a completion (prefill included)."""
    if (region := after_thinking(text)) is None:
        return Extracted(None, "<think> was opened and not closed", False)
    contents = {"boxed": lists, "tag": tags, "last_number": last_number}[mode](region)
    candidates = ["".join(content.split()) for content in contents]
    if mode != "tag":  # of tags there must be one; a box may be repeated
        candidates = list(dict.fromkeys(candidates))
    if not candidates or not candidates[-1]:
        return Extracted(None, f"no answer ({mode}) after the reasoning", False)
    if len(candidates) > 1:
        listing = ", ".join(repr(content[:40]) for content in candidates[:3])
        return Extracted(None, f"several answers: {listing}{', ...' if len(candidates) > 3 else ''}", False)
    return Extracted(contents[-1].strip(), "", thought_once(text))


def clipped(text: str, limit: int = 160) -> str:
    """Text of a model on one line, its control characters spelled out, cut in the middle where it is long."""
    if len(text) > limit:
        head, tail = clipped(text[: limit * 2 // 3], limit), clipped(text[-limit // 3 :], limit)
        return f"{head} … {tail} ({len(text):,} characters)"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text) or "(empty)"


def after_thinking(text: str) -> str | None:
    """The text after the last `</think>`; the whole text if it has no tags; None while the reasoning is still open."""
    for begin, end in THOUGHTS:
        if end in text:
            text = text.rpartition(end)[2]
        if begin in text:
            return None
    return text


def thought_once(text: str) -> bool:
    """True when there is exactly one `<think>`, and exactly one `</think>` after it."""
    return text.count("<think>") == text.count("</think>") == 1 and text.index("<think>") < text.index("</think>")


def boxes(text: str) -> list[str]:
    r"""Contents of every complete outermost `\boxed{}` or `\fbox{}` (a doubled backslash is read as one), in order."""
    return [text[start:end] for _, start, end in _outermost(text)]


def lists(text: str) -> list[str]:
    r"""Contents of the boxes, those of one list joined by commas, without repeats and `\boxed{\phantom{2}}`."""
    groups: list[dict[str, str]] = []  # content to content with its name, in order
    previous_end = 0
    for command, start, end in _outermost(text):
        content, gap = text[start:end].strip(), text[previous_end:command]
        # the name before a box of a list (`y = `), often none; anything else ends the list
        name = _SEPARATOR.sub(" ", gap).strip() if len(gap) <= _MAX_GAP else "..."
        if _BLANK.fullmatch(content):
            continue
        if not groups or (name and not _NAME.fullmatch(name)):
            groups.append({content: content})
        else:
            groups[-1].setdefault(content, name + content)
        previous_end = end + 1
    return [", ".join(items.values()) for items in groups]


def _outermost(text: str) -> list[tuple[int, int, int]]:
    """Find the complete outermost boxes: start of the box, start and end of its content."""
    spans: list[tuple[int, int, int]] = []
    open_braces: list[tuple[int, int] | None] = []  # a box's command and content; None for a plain brace
    for token in _BRACES.finditer(text) if "box" in text else ():
        if token["box"] or token["open"]:
            open_braces.append(token.span() if token["box"] else None)
        elif token["close"] and open_braces and (start := open_braces.pop()) is not None:
            while spans and spans[-1][0] > start[0]:  # inside the box that has just been closed
                spans.pop()
            spans.append((*start, token.start()))
    return spans


def tags(text: str) -> list[str]:
    """Contents of the `<answer>` tags; a tag within a tag makes two of them."""
    if text.count("<answer>") != text.count("</answer>"):
        return []
    return [content for body in _TAG.findall(text) for content in body.split("<answer>")]


def last_number(text: str) -> list[str]:
    """The last number anywhere, as a list of at most one."""
    number = ""
    for match in _NUMBER.finditer(text):
        number = match[0]
    return [number.rstrip(",")] if number else []


_FENCE = "```"
_MARKS = ("python", "python3", "py")


def extract_program(text: str) -> Extracted:
    """Read the program from a completion (prefill included)."""
    if (region := after_thinking(text)) is None:
        return Extracted(None, "<think> was opened and not closed", False)
    programs: dict[str, str] = {}  # the last closed block that is not blank, by its mark
    mark: str | None = None
    indent, lines = "", list[str]()
    for line in region.replace("\r\n", "\n").split("\n"):
        fence = line.strip()
        if mark is not None and fence == _FENCE:
            if any(map(str.strip, lines)):
                # as in an item of a list, whose lines all begin as the fence does
                is_inside = all(each.startswith(indent) for each in lines if each.strip())
                lines = [each.removeprefix(indent) for each in lines] if is_inside else lines
                programs[mark] = "\n".join(lines) + "\n"
            mark = None
        elif mark is None and fence.startswith(_FENCE) and "`" not in fence[len(_FENCE) :]:
            mark, lines, indent = fence[len(_FENCE) :].strip().lower().partition(" ")[0], [], line.partition("`")[0]
            mark = "python" if mark in _MARKS else mark
        else:
            lines.append(line)
    if (program := programs.get("python", programs.get(""))) is None:
        return Extracted(None, "no fenced python block after the reasoning", False)
    return Extracted(program, "", thought_once(text))


Assigned = ast.Assign | ast.AnnAssign
_NAMES = ("id", "attr", "arg", "name", "asname", "module")
Defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | Assigned


def sanitised(text: str, entry_point: str) -> str:
    r"""Return the program in a text as EvalPlus 0.3.1 reads it (Liu et al. 2023, arXiv:2305.01210, `sanitize.py`).

    It is imports and the definitions that the entry point reaches; without any, the longest run of lines that parses,
    by Python's parser here and by tree-sitter there.

    >>> sanitised("Sure:\nimport re\ndef f(x):\n    return g(x)\ng = len\nprint(f(2))\nDone!", "f")
    'import re\ndef f(x):\n    return g(x)\ng = len'
    """
    run = longest_run(text)
    try:
        statements = _parsed(run).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return run
    imports = [statement for statement in statements if isinstance(statement, ast.Import | ast.ImportFrom)]
    defined: dict[str, Defined] = {}
    for statement in statements:
        if name := _name(statement):
            defined.setdefault(name, statement)  # type: ignore[arg-type]
    reached, waiting = {entry_point}, [entry_point]
    while waiting:
        if (node := defined.get(waiting.pop())) is not None:
            said = [getattr(n, f, None) for n in ast.walk(node) for f in _NAMES]
            names = {name for text in said if isinstance(text, str) for name in text.split(".")} - reached
            reached |= names
            waiting += names
    kept = [*imports, *(node for name, node in defined.items() if name in reached)]
    return "\n".join(ast.get_source_segment(run, node) or "" for node in kept).strip() or run


def longest_run(text: str) -> str:
    """Return the lines, two at least, of the longest run that is Python; blank lines do not count."""
    lines = text.split("\n")
    weight = [0]
    for line in lines:
        weight.append(weight[-1] + bool(line.strip()))
    best, chosen = 0, (0, 1)
    for start in range(len(lines) - 1):
        end = len(lines)
        while end - start >= 2 and weight[end] - weight[start] > best:
            if (fault := _fault("\n".join(lines[start:end]))) is None:
                while end - start > 2 and not lines[end - 1].strip():
                    end -= 1
                best, chosen = weight[end] - weight[start], (start, end)
            else:  # a run that holds this line and the next has the same fault
                end = min(end - 1, max(start + fault, start + 1))
    return "\n".join(lines[chosen[0] : chosen[1]])


def _fault(source: str) -> int | None:
    """Return the line, from 1, of the first fault of a source; None where it is Python."""
    try:
        _parsed(source)
    except SyntaxError as error:
        return error.lineno or 1
    except (ValueError, RecursionError, MemoryError):
        return len(source.split("\n"))
    return None


def _parsed(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes in what a model wrote
        return ast.parse(source)


def _name(statement: ast.stmt) -> str:
    """Return the name that a statement defines, empty where EvalPlus leaves it out: functions that return nothing."""
    match statement:
        case ast.ClassDef(decorator_list=[]):
            return statement.name
        case ast.FunctionDef(decorator_list=[]) | ast.AsyncFunctionDef(decorator_list=[]):
            return statement.name if any(isinstance(node, ast.Return) for node in ast.walk(statement)) else ""
        case ast.Assign(targets=[target, *_], value=value) | ast.AnnAssign(target=target, value=value):
            names: Sequence[ast.expr | None] = (target, value)  # it takes the first identifier that stands alone
            return next((node.id for node in names if isinstance(node, ast.Name)), "")
    return ""
