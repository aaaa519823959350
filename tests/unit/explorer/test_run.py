"""The report of a run: its facts are those of the files, and its page needs neither a server nor scripts."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from groupwise.cli.runs import printable, text_summary
from groupwise.errors import ConfigError
from groupwise.evaluation.metrics import before_after
from groupwise.explorer.answers import gained
from groupwise.explorer.export import write_report
from groupwise.explorer.run import description, report_of
from groupwise.explorer.seeds import seed_curves
from groupwise.runs.records import Records
from groupwise.types import Outcome

EVIL = '</pre><script>alert(1)</script><img src="http://evil.example/x">[/bold]\x1b[2J{{ 7 * 7 }}{% raw %}"\'</think>1'


class Page(HTMLParser):
    """Collects tags and whatever a browser would fetch."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "srcset", "href", "data", "poster")]


def table(facts: dict[str, Any], title: str) -> dict[str, list[str]]:
    """Cells of a table by the names of its lines."""
    (found,) = [table for table in facts["tables"] if table["title"] == title]
    return {
        line["name"]: [" ".join(filter(None, (cell["value"], cell["interval"]))) for cell in line["cells"]]
        for line in found["lines"]
    }


def without_scripts(html: str) -> str:
    """The part of a page that a browser without scripts shows."""
    (found,) = re.findall(r"<noscript>(.*?)</noscript>", html, re.DOTALL)
    return str(found)


def test_the_facts_are_those_of_the_files(finished_run: Any) -> None:
    facts = report_of(finished_run.path)
    assert [(tile["name"], tile["value"]) for tile in facts["tiles"]] == [
        ("pass@1", "0.0 → 75.0 %"), ("answers at once", "75.0 → 25.0 %"), ("length", "26.0 → 52.8 tokens"),
        ("training time", "40.0 s"),
    ]  # fmt: skip
    assert facts["tiles"][0]["detail"].startswith("+75.0 points")
    assert facts["tiles"][-1]["detail"] == "generate 60 %, verify 10 %, train 30 %"
    run = table(facts, "The run")
    assert run["verdict errors"] == ["4 in training, 0 in evaluations"]
    assert run["tokens sampled"] == ["4,000 (100 per second)"]
    assert {answer["evidence"] for asked in facts["problems"] for answer in asked["answers"]} >= {"evidence of correct"}
    assert "task.kind" in facts["settings"]
    assert "versions.numpy" in facts["environment"]
    assert facts["behaviour"]["steps"] == [0, 4]
    assert facts["behaviour"]["columns"]["answers at once"] == [0.75, 0.25]
    assert [*table(facts, "Training")] == ["step 0", "step 1", "step 2", "step 3"]


def test_the_page_reads_without_scripts_and_needs_nothing_from_outside(finished_run: Any) -> None:
    target = write_report(finished_run.path)
    assert target == finished_run.path / "report.html"
    html = target.read_text()
    shown = without_scripts(html)
    for text in ("0.0 → 75.0 %", "+75.0 points", "Before and after", "4,000 (100 per second)", "step 3"):
        assert text in shown
    page = Page(re.sub(r"<script.*?</script>|<style.*?</style>", "", html, flags=re.DOTALL))
    assert set(page.fetched) == {"data:,", "#main"}
    assert "2022 Leon Sorokin" in html  # the licence of the charts goes with them


