"""The explorer as one file: the same pages with the facts inside, for a mail or a web page; no server, no network."""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError, GroupwiseError
from groupwise.explorer.pages import pages
from groupwise.explorer.views import Views
from groupwise.explorer.wire import encoded, inert, short_hash
from groupwise.runs.atomic import write_file
from groupwise.runs.index import GroupEntry

CAP = 8_000_000
"""Bytes of facts that an exported page holds at most."""
_LISTS = 0.4
"""Share of the cap for lists of steps; groups and completions have the rest."""
_MISSES = 5
"""Groups that did not fit after which no other is tried."""
_IMPORT = re.compile(r'^import (\{[^}]*\})\s*from "\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (async function|function|class|const) (\w+)", re.MULTILINE)


def bundled(entry: str = "app.js") -> str:
    """All modules as one script: each becomes a function that gives back what it exports, in the order of need."""
    parts: dict[str, str] = {}

    def add(name: str) -> None:
        if name in parts:
            return
        source = pages()[name][1].decode("utf-8")
        for _, needed in _IMPORT.findall(source):
            add(needed)
        body = _IMPORT.sub(lambda match: f"const {match[1]} = {_variable(match[2])};\n", source)
        exports = ", ".join(match[1] for match in _EXPORT.findall(source))
        body = _EXPORT.sub(r"\1 \2", body)
        parts[name] = f"const {_variable(name)} = (() => {{\n{body}\nreturn {{ {exports} }};\n}})();\n"

    add(entry)
    return "".join(parts.values())


def page_of(paths: Sequence[Path], cap: int = CAP) -> str:
    """The whole page. What did not fit is named on the page of its run."""
    views = Views(paths)
    facts = _without_places(_facts(views, cap), views.directories)
    script, style = bundled(), pages()["style.css"][1].decode("utf-8")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    shell = pages()["index.html"][1].decode("utf-8")
    meta = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
    shell = shell.replace('<meta charset="utf-8">', meta)
    shell = shell.replace('<link rel="stylesheet" href="style.css">', f"<style>{style}</style>")
    index = {"parts": {path: f"facts-{number}" for number, path in enumerate(facts)}}
    inside = [("facts-index", encoded(index)), *((f"facts-{i}", body) for i, body in enumerate(facts.values()))]
    tags = "\n".join(f'<script type="application/json" id="{name}">{inert(body)}</script>' for name, body in inside)
    return shell.replace('<script type="module" src="app.js"></script>', f"{tags}\n<script>{script}</script>")


def write_export(paths: Sequence[Path], target: Path, cap: int = CAP) -> Path:
    """Write the page.

    Raises:
        ConfigError: the target is a directory.
    """
    if target.is_dir():
        raise ConfigError(f"--export {target} is a directory; a file such as {target}/page.html is needed")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_file(target, page_of(paths, cap).encode("utf-8"))
    return target


def _without_places(facts: dict[str, bytes], directories: Iterable[Path]) -> dict[str, bytes]:
    """A page is given away: what it says of directories begins at the working one, or is their last two names."""
    here, said = Path.cwd(), {}
    for path in {form for one in directories for form in (one, one.resolve()) if form.is_absolute()}:
        short = path.relative_to(here) if path != here and path.is_relative_to(here) else Path("…", *path.parts[-2:])
        if len(path.parts) > 2:  # the name of a folder at the root may be in any text
            said[encoded(str(path))[1:-1]] = encoded(str(short))[1:-1]
    for long in sorted(said, key=len, reverse=True):
        facts = {address: body.replace(long, said[long]) for address, body in facts.items()}
    return facts


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}"


def _variable(name: str) -> str:
    return "m_" + name.removesuffix(".js").replace("-", "_")


def _facts(views: Views, cap: int) -> dict[str, bytes]:
    """Facts by their address: runs and results always, then lists of steps, then groups with their completions."""
    found: dict[str, bytes] = {"runs": encoded(views.runs()), **_results(views)}
    runs = {index: run for index in range(views.num_runs) if (run := _run_or_none(views, index))}
    for index, run in runs.items():
        found[f"runs/{index}"] = encoded(run)
        found[f"runs/{index}/findings"] = encoded(views.findings(index))
    left = {index: {"lists": 0, "groups": 0} for index in runs}
    budget = cap - sum(map(len, found.values()))
    budget -= _add_lists(views, runs, found, budget * _LISTS, left)
    _add_groups(views, runs, found, budget, left)
    for index, run in runs.items():
        out = left[index]
        if out["lists"] or out["groups"]:
            parts = ((out["lists"], "steps or evaluations"), (out["groups"], "groups of those that are here"))
            said = " and ".join(f"{count:,} {what}" for count, what in parts if count)
            notice = (
                f"This page is a selection: {said} were left out to stay below {cap / 1e6:g} MB. `groupwise explore` "
                "on the run shows everything."
            )
            run = {**run, "notices": [*run["notices"], notice]}
            run["places"] = [one for one in run["places"] if f"runs/{index}/places/{one['id']}" in found]
            found[f"runs/{index}"] = encoded(run)
    return found


