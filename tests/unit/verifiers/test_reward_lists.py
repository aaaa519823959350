"""Reward functions in TRL's form: lists in, one value per completion out, whatever type; arguments, logs, groups."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from groupwise.errors import InvariantError
from groupwise.tasks.base import Template
from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, Prompt, ScoredGroup
from groupwise.verifiers import Request, Verifier, make_verifier, part_statistics, score, spot_check

SOURCE = """
import asyncio, functools, os, sys, time
from decimal import Decimal
import numpy as np

def words(completions, **kwargs): return [float(len(c)) for c in completions]
def lengths(completions, terms, **kwargs):
    if "crash" in completions: raise ValueError("odd text")
    return [None if c == "skip" else float(len(c) + terms[0][0]) for c in completions]
def messages(prompts, completions): return [float(
    p == [{"role": "system", "content": "S"}, {"role": "user", "content": "Q: What is 1 + 2?\\n"}]
    and c == [{"role": "assistant", "content": "3"}]) for p, c in zip(prompts, completions)]

def array(completions, **kwargs): return np.array(words(completions))
def halves(completions, **kwargs): return np.array(words(completions), np.float16)
def objects(completions, **kwargs): return np.array([None if c == "a" else 1 for c in completions], object)
def pair(completions, **kwargs): return tuple(words(completions))
def scalars(completions, **kwargs): return [np.float32(len(c)) for c in completions]
def decimals(completions, **kwargs): return [Decimal(len(c)) for c in completions]
def flags(completions, **kwargs): return [len(c) > 1 for c in completions]
def generated(completions, **kwargs): yield from words(completions)
def mapped(completions, **kwargs): return map(len, completions)
def tensor(completions, **kwargs):
    import torch
    return torch.tensor(words(completions), dtype=torch.bfloat16, requires_grad=True)
def zeros_d(completions, **kwargs):
    import torch
    return [torch.tensor(len(c)) for c in completions]
SAME = []
def same_list(completions, **kwargs): SAME[:] = words(completions); return SAME
def changes(completions, terms, **kwargs):
    values = [len(c) + terms[0][0] - 1 for c in completions]
    completions.clear(); terms[0].clear()
    return values
def moves(completions, **kwargs): os.chdir("/"); return words(completions)

async def later(completions, **kwargs): await asyncio.sleep(0); return words(completions)
async def one_later(completion): await asyncio.sleep(0); return float(len(completion))
async def yields(completions, **kwargs):
    for value in words(completions): yield value
class Later:
    async def __call__(self, completions, **kwargs): await asyncio.sleep(0); return words(completions)
class Inherits(Later): pass
async def times(completions, factor, **kwargs): return [factor * v for v in words(completions)]
once = functools.partial(times, factor=1)
lock = None
async def keeps_its_loop(completions, **kwargs):
    global lock
    lock = lock or asyncio.get_running_loop()
    assert lock is asyncio.get_running_loop()
    return words(completions)

def one_for_all(completions, **kwargs): return [1.0]
def too_many(completions, **kwargs): return np.ones(len(completions) + 1)
def number(completions, **kwargs): return 1.0
def zero_d(completions, **kwargs): return np.array(1.0)
def nothing(completions, **kwargs): pass
def table(completions, **kwargs): return dict.fromkeys(completions, 1.0)
def a_set(completions, **kwargs): return set(words(completions))
def text(completions, **kwargs): return "1" * len(completions)
def columns(completions, **kwargs): return np.ones((len(completions), 2))
def logs_too_few(completions, log_extra, **kwargs): log_extra("x", [1]); return words(completions)
def stops(completions, **kwargs): sys.exit(3)
def fails_together(completions, **kwargs):
    if len(completions) > 1: raise RuntimeError("only one at a time")
    return [1.0]
def odd(completions, **kwargs):
    odd_values = {"nan": float("nan"), "text": np.str_("0.5"), "complex": np.complex128(1 + 2j),
                  "time": np.datetime64("2020"), "long": 10**5000, "array": np.ones(1)}
    return [odd_values.get(c, 1.0) for c in completions]

def ids(completion_ids, **kwargs): return [float(sum(i)) for i in completion_ids]
def ids_by_name(completions, **kwargs): return [float(sum(i)) for i in kwargs["completion_ids"]]
def ids_or_not(completions, completion_ids=None): return [float(completion_ids is None)] * len(completions)
def state(completions, trainer_state, **kwargs):
    return [trainer_state.global_step / trainer_state.max_steps] * len(completions)
def epoch(completions, trainer_state, **kwargs): return [trainer_state.epoch] * len(completions)
def logs(completions, log_metric, log_extra=None, **kwargs):
    log_metric("math/mean", 2); log_metric("math/mean", np.float32(4))
    log_extra("length", [len(c) for c in completions]); log_extra("said", [c.upper() for c in completions])
    return words(completions)