def test_other_seeds_beside_the_run_are_its_band(finished_run: Any) -> None:
    assert seed_curves(finished_run.path) == {}
    config = finished_run.path / "config.toml"
    text, lines = config.read_text(), (finished_run.path / "metrics.jsonl").read_text()
    for seed, change in ((1, ""), (2, ""), (3, "[optimizer]\nlr = 1.0\n"), (4, "not toml")):
        other = finished_run.path.parent / f"seed-{seed}"
        other.mkdir()
        (other / "config.toml").write_text(text.replace("[run]", f"[run]\nseed = {seed}") + change)
        dev = "".join(
            f'{{"kind": "dev", "step": {step}, "pass_at_1": [{0.125 * seed}, 0.0, 1.0]}}\n' for step in (0, 4)
        )
        (other / "metrics.jsonl").write_text(dev if seed < 3 else lines)
    of_another_program = finished_run.path.parent / "other"
    of_another_program.mkdir()
    (of_another_program / "config.toml").write_text("run = 3")
    (of_another_program / "metrics.jsonl").touch()
    own = seed_curves(finished_run.path)[0][4]
    assert seed_curves(finished_run.path).keys() == {0, 1, 2}
    found = report_of(finished_run.path)["seeds"]
    assert (found["numbers"], found["steps"]) == ([0, 1, 2], [0, 4])
    assert (found["low"][1], found["mean"][1], found["high"][1]) == (
        min(own, 0.125), pytest.approx((own + 0.375) / 3), max(own, 0.25)
    )  # fmt: skip


def test_everything_from_outside_is_escaped(fake_run: Any, group: Any) -> None:
    groups = [group("<b>a</b>", [(EVIL, Outcome.WRONG)])]
    fake_run.evaluation("test-before", 4, groups).evaluation("test-after", 4, groups)
    html = write_report(fake_run.path).read_text()
    shown = without_scripts(html)
    assert {"script", "img", "b>a"}.isdisjoint(Page(shown).tags)
    assert "<script>alert" not in html
    assert "&lt;arithmetic&gt;" in shown


def test_the_summary_is_safe_in_a_terminal(fake_run: Any, group: Any) -> None:
    groups = [group("a", [(EVIL, Outcome.WRONG)])]
    fake_run.evaluation("test-before", 4, groups).evaluation("test-after", 4, groups)
    console = Console(width=200, force_terminal=False)
    with console.capture() as captured:
        console.print(text_summary(Records.open(fake_run.path).intact()))
    assert "[/bold]\\x1b[2J" in captured.get()
    assert "\x1b" not in captured.get()
    assert printable("a\tb\nc") == "a\\tb\n  c"


def test_the_summary_holds_the_numbers(finished_run: Any) -> None:
    text = text_summary(Records.open(finished_run.path).intact()).plain
    assert re.search(r"pass@1, % +0\.0 \[0\.0, 65\.8\] +75\.0 \[\S+, \S+\] +\+75\.0", text)
    assert "grpo on <arithmetic> from base: 4 of 4 steps, finished" in text
    assert "2 problems × 2 samples" in text
    assert "training time    40.0 s" in text
    assert re.search(r"groupwise sample \S+/checkpoints/best 'What is 6×7\?'", text)
    # of the two problems 6×7 rose most; its first samples are shown
    assert (
        text.index("before, 0 % of its 2 samples")
        < text.index("41</think>")
        < text.index("after, 100 % of its 2 samples")
    )


def test_a_run_that_spent_its_tokens_says_so(fake_run: Any) -> None:
    config = fake_run.path / "config.toml"
    config.write_text(f"token_budget = 1500\n{config.read_text()}")
    assert description(Records.open(fake_run.path)).endswith("0 of 4 steps, unfinished")
    fake_run.directory.finished.touch()
    assert description(Records.open(fake_run.path)).endswith("0 of 4 steps, finished: token_budget = 1500 is spent")


def test_what_was_not_measured_is_never_zero(fake_run: Any) -> None:
    text = text_summary(Records.open(fake_run.path).intact()).plain
    assert "0 of 4 steps, unfinished" in text
    assert re.search(r"training time +not measured", text)
    assert "not measured in training, not measured in evaluations" in text
    assert "not possible yet" in text
    facts = report_of(fake_run.path)
    assert [tile["value"] for tile in facts["tiles"]] == ["not measured"] * 4
    assert [table["title"] for table in facts["tables"]] == ["The run"]


