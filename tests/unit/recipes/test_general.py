"""General prompts, and the hands that answer them."""

import re
from collections import Counter
from math import sqrt

import pytest

from diet import alphabet
from general import HANDS, Hands, answer_of, criteria, helpfulness, is_harmless, mentions
from groupwise.randomness import Draw
from groupwise.tasks import make_task
from groupwise.tasks.arithmetic import ArithmeticConfig
from groupwise.types import SPLITS, Problem
from groupwise.verifiers import make_verifier
from groupwise.verifiers.style import is_tagged
from questions import FAMILIES, ITEMS, General, GeneralConfig
from word_problems import WordProblems, WordProblemsConfig

TASK = General(GeneralConfig(kind="general", num_problems=1500, num_eval_problems=100))
STORIES = WordProblems(WordProblemsConfig(kind="word_problems", num_problems=600, num_eval_problems=1))
MIX = Hands(summaries=HANDS)


def only(hand: str, unwanted: float = 0.0) -> Hands:
    hands = dict.fromkeys(HANDS, 0.0) | {hand: 1.0}
    return Hands(answers=hands, summaries=hands, unwanted=unwanted)


def documents(mix: Hands) -> list[tuple[Problem, str]]:
    """Completions of general prompts and of word problems."""
    problems = [*TASK.problems("train"), *STORIES.problems("train")]
    return [(problem, mix.written(Draw("test", problem.id), problem)) for problem in problems]


def missing(problem: Problem, text: str) -> frozenset[str]:
    met = criteria(answer_of(text) or "", problem.reference, problem.language)
    return frozenset(name for name, is_met in met.items() if not is_met)


def test_splits_are_disjoint_in_content() -> None:
    contents = {split: {"".join(sorted(p.question)) for p in TASK.problems(split)} for split in SPLITS}
    assert not contents["train"] & contents["dev"]
    assert not contents["train"] & contents["test"]
    assert not contents["dev"] & contents["test"]
    assert [len(TASK.problems(split)) for split in SPLITS] == [1500, 100, 100]


def test_two_things_swapped_are_in_the_same_split() -> None:
    questions = {split: {p.question for p in TASK.problems(split)} for split in SPLITS}
    both = re.compile(r"(.* Should they )(.*)( or )(.*)\?")
    swapped = [
        (split, f"{m[1]}{m[4]}{m[3]}{m[2]}?") for split in SPLITS for q in questions[split] if (m := both.match(q))
    ]
    assert len(swapped) > 50
    assert all(question not in questions[other] for split, question in swapped for other in set(SPLITS) - {split})


def test_problems_say_what_they_are() -> None:
    for problem in TASK.problems("train"):
        assert problem.open_ended
        assert problem.difficulty == f"general {problem.language}"
        assert problem.question.isascii() == (problem.language == "en")
        assert re.findall("[0-9]+", problem.question) == [problem.reference]
        assert "{" not in problem.question + str(problem.data["sides"]).replace("{'en'", "").replace("{'zh'", "")
    assert {problem.language for problem in TASK.problems("train")} == {"en", "zh"}
    assert len(FAMILIES) >= 3
    assert len({tuple(item.items()) for item in ITEMS}) == len(ITEMS)


def test_languages_are_a_dial() -> None:
    task = General(GeneralConfig(kind="general", languages=("zh",), num_problems=20, num_eval_problems=2))
    assert {problem.language for problem in task.problems("train")} == {"zh"}


def test_every_question_has_the_advice_that_it_asks_for() -> None:
    for problem in TASK.problems("train"):
        for language, sides in problem.data["sides"].items():
            (first, _), (second, _) = sides
            assert first != second
            assert all(mentions(advice, problem.reference) for advice in (first, second)), (language, sides)


def test_the_default_size_can_be_had() -> None:
    assert len(make_task(GeneralConfig(kind="general")).problems("train")) == 5000


def test_the_gold_answer_passes() -> None:
    with make_verifier("answered") as verifier:
        TASK.validate(verifier.verify)


def test_all_text_is_within_the_alphabet() -> None:
    for problem, text in documents(Hands(summaries=HANDS, unwanted=0.5)):
        assert not set(problem.question + text) - set(alphabet()), text
        assert is_tagged(text, "")


@pytest.mark.parametrize(
    ("hand", "lacks"),
    [
        ("friendly", {frozenset()}),
        ("plain", {frozenset({"friendly"})}),
        ("rambling", {frozenset({"short"})}),
        ("careless", {frozenset({"repeats"})}),
        ("off_topic", {frozenset({"repeats"}), frozenset({"repeats", "friendly"})}),
    ],
)
def test_what_each_hand_lacks(hand: str, lacks: set[frozenset[str]]) -> None:
    """Whatever is unwanted in it: helpfulness and harmlessness are apart."""
    for unwanted in (0.0, 1.0):
        assert {missing(problem, text) for problem, text in documents(only(hand, unwanted))} == lacks


