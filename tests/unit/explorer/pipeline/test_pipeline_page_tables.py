import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.algorithms.statistics import Estimate
from groupwise.explorer.pipeline import (
    CALCULATION,
    GENERAL,
    block,
    choose,
    inline,
    load_pipeline,
    markdown,
    pipeline_facts,
    same_problems,
    without_cost,
)
from groupwise.explorer.pipeline.tables import behaviour_table, data_table, stage_table, training_table
from groupwise.explorer.table import Cell, Table, compact, mark, text_cell
from groupwise.types import Outcome


def column(table: Table, name: str) -> dict[str, Cell]:
    """Cells of a column by the names of the lines."""
    (place,) = [i for i, each in enumerate(table.columns) if each.name == name]
    return {line.name: line.cells[place] for line in table.lines if line.cells}


def test_one_row_per_model_the_base_first(finished: Any) -> None:
    table = stage_table(load_pipeline(finished.path))
    assert [line.name for line in table.lines] == ["base", "zero", "cold_sft", "reasoning_rl", "sft", "final_rl"]
    assert [line.about for line in table.lines][:3] == ["the start", "grpo from base", "sft from base"]
    assert [(column.group, column.name) for column in table.columns] == [
        ("reasoning", "pass@1, %"), ("reasoning", "pass@8, %"), ("reasoning", "maj@8, %"),
        ("reasoning", "right form, %"), ("reasoning", "words in the asked language, %"),
        ("reasoning", "checks itself, %"), ("reasoning", "length, tokens"),
        ("general", "helpful, %"), ("general", "harmless, %"),
        ("tokens", "sampled"), ("tokens", "trained"), ("time", "minutes"),
    ]  # fmt: skip
    assert "reasoning: 200 problems × 8 samples; general: 60 problems × 4 samples; 95 % intervals" in table.note
    assert column(table, "sampled")["zero"] == Cell("1.24 M")
    assert (column(table, "minutes")["base"], column(table, "minutes")["zero"]) == (Cell("–"), Cell("1.6"))


def test_a_change_is_marked_against_the_model_it_came_from(finished: Any) -> None:
    shown = column(stage_table(load_pipeline(finished.path)), "pass@1, %")
    assert shown["base"] == Cell("42.0", "[39.0, 45.0]")
    assert shown["cold_sft"] == Cell("71.0", "[68.0, 74.0]", "↑")  # against base, not against zero
    assert str(shown["final_rl"]) == "95.5 ↑ [92.5, 98.5]"  # sft: [85, 91]
    # [4.7, 10.7] overlaps cold_sft's [3.8, 9.8]
    checks = column(stage_table(load_pipeline(finished.path)), "checks itself, %")
    assert checks["reasoning_rl"].mark == ""


@pytest.mark.parametrize(
    ("low", "high", "shown"), [(0.61, 0.7, "↑"), (0.6, 0.7, ""), (0.3, 0.4, ""), (0.3, 0.39, "↓"), (0.3, 0.7, "")]
)
def test_intervals_that_touch_are_not_marked(low: float, high: float, shown: str) -> None:
    assert mark(Estimate(0.5, low, high), Estimate(0.5, 0.4, 0.6)) == shown


def test_the_largest_k_is_shown(finished: Any) -> None:
    facts = finished.place("zero") / "facts.json"
    facts.write_text(facts.read_text().replace('"pass_at_8"', '"pass_at_4": [0.97, 0.96, 0.98], "pass_at_16"'))
    names = [each.name for each in stage_table(load_pipeline(finished.path)).columns]
    assert "pass@16, %" in names
    assert "pass@4, %" not in names


def test_several_tasks_are_groups_of_their_own(started: Any) -> None:
    path = started.place("zero") / "facts.json"
    path.write_text(path.read_text().replace('"reasoning"', '"sums"'))
    table = stage_table(load_pipeline(started.path))
    assert list(dict.fromkeys(each.group for each in table.columns)) == [
        "reasoning", "sums", "general", "tokens", "time"
    ]  # fmt: skip
    assert "sums: pass@1, %" in markdown(load_pipeline(started.path))


def test_what_was_not_measured_is_no_zero(started: Any) -> None:
    started.finish("zero", evaluation=None)
    line = stage_table(load_pipeline(started.path)).lines[1]
    assert {cell.value for cell in line.cells[:9]} == {"–"}


