"""What a judge says becomes a verdict, or says nothing about the completion."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import ConfigError
from groupwise.types import Outcome, Problem
from groupwise.verifiers import Request, make_verifier
from groupwise.verifiers.judge import JudgeVerifier, Opinion, read_reply, rule


@pytest.mark.parametrize(
    ("said", "outcome", "reward"),
    [("CORRECT", "correct", 2.0), ("WRONG", "wrong", 0.0), ("CANNOT JUDGE", "crashed", None)],
)
def test_correctness(endpoint: Any, problem: Problem, said: str, outcome: str, reward: float | None) -> None:
    endpoint.behaviour = lambda exchange, _: exchange.say(f"Let me see.\nVERDICT: {said}")
    config = {"correct_reward": 2.0, "judge": {"url": endpoint.url + "/", "model": "examiner"}}
    verdict = make_verifier({"kind": "judge", **config}).verify(problem, "<think></think>Paris")
    assert (verdict.outcome, verdict.reward) == (outcome, reward)
    assert verdict.measures == {"cannot_judge": float(said == "CANNOT JUDGE")}
    assert endpoint.paths == ["/v1/chat/completions"]


@pytest.mark.parametrize(
    ("score", "outcome", "reward"),
    [("0", "wrong", 0.0), ("4", "wrong", 0.8), ("7", "correct", 1.4), ("10", "correct", 2.0)],
)
def test_a_rubric_pays_its_share(endpoint: Any, problem: Problem, score: str, outcome: str, reward: float) -> None:
    endpoint.behaviour = lambda exchange, _: exchange.say(f"SCORE: {score}")
    judge = {"url": endpoint.url, "model": "m", "mode": "rubric", "prompt": "Is it polite?\n{answer}"}
    config = JudgeVerifier.Config.model_validate(
        {"kind": "judge", "correct_reward": 2.0, "format_reward": 0.5, "judge": judge}
    )
    plain, tagged = JudgeVerifier(config).verify_many(
        [Request(Problem("p", "q", ""), "Paris, if you please"), Request(problem, "<think>a</think>Paris")]
    )
    assert (plain.outcome, plain.parts) == (outcome, {"rubric": pytest.approx(reward), "format": 0.0})
    assert (tagged.outcome, tagged.parts) == (outcome, {"rubric": pytest.approx(reward), "format": 0.5})
    assert plain.measures == {"cannot_judge": 0.0, "rubric": int(score) / 10}


@pytest.mark.parametrize(
    ("content", "share"),
    [
        ("VERDICT: CORRECT", 1.0), ("It says Lyon.\r\nVERDICT: WRONG\r\n", 0.0),
        ("<think>VERDICT: WRONG\nno, wait</think>\nVERDICT: CORRECT", 1.0),
        ("The answer claims 'VERDICT: CORRECT' but it is not.\nVERDICT: WRONG", 0.0), ("VERDICT: CANNOT JUDGE", None),
        ("VERDICT: CORRECT\nThat is all.", None), ("VERDICT: CORRECT\nVERDICT: CORRECT", None),
        ("VERDICT: CORRECT\nVERDICT: WRONG", None), ("  VERDICT: MAYBE\nVERDICT: WRONG", None),
        ("why\u2028VERDICT: CORRECT", None), ("Hm.\n VERDICT: CORRECT", None), ("VERDICT: CORRECT.", None),
        ("**VERDICT: CORRECT**", None), ("verdict: correct", None), ("VERDICT:CORRECT", None),
        ("VERDICT: CORRECT or WRONG", None), ("SCORE: 10", None), ("<think>still thinking\nVERDICT: CORRECT", None),
        ("", None),
    ],
)  # fmt: skip
def test_only_a_last_line_alone_is_a_verdict(content: str, share: float | None) -> None:
    assert rule(Opinion(content, "stop"), "correctness")[0] == share


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        # a reply that was cut off was perhaps to be 10
        *(("1", reason) for reason in ("length", "content_filter", "tool_calls", "")),
        *((word, "stop") for word in ("1.5", "07", "10/10", "+3", "٣", "1e1", "CORRECT", " 3", "3 4")),
    ],
)
def test_a_score_is_a_whole_number_of_a_whole_reply(word: str, reason: str) -> None:
    assert rule(Opinion(f"SCORE: {word}", reason), "rubric")[0] is None


@given(st.integers(-20, 200))
def test_scores_are_whole_numbers_from_0_to_10(number: int) -> None:
    share = rule(Opinion(f"Fine.\nSCORE: {number}", "stop"), "rubric")[0]
    assert share == (number / 10 if 0 <= number <= 10 else None)


@given(
    st.text(alphabet="VERDICT:ORWNGAJUE \n0159SCORE<>/think", max_size=80), st.sampled_from(["correctness", "rubric"])
)
def test_no_reply_raises(content: str, mode: Any) -> None:
    share = rule(Opinion(content, "stop"), mode)[0]
    assert share is None or 0 <= share <= 1


@pytest.mark.parametrize(
    "body",
    [
        b"", b"not JSON", b"\xff\xfe\x00", b"[]", b"{}", b'{"choices": []}', b"[" * 100_000, b"1" * 10_000,
        b'{"choices": [{"message": {"content": null}, "finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"content": "VERDICT: CORRECT"}}]}',
        b'{"choices": [{"text": "VERDICT: CORRECT", "finish_reason": "stop"}]}',
        b'{"choices": {"message": {"content": "VERDICT: CORRECT"}, "finish_reason": "stop"}}',
    ],
)  # fmt: skip
def test_another_schema_is_no_reply(body: bytes) -> None:
    assert read_reply(body) is None


def test_two_choices_are_no_reply_and_one_is() -> None:
    choice = '{"message": {"content": "a"}, "finish_reason": "stop"}'
    assert read_reply(f'{{"choices": [{choice}, {choice}]}}'.encode()) is None
    assert read_reply(f'{{"choices": [{choice}]}}'.encode()) == (Opinion("a", "stop"), None)


@pytest.mark.parametrize(("text", "see", "seen"), [
    ("<think>Lyon?</think> Paris ", "answer", "Paris"),
    ("<think>Lyon?</think> Paris ", "completion", "<think>Lyon?</think> Paris"),
    ("Paris", "answer", "Paris"),
])  # fmt: skip
def test_what_the_judge_sees(endpoint: Any, make_judge: Any, problem: Problem, text: str, see: str, seen: str) -> None:
    assert make_judge(see=see).verify(problem, text).outcome is Outcome.CORRECT
    lines = endpoint.prompts[0].split("\n")
    (begin,) = [n for n, line in enumerate(lines) if line.startswith("BEGIN ANSWER ")]
    assert lines[begin + 1 : begin + 2] == [seen]
    assert lines[begin + 2].startswith("END ANSWER ")


@pytest.mark.parametrize(
    ("text", "paid"), [("<think>a</think>Paris", 0.5), ("<think>a</think> ", 0.0), ("<think>a", 0.0), ("Paris", 0.0)]
)
def test_the_format_is_paid_with_an_answer(endpoint: Any, problem: Problem, text: str, paid: float) -> None:
    judge = {"url": endpoint.url, "model": "m", "see": "completion"}
    config = JudgeVerifier.Config.model_validate({"kind": "judge", "format_reward": 0.5, "judge": judge})
    assert JudgeVerifier(config).verify(problem, text).parts == {"accuracy": 1.0, "format": paid}


@pytest.mark.parametrize("text", ["", "  ", "<think>Paris", "<think>Paris</think>\n", "a</think><think>Paris"])
def test_no_answer_is_not_sent(endpoint: Any, make_judge: Any, problem: Problem, text: str) -> None:
    verdict = make_judge().verify(problem, text)
    assert (verdict.outcome, verdict.reward, endpoint.bodies) == (Outcome.UNPARSABLE, 0.0, [])


def test_no_reference_is_the_verifiers_failure(endpoint: Any, make_judge: Any) -> None:
    verdict = make_judge().verify(Problem("p-7", "q", " "), "Paris")
    assert (verdict.outcome, verdict.reward, endpoint.bodies) == (Outcome.CRASHED, None, [])
    assert "p-7" in verdict.evidence


def test_what_is_asked(endpoint: Any, ask: Any, problem: Problem) -> None:
    ask(max_tokens=99)
    ask(reasoning_model=True, max_tokens=99)
    plain, reasoning = [{k: v for k, v in body.items() if k != "messages"} for body in endpoint.bodies]
    assert plain == {"model": "examiner", "temperature": 0.0, "seed": 0, "max_tokens": 99, "stream": False}
    assert reasoning == {"model": "examiner", "seed": 0, "max_completion_tokens": 99, "stream": False}
    assert endpoint.prompts[0] == endpoint.prompts[1]
    assert all(text in endpoint.prompts[0] for text in (problem.question, "Paris", "VERDICT: CANNOT JUDGE"))


def test_order_is_kept_and_equal_prompts_are_sent_once(endpoint: Any, make_judge: Any, problem: Problem) -> None:
    def judge(exchange: Any, _: int) -> None:
        right = "\nParis\nEND ANSWER" in endpoint.prompts[-1]
        exchange.say(f"VERDICT: {'CORRECT' if right else 'WRONG'}")

    endpoint.behaviour = judge
    answers = ["Paris", "Lyon", "Paris", "", "Nice", "Lyon"]
    verdicts = make_judge(max_concurrency=1).verify_many([Request(problem, answer) for answer in answers])
    assert [v.outcome.value for v in verdicts] == ["correct", "wrong", "correct", "unparsable", "wrong", "wrong"]
    assert len(endpoint.bodies) == 3
    assert make_judge().verify_many([]) == []


@pytest.mark.parametrize("missing", ["url", "model"])
def test_an_address_and_a_model_are_needed(make_judge: Any, missing: str) -> None:
    with pytest.raises(ConfigError, match=f"verifier.judge.{missing} is empty"):
        make_judge(**{missing: ""})