def test_a_run_without_rewards_has_a_page_too(fake_run: Any) -> None:
    fake_run.directory.metrics.append({"step": 0, "loss": 5.5, "seconds": 0.5})
    assert "not measured" in without_scripts(write_report(fake_run.path).read_text())
    assert table(report_of(fake_run.path), "Training") == {"step 0": ["5.500"]}


def test_times_without_tokens_are_shown_as_an_imported_run_has_them(fake_run: Any) -> None:
    fake_run.directory.metrics.append({"step": 0, "generate_s": 3.0, "train_s": 1.0})
    facts = table(report_of(fake_run.path), "The run")
    assert (facts["training time"], facts["tokens sampled"]) == (["4.0 s"], ["not measured"])


def test_long_training_is_shown_at_steps_spread_over_it(fake_run: Any) -> None:
    for step in range(100):
        fake_run.directory.metrics.append({"step": step, "loss": step / 8})
    rows = table(report_of(fake_run.path), "Training")
    assert len(rows) == 20
    assert (rows["step 0"], rows["step 99"]) == (["0.000"], ["12.375"])


def test_the_largest_fall_is_shown_too(fake_run: Any, group: Any) -> None:
    right, wrong = ("x</think>1", Outcome.CORRECT), ("y</think>2", Outcome.WRONG)
    before = [group("same", [wrong]), group("fell", [right]), group("rose", [wrong]), group("rose too", [wrong])]
    after = [group("same", [wrong]), group("fell", [wrong]), group("rose", [right]), group("rose too", [right])]
    fake_run.evaluation("test-before", 4, before).evaluation("test-after", 4, after)
    problems = report_of(fake_run.path)["problems"]
    assert [(asked["question"], asked["kind"]) for asked in problems] == [
        ("What is rose?", "largest rise"), ("What is rose too?", "largest rise"), ("What is fell?", "largest fall"),
    ]  # fmt: skip


def test_behaviours_are_defined_and_shown_with_examples(fake_run: Any, group: Any) -> None:
    right = "<think>6×7=41. Wait, let me check. 7×6=42. No. 6×7=42.</think>\\boxed{42}"
    fake_run.evaluation("dev", 0, [group(name, [(right, Outcome.CORRECT)] * 2) for name in "abcde"])
    facts = report_of(fake_run.path)
    found = {each["name"]: each for each in facts["definitions"]}
    assert [marked for _, marked, _ in found["checks itself"]["passages"]] == ["Wait"] * 3  # of different problems
    assert [marked for _, marked, _ in found["backtracks"]["passages"]] == ["check. 7×6=42. No."] * 3
    assert r"\bwait\b" in found["checks itself"]["phrases"]
    assert (found["loops"]["passages"], found["loops"]["measured"]) == ([], True)
    assert table(facts, "Behaviour")["after 0 steps"][1] == "100.0 [56.6, 100.0]"


def test_passages_are_cut(fake_run: Any, group: Any) -> None:
    text = "x" * 500 + " wait <b> " + "y" * 500
    fake_run.evaluation("dev", 0, [group("a", [(text, Outcome.WRONG)])])
    (passage,) = [each["passages"][0] for each in report_of(fake_run.path)["definitions"] if each["name"] ==
                  "checks itself"]  # fmt: skip
    assert passage == [f"…{'x' * 79} ", "wait", f" <b> {'y' * 75}…"]


def test_phrases_of_the_recipe_are_used_and_shown(fake_run: Any, group: Any) -> None:
    config = fake_run.directory.config
    config.write_text(config.read_text() + '[behaviour.patterns.checks]\nen = ["<hold on>"]\n')
    fake_run.evaluation("dev", 0, [group("a", [("<hold on></think>1", Outcome.WRONG)])])
    found = {each["name"]: each for each in report_of(fake_run.path)["definitions"]}["checks itself"]
    assert "<hold on>" in found["phrases"]
    assert found["passages"][0][1] == "<hold on>"


