import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from groupwise.pages.pipeline import load_pipeline, write_pipeline_report
from groupwise.pages.pipeline.markdown import markdown
from groupwise.pages.pipeline.tables import tiles

from groupwise.errors import ConfigError, DataError
from groupwise.types import Outcome

EVIL = '</pre><script>alert(1)</script><img src="http://evil.example/x">"\'{{ 7 * 7 }}{% raw %}|```\n# big\n[x](http://evil.example)'
VOID = {"meta", "img", "source", "link", "br", "hr"}
MODELS = ("base", "zero", "cold_sft", "reasoning_rl", "sft", "final_rl")
SECTIONS = (
    "Lineage", "Stages", "Training", "The same problems", "Data", "Behaviour", "Alarms", "Cost", "Fingerprints",
    "Settings (pipeline.toml)",
)  # fmt: skip


class Page(HTMLParser):
    """Follows the nesting of tags and collects whatever a browser would fetch."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open += [tag] if tag not in VOID else []
        self.fetched += [value or "" for name, value in attrs if name in ("src", "srcset", "href", "data", "poster")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def test_the_files_lie_in_the_directory(announced: Any) -> None:
    assert write_pipeline_report(announced.path) == announced.path / "report.html"
    assert (announced.path / "report.md").read_text().startswith("# r1\n")


def test_all_sections_are_there_in_order(html: str) -> None:
    found = re.findall(r"<(?:h2|summary)>([^<]*)</(?:h2|summary)>", html)
    assert [name for name in found if name in SECTIONS] == list(SECTIONS)
    assert "11 stages, all finished: 5 models, 2 reward models, 4 data sets. It ends with final_rl" in html


def test_tags_are_balanced(html: str) -> None:
    assert Page(html).open == []


def test_the_page_needs_nothing_from_outside(html: str) -> None:
    page = Page(html)
    assert len(page.fetched) == 2 * 10  # two panels for each of 3 RL stages, one for each of 4 others; light and dark
    assert all(value.startswith("data:image/svg+xml;base64,") for value in page.fetched)
    assert not re.search(r"@import|url\(|https?://", html)
    assert "script" not in page.tags


def test_headlines_lead_from_the_base_to_the_last_model(html: str) -> None:
    tiles = re.findall(r'class="tile"><h2>(.*?)</h2><strong>(.*?)</strong><small>(.*?)</small>', html)
    assert tiles[0] == ("pass@1", "42.0 → 95.5 %", "base [39.0, 45.0] → final_rl [92.5, 98.5]")
    assert [name for name, _, _ in tiles][-3:] == ["helpful", "harmless", "time"]
    # 11 stages of 95.5 s, 12 evaluations of 12 s
    assert tiles[-1] == ("time", "19 min 54 s", "2 min 24 s of it evaluation")


def test_alarms_are_told_at_the_top_and_in_their_table(html: str) -> None:
    warning = html.index("Alarms of reward hacking</b> in final_rl (2)")
    assert warning < html.index("<h2>Lineage</h2>")
    row = re.search(r'<th scope="row">final_rl</th><td>math</td>(.*?)</tr>', html)
    assert row
    assert re.findall(r"<td>(.*?)</td>", row[1]) == [
        "5", "15, 20", "19.0 %<small>[17.0, 21.0]</small>",
        "arithmetic/47x86 &#39;4042,&#39; is not a number",
    ]  # fmt: skip


def test_every_model_answers_the_same_problems(html: str) -> None:
    assert re.findall(r'class="asked"><h3>(.*?)</h3><p class="note">(.*?)</p>', html) == [
        ("What is 47 × 86?", "Calculation; reference answer 4042."),
        ("Tom has 12 apples. Mia gives Tom 5 more and then triples them. How many?", "In words; reference answer 51."),
        ("小明有12个苹果，小红又给他5个。小明现在有几个苹果？", "In words, Chinese; reference answer 17."),
        ("Should I give Anna a ball or a book?", "General prompt; no reference answer."),
    ]
    asked = html[html.index("What is 47 × 86?") : html.index("Tom has 12 apples")]
    names = ["base", "zero", "cold_sft", "reasoning_rl", "sft", "final_rl"]
    assert re.findall(r"<h4>(\w+) <small>(.*?)</small>", asked) == [
        (name, "0 % of 2 correct" if name == "base" else "50 % of 2 correct") for name in names
    ]
    assert asked.count('<p class="right"><b>correct</b> evidence of correct') == 5
    talk = html[html.index("Should I give Anna") : html.index("<h2>Data")]
    assert talk.count('<p class="open"><b>answered</b>') == 5  # no rule says that it is correct
    assert "of 2 correct" not in talk
    assert "<span>&lt;think&gt;80×47=3760. 6×47=282. 3760+282=4042.&lt;/think&gt;</span>\\boxed{4042}" in asked


def test_an_unfinished_pipeline_is_reported_as_far_as_it_got(started: Any) -> None:
    html = write_pipeline_report(started.path).read_text()
    assert Page(html).open == []
    assert "11 stages, 1 finished so far" in html
    assert "42.0 → 93.0 %" in html
    assert re.search(r'class="waiting"><th scope="row">cold_sft<small>.*?</small></th><td colspan="12">not run<', html)
    assert re.search(r"cold_start <small>cold start</small></h3><p class=\"note\">unfinished</p>", html)
    assert "<title>cold_start: unfinished</title>" in html
    assert 'class="warning"' not in html
    assert "No stage has asked a second verifier." in html


def test_a_stage_that_is_under_way_shows_its_curves(started: Any) -> None:
    started.run("cold_sft", "sft", [{"step": 0, "loss": 0.75}, {"step": 1, "loss": 0.5}])
    (started.place("cold_sft") / "run" / "finished.json").unlink()
    html = write_pipeline_report(started.path).read_text()
    assert "cold_sft: loss" in html
    assert "2 of 20, unfinished" in html


def test_nothing_has_run_yet(announced: Any) -> None:
    html = write_pipeline_report(announced.path).read_text()
    assert Page(html).open == []
    assert re.findall(r"<strong>(.*?)</strong>", html) == ["not measured"]
    assert "No training has begun." in html
    assert html.count("No model has been evaluated yet.") == 2
    assert "<title>base: not measured</title>" in html


def test_a_report_is_written_whatever_was_not_measured(finished: Any) -> None:
    for number in (1, 2, len(MODELS)):
        for without in combinations(MODELS, number):
            texts = {
                finished.place(name) / "facts.json": (finished.place(name) / "facts.json").read_text()
                for name in without
            }
            for path, text in texts.items():
                path.write_text(json.dumps(json.loads(text) | {"evaluation": None}))
            data = load_pipeline(finished.path)
            assert [tile.name for tile in tiles(data)][-1] == "time"
            assert markdown(data).startswith("# r1\n")
            for path, text in texts.items():
                path.write_text(text)


def test_what_is_rewarded_last_is_not_set_beside_a_model_that_was_not_measured(finished: Any) -> None:
    facts = finished.place("sft") / "facts.json"  # the last stage starts from it
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"evaluation": None}))
    helpful = next(tile for tile in tiles(load_pipeline(finished.path)) if tile.name.startswith("helpful"))
    assert re.match(r"base .* → final_rl ", helpful.detail)


def test_everything_from_outside_is_escaped(started: Any, make_group: Callable[..., Any]) -> None:
    for entry in started.entries:
        entry["inputs"] = [*entry["inputs"], EVIL]
    started.name = EVIL
    started.lineage()
    (started.path / "pipeline.toml").write_text(EVIL)
    groups = [make_group(f"{EVIL}{i}", EVIL, EVIL, [(EVIL, Outcome.WRONG)]) for i in range(3)]
    for name in ("base", "zero"):
        started.answers(name, groups)
    statistics = {"rows": 1, "dropped": {EVIL: 1}, EVIL: EVIL}
    started.finish("cold_start", statistics=statistics)
    html = write_pipeline_report(started.path).read_text()
    page = Page(html)
    assert page.open == []
    assert "script" not in page.tags
    assert all(value.startswith("data:image/svg+xml;base64,") for value in page.fetched)
    assert html.count("&lt;script&gt;alert(1)") > 20
    assert html.count("{{ 7 * 7 }}{% raw %}") > 20  # a value is no template


def test_work_done_with_other_settings_is_not_shown(finished: Any) -> None:
    finished.entries[0]["fingerprint"] = "another"
    finished.lineage()
    (stage,) = [stage for stage in load_pipeline(finished.path).stages if stage.name == "zero"]
    assert stage.state == "outdated"
    assert (stage.evaluation, stage.completions, stage.run, stage.seconds) == ({}, (), None, {})
    assert "| zero | outdated |" in markdown(load_pipeline(finished.path))


def test_a_stage_names_the_model_it_started_from(finished: Any) -> None:
    data = load_pipeline(finished.path)
    parents = {stage.name: parent.name for stage in data.policies if (parent := data.parent(stage))}
    assert parents == {"zero": "base", "cold_sft": "base", "reasoning_rl": "cold_sft", "sft": "base", "final_rl": "sft"}
    # a distilled model has its teacher among its inputs, and starts from another one
    finished.announce("student", "train", "distill", "model", ["final_rl", "base"])
    finished.write(finished.place("student") / "begun.json", {"settings": {"model": {"path": "base"}}})
    data = load_pipeline(finished.path)
    parent = data.parent(data.stages[-1])
    assert parent
    assert parent.name == "base"


def test_a_base_model_elsewhere_is_the_base(started: Any) -> None:
    for entry in started.entries:
        entry["inputs"] = ["some/model" if name == "base" else name for name in entry["inputs"]]
    started.write(started.path / "lineage.json", {"name": "r1", "base": "some/model", "stages": started.entries})
    base, zero = load_pipeline(started.path).stages[:2]
    assert (base.name, base.output) == ("base", "some/model")
    assert zero.inputs == ("base",)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("lineage.json", "{", "lineage.json cannot be read"),
        ("lineage.json", "[]", "lineage.json holds no JSON object"),
        ("lineage.json", '{"name": "r1"}', "is not the lineage of a pipeline"),
        ("stages/zero/facts.json", "[", "facts.json cannot be read"),
        ("stages/zero/evaluation.parquet", "x", "evaluation.parquet cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(started: Any, file: str, content: str, said: str) -> None:
    (started.path / file).write_text(content)
    with pytest.raises(DataError, match=re.escape(said)):
        load_pipeline(started.path)


def test_a_measurement_without_interval_is_refused(started: Any) -> None:
    path = started.place("zero") / "facts.json"
    facts = json.loads(path.read_text())
    facts["evaluation"]["reasoning"]["pass_at_1"] = [0.5]
    path.write_text(json.dumps(facts))
    with pytest.raises(DataError, match=r"facts\.json: a measurement is not \[value, low, high\]"):
        load_pipeline(started.path)


def test_a_lineage_with_a_circle_is_refused(announced: Any) -> None:
    announced.entries[0]["inputs"] = ["final_rl"]
    announced.lineage()
    with pytest.raises(DataError, match="'zero' has the input 'final_rl', which comes later"):
        load_pipeline(announced.path)


def test_a_stage_stands_there_once(announced: Any) -> None:
    announced.announce("final_rl", "train", "grpo", "model", ["base"])
    with pytest.raises(DataError, match="'final_rl' is there twice"):
        load_pipeline(announced.path)


def test_another_directory_is_no_pipeline(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a pipeline directory: it has no lineage\.json"):
        write_pipeline_report(tmp_path)


def test_neither_torch_nor_a_model_is_loaded() -> None:
    program = "import sys, groupwise.pages.pipeline; print(*{'torch', 'transformers'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []
