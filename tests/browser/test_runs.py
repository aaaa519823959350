"""Runs in a real browser: what is shown is what the files say, hostile ones do nothing, big ones stay quick."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from written_results import write_budget, write_process
from written_run import CONFIG, HOSTILE, group, row, write_groups, write_hostile, write_run

from groupwise.config import parse
from groupwise.explorer.export import write_export, write_report
from groupwise.explorer.wire import short_hash
from groupwise.trainers import train
from groupwise.trainers.grpo import GrpoRecipe

pytestmark = pytest.mark.browser


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "first")


def origin(address: str) -> str:
    return address.partition("/#")[0]


def test_clicks_lead_from_the_run_to_the_token_of_the_file(
    tab: Callable[..., Any], served: Callable[..., Any], a_run: Path
) -> None:
    one, address = tab(), served(a_run).address
    page = one.page
    page.goto(address)
    page.wait_for_selector("[data-metric]")  # of one run, its page is the first
    assert page.inner_text("h1") == "first"
    assert page.locator("[data-metric]").count() == 3
    assert "token" not in page.url
    page.select_option("#steps", "s1")
    page.wait_for_selector(".virtual .row[data-row]")
    assert page.inner_text("#count") == "8 of 8 completions"
    page.click("tbody th a >> nth=0")
    page.wait_for_selector(".completion")
    recorded = pq.read_table(a_run / "rollouts" / "step-000001.parquet").to_pylist()[1]
    page.click("text=Completion 1")
    page.wait_for_selector("#tokens .tok")
    texts = page.eval_on_selector_all("#tokens .tok", "elements => elements.map((e) => e.textContent)")
    assert "".join(texts) == recorded["text"]
    page.select_option("#by", "entropy")
    page.hover("#tokens .tok >> nth=3")
    assert f"entropy, nats {recorded['entropy'][3]:.5g}"[:18] in page.inner_text("#reading")
    assert page.inner_text("[data-fact=reward]") == f"{recorded['reward']:g}"
    assert "groupwise replay" in page.inner_text("pre.command")
    assert one.foreign(origin(address)) == []


def test_a_step_shows_how_each_part_of_its_rewards_is_spread(
    tab: Callable[..., Any], served: Callable[..., Any], tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", steps=1)
    parts = [{"accuracy": float(i % 2), "judge": 0.1 * i, "<b>form</b>": 0.5} for i in range(8)]
    rows = [row(0, "p", i, ["a "] * 4, 1.0, reward_parts=json.dumps(part)) for i, part in enumerate(parts)]
    write_groups(run / "rollouts" / "step-000000.parquet", [rows])
    page, address = tab().page, served(run).address
    page.goto(address + "run/0/at/s0")
    page.wait_for_selector("#parts .card")
    assert page.locator("#parts h3").all_inner_texts() == ["<b>form</b>", "accuracy", "judge"]
    assert drawn(page, "#parts .card:nth-child(2)")[1] == [4, *[0] * 18, 4]  # four of each, at both ends
    hints = page.locator("#parts .hint").all_inner_texts()
    assert hints[0] == "mean 0.5 of 8 completions, the same for all"
    assert hints[2] == "mean 0.35 of 8 completions"
    page.goto(address + "run/0")
    page.wait_for_selector(".metric")
    assert page.locator("#parts").count() == 0


def drawn(page: Any, place: str) -> list[list[float | None]]:
    """The columns that a chart was given, x first."""
    page.wait_for_selector(f"{place} canvas")
    columns: list[list[float | None]] = page.evaluate(f"document.querySelector({place + ' .plot'!r}).plot.data")
    return columns


def names(page: Any, place: str) -> list[str]:
    """The lines of a chart, without the edges of bands."""
    page.wait_for_selector(f"{place} canvas")
    plot = f"document.querySelector({place + ' .plot'!r}).plot"
    found: list[str] = page.evaluate(
        f"{plot}.series.slice(1).filter((one) => one.class !== 'edge').map((one) => one.label)"
    )
    return found


def write_seeds(folder: Path) -> list[Path]:
    """Three seeds of one recipe, whose rewards differ by 0.1 from seed to seed, and a run of another recipe."""
    runs = []
    for seed in range(3):
        runs.append(write_run(folder / f"seed-{seed}", config=CONFIG.replace("seed = 7", f"seed = {seed}")))
        lines = [{"kind": "step", "step": step, "reward": 0.1 * (step + seed)} for step in range(3 + seed)]
        (runs[-1] / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [*runs, write_run(folder / "other", config=CONFIG.replace("epochs = 2", "epochs = 1"))]


def test_runs_lie_over_each_other_with_the_band_of_their_seeds(
    tab: Callable[..., Any], served: Callable[..., Any], tmp_path: Path
) -> None:
    page = tab().page
    page.goto(served(*write_seeds(tmp_path)).address + "overlay")
    page.wait_for_selector(".metric")
    reward = "[data-metric=reward]"
    assert names(page, reward) == ["seed-0", "seed-1", "seed-2", "other", "mean of 3 seeds"]
    *_, high, low, mean = drawn(page, reward)
    assert (low[2], mean[2], high[2]) == pytest.approx((0.2, 0.3, 0.4))
    # the last step that all three have is 2: 0.2, 0.3 and 0.4
    assert page.inner_text(f"{reward} .hint") == "step 2: 0.3 over 3 seeds, from 0.2 to 0.4"
    assert not any(name.startswith("mean") for name in names(page, "[data-metric=entropy]"))  # one run measured it
    assert "seed 2" in page.inner_text(".legends")
    page.uncheck("[data-run='1']")
    page.wait_for_selector(f"{reward} .hint:has-text('2 seeds')")
    assert names(page, reward) == ["seed-0", "seed-2", "other", "mean of 2 seeds"]
    assert page.inner_text(f"{reward} .hint") == "step 2: 0.3 over 2 seeds, from 0.2 to 0.4"
    assert "runs=0,2,3" in page.url
    page.uncheck("[data-run='0']")
    page.wait_for_selector(f"{reward} .hint", state="detached")
    page.click("text=seed-2 · seed 2")
    page.wait_for_selector("#doctor")


def test_the_page_of_a_run_says_what_the_doctor_finds(
    tab: Callable[..., Any], served: Callable[..., Any], tmp_path: Path
) -> None:
    run = write_run(tmp_path / "hopeless", steps=12)
    lines = [{"kind": "step", "step": step, "reward": 0.0, "signal": 0.0, "sampled_correct": 0.0} for step in range(12)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for step in range(12):
        write_groups(run / "rollouts" / f"step-{step:06d}.parquet", [group(step, "23×17", [0.0] * 8)])
    page = tab().page
    page.goto(served(run).address + "run/0")
    page.wait_for_selector("#doctor .finding")
    said = page.inner_text("#doctor")
    assert "no_signal" in said
    assert "Try, one at a time" in said
    page.click("#doctor .finding a >> nth=0")
    page.wait_for_selector(".completion, #tokens")
    assert "23×17" in page.inner_text("main")


def test_a_point_of_a_chart_opens_its_step_by_keyboard(
    tab: Callable[..., Any], served: Callable[..., Any], a_run: Path
) -> None:
    page, address = (one := tab()).page, served(a_run).address
    page.goto(address + "run/0")
    page.wait_for_selector("[data-metric=reward] canvas")
    page.focus("[data-metric=reward] .plot")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("[data-metric=reward] .plot", "aria-valuetext") == "step 1: reward 0.2"
    page.keyboard.press("Enter")
    page.wait_for_url("**/at/s1")
    page.wait_for_selector(".virtual .row[data-row]")
    page.focus(".virtual .row[data-row='0']")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("#tokens .tok")
    page.focus("#tokens .tok >> nth=0")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.i") == "1"
    assert "token 1 of 12" in page.inner_text("#reading")
    assert one.foreign(origin(address)) == []


def test_what_if_takes_the_group_along(tab: Callable[..., Any], served: Callable[..., Any], a_run: Path) -> None:
    page = tab().page
    page.goto(f"{served(a_run).address}run/0/at/s0/{short_hash('23×17')}")
    page.click("#what-if")
    page.wait_for_selector("#mean")
    assert "What is 23×17?" in page.inner_text("h1")
    assert page.inner_text("#mean") == "0.667"  # of 1, 0, 1; the verifier failed on the fourth
    assert page.input_value("#set-estimator") == "group_normalised"
    assert page.input_value("#set-clip_high") == "0.28"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps of the shipped model, some of whose answers are right."""
    folder = tmp_path_factory.mktemp("trained")
    values: dict[str, Any] = {
        "run": {"directory": str(folder / "run"), "num_steps": 2, "checkpoint_every": 2},
        "model": {"path": "base", "device": "cpu", "num_threads": 1},
        "task": {"kind": "arithmetic", "num_problems": 24, "num_eval_problems": 3},
        "grpo": {"prompts_per_step": 3, "group_size": 8},
        "sampling": {"max_tokens": 64},
        "evaluation": {"every": 2, "num_problems": 2, "num_samples": 2, "test_problems": 2, "test_samples": 2},
    }
    train(parse(GrpoRecipe, values))
    return folder / "run"