def _results(views: Views) -> dict[str, bytes]:
    """Pipelines and measurements; one that cannot be read says why on its page."""
    found = {"results": encoded(results := views.results())}
    for number in range(len(results)):
        try:
            found[f"results/{number}"] = encoded(views.result(number))
        except GroupwiseError as error:
            found[f"results/{number}"] = encoded({**results[number], "error": str(error)})
    return found


def _run_or_none(views: Views, index: int) -> dict[str, Any] | None:
    try:
        return views.run(index)
    except GroupwiseError:  # the list of runs says why
        return None


def _add_lists(views: Views, runs: dict[int, Any], found: dict[str, bytes], budget: float, left: Any) -> int:
    spent = 0
    for index, run in runs.items():
        kept = [f"s{step}" for step in spread([one["step"] for one in run["places"] if one["step"] is not None])]
        for place in [*(one["id"] for one in run["places"] if one["step"] is None), *kept]:
            body = _place_facts(views, index, place)
            if spent + len(body) > budget:
                left[index]["lists"] += 1
                continue
            found[f"runs/{index}/places/{place}"] = body
            spent += len(body)
    return spent


def _place_facts(views: Views, index: int, place: str) -> bytes:
    try:
        return encoded(views.place(index, place))
    except GroupwiseError as error:
        return encoded({"error": str(error)})
    except Exception as error:  # as below
        return encoded({"error": f"this cannot be shown: {error!r}"[:500]})


def _add_groups(views: Views, runs: dict[int, Any], found: dict[str, bytes], budget: float, left: Any) -> None:
    spent, misses = 0, 0
    for index, place, problem in _candidates(views, runs, found):
        if misses == _MISSES:
            left[index]["groups"] += 1
            continue
        part = _group_facts(views, index, place, problem)
        size = sum(map(len, part.values()))
        if spent + size > budget:
            left[index]["groups"] += 1
            misses += 1
            continue
        found.update(part)
        spent += size


def _group_facts(views: Views, index: int, place: str, problem: str) -> dict[str, bytes]:
    path = f"runs/{index}/places/{place}/groups/{problem}"
    try:
        group = views.group(index, place, problem)
        completions = views.completions(index, place, problem)
        whole = {f"{path}/samples/{sample}": encoded(facts) for sample, facts in completions.items()}
    except GroupwiseError as error:
        return {path: encoded({"error": str(error)})}
    except Exception as error:  # whatever a damaged or hostile file causes, the rest is exported, and the page says so
        return {path: encoded({"error": f"this cannot be shown: {error!r}"[:500]})}
    return {path: encoded(group), **whole}


def _candidates(views: Views, runs: dict[int, Any], found: dict[str, bytes]) -> Iterator[tuple[int, str, str]]:
    """Groups of all places in turn: of each the largest advantage first, then by hash."""
    orders = []
    for index in runs:
        for path in [path for path in found if re.fullmatch(rf"runs/{index}/places/\w+", path)]:
            place = path.rpartition("/")[2]
            entries = sorted(views.entries(index, place), key=_interest)
            orders.append([(index, place, short_hash(entry.problem)) for entry in entries])
    for rank in range(max(map(len, orders), default=0)):
        yield from (order[rank] for order in orders if rank < len(order))


def _interest(entry: GroupEntry) -> tuple[float, str]:
    return (-(entry.advantage or 0.0), short_hash(entry.problem))


def spread(steps: Sequence[int]) -> list[int]:
    """The steps so that any beginning of the list is spread over all of them: both ends, then halves.

    >>> spread([0, 1, 2, 3, 4])
    [0, 4, 2, 1, 3]
    """
    ends = list(dict.fromkeys([*steps[:1], *steps[-1:]]))
    waiting, found = [(0, len(steps) - 1)], ends
    while waiting:
        low, high = waiting.pop(0)
        if high - low < 2:
            continue
        middle = (low + high) // 2
        found.append(steps[middle])
        waiting += [(low, middle), (middle, high)]
    return found