def rank(completions, **kwargs):
    order = sorted(range(len(completions)), key=lambda i: len(completions[i]))
    values = [0.0] * len(completions)
    for place, i in enumerate(order): values[i] = place / len(order)
    if "crash" in completions: raise ValueError("odd text")
    return values
def unordered(completions, **kwargs): return sorted(words(completions))
CALLS = []
def counts(completions, **kwargs): CALLS.append(0); return [float(len(CALLS))] * len(completions)
def sleeps(completions, **kwargs):
    time.sleep(60 if "sleep" in completions else 0.4 * len(completions))
    return words(completions)
"""
PROBLEM = Problem("p", "What is 1 + 2?", "3", data={"terms": [1, 2]})
TEMPLATE = Template(prompt="Q: {question}\n")
TEXTS = ("a", "bb", "ccc")
Make = Callable[..., Verifier]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("lists") / "mine.py"
    file.write_text(SOURCE)
    return file


@pytest.fixture
def make(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    made: list[Verifier] = []
    monkeypatch.chdir(file.parent)

    def make(name: str, template: Template = TEMPLATE, **dials: object) -> Verifier:
        made.append(make_verifier({"kind": f"{file}:{name}", "timeout_s": 2.0, **dials}))
        made[-1].check([PROBLEM], template)
        return made[-1]

    yield make
    for verifier in made:
        verifier.close()


def group(*texts: str, step: int = 0) -> Group:
    completions = []
    for index, text in enumerate(texts):
        zeros = np.zeros(len(text), np.float32)
        ids = np.frombuffer(text.encode(), np.uint8).astype(np.int64)
        completions.append(Completion(index, ids, zeros, zeros, FinishReason.STOP, text))
    return Group(Prompt(PROBLEM, "q", (1,)), tuple(completions), step, 0)


def rewards(verifier: Verifier, *texts: str, step: int = 0) -> list[float | None]:
    return [verdict.reward for verdict in score([group(*texts, step=step)], verifier)[0].verdicts]


@pytest.mark.parametrize("name", [
    "words", "array", "halves", "pair", "scalars", "decimals", "generated", "mapped", "tensor", "zeros_d", "same_list",
    "changes", "moves", "later", "yields", "Later", "Inherits", "once", "keeps_its_loop",
])  # fmt: skip
def test_whatever_holds_one_number_per_completion(make: Make, name: str) -> None:
    verifier = make(name, timeout_s=60.0)  # torch is imported in a call
    assert rewards(verifier, *TEXTS) == [1.0, 2.0, 3.0]
    assert rewards(verifier, *TEXTS[1:]) == [2.0, 3.0]  # in the same process


def test_other_values(make: Make) -> None:
    assert rewards(make("objects"), "a", "b") == [None, 1.0]
    assert rewards(make("flags"), "a", "bb") == [0.0, 1.0]


def test_async_on_one_completion(make: Make) -> None:
    assert make("one_later", num_workers=2).verify_many([Request(PROBLEM, text) for text in TEXTS])[2].reward == 3.0


@pytest.mark.parametrize(("name", "evidence"), [
    ("one_for_all", r"returned 1 values \(exactly one per completion is needed\) for 3 completions"),
    ("too_many", r"returned 4 values \(exactly one per completion is needed\) for 3 completions"),
    ("number", r"returned 1.0 \(a float\) \(a list of 3 values is needed\)"),
    ("zero_d", r"array\(1.\) \(a ndarray\) \(a"), ("nothing", r"None \(a NoneType\) \(a"),
    ("table", r"\(a dict\) \(a"), ("a_set", r"\(a set\) \(a"),
    ("text", r"'111' \(a str\) \(a"), ("columns", r"returned array\(\[1., 1.\]\) \(a ndarray\)"),
    ("stops", r"called exit\(3\)"),
    ("fails_together", "raised RuntimeError: only one at a time .*for 3 completions, the first 'a'"),
])  # fmt: skip
def test_a_failure_of_the_function_is_a_verdict_on_none(make: Make, name: str, evidence: str) -> None:
    verdicts = score([group(*TEXTS)], make(name))[0].verdicts
    assert {verdict.outcome for verdict in verdicts} == {Outcome.CRASHED}
    assert re.search(rf"mine.py:{name} .*{evidence}", verdicts[0].evidence), verdicts[0].evidence


def test_an_odd_value_is_a_failure_on_its_completion_alone(make: Make) -> None:
    texts = ("ok", "nan", "text", "complex", "time", "long", "array")
    verdicts = score([group(*texts)], make("odd"))[0].verdicts
    assert [verdict.reward for verdict in verdicts] == [1.0, *[None] * 6]
    assert "returned nan (a float) for the completion 'nan'; a finite number" in verdicts[1].evidence
    assert "something (a int) for the completion 'long'" in verdicts[5].evidence


def test_one_that_raises_is_left_out_and_the_others_are_judged_together(make: Make) -> None:
    assert rewards(make("lengths"), "ab", "skip", "crash", "abcd") == [3.0, None, None, 5.0]  # plus the first term, 1
    assert rewards(make("rank"), "ccc", "a", "crash", "bb") == pytest.approx([2 / 3, 0.0, None, 1 / 3])


def test_deadline_is_for_each_completion(make: Make) -> None:
    verifier = make("sleeps", timeout_s=0.6)
    assert rewards(verifier, *TEXTS) == [1.0, 2.0, 3.0]
    verdicts = score([group("a", "sleep")], verifier)[0].verdicts
    assert [verdict.outcome for verdict in verdicts] == [Outcome.CORRECT, Outcome.TIMEOUT]


def test_arguments_that_trl_gives(make: Make) -> None:
    assert rewards(make("ids"), "ab", "c") == rewards(make("ids_by_name"), "ab", "c") == [195.0, 99.0]
    assert rewards(make("ids_or_not"), "ab") == [0.0]
    state = make("state")
    state.begin(40)
    assert rewards(state, "a", step=10) == [0.25]
    (verdict,) = score([group("a")], make("epoch"))[0].verdicts
    assert "trainer_state.epoch is not known here; known is global_step" in verdict.evidence
    with make("messages", TEMPLATE.model_copy(update={"chat": True, "system": "S"})) as chat:
        assert rewards(chat, "3", "4") == [1.0, 0.0]


@pytest.mark.parametrize(("name", "outcome"), [
    ("ids", Outcome.NONE), ("ids_by_name", Outcome.NONE), ("ids_or_not", Outcome.CORRECT),
])  # fmt: skip
def test_a_text_that_was_not_sampled_has_no_tokens(make: Make, name: str, outcome: Outcome) -> None:
    verdict = make(name).verify(PROBLEM, "ab")
    assert verdict.outcome is outcome, verdict.evidence
    assert outcome is Outcome.CORRECT or "reads completion_ids, and no model sampled this text" in verdict.evidence


def test_what_it_logs_is_recorded(make: Make) -> None:
    scored = score([group(*TEXTS)], make("logs"))
    assert scored[0].verdicts[1].measures == {"math/mean": 3.0, "length": 2.0}
    assert scored[0].verdicts[1].evidence.endswith("returned 2; said: BB")
    statistics = part_statistics(scored)
    assert (statistics["measure/math/mean/mean"], statistics["measure/length/mean"]) == (3.0, 2.0)


def test_a_column_is_as_long_as_the_group(make: Make) -> None:
    (verdict, *_) = score([group(*TEXTS)], make("logs_too_few"))[0].verdicts
    assert "logged 1 values of 'x' (exactly one per completion is needed) for 3 completions" in verdict.evidence


def test_groups_are_judged_apart_even_of_one_problem(make: Make) -> None:
    first, second = score([group("a", "bb"), group("ccc", "d", "ee")], make("rank", num_workers=2))
    assert (first.rewards, second.rewards) == ((0.0, 0.5), pytest.approx((2 / 3, 0.0, 1 / 3)))


def test_one_that_compares_the_group_is_recognised(make: Make) -> None:
    texts = [c * (i + 1) for i, c in enumerate("dbfcaehg")]
    verifier = make("rank")
    scored = score([group(*texts)], verifier)
    for step in range(3):
        spot_check(scored, verifier, None, step)
    rolled = [ScoredGroup(scored[0].group, (*scored[0].verdicts[1:], scored[0].verdicts[0]))]
    with pytest.raises(InvariantError, match="wrong completions"):
        spot_check(rolled, verifier, None, 0)


@pytest.mark.parametrize(("name", "texts"), [
    ("rank", ["same"] * 6), ("unordered", ["ffffff", "eeeee", "dddd", "ccc", "bb", "a"]), ("counts", ["a", "b"]),
])  # fmt: skip
def test_one_that_goes_by_order_is_named_with_its_key(make: Make, name: str, texts: list[str]) -> None:
    verifier = make(name)
    scored = score([group(*texts)], verifier)
    with pytest.raises(InvariantError, match=rf"mine.py:{name} does not repeat .*verifier\.repeatable = false"):
        spot_check(scored, verifier, None, 0)
    spot_check(scored, make(name, repeatable=False), None, 0)