def test_a_run_trained_here_is_shown_as_its_files_say(
    tab: Callable[..., Any], served: Callable[..., Any], trained: Path
) -> None:
    page, address = tab().page, served(trained).address
    page.goto(address + "run/0")
    page.wait_for_selector(".metric")
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    page.click("#more summary")
    page.wait_for_selector("#more [data-metric]")
    names = page.eval_on_selector_all("[data-metric]", "elements => elements.map((e) => e.dataset.metric)")
    steps = [line for line in lines if line.get("kind", "step") == "step"]
    assert {name for name, value in steps[0].items() if type(value) is float} <= set(names)
    rows = pq.read_table(trained / "rollouts" / "step-000001.parquet").to_pylist()
    page.evaluate("location.hash = '/run/0/at/s1'")
    page.wait_for_selector(".virtual .row[data-row], [role=alert]")
    assert page.locator("[role=alert]").all_inner_texts() == []
    assert page.inner_text("#count") == f"{len(rows)} of {len(rows)} completions"
    row = next(row for row in rows if row["advantage"])
    page.evaluate(f"location.hash = '/run/0/at/s1/{short_hash(row['problem'])}/{row['sample']}'")
    page.wait_for_selector("#tokens .tok")
    assert page.locator("#tokens .tok").count() == len(row["token_ids"])
    page.focus("#tokens .tok >> nth=0")
    page.keyboard.press("ArrowRight")
    reading = page.inner_text("#reading")
    shown = float(re.findall(r"\(sampler\) (\S+)", reading)[0].replace("−", "-"))
    assert shown == pytest.approx(row["sampling_logprobs"][1], rel=1e-4)
    assert f"id {row['token_ids'][1]}" in reading
    told = page.inner_text("[data-fact=advantage]").replace("−", "-")
    assert float(told) == pytest.approx(row["advantage"], abs=1e-4)


