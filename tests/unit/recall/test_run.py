"""The whole of recall on a made web: what it finds, that a kill changes nothing, and people's part."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import CheckpointError, ConfigError, WaitingError
from groupwise.recall.page import write_lines, write_recall_report
from groupwise.recall.rounds import Round
from groupwise.recall.run import run_recall
from groupwise.runs.jsonl import read_jsonl
from web_pages import SEEN

NO_BENCHMARK = "decontaminate.tasks={}"
"""Most of the time of a small recall is that of the problems of benchmarks."""
FILES = ("pages.jsonl", "dropped.jsonl", "copies.json", "round-1.json", "removed.jsonl", "corpus.jsonl", "recall.json")


Collected = tuple[Path, dict[str, Any]]


def silent(what: str, done: int, total: int) -> None:
    pass


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock" and path.is_file()}


def share(counts: dict[str, list[int]], seen: bool) -> float:
    chosen = [counts[style] for style in counts if (style in SEEN) == seen]
    return sum(found for found, _ in chosen) / sum(there for _, there in chosen)


def test_unseen_styles_are_found_through_domains(collected: Collected) -> None:
    first, *_, last = collected[1]["rounds"]
    assert share(first["styles"], seen=True) > 0.5
    assert share(first["styles"], seen=False) < 0.3
    assert share(last["styles"], seen=False) >= 0.9
    assert last["precision"][0] >= 0.9 * last["precision"][1]
    assert last["known_share"] >= 0.98


def test_without_annotation_they_are_not(tmp_path: Path, make_small: Any) -> None:
    changes = ("annotator.kind=none", "rounds.max_rounds=2", "sources.web.num_pages=400", NO_BENCHMARK)
    facts = run_recall(make_small(tmp_path / "web", *changes), silent)
    assert share(facts["rounds"][-1]["styles"], seen=False) < 0.3
    assert facts["rounds"][-1]["grown"] == 0


def test_every_piece_is_there_and_the_page_says_the_figures(collected: Collected) -> None:
    directory, facts = collected
    assert {*FILES} <= {path.name for path in directory.iterdir()}
    page = write_recall_report(directory).read_text("utf-8")
    assert f"a corpus of {facts['corpus']['pages']:,} pages" in page
    assert "round 2" in page
    assert "chinese stories" in page
    assert "<script" not in page
    removed = [row.fields for row in read_jsonl(directory / "removed.jsonl")]
    shown = min(12, len({(row["url"], row["paragraph"]) for row in removed}))
    assert page.split("## Removed paragraphs")[1].count("\n| ") - 1 == shown


def test_decontamination_takes_what_is_planted_and_says_what_it_misses(collected: Collected) -> None:
    directory, facts = collected
    planted = facts["decontamination"]["planted"]
    for way in ("exact", "reformatted"):
        gone, there = planted[way]
        assert gone == there > 0
    gone, there = planted["paraphrased"]
    assert gone < there  # a rule of equal words cannot see other words
    removed = [row.fields for row in read_jsonl(directory / "removed.jsonl")]
    texts = {row.fields["url"]: row.fields["text"] for row in read_jsonl(directory / "corpus.jsonl")}
    assert removed
    for row in removed:
        assert row["paragraph"] not in texts.get(row["url"], "").split("\n")
        assert {"url", "paragraph", "gram", "item", "why"} <= row.keys()


def test_no_copy_is_in_the_corpus(collected: Collected) -> None:
    directory, facts = collected
    copies = json.loads((directory / "copies.json").read_text())
    assert not {row.fields["page"] for row in read_jsonl(directory / "corpus.jsonl")} & set(map(int, copies))
    assert facts["copies"]["found"] > 20
    assert facts["copies"]["false"] <= 0.05 * facts["copies"]["found"]


def test_every_page_is_ranked_or_dropped_with_its_reason(collected: Collected) -> None:
    directory, facts = collected
    pages = [row.fields for row in read_jsonl(directory / "pages.jsonl")]
    rows = [row.fields for row in read_jsonl(directory / "dropped.jsonl")]
    dropped = {row["page"]: row for row in rows if "page" in row}
    copies = {int(copy): of for copy, of in json.loads((directory / "copies.json").read_text()).items()}
    kept = set(json.loads((directory / f"round-{len(facts['rounds'])}.json").read_text())["kept"])
    short = kept - {row.fields["page"] for row in read_jsonl(directory / "corpus.jsonl")}
    assert dropped.keys() == copies.keys() | short
    assert all(row["place"] == pages[number]["place"] for number, row in dropped.items())
    assert all(dropped[copy]["reason"] == f"a near copy of {pages[of]['place']}" for copy, of in copies.items())
    assert all("without its removed paragraphs" in dropped[number]["reason"] for number in short)
    assert not facts["dropped"]  # they are counted as copies


def test_a_page_that_removals_leave_too_short_is_named(
    tmp_path: Path, make_small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from groupwise.recall.run import Recall

    recall = Recall(make_small(tmp_path / "web", "rounds.min_score=0.0"), tmp_path)
    monkeypatch.setattr("groupwise.recall.run.MIN_CHARACTERS", 2000)
    pages = [PAGE | {"url": f"https://a.example/{n}", "place": f"web/web#{n}"} for n in (0, 1)]
    write_lines(tmp_path / "pages.jsonl", pages)
    write_lines(tmp_path / "dropped.jsonl", [{"place": "web/web#2", "reason": "empty"}])
    (tmp_path / "copies.json").write_text('{"1": 0}')
    recall._corpus(Round(1, frozenset({0}), frozenset(), {}, {}))
    assert [row.fields["reason"] for row in read_jsonl(tmp_path / "dropped.jsonl")] == [
        "empty", "shorter than 2000 characters without its removed paragraphs", "a near copy of web/web#0",
    ]  # fmt: skip
    assert not [row.fields for row in read_jsonl(tmp_path / "corpus.jsonl")]


PAGE = {"text": "too short", "replaced": 0, "truth": None}


def test_the_classifier_never_sees_an_address(collected: Collected, make_small: Any) -> None:
    from groupwise.recall.rounds import Prepared

    prepared = Prepared(make_small(collected[0]), collected[0])
    page = prepared.pages[0]
    assert prepared.features[0].tolist() == prepared.features_of(page.text).tolist()
    assert "example" not in page.text


@pytest.mark.parametrize("place", ["copies.json", "round-2.json", "corpus.jsonl"])
@pytest.mark.parametrize("killed_again", [True, False])
def test_killed_anywhere_it_ends_with_the_same_bytes(
    collected: Collected, tmp_path: Path, make_small: Any, monkeypatch: Any, place: str, killed_again: bool
) -> None:
    """What was written after a file is gone, as after a kill just before it was renamed into place."""
    directory, expected = tmp_path / "web", contents(collected[0])
    shutil.copytree(collected[0], directory)
    order = sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    names = [path.name for path in sorted(collected[0].iterdir(), key=lambda path: path.stat().st_mtime_ns)]
    for path in order:
        if path.name in names[names.index(place) :] and path.name != "dropped.jsonl":
            path.unlink()
    if killed_again:  # dropped.jsonl is written twice; the second time it is as it was, whatever is done again
        rows = [row.fields for row in read_jsonl(directory / "dropped.jsonl")]
        write_lines(directory / "dropped.jsonl", [row for row in rows if "page" not in row])
    replace = os.replace

    def dies(source: Any, target: Any) -> None:
        if Path(target).name == place:
            raise KeyboardInterrupt
        replace(source, target)

    recipe = make_small(directory)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            run_recall(recipe, silent)
    assert not (directory / place).exists()
    run_recall(recipe, silent)
    found = contents(directory)
    assert {name for name in expected if found.get(name) != expected[name]} <= {"report.md"}


TINY = (
    "sources.web.num_pages=30", "sources.web.num_domains=4", "begin.num_texts=4", "rounds.max_rounds=1",
    "sources.web.planted=0", NO_BENCHMARK,
)  # fmt: skip


@pytest.mark.parametrize("last", ["corpus.jsonl", "inputs.json", "settings.json"])
def test_killed_while_it_starts_over_it_starts_over_again(
    tmp_path: Path, make_small: Any, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    recipe, unlink = make_small(tmp_path / "web", *TINY), Path.unlink
    run_recall(recipe, silent)

    def killed_behind(path: Path) -> None:
        unlink(path)
        if path.name == last:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed_behind)
        with pytest.raises(KeyboardInterrupt):
            run_recall(recipe, silent, restart=True)
    run_recall(recipe, silent, restart=True)
    assert {*FILES} <= {path.name for path in (tmp_path / "web").iterdir()}


def test_other_settings_are_refused_and_restart_starts_over(tmp_path: Path, make_small: Any) -> None:
    directory = tmp_path / "web"
    run_recall(make_small(directory, *TINY), silent)
    with pytest.raises(CheckpointError, match="was started with seed = 0, and it is 1 now"):
        run_recall(make_small(directory, *TINY, "seed=1"), silent)
    run_recall(make_small(directory, *TINY, "seed=1"), silent, restart=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("mine")
    with pytest.raises(CheckpointError, match="holds no recall"):
        run_recall(make_small(tmp_path / "other", *TINY), silent, restart=True)
    assert (tmp_path / "other" / "thesis.tex").read_text() == "mine"


PEOPLE = (
    "sources.web.num_pages=400", "sources.web.num_domains=20", "rounds.max_rounds=2", "annotator.kind=file",
    NO_BENCHMARK,
)  # fmt: skip


def test_people_answer_in_a_file(tmp_path: Path, make_small: Any) -> None:
    answers = tmp_path / "patterns.toml"
    recipe = make_small(tmp_path / "web", *PEOPLE, f"annotator.path={answers}")
    with pytest.raises(WaitingError, match=r"\d+ of \d+ URL patterns of round 1 wait in .*patterns.toml"):
        run_recall(recipe, silent)
    asked = answers.read_text("utf-8")
    answers.write_text(asked.replace('"?"', '"yes"', 1))
    with pytest.raises(WaitingError, match="wait"):
        run_recall(recipe, silent)
    answers.write_text(asked.replace('"?"', '"yes"'))
    facts = run_recall(recipe, silent)
    assert facts["rounds"][0]["yes"] == facts["rounds"][0]["asked"] == asked.count('"?"')
    assert facts["rounds"][0]["grown"] > 0


def test_an_oracle_errs_as_often_as_it_is_told() -> None:
    from groupwise.recall.config import Asked, Oracle
    from groupwise.recall.page import Page, Truth

    def asked(number: int, is_mathematics: bool) -> Asked:
        pages = [Page(f"https://{number}.example/", "text", "here", 0, Truth("x", is_mathematics))]
        return Asked(f"{number}.example/", pages, 1)

    questions = [asked(number, number % 2 == 0) for number in range(1000)]
    for rate in (0.0, 0.3, 1.0):
        answers = Oracle(kind="oracle", error_rate=rate).answers(questions, 1, seed=3)
        wrong = sum(answers[f"{number}.example/"] != (number % 2 == 0) for number in range(1000))
        assert abs(wrong - 1000 * rate) <= 5 * (1000 * rate * (1 - rate)) ** 0.5
    unknown = Asked("x/", [Page("https://x/", "text", "here")], 1)
    with pytest.raises(ConfigError, match="nothing is known of x/"):
        Oracle(kind="oracle").answers([unknown], 1, 0)