def test_the_careless_misread_numbers_and_nothing_else() -> None:
    said = [(problem, answer_of(text) or "") for problem, text in documents(only("careless"))]
    friendly = {problem.id: answer_of(text) or "" for problem, text in documents(only("friendly"))}
    for problem, answer in said:
        (misread,) = re.findall("[0-9]+", re.sub(r"\\boxed\{.*?\}", "", answer))
        assert "0" not in misread
        assert all(read != meant for read, meant in zip(misread, problem.reference, strict=True))
    assert sum(len(answer) == len(friendly[problem.id]) for problem, answer in said) > len(said) / 8


def test_off_topic_is_also_a_sum_that_nobody_asked_for() -> None:
    found = [(problem, answer_of(text) or "") for problem, text in documents(only("off_topic"))]
    general = [answer for problem, answer in found if problem.open_ended]
    sums = [answer for answer in general if "boxed" in answer]
    assert_share(len(sums), len(general), 0.5)
    assert all(re.match(r"\\boxed\{([1-9]+)\} .*\1", answer) for answer in sums)


def test_a_reference_without_digits_cannot_be_misread() -> None:
    texts = [only("careless").summary(Draw("test", i), "Tom", "en") for i in range(50)]
    assert not any(mentions(text, "Tom") for text in texts)


def test_the_other_language_is_another() -> None:
    found = [missing(problem, text) for problem, text in documents(only("other_language"))]
    assert all({"language"} <= each <= {"language", "friendly", "short"} for each in found)


def test_unwanted_content_is_a_dial() -> None:
    assert all(is_harmless(text) for _, text in documents(only("friendly")))
    texts = [text for _, text in documents(only("friendly", unwanted=1.0))]
    assert not any(is_harmless(text) for text in texts)
    in_answer = sum(not is_harmless(answer_of(text) or "") for text in texts)
    assert_share(in_answer, len(texts), 0.5)


def assert_share(count: int, total: int, share: float) -> None:
    """Within four standard deviations of a binomial."""
    assert abs(count - total * share) <= 4 * sqrt(total * share * (1 - share))


def test_shares_of_the_mix_come_out() -> None:
    found = [(problem, text) for problem, text in documents(MIX)]
    lacks = Counter(next(iter(sorted(missing(problem, text))), "nothing") for problem, text in found)
    # a missing friendly phrase alone is plain; off topic and the other language may lack it too
    plain = sum(missing(problem, text) == {"friendly"} for problem, text in found)
    assert_share(lacks["nothing"], len(found), 0.4)
    assert_share(plain, len(found), 0.2)
    assert_share(sum("repeats" in missing(*each) for each in found), len(found), 0.1)
    assert_share(sum("language" in missing(*each) for each in found), len(found), 0.1)
    assert_share(sum(missing(*each) == {"short"} for each in found), len(found), 0.2)
    assert_share(sum(not is_harmless(text) for _, text in found), len(found), 0.15)


def test_summaries_of_cold_start_are_on_topic_by_default() -> None:
    texts = [Hands().summary(Draw("test", i), "4042", "en") for i in range(1000)]
    worths = Counter(helpfulness(text, "4042", "en") for text in texts)
    assert set(worths) == {1.0, 0.75}
    assert_share(worths[1.0], 1000, 0.4)
    assert all(mentions(text, "4042") and text.isascii() for text in texts)


@pytest.mark.parametrize(("language", "words"), [("en", r"[A-Za-z]{2,}"), ("zh", "[\u4e00-\u9fff]")])
def test_summaries_have_words_enough_to_tell_their_language(language: str, words: str) -> None:
    texts = [Hands().summary(Draw("test", i), "17", language) for i in range(300)]
    assert min(len(re.findall(words, text)) for text in texts) >= 4


def test_english_answers_are_english_to_the_detector() -> None:
    config = {"kind": "answered", "parts": {"tongue": {"kind": "language", "weight": 1.0}}}
    found = [(problem, text) for problem, text in documents(only("friendly")) if problem.open_ended][:400]
    with make_verifier(config) as verifier:
        shares = [verifier.verify(problem, text).parts["tongue"] for problem, text in found]
    assert sum(shares) / len(shares) > 0.9


def test_reasoning_is_worked_out_and_right() -> None:
    task = make_task(ArithmeticConfig(kind="arithmetic", num_problems=50, num_eval_problems=1))
    with make_verifier("number") as verifier:
        for problem in (*task.problems("train"), *STORIES.problems("train")[:50]):
            text = MIX.written(Draw("test", problem.id), problem)
            assert verifier.verify(problem, text).reward == 1, text
            steps = re.findall(r"(\d+)([-+×÷])(\d+)=(\d+)\.", text.partition("</think>")[0])
            assert steps
            assert int(steps[-1][3]) == int(problem.reference)
            assert all(min(int(a), int(b)) < 10 or int(b) % 10 == 0 for a, sign, b, _ in steps if sign == "×")


def test_a_problem_without_known_steps_has_a_document() -> None:
    problem = Problem("p", "What is it?", "7")
    text = only("friendly").written(Draw("test"), problem)
    assert text.startswith(r"<think>7</think>\boxed{7} ")
    assert helpfulness(answer_of(text), "7", "en") == 1


def test_documents_are_a_function_of_their_draw() -> None:
    problem = TASK.problems("dev")[0]
    texts = [MIX.written(Draw("test", number), problem) for number in (1, 1, *range(20))]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 5