def test_two_evaluations_are_compared(tab: Callable[..., Any], served: Callable[..., Any], a_run: Path) -> None:
    page = tab().page
    before, after = (f"0.e{short_hash(name)}" for name in ("test-before", "test-after"))
    page.goto(f"{served(a_run).address}compare?a={before}&b={after}")
    page.wait_for_selector("#verdict")
    assert "1 problem in both: 1 gained, 0 lost" in page.inner_text("#verdict")
    page.click("[data-problem]")
    page.wait_for_selector(".completion")
    assert page.locator("ins, del").count() > 0


def test_without_the_token_nothing_is_told(tab: Callable[..., Any], served: Callable[..., Any], a_run: Path) -> None:
    one = tab()
    one.page.goto(origin(served(a_run).address))
    one.page.wait_for_selector("[role=alert]")
    assert "token" in one.page.inner_text("[role=alert]")
    assert all("403" in error for error in one.errors)  # the browser's own line about the refusal
    one.errors.clear()


def test_a_live_run_grows_on_the_page(tab: Callable[..., Any], served: Callable[..., Any], a_run: Path) -> None:
    page = tab().page
    page.goto(served(a_run).address + "run/0")
    page.wait_for_selector(".facts")
    with (a_run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "step", "step": 3, "reward": 0.9}) + "\n")
    page.wait_for_selector(".facts dd >> text=4 of 3", timeout=15_000)


