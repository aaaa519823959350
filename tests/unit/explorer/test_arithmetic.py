"""The page's arithmetic is that of `groupwise.algorithms`, to rounding; run by node where it is installed."""

import json
import math
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from parity_cases import STATIC, all_cases

HERE = Path(__file__).parent
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's modules where every node takes them for such."""
    folder = tmp_path_factory.mktemp("modules")
    for source in [*STATIC.glob("*.js"), HERE / "parity.mjs", HERE / "differences.mjs"]:
        shutil.copy(source, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def run_node(*command: str, given: str = "") -> Any:
    result = subprocess.run(["node", *command], input=given, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def printed(modules: Path, name: str, program: str) -> Any:
    """What an expression gives, in which `page` is a module of the page."""
    begin = f'const page = await import("file://{modules}/{name}");'
    return run_node("--input-type=module", "--eval", f"{begin} process.stdout.write(JSON.stringify({program}))")


@needs_node
def test_it_equals_the_algorithms_on_a_thousand_groups(modules: Path) -> None:
    worst = run_node(str(modules / "parity.mjs"), str(modules), given=json.dumps(all_cases()))
    assert worst.pop("count") > 10_000
    assert "names" not in worst, f"the page's table of {worst['names']} has other kinds than the registry"
    assert worst.pop("clipped") == 0
    assert max(worst.values()) <= 1e-12, worst


REWARDS = "[1, 1, 0, 1, 0, 1, 0, 1]"
ADVANTAGES = f'page.stepAdvantages("group_normalised", [{REWARDS}])[0]'


@needs_node
def test_the_seeds_numbers_come_out(modules: Path) -> None:
    program = f"[page.mean({REWARDS}), page.std({REWARDS}), Math.max(...{ADVANTAGES}), Math.min(...{ADVANTAGES})]"
    assert [round(n, 3) for n in printed(modules, "arithmetic.js", program)] == [0.625, 0.484, 0.774, -1.291]


@needs_node
def test_the_policy_is_a_distribution_and_the_update_the_one_worked_by_hand(modules: Path) -> None:
    """One step of size 2.5 from 1/8 each: logits move by 2.5 Â / 8, and the softmax of those sums to 1."""
    settings = """{ aggregation: "sequence", epochs: 3, step_size: 2.5, kl_coef: 0, kl_estimator: "k3",
        kl_corrected: false, loss: "clipped_ratio", clip_low: 0.2, clip_high: 0.2, dual_clip: 0, max_tokens: 64 }"""
    moves = printed(modules, "arithmetic.js", f"page.policyMoves({ADVANTAGES}, Array(8).fill(40), {settings}).moves")
    for move in moves:
        assert sum(move["policy"]) == pytest.approx(1, abs=1e-12)
    right, wrong = (math.exp(2.5 * value / 8) for value in (0.774436702, -1.290727837))
    total = 5 * right + 3 * wrong
    assert moves[1]["policy"][0] == pytest.approx(right / total, abs=1e-9)
    assert moves[1]["policy"][2] == pytest.approx(wrong / total, abs=1e-9)
    assert all(moves[1]["clipped"])  # 1.217 > 1.2 and 0.638 < 0.8
    assert moves[2]["policy"] == moves[1]["policy"]  # so the second update moves nothing


@needs_node
@pytest.mark.parametrize(
    ("rewards", "kind"),
    [
        ([1, 0, 1, 0], "mixed"), ([1, 1, 1], "right"), ([0, 0, 0], "wrong"), ([0, 0, 1, 0], "one"),
        ([0.5, 0.501, 0.5], "near"), ([None, None], "failed"),
    ],
)  # fmt: skip
def test_every_kind_of_group_has_its_sentence(modules: Path, rewards: list[float | None], kind: str) -> None:
    group = json.dumps([{"reward": reward, "truncated": False} for reward in rewards])
    said = printed(modules, "insight.js", f'page.insight({group}, "group_normalised")')
    assert said["kind"] == kind
    assert len(said["text"]) > 40


@needs_node
def test_truncated_and_unjudged_completions_are_told_of(modules: Path) -> None:
    group = json.dumps([{"reward": 1, "truncated": True}, {"reward": None, "truncated": False}, {"reward": 0}])
    failed, truncated = printed(modules, "insight.js", f'page.insight({group}, "group_mean").notes')
    assert "verifier failed on 1 completion" in failed
    assert "1 completion ran into the token limit" in truncated


@needs_node
def test_words_that_changed_are_found(modules: Path) -> None:
    program = 'page.wordDiff("it is 381 so", "it is 391 so").filter(([kind]) => kind !== "same")'
    assert printed(modules, "compare.js", program) == [["del", "381"], ["ins", "391"]]


@needs_node
def test_long_texts_are_said_to_be_cut(modules: Path) -> None:
    texts = [{"text": "a " * number, "cut": cut} for number, cut in ((700, 0), (800, 0), (1, 5))]
    program = f"{json.dumps(texts)}.map((one) => page.isCut(one, {{text: 'a', cut: 0}}))"
    assert printed(modules, "compare.js", program) == [False, True, True]


@needs_node
def test_different_questions_of_one_name_are_not_compared(modules: Path) -> None:
    def place(questions: Sequence[str | None], correct: int) -> str:
        groups = [
            {"id": name, "problem": name, "question": question, "num_judged": 1, "num_correct": correct}
            for name, question in zip("ab", questions, strict=True)
        ]
        return json.dumps({"groups": groups})

    for others, same, left_out in (("qr", ["a", "b"], []), ("qx", ["a"], ["b"]), ((None, None), ["a", "b"], [])):
        both = f"{place('qr', 0)}, {place(others, 1)}"
        program = f"[page.changes({both}).map((one) => one.id), page.strangers({both}).map((one) => one.id)]"
        assert printed(modules, "compare.js", program) == [same, left_out]


@needs_node
def test_a_seed_that_ran_twice_is_one_seed(modules: Path) -> None:
    runs = [{"recipe": "r", "seed": seed, "done": done} for seed, done in ((0, 3), (0, 9), (1, 9), (0, 9))]
    assert printed(modules, "overlay.js", f"page.families({json.dumps(runs)})") == [[1, 2]]
    assert printed(modules, "overlay.js", f"page.families({json.dumps(runs[:2])})") == []


@needs_node
def test_control_and_direction_characters_are_seen(modules: Path) -> None:
    found = printed(modules, "dom.js", "page.shown('a\\u0000b\\u202ec\\nd')")
    assert found == "a␀b⟨U+202E⟩c\nd"