def test_the_second_verifier_is_shown_and_its_alarm(fake_run: Any, group: Any) -> None:
    groups = [group("a", [("x", Outcome.CORRECT)])]
    example = {"problem": "<a>", "sample": 3, "evidence": "no answer <boxed>"}
    quiet = {"verifier": "math", "judged": 0, "rejected": 0, "failed": 0, "share": None, "alarm": False,
             "example": None}  # fmt: skip
    loud = {**quiet, "judged": 9, "rejected": 8, "share": [0.9, 0.6, 1.0], "alarm": True, "example": example}
    fake_run.evaluation("dev", 0, groups, second=quiet)
    facts = report_of(fake_run.path)
    assert table(facts, "Second verifier")["after 0 steps"] == ["math", "0 of 0", "not measured", "–"]
    assert facts["alarms"] == []
    fake_run.evaluation("dev", 2, groups, second=loud)
    facts = report_of(fake_run.path)
    assert facts["alarms"] == [2]
    assert table(facts, "Second verifier")["after 2 steps"] == [
        "math", "8 of 9", "0.900 [0.600, 1.000]", "completion 3 of <a>: no answer <boxed>",
    ]  # fmt: skip


def test_where_there_is_no_run_there_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run directory"):
        write_report(tmp_path)


RIGHT, WRONG, CRASHED = Outcome.CORRECT, Outcome.WRONG, Outcome.CRASHED


@pytest.fixture
def run(fake_run: Any, group: Any) -> Any:
    def evaluation(*problems: tuple[str, list[Outcome]]) -> list[Any]:
        return [group(name, [("x", outcome) for outcome in outcomes]) for name, outcomes in problems]

    before = evaluation(("up", [WRONG] * 4), ("down", [RIGHT, RIGHT, WRONG, WRONG]), ("same", [RIGHT, WRONG] * 2))
    after = evaluation(("up", [RIGHT] * 3 + [WRONG]), ("down", [WRONG] * 4), ("same", [WRONG, RIGHT] * 2))
    return fake_run.evaluation("test-before", 4, before).evaluation("test-after", 4, after)


def test_problems_move_up_and_down(run: Any) -> None:
    pair = before_after(Records.open(run.path).intact())
    assert pair is not None
    found = gained(pair)
    assert (found.num_gained, found.num_lost, found.num_same) == (1, 1, 1)
    assert [(one.before, one.after) for one in (*found.gained, *found.lost)] == [(0.0, 0.75), (0.5, 0.0)]
    assert [k for k, *_ in found.at_k] == [1, 2, 4]
    # pass@2 by hand: before 0, 1 - 1/6, 1 - 1/6; after 1, 0, 1 - 1/6
    _, before, after, difference = found.at_k[1]
    assert (before.value, after.value) == pytest.approx((5 / 9, 11 / 18))
    assert difference.value == pytest.approx(11 / 18 - 5 / 9)
    assert (found.at_k[2][1].value, found.at_k[2][2].value) == pytest.approx((2 / 3, 2 / 3))


def test_what_was_not_judged_counts_on_neither_side(run: Any) -> None:
    pair = before_after(Records.open(run.path).intact())
    assert pair is not None
    rows = [replace(row, outcome=CRASHED) if row.sample else row for row in pair.after.rows]
    found = gained(replace(pair, after=replace(pair.after, rows=tuple(rows))))
    assert [k for k, *_ in found.at_k] == [1]
    gone = [replace(row, outcome=CRASHED) for row in pair.after.rows]
    assert gained(replace(pair, after=replace(pair.after, rows=tuple(gone)))) == ([], [], 0, 0, 0, [])


def test_the_report_names_them(run: Any) -> None:
    tables = {table["title"]: table for table in report_of(run.path)["tables"]}
    counts = "1 are solved more often than before, 1 less often, 1 as often."
    assert tables["Problems gained and lost"]["note"] == counts
    assert [line["name"] for line in tables["Any of k tries"]["lines"]] == ["pass@1", "pass@2", "pass@4"]
