"""The explorer as one file: the same pages with the facts inside, for a mail or a web page; no server, no network."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from html import escape
from itertools import chain, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from groupwise.errors import ConfigError, GroupwiseError
from groupwise.explorer.pipeline import markdown
from groupwise.explorer.pipeline.data import load_pipeline
from groupwise.explorer.results import found_in
from groupwise.explorer.views import Views
from groupwise.explorer.wire import encoded, inert, pages, short_hash
from groupwise.runs.atomic import write_file
from groupwise.runs.directory import find_run

CAP, REPORT_CAP = 8_000_000, 2_000_000
"""Bytes of facts that an exported page holds at most, and the report that a run leaves behind."""
CHARTS = "vendor/uPlot"
_T = TypeVar("_T")
_LISTS = 0.4
_MISSES = 5
"""Lists, or groups, that did not fit after which no other is tried."""
_IMPORT = re.compile(r'^import (\{[^}]*\})\s*from "\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (async function|function|class|const) (\w+)", re.MULTILINE)


def bundled(entry: str = "app.js") -> str:
    """All modules as one script: each becomes a function that returns its exports, in the order of need."""
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
    facts = _facts(views, cap)
    here, names = Path.cwd(), {}  # a page is given away: paths begin here, or are their last two names
    for path in {form for folder in views.directories for form in (folder, folder.resolve()) if form.is_absolute()}:
        short = path.relative_to(here) if path != here and path.is_relative_to(here) else Path("…", *path.parts[-2:])
        if len(path.parts) > 2:  # the name of a folder at the root may be in any text
            names[encoded(str(path))[1:-1]] = encoded(str(short))[1:-1]
    for long in sorted(names, key=len, reverse=True):
        facts = {address: body.replace(long, names[long]) for address, body in facts.items()}
    files = {name: content.decode("utf-8") for name, (_, content) in pages().items()}
    script = f"/* {files[f'{CHARTS}.LICENSE.txt']} */\n{files[f'{CHARTS}.iife.min.js']}\n{bundled()}"
    style = f"{files[f'{CHARTS}.min.css']}\n{files['style.css']}"
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    meta = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
    index = {"parts": {path: f"facts-{number}" for number, path in enumerate(facts)}}
    inside = [("facts-index", encoded(index)), *((f"facts-{i}", body) for i, body in enumerate(facts.values()))]
    tags = "\n".join(f'<script type="application/json" id="{name}">{inert(body)}</script>' for name, body in inside)
    shell = files["index.html"]
    for place, content in (
        (r'<meta charset="utf-8">', meta),
        (r"<link rel=\"stylesheet\".*?(?=</head>)", f"<style>{style}</style>\n"),
        (r"<p>This page needs JavaScript.*?</p>", _without_scripts(facts)),
        (r"<script src=.*</script>", f"{tags}\n<script>{script}</script>"),
    ):
        start, end = next(re.finditer(place, shell, re.DOTALL)).span()
        shell = shell[:start] + content + shell[end:]
    return shell


def write_export(paths: Sequence[Path], target: Path, cap: int = CAP) -> Path:
    """Write the page; ConfigError if the target is a directory."""
    if target.is_dir():
        raise ConfigError(f"--export {target} is a directory; a file such as {target}/page.html is needed")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_file(target, page_of(paths, cap).encode("utf-8"))
    return target


def write_report(path: str | Path) -> Path:
    """Write `report.html`, the page of a run, a pipeline or a measurement of test-time compute, into its directory.

    A pipeline has its tables in `report.md`, too.

    Returns:
        The path of the page.

    Raises:
        ConfigError: there is no such thing at this path.
        DataError: a file of the pipeline cannot be read.
    """
    found = found_in([Path(path)])
    kind, folder, _ = found.results[0] if found.results else ("run", find_run(found.runs[0]).path, "")
    if kind == "pipeline":
        write_file(folder / "report.md", markdown(load_pipeline(folder)).encode("utf-8"))
    return write_export([folder], folder / "report.html", REPORT_CAP)


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}"


def _variable(name: str) -> str:
    return "m_" + name.removesuffix(".js").replace("-", "_")


def _facts(views: Views, cap: int) -> dict[str, bytes]:
    found = {"start": encoded(views.start()), "runs": encoded(views.runs()), "results": encoded(views.results())}
    for number, headline in enumerate(views.results()):
        found[f"results/{number}"] = _or_reason(partial(views.result, number), headline)
    runs: dict[int, dict[str, Any]] = {}
    for index in range(views.num_runs):
        try:
            runs[index] = views.run(index)
        except GroupwiseError:  # the list of runs says why
            continue
        found[f"runs/{index}"] = encoded(runs[index])
        found[f"runs/{index}/findings"] = encoded(views.findings(index))
        found[f"runs/{index}/report"] = encoded(views.report(index))
    left_out = {index: {"lists": 0, "groups": 0} for index in runs}
    budget = cap - sum(map(len, found.values()))
    budget -= _add_lists(views, runs, found, budget * _LISTS, left_out)
    _add_groups(views, runs, found, budget, left_out)
    for index, run in runs.items():
        counts = left_out[index]
        if counts["lists"] or counts["groups"]:
            parts = ((counts["lists"], "steps or evaluations"), (counts["groups"], "groups of those that are here"))
            missing = " and ".join(f"{count:,} {what}" for count, what in parts if count)
            selection = (
                f"This page is a selection: {missing} were left out to stay below {cap / 1e6:g} MB. "
                "`groupwise explore` on the run shows everything."
            )
            places = [place for place in run["places"] if f"runs/{index}/places/{place['id']}" in found]
            found[f"runs/{index}"] = encoded({**run, "selection": selection, "places": places})
    return found


def _or_reason(read: Callable[[], Any], headline: Mapping[str, Any] = MappingProxyType({})) -> bytes:
    try:
        return encoded(read())
    except GroupwiseError as error:
        return encoded({**headline, "error": str(error)})
    except Exception as error:
        return encoded({**headline, "error": f"this cannot be shown: {error!r}"[:500]})


def _add_lists(
    views: Views, runs: Mapping[int, Any], found: dict[str, bytes], budget: float, left_out: Mapping[int, Any]
) -> int:
    spent, misses = 0, 0
    for index, run in runs.items():
        steps = spread([place["id"] for place in run["places"] if place["step"] is not None])
        evaluations = spread([place["id"] for place in run["places"] if place["step"] is None])
        turns = chain.from_iterable(zip_longest(steps, evaluations))
        for identifier in (identifier for identifier in turns if identifier is not None):
            if misses < _MISSES:
                body = _or_reason(partial(views.place, index, identifier))
                if spent + len(body) <= budget:
                    found[f"runs/{index}/places/{identifier}"] = body
                    spent += len(body)
                    continue
                misses += 1
            left_out[index]["lists"] += 1
    return spent


def _add_groups(
    views: Views, runs: Mapping[int, Any], found: dict[str, bytes], budget: float, left_out: Mapping[int, Any]
) -> None:
    orders = []
    for index in runs:
        for path in [path for path in found if re.fullmatch(rf"runs/{index}/places/\w+", path)]:
            entries = views.entries(index, path.rpartition("/")[2])
            entries.sort(key=lambda entry: (-(entry.advantage or 0.0), short_hash(entry.problem)))
            orders.append([(index, path, short_hash(entry.problem)) for entry in entries])
    spent, misses = 0, 0
    for rank in range(max(map(len, orders), default=0)):
        for index, path, problem in (order[rank] for order in orders if rank < len(order)):
            if misses < _MISSES:
                address, place = f"{path}/groups/{problem}", path.rpartition("/")[2]
                part = {address: _or_reason(partial(views.group, index, place, problem))}
                with suppress(Exception):  # of what a damaged or hostile file causes the facts of the group tell
                    samples = views.completions(index, place, problem)
                    part |= {f"{address}/samples/{number}": encoded(facts) for number, facts in samples.items()}
                size = sum(map(len, part.values()))
                if spent + size <= budget:
                    found.update(part)
                    spent += size
                    continue
                misses += 1
            left_out[index]["groups"] += 1


def _without_scripts(facts: Mapping[str, bytes]) -> str:
    kind, _, number = json.loads(facts["start"]).strip("/").partition("/")
    name, report = "Groupwise explorer", {}
    if kind == "run" and f"runs/{number}/report" in facts:
        name, report = json.loads(facts[f"runs/{number}"])["name"], json.loads(facts[f"runs/{number}/report"])
    elif kind == "pipeline":
        report = json.loads(facts[f"results/{number}"])
        name = report["name"]
    said = [report.get("error") or report.get("description", ""), report.get("compared", "")]
    tiles = "".join(
        f"<div><dt>{escape(tile['name'])}</dt><dd>{escape(tile['value'])}</dd>"
        f'<dd class="detail">{escape(tile["detail"])}</dd></div>'
        for tile in report.get("tiles", [])
    )
    sections = []
    for table in report.get("tables", []):
        heads = "".join(f"<th>{escape(name)}</th>" for name in (table["first"], *table["columns"]))
        rows = "".join(
            f"<tr><th>{escape(line['name'])}<small> {escape(line['about'])}</small></th>"
            + "".join(
                f"<td>{escape(cell['value'])} {escape(cell['mark'])} <small>{escape(cell['interval'])}</small></td>"
                for cell in line["cells"] or [{"value": line["note"], "mark": "", "interval": ""}]
            )
            + "</tr>"
            for line in table["lines"]
        )
        body = f'<table class="values"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        hint, body = (table["note"], f'<div class="scroll">{body}</div>') if rows else (table["empty"], "")
        title = escape(table["title"])
        sections.append(f'<section class="piece"><h2>{title}</h2><p class="hint">{escape(hint)}</p>{body}</section>')
    return (
        f'<noscript><header class="title"><h1>{escape(name)}</h1>'
        + "".join(f"<p>{escape(text)}</p>" for text in said if text)
        + f'<p class="hint">With scripts, this page has the curves and every completion.</p></header>'
        f'<dl class="facts tiles">{tiles}</dl>{"".join(sections)}</noscript>'
    )


def spread(steps: Sequence[_T]) -> list[_T]:
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
