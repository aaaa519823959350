"""The API key goes to the endpoint that was named, and nowhere else."""

import shutil
import ssl
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from groupwise.config import dump_toml, parse
from groupwise.errors import ConfigError
from groupwise.types import Outcome, Problem
from groupwise.verifiers.judge import JudgeVerifier
from groupwise.verifiers.judge.config import JudgeConfig

VARIABLE = {"api_key_variable": "EXAMINER_KEY"}


def everything(thing: Any) -> str:
    """What a careless log would show: the representation of an object and of all that it holds."""
    inner = vars(thing).values() if hasattr(thing, "__dict__") and not isinstance(thing, SecretStr) else []
    return repr(thing) + "".join(map(everything, inner))


def test_the_key_is_sent_from_the_place_that_is_named(endpoint: Any, ask: Any, key: str) -> None:
    for place in ({}, VARIABLE):
        ask(**place)
    sent = [headers.get("Authorization") for headers in endpoint.headers]
    assert sent == [None, f"Bearer {key}"]


@pytest.mark.parametrize("status", [200, 401, 500, 302])
def test_a_server_that_repeats_the_key_does_not_spread_it(
    endpoint: Any, make_judge: Any, problem: Problem, key: str, status: int, tmp_path: Path
) -> None:
    def telltale(exchange: Any, number: int) -> None:
        text = f"{'x' * 190}{exchange.headers['Authorization']}"  # where a cut would leave half of it
        exchange.say(f"{text}\nVERDICT: WRONG") if number == 1 and status == 200 else exchange.send({"e": text}, status)

    endpoint.behaviour = telltale
    judge = make_judge(**VARIABLE, cache_dir=str(tmp_path), max_attempts=1)
    shown = "".join(everything(judge.verify(problem, text)) for text in ("Paris", "Lyon")) + everything(judge)
    kept = "".join(path.read_text() for path in tmp_path.rglob("*.json"))
    assert len(endpoint.bodies) == 2
    assert key[:6] not in shown + kept
    assert bool(kept) == (status == 200)


def test_a_broken_status_line_with_the_key_does_not_spread_it(endpoint: Any, ask: Any, key: str) -> None:
    endpoint.behaviour = lambda exchange, _: exchange.wfile.write(exchange.headers["Authorization"].encode() + b"\r\n")
    verdict = ask(**VARIABLE, max_attempts=1)
    assert "BadStatusLine" in verdict.evidence
    assert key not in verdict.evidence


def test_a_redirect_is_not_followed(endpoint: Any, start_endpoint: Any, ask: Any, key: str) -> None:
    elsewhere = start_endpoint()
    for status in (301, 302, 303, 307, 308):
        endpoint.behaviour = lambda exchange, _, status=status: exchange.send({}, status, Location=elsewhere.url)
        verdict = ask(**VARIABLE)
        assert verdict.outcome is Outcome.CRASHED
        assert "redirects are not followed" in verdict.evidence
    assert len(endpoint.bodies) == 5
    assert elsewhere.bodies == []


def test_no_proxy_is_used(endpoint: Any, start_endpoint: Any, ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = start_endpoint()
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.url)
    ask()
    assert (len(endpoint.bodies), len(proxy.bodies)) == (1, 0)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_server_that_cannot_prove_its_name_gets_nothing(endpoint: Any, ask: Any, key: str, tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("key", "certificate")}
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
         "-subj", "/CN=127.0.0.1", "-keyout", files["key"], "-out", files["certificate"]],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["certificate"], files["key"])
    endpoint.socket = context.wrap_socket(endpoint.socket, server_side=True)
    url = endpoint.url.replace("http:", "https:")
    verdict = ask(**VARIABLE, url=url, max_attempts=1)
    assert verdict.outcome is Outcome.CRASHED
    assert "CERTIFICATE_VERIFY_FAILED" in verdict.evidence
    assert endpoint.bodies == []


@pytest.mark.parametrize("value", ["", "two words", "sk-\nX-Other: header", "schlüssel"])
def test_what_is_not_a_key_is_refused_unseen(make_judge: Any, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("EXAMINER_KEY", value)
    with pytest.raises(ConfigError, match=r"EXAMINER_KEY .* holds no API key") as caught:
        make_judge(**VARIABLE)
    assert not value or value not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"api_key": "sk-secret-1"}, "judge.api_key: unknown key"),
        ({"api_key_variable": "sk-secret-1"}, "never the key"),
        ({"url": "https://user:sk-secret-1@host/v1"}, "without user name"),
        ({"url": "https://host/v1?key=sk-secret-1"}, "query"), ({"url": "https://host/v1#sk-secret-1"}, "fragment"),
        ({"url": "ftp://sk-secret-1"}, "http://"), ({"url": "sk-secret-1"}, "http://"),
        ({"url": "http://sk-secret-1:99999"}, "http://"), ({"url": "http://sk-secret-1\n.org"}, "http://"),
        ({"prompt": "sk-secret-1 {reference}"}, "must hold {answer}"),
        ({"prompt": "sk-secret-1 {answer}"}, "must hold {reference}"),
        ({"prompt": "sk-secret-1 {refrence} {answer}"}, "prompt holds {refrence}"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_configuration_is_named_without_its_value(settings: dict[str, str], named: str) -> None:
    with pytest.raises(ValidationError) as caught:
        JudgeConfig.model_validate(settings)
    assert "sk-secret-1" not in str(caught.value)
    with pytest.raises(ConfigError) as told:
        parse(JudgeVerifier.Config, {"kind": "judge", "judge": settings})
    assert named in str(told.value)
    assert "sk-secret-1" not in str(told.value)


@pytest.mark.parametrize("url", ["http://localhost:8000/v1", "https://api.example.org", "http://[::1]:80/a/b~c/", ""])
def test_usual_addresses_are_allowed(url: str) -> None:
    assert JudgeConfig(url=url).url == url


def test_latex_in_a_prompt_is_no_placeholder() -> None:
    assert JudgeConfig(prompt=r"\boxed{x} \frac{a}{b} x^{n}_{k} {answer} {reference}")


def test_a_recipe_with_a_judge_can_be_written_and_read(key: str) -> None:
    config = JudgeVerifier.Config.model_validate(
        {"kind": "judge", "judge": {"url": "http://a/v1", "model": "m", **VARIABLE}}
    )
    text = dump_toml(config)
    assert parse(JudgeVerifier.Config, tomllib.loads(text)) == config
    assert key not in text