def test_results_are_on_the_list_and_show_their_files(
    tab: Callable[..., Any], served: Callable[..., Any], tmp_path: Path
) -> None:
    pipeline, budget = write_process(tmp_path / "judged"), write_budget(tmp_path / "budget")
    write_run(pipeline / "stages" / "judges" / "run", steps=2)
    page, address = (one := tab()).page, served(pipeline, budget).address
    page.goto(address)
    page.wait_for_selector(".results")
    assert page.locator(".results h2 a").all_inner_texts() == ["judged", "judged · judges", "budget"]
    page.click(".results >> text=judged · judges")
    page.wait_for_selector("[data-figure=auc]")
    assert page.locator("[data-figure=auc] td").all_inner_texts() == ["–", "93.0 %", "84.0 %"]
    assert page.locator("[data-figure=f1] td").all_inner_texts() == ["–", "0.81", "–"]
    page.goto("about:blank")
    page.goto(address)
    page.focus(".results h2 a >> nth=2")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-figure='Accuracy over tokens']")
    row = page.locator("[aria-label='budget 4'] tr", has_text="best_of_n/orm").locator("td").all_inner_texts()
    assert row[:2] == ["59.0 % [54.0, 64.0]", "−1.0 [−11.0, +9.0]"]
    row = page.locator("[aria-label='budget 4'] tr", has_text="control/constant").locator("td").all_inner_texts()
    assert row[2] == "−20.0 % [−50.0, 10.0]"
    figure = "[data-figure='Accuracy over tokens']"
    assert names(page, figure) == ["pass@k", "one sample", "majority", "best, outcome", "best, steps", "beam, vote"]
    columns = drawn(page, figure)
    assert (columns[0], columns[12][1]) == ([50, 200, 800], pytest.approx(0.59))  # three columns for each of four
    page.goto("about:blank")
    page.goto(address + "pipeline/0")
    page.wait_for_selector(".lineage svg")
    assert page.locator(".lineage .box").count() == 2  # the base model and the stage
    page.click("table.values a >> text=judges >> nth=0")
    page.wait_for_selector("h1:has-text('judged · judges')")
    page.wait_for_selector(".metric")
    assert one.foreign(origin(address)) == []


def test_a_loss_is_in_nats_also_where_it_is_below_one(
    tab: Callable[..., Any], served: Callable[..., Any], tmp_path: Path
) -> None:
    pipeline = write_process(tmp_path / "judged")
    run = write_run(pipeline / "stages" / "judges" / "run", steps=2)
    lines = [json.dumps({"kind": "step", "step": step, "loss": 0.5}) + "\n" for step in range(2)]
    (run / "metrics.jsonl").write_text("".join(lines))
    page = tab().page
    page.goto(served(pipeline).address + "pipeline/0")
    page.wait_for_selector(".u-legend >> text=loss, nats per token")
    legend = page.inner_text(".u-legend")
    assert "0.5" in legend
    assert "%" not in legend


