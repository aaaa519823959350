"""Language consistency: shares worked by hand, sentences of every language, real workings, and attacks."""

import json
from pathlib import Path

import pytest

from groupwise.errors import ConfigError
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.base import Request
from groupwise.verifiers.style import language
from groupwise.verifiers.style.language import LanguagePart, prose

SHARED = Path(__file__).parents[4] / "shared/data"
GSM8K = SHARED / "gsm8k/test.jsonl"
RESPONSES = SHARED / "qwen_math_cot_100/math_cot_100.jsonl"


def share(asked: str, text: str, prefill: str = "") -> float:
    request = Request(Problem("p", "q", "3", language=asked), prefill + text, prefill=prefill)
    return LanguagePart(kind="language", weight=1).measure(request, Verdict(Outcome.WRONG, {}, ""))


@pytest.mark.parametrize(
    ("asked", "text", "expected"),
    [
        ("zh", "所以答案是三", 1.0),
        ("zh", "所以答案是 wait no", 5 / 7),  # five characters, two words
        ("zh", "wait let me check this", 0.0),
        ("zh", r"<think>所以 $x = 3y \text{ apples}$</think> \boxed{\frac{total}{2}}", None),
        ("zh", "总数 total = 3 * price, 答案", 1.0),  # names beside operators
        ("zh", "一共 5km 或 x1 和 n", 1.0),
        ("en", "Wait, let me check. 5+7=12. Yes. So we get 12 here.", 1.0),  # French is likelier
        ("en", "Attendez, je vais vérifier. So we get 12 here.", 4 / 8),
        ("ru", "Значит, ответ равен трём.", 1.0),
        ("ru", "Значит, the answer равен", 2 / 4),
        ("ar", "إذن الجواب هو ثلاثة", 1.0),
        ("ko", "그래서 답은 모두 셋입니다", 1.0),
        ("el", "Άρα η απάντηση είναι τρία", 1.0),
        ("hi", "इसलिए उत्तर तीन है", 1.0),
        ("th", "ดังนั้นคำตอบคือสาม", 1.0),
        ("he", "לכן התשובה היא שלוש", 1.0),
        ("ja", "だから答えは三つです", 1.0),  # 3 Han, 7 kana
        ("ja", "所以答案是三", 0.0),  # Chinese has no kana to vouch for it
        ("zh", "だから答えは三つです", 0.0),
    ],
)
def test_scripts_by_hand(asked: str, text: str, expected: float | None) -> None:
    if expected is None:  # two Chinese characters are too few to be in a language, and the formulas hold no others
        assert share(asked, text) == 0.0
        assert share(asked, "那么" + text) == 1.0
    else:
        assert share(asked, text) == pytest.approx(expected)


SENTENCES = {
    "cs": "Nejprve musíme sečíst všechna čísla. Počkej, ještě jednou to zkontroluji.",
    "de": "Also müssen wir zuerst die Zahlen addieren. Moment, ich prüfe das noch einmal.",
    "en": "So we need to add the numbers first. Wait, let me check that again.",
    "es": "Así que primero tenemos que sumar los números. Espera, voy a comprobarlo otra vez.",
    "fr": "Il faut donc d'abord additionner les nombres. Attends, je vérifie encore une fois.",
    "id": "Jadi kita harus menjumlahkan angkanya dulu. Tunggu, saya akan memeriksanya lagi.",
    "it": "Quindi dobbiamo prima sommare i numeri. Aspetta, controllo ancora una volta.",
    "nl": "Dus we moeten eerst de getallen optellen. Wacht, ik controleer het nog een keer.",
    "pl": "Najpierw musimy dodać wszystkie liczby. Poczekaj, sprawdzę to jeszcze raz.",
    "pt": "Então precisamos primeiro somar os números. Espera, vou verificar mais uma vez.",
    "sv": "Först måste vi lägga ihop alla tal. Vänta, jag kontrollerar det en gång till.",
    "tr": "Önce bütün sayıları toplamamız gerekiyor. Bekle, bunu bir kez daha kontrol edeyim.",
    "vi": "Trước hết chúng ta phải cộng các số lại. Chờ đã, để tôi kiểm tra lại lần nữa.",
}


@pytest.mark.parametrize("asked", language.LATIN)
def test_latin_languages_are_told_apart(asked: str) -> None:
    for written, text in SENTENCES.items():
        assert share(asked, text) == (1.0 if written == asked else 0.0), written


def test_mixed_sentences_count_by_words() -> None:
    text = "So we need to add the numbers first. Moment, ich prüfe das noch einmal. 等一下"
    assert share("en", text) == pytest.approx(8 / 17)
    assert share("de", text) == pytest.approx(6 / 17)
    assert share("zh", text) == pytest.approx(3 / 17)
    assert share("ru", text) == 0.0


@pytest.mark.skipif(not GSM8K.exists(), reason="the data set is not here")
def test_real_english_workings_are_english() -> None:
    workings = [json.loads(line)["answer"].split("####")[0] for line in GSM8K.read_text().splitlines()[:300]]
    shares = [share("en", working) for working in workings]
    assert sum(one == 1.0 for one in shares) >= 0.96 * len(shares)
    assert sum(shares) / len(shares) > 0.98
    assert max(share("de", working) for working in workings) < 0.5


@pytest.mark.skipif(not RESPONSES.exists(), reason="the data set is not here")
def test_completions_that_fall_into_gibberish_are_seen() -> None:
    """Three of these 800 completions end in words of many languages; the rest are English."""
    shares = [share("en", text) for line in RESPONSES.read_text().splitlines() for text in json.loads(line)["code"]]
    assert sum(one < 0.6 for one in shares) == 3
    assert sum(one >= 0.95 for one in shares) == len(shares) - 3 == 797


@pytest.mark.parametrize("text", ["", " \n", "<think></think>", r"\boxed{3}", "3 + 4 = 7", "ok", "等等", "x y z w v"])
@pytest.mark.parametrize("asked", ["zh", "en"])
def test_no_text_earns_nothing(asked: str, text: str) -> None:
    assert share(asked, text) == 0.0
    assert share(asked, text, prefill="让我们一步一步地想 Let us think about this step by step. ") == 0.0


def test_other_letters_cannot_hide_in_formulas() -> None:
    assert share("zh", "所以答案是 $абв где$") < 1.0
    assert prose("we pay $5 and then $6 more") == "we pay $5 and then $6 more"


def test_an_unknown_language_is_an_error_that_names_those_known() -> None:
    with pytest.raises(ConfigError, match=r"'tlh'; known are ar, .*zh"):
        share("tlh", "nuqneH")