def test_one_problem_has_no_interval(finished: Any) -> None:
    facts = finished.place("zero") / "facts.json"
    measured = json.loads(facts.read_text())
    measured["evaluation"]["reasoning"]["pass_at_1"][1:] = [None, None]
    facts.write_text(json.dumps(measured))
    assert str(column(stage_table(load_pipeline(finished.path)), "pass@1, %")["zero"]) == "93.0"


def test_behaviour_has_a_row_per_metric_of_each_task(finished: Any) -> None:
    table = behaviour_table(load_pipeline(finished.path))
    assert [each.name for each in table.columns] == ["base", "zero", "cold_sft", "reasoning_rl", "sft", "final_rl"]
    general = [line for line in table.lines if line.group == "general"]
    assert [line.name for line in general] == ["length, tokens"]
    (loops,) = [line for line in table.lines if line.name == "loops, %"]
    assert loops.cells[0] == Cell("1.1", "[0.4, 1.8]")
    assert len(table.lines) == 15


def test_open_ended_tasks_are_known_by_their_kind_and_not_by_their_name(finished: Any) -> None:
    for path in finished.path.glob("stages/*/facts.json"):
        facts = json.loads(path.read_text())
        measured = facts.get("evaluation")
        if measured:
            general, reasoning = measured["general"], measured["reasoning"]
            measured = {"talk": {**general, "kind": "open_ended"}, "general": {**reasoning, "kind": "verified"}}
            path.write_text(json.dumps(facts | {"evaluation": measured}))
    table = stage_table(load_pipeline(finished.path))
    names = {group: [each.name for each in table.columns if each.group == group] for group in ("general", "talk")}
    assert names["talk"] == ["helpful, %", "harmless, %"]
    assert names["general"][0] == "pass@1, %"


def test_training_tells_where_each_run_began_and_ended(finished: Any) -> None:
    table = training_table(load_pipeline(finished.path))
    lines = {line.name: [cell.value for cell in line.cells] for line in table.lines}
    assert lines["zero"] == ["grpo", "20 of 20", "pass@1 on dev", "46.5 %", "92.1 %", "92.1 % after 20 steps"]
    assert lines["sft"] == ["sft", "20 of 20", "loss, nats per token", "0.750", "0.175", "–"]
    assert lines["helpful"][2:5] == ["accuracy on held-out pairs", "73.5 %", "86.3 %"]


def test_data_has_a_row_for_every_count(started: Any) -> None:
    started.finish("cold_start", statistics={"dropped": {"a": {"wrong": 40, "tags": 0}}, "rows": 10, "noise": 0.25})
    rows = [line for line in data_table(load_pipeline(started.path)).lines if line.name == "cold_start"]
    assert [tuple(cell.value for cell in line.cells) for line in rows] == [
        ("rows", "10"), ("noise", "0.25"), ("dropped a: wrong", "40"), ("dropped a: tags", "0"),
    ]  # fmt: skip


def test_only_the_cost_differs_between_two_runs(finished: Any) -> None:
    def parts() -> tuple[str, str]:
        before, cost = markdown(load_pipeline(finished.path)).split("## Cost\n")
        return before, cost

    before, cost = parts()
    assert without_cost(load_pipeline(finished.path)).rstrip() == before.rstrip()
    for path in finished.path.glob("stages/*/cost.json"):
        path.write_text('{"seconds": 1234.0, "evaluation_seconds": 99.0}')
    for path in finished.path.glob("stages/*/run/metrics.jsonl"):
        path.write_text(path.read_text().replace('"loss"', '"seconds": 17.0, "time": 1.5, "loss"'))
    again, other_cost = parts()
    assert again == before
    assert other_cost != cost
    assert "| zero | 1,243,520 | 812,003 | 20.6 | 1.6 |" in other_cost


def test_the_facts_repeat(started: Any) -> None:
    assert pipeline_facts(started.path, {}) == pipeline_facts(started.path, {})