def test_a_hostile_result_is_shown_and_does_nothing(
    tab: Callable[..., Any], served: Callable[..., Any], tmp_path: Path
) -> None:
    budget, pipeline = write_budget(tmp_path / "budget"), write_process(tmp_path / "judged")
    with (budget / "budget.jsonl").open("a") as file:
        for text in HOSTILE:
            point = {"accuracy": [0.5, None, 9e99], "policy_tokens": 1e300, "budget": 2, "by_difficulty": {text: [1]}}
            file.write(json.dumps({"kind": "point", "method": text, **point}) + "\n")
            file.write(json.dumps({"kind": "flips", text: text}) + "\n")
            file.write(json.dumps({"kind": "optimal", "difficulty": text, "methods": {text: {text: 1}}}) + "\n")
            file.write(json.dumps({"kind": "equal_tokens", "method": text, "against": text}) + "\n")
    rows = "".join(json.dumps({"judge": text, text: [0.5, text, None]}) + "\n" for text in HOSTILE)
    (pipeline / "stages" / "judges" / "data.jsonl").write_text(rows)
    facts = pipeline / "stages" / "judges" / "facts.json"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "statistics": {text: text for text in HOSTILE}}))
    page, address = (one := tab()).page, served(budget, pipeline).address
    for path in ("budget/0", "pipeline/1", "process/2"):
        page.goto("about:blank")
        page.goto(address + path)
        page.wait_for_selector("main h1, [role=alert]")
        assert page.locator("[role=alert]").all_inner_texts() == []
        assert page.evaluate("window.hacked") is None
        assert page.locator("main script, main img, main iframe").count() == 0
    assert one.foreign(origin(address)) == []


@pytest.mark.parametrize("exported", [False, True])
def test_a_hostile_run_is_shown_and_does_nothing(
    tab: Callable[..., Any], served: Callable[..., Any], tmp_path: Path, exported: bool
) -> None:
    run = write_hostile(tmp_path / "hostile")
    base = f"{write_export([run], tmp_path / 'page.html').as_uri()}#/" if exported else served(run).address
    one = tab()
    page = one.page
    problem = f"run/0/at/s0/{short_hash(HOSTILE[0])}"
    for path in (
        "",
        "run/0",
        "run/0/at/s0",
        problem,
        *(f"{problem}/{n}" for n in range(len(HOSTILE) + 1)),
        "compare",
        "overlay",
    ):
        page.goto("about:blank")
        page.goto(base + path)
        page.wait_for_selector("h1, [role=alert]")
        assert page.evaluate("window.hacked") is None
        assert page.locator("main script, main img, main iframe").count() == 0
        assert page.locator("[role=alert]").count() == 0 or exported
    page.goto("about:blank")
    page.goto(base + problem + "/4")
    page.wait_for_selector("#tokens")
    assert "⟨U+202E⟩gnp.exe" in page.inner_text("#tokens")
    assert one.foreign(base.partition("/#")[0] if not exported else "file://") in ([], ["about:blank"])


def test_damaged_and_missing_things_are_named(tab: Callable[..., Any], served: Callable[..., Any], a_run: Path) -> None:
    (a_run / "rollouts" / "step-000001.parquet").write_bytes(b"PAR1 cut")
    one = tab()
    address = served(a_run).address
    one.page.goto(address + "run/0/at/s1")
    one.page.wait_for_selector(".notice")
    assert "cannot be read" in one.page.inner_text(".notice")
    one.page.goto("about:blank")
    one.page.goto(address + "run/7")
    one.page.wait_for_selector("[role=alert]")
    assert "there is no run 7" in one.page.inner_text("[role=alert]")
    one.errors.clear()  # the browser's own line about the 404


def test_an_exported_run_opens_from_a_file(tab: Callable[..., Any], a_run: Path, tmp_path: Path) -> None:
    one = tab()
    address = write_export([a_run], tmp_path / "page.html").as_uri()
    for path, wanted in (
        ("/", "text=first"),
        ("/run/0", ".metric"),
        ("/run/0/at/s0", ".virtual .row[data-row]"),
        (f"/run/0/at/s0/{short_hash('23×17')}/2", "#tokens .tok"),
    ):
        one.page.goto("about:blank")
        one.page.goto(f"{address}#{path}")
        one.page.wait_for_selector(wanted)
    assert [url for url in one.requests if not url.startswith(("file://", "data:", "about:"))] == []


@pytest.mark.parametrize("width", [360, 640, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_and_keeps_nobody_out(
    tab: Callable[..., Any], a_run: Path, tmp_path: Path, axe: str, width: int, scheme: str
) -> None:
    others = [write_process(tmp_path / "judged"), write_budget(tmp_path / "budget")]
    address = write_export([a_run, *others], tmp_path / "page.html").as_uri()
    one = tab(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problem = f"/run/0/at/s0/{short_hash('23×17')}"
    wanted = {
        "/": ".card",
        "/run/0": ".metric",
        "/run/0/at/s0": ".virtual .row[data-row]",
        problem: ".completion",
        f"{problem}/2": "#tokens .tok",
        "/compare": "#verdict",
        "/overlay": ".legends",
        "/pipeline/0": ".lineage",
        "/process/1": "[data-figure=auc]",
        "/budget/2": "[data-figure]",
    }
    found = []
    for path, element in wanted.items():
        one.page.goto("about:blank")
        one.page.goto(f"{address}#{path}")
        one.page.wait_for_selector(element)
        assert one.page.evaluate("document.documentElement.scrollWidth") <= width, path
        one.page.evaluate(axe)
        for each in one.page.evaluate("axe.run().then((answer) => answer.violations)"):
            if each["impact"] in ("serious", "critical"):
                found.append((path, each["id"], each["nodes"][0]["html"][:160]))
    assert found == []


@pytest.mark.slow
def test_ten_thousand_completions_are_listed_with_few_elements(
    tab: Callable[..., Any], served: Callable[..., Any], tmp_path: Path
) -> None:
    """`lab/benchmarks/explorer.py` measures how quick it is."""
    run = write_run(tmp_path / "big", steps=1)
    one = row(0, "p", 0, ["word "] * 20, 1.0)
    groups = (
        [{**one, "problem": f"problem {g}", "sample": i, "reward": float(i % 2)} for i in range(16)] for g in range(625)
    )
    write_groups(run / "rollouts" / "step-000000.parquet", groups)
    page, address = tab().page, served(run).address
    page.goto(address + "run/0/at/s0")
    page.wait_for_selector(".virtual .row[data-row='0']")
    assert page.inner_text("#count") == "10,000 of 10,000 completions"
    assert page.locator(".virtual .row").count() < 60
    page.focus(".virtual .row[data-row='0']")
    page.keyboard.press("End")
    page.wait_for_selector(".virtual .row[data-row='9999']")
    assert "problem 624" in page.inner_text(".virtual .row[data-row='9999']")


def test_a_report_reads_without_scripts(tab: Callable[..., Any], a_run: Path) -> None:
    page = tab(java_script_enabled=False).page
    page.goto(write_report(a_run).as_uri())
    assert page.inner_text("h1") == "first"
    assert "step 2" in page.inner_text("main")
    assert "0.400" in page.inner_text("main")


def test_the_report_of_a_run_is_on_its_page(tab: Callable[..., Any], a_run: Path) -> None:
    page = tab().page
    page.goto(write_report(a_run).as_uri())
    page.wait_for_selector("#tables [data-section='Before and after']")
    assert page.locator("[data-panel='Problems solved'] canvas").count() == 1
    assert names(page, "[data-panel='Problems solved']") == ["training reward"]
    page.click("[data-section='The same problems, before and after'] summary >> nth=0")
    assert page.locator(".asked[open] .completion h2").count() == 2


def test_dragging_zooms_and_the_theme_changes_the_colours(tab: Callable[..., Any], a_run: Path) -> None:
    page = tab(viewport={"width": 1280, "height": 900}).page
    page.goto(write_export([a_run], a_run.parent / "page.html").as_uri())
    chart = "[data-metric=reward]"
    page.wait_for_selector(f"{chart} canvas")
    page.locator(f"{chart} .u-over").scroll_into_view_if_needed()
    box = page.locator(f"{chart} .u-over").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20, steps=4)
    page.mouse.up()
    scale = f"document.querySelector({chart + ' .plot'!r}).plot.scales.x"
    assert page.evaluate(f"{scale}.max") < 1.5
    assert "/at/" not in page.url  # a drag opens nothing
    stroke = (
        f"(() => {{ const p = document.querySelector({chart + ' .plot'!r}).plot; return p.series[1].stroke(p, 1); }})()"
    )
    before = page.evaluate(stroke)
    page.click("#theme")
    assert page.evaluate(stroke) != before