def test_the_markdown_holds_the_same_tables(finished: Any) -> None:
    found = markdown(load_pipeline(finished.path))
    assert re.findall(r"^## (.*)$", found, re.MULTILINE) == [
        "Stages", "Training", "The same problems", "Data", "Behaviour", "Alarms", "Lineage", "Cost",
    ]  # fmt: skip
    assert "| model | reasoning: pass@1, % |" in found
    assert "| final_rl | 95.5 ↑ [92.5, 98.5] |" in found
    assert "| cold_start | dropped few_shot: not correct | 1,204 |" in found
    assert "| all stages | 11,191,680 |" not in found[: found.index("## Cost")]
    assert '  n1(["base<br/>start · 42.0 %"])\n' in found
    assert "  n1 --> n2\n" in found
    for part in found.split("\n## ")[1:]:  # every row of a table has all its columns
        assert len({line.count("|") for line in part.splitlines() if line.startswith("|")}) <= 1


def test_the_markdown_says_what_has_not_run(started: Any) -> None:
    found = markdown(load_pipeline(started.path))
    assert re.search(r"^\| cold_sft \| not run \| +\|", found, re.MULTILINE)
    assert "| cold_start | unfinished |" in found


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b\nc", "a\\|b c"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("[x](http://a)", "[x\\](http://a)"),
        ("`x` *y* \x1b[2J", "\\`x\\` \\*y\\* \\\\x1b[2J"),
        ("final_rl _x_", "final_rl \\_x\\_"),
        ("[39.0, 45.0]", "[39.0, 45.0]"),
    ],
)
def test_a_line_means_itself(text: str, shown: str) -> None:
    assert inline(text) == shown


@pytest.mark.parametrize("text", ["a", "```", "````\n# x", "`" * 9 + "\n" + "`" * 3])
def test_a_text_does_not_end_its_block(text: str) -> None:
    first, *inside, last, end = block(text).split("\n")
    assert first == last
    assert set(first) == {"`"}
    assert first not in "\n".join(inside)
    assert (inside, end) == (text.split("\n"), "")


def test_control_characters_are_spelled_out(started: Any, make_group: Callable[..., Any]) -> None:
    for name in ("base", "zero"):
        started.answers(name, [make_group("a", "b", "c", [("\x1b[2J</think>1", Outcome.WRONG)])])
    found = markdown(load_pipeline(started.path))
    assert "\x1b" not in found
    assert "\\x1b[2J</think>1" in found


@pytest.mark.parametrize(
    ("kinds", "found"),
    [("", ""), ("wcg", "cwg"), ("ccccg", "cccg"), ("cwzwcgg", "cwzg"), ("ggg", "g"), ("wwzw", "wzw")],
)
def test_problems_are_chosen_by_kind_and_place(kinds: str, found: str) -> None:
    names = {"c": CALCULATION, "w": "In words", "z": "In words, Chinese", "g": GENERAL}
    problems = {str(place): names[kind] for place, kind in enumerate(kinds)}
    picked = choose(problems)
    assert [problems[problem] for problem in picked] == [names[kind] for kind in found]
    assert len(set(picked)) == len(picked)
    for kind in set(found):  # the first of each kind is among them
        assert next(problem for problem in problems if problems[problem] == names[kind]) in picked


def test_only_problems_that_all_were_asked_are_shown(started: Any, make_group: Callable[..., Any]) -> None:
    right = [("x", Outcome.CORRECT)]
    started.answers("base", [make_group("1", "first", "1", right), make_group("2", "second", "1", right)])
    started.answers("zero", [make_group("2", "second", "1", right), make_group("3", "third", "1", right)])
    assert [one.question for one in same_problems(load_pipeline(started.path))] == ["second"]


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0"), (999, "999"), (1000, "1.00 k"), (53_120, "53.1 k"), (812_003, "812 k"), (10**9, "1.00 G")],
)
def test_counts_in_three_digits(count: int, shown: str) -> None:
    assert compact(count) == shown


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("46.5 % [43.5, 49.5]", Cell("46.5 %", "[43.5, 49.5]")),
        ("92.1 % [89.1, 95.1] after 20 steps", Cell("92.1 % after 20 steps", "[89.1, 95.1]")),
        ("says [so]", Cell("says [so]")),
        ("–", Cell("–")),
    ],
)
def test_an_interval_is_told_from_other_brackets(text: str, cell: Cell) -> None:
    assert text_cell(text) == cell


def test_the_directory_does_not_matter(finished: Any, tmp_path: Path) -> None:
    before = without_cost(load_pipeline(finished.path))
    assert without_cost(load_pipeline(finished.path.rename(tmp_path / "moved"))) == before
