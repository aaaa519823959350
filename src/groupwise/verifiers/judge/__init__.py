"""The judge as a verifier: for answers that no rule can judge, a model says whether they agree with the reference.

It is the weakest verifier there is: a policy trained on it learns what sways it. Prefer a rule where there is one.
What the judge cannot judge, or does not answer in the required form, is CRASHED: neither rewarded nor penalised.

The endpoint answers from the cache if there, otherwise within the budget, with retries where they can help. The cache
is files of plain JSON with a checksum, not a store of a library: a shared directory must not be able to run code in the
processes that read it, as a pickle can.
"""

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from pydantic import SecretStr

from groupwise.errors import ConfigError, VerifierError
from groupwise.randomness import key, uniforms
from groupwise.runs.progress import counted
from groupwise.sandbox.post import MAX_BYTES, OversizedError, Response, post
from groupwise.types import Outcome, Verdict
from groupwise.verifiers.base import Finding, Request, Verifier, VerifierConfig, verdict
from groupwise.verifiers.extraction import after_thinking, thought_once
from groupwise.verifiers.judge.config import ACCEPTED_SHARE, JudgeConfig, Mode, render

FIRST_BACKOFF_S = 1.0  # seconds before the second attempt


class Opinion(NamedTuple):
    """A reply of the model, whether or not there is a verdict in it."""

    content: str
    finish_reason: str


class Failure(NamedTuple):
    """Reason for having no opinion; it says nothing about the answer."""

    outcome: Outcome
    evidence: str
    again_after_s: float | None = None  # seconds to wait before trying again may help; None: it would not help


class Endpoint:
    """One model behind one address; safe to use from many threads."""

    def __init__(self, config: JudgeConfig) -> None:
        for name in ("url", "model"):
            if not getattr(config, name):
                raise ConfigError(f"verifier.judge.{name} is empty: the judge needs an address and a model")
        self._config, self._key = config, None
        if variable := config.api_key_variable:
            text = os.environ.get(variable, "").strip()
            if not re.fullmatch(r"[!-~]+", text):  # said without what is in it
                raise ConfigError(
                    f"the environment variable {variable} (verifier.judge.api_key_variable) holds no API key: one word "
                    "of printable ASCII characters is needed"
                )
            self._key = SecretStr(text)
        self._url = config.url.rstrip("/") + "/chat/completions"
        self._spent, self._lock = {"max_requests": 0, "max_total_tokens": 0}, threading.Lock()

    def ask(self, prompt: str) -> Opinion | Failure:
        """The model's opinion, or why there is none (VerifierError: the budget is spent, or the cache is unusable)."""
        config = self._config
        limits: dict[str, object] = {"max_tokens": config.max_tokens, "temperature": 0.0}
        if config.reasoning_model:
            limits = {"max_completion_tokens": config.max_tokens}
        messages = [{"role": "user", "content": prompt}]  # one message: some chat templates know no system role
        request = {"model": config.model, "messages": messages, "seed": 0, "stream": False, **limits}
        body = json.dumps(request, sort_keys=True).encode()
        digest = hashlib.sha256(self._url.encode() + b"\n" + body).hexdigest()
        path = Path(config.cache_dir, digest[:2], f"{digest}.json") if config.cache_dir else None
        if path and (opinion := cached(path)):
            return opinion
        result = self._try(body, digest)
        if path and isinstance(result, Opinion):
            keep(path, result)
        return result

    def _try(self, body: bytes, digest: str) -> Opinion | Failure:
        deadline = time.monotonic() + self._config.total_timeout_s
        attempt = 0
        while True:
            self._take_request()
            remaining_s = max(0.001, deadline - time.monotonic())  # a sleep may last a little longer than it should
            result = self._send(body, min(self._config.request_timeout_s, remaining_s))
            if isinstance(result, Opinion) or result.again_after_s is None:
                return result
            attempt += 1
            if attempt == self._config.max_attempts:
                return Failure(result.outcome, f"{result.evidence} (attempt {attempt}, the last)")
            wait_s = max(result.again_after_s, backoff_s(FIRST_BACKOFF_S, digest, attempt))
            if time.monotonic() + wait_s >= deadline:
                return Failure(Outcome.TIMEOUT, f"{result.evidence}; no time is left to try again in {wait_s:.3g} s")
            time.sleep(wait_s)

    def _take_request(self) -> None:
        """Count a request, and refuse more than is allowed: training on silence would be wrong."""
        with self._lock:
            for name, spent in self._spent.items():
                if spent >= (limit := getattr(self._config, name)):
                    raise VerifierError(
                        f"the judge has spent its budget ({spent} of verifier.judge.{name} = {limit}): "
                        "raise it to continue; replies in cache_dir cost nothing"
                    )
            self._spent["max_requests"] += 1

    def _send(self, body: bytes, timeout_s: float) -> Opinion | Failure:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key.get_secret_value()}"
        try:
            response = post(self._url, body, headers, timeout_s)
        except TimeoutError:
            return Failure(Outcome.TIMEOUT, f"the judge gave no whole reply in {timeout_s:.3g} s", 0.0)
        except OversizedError:
            return Failure(Outcome.CRASHED, f"the judge's reply is longer than {MAX_BYTES} bytes")
        except (OSError, HTTPException, ValueError) as error:
            reason = scrubbed(f"{type(error).__name__}: {error}", self._key)[:200]
            return Failure(Outcome.CRASHED, f"no connection to the judge, or it broke: {reason!r}", 0.0)
        return self._read(response, body)

    def _read(self, response: Response, body: bytes) -> Opinion | Failure:
        if response.status != 200:
            text = scrubbed(response.body.decode(errors="replace"), self._key)
            evidence, again_after_s = f"the judge answered HTTP {response.status}: {text[:200]!r}", None
            if 300 <= response.status < 400:
                evidence += "; redirects are not followed: set verifier.judge.url to their target"
            elif response.status == 429 or response.status >= 500:
                again_after_s = retry_after_s(response.retry_after)
            return Failure(Outcome.CRASHED, evidence, again_after_s)
        reply = read_reply(response.body)
        # a token is at least a byte, so this bounds what an endpoint spends without saying so
        max_spent = len(body) + self._config.max_tokens
        with self._lock:
            self._spent["max_total_tokens"] += max_spent if reply is None or reply[1] is None else reply[1]
        if reply is None:
            excerpt = scrubbed(response.body.decode(errors="replace"), self._key)[:200]
            return Failure(Outcome.CRASHED, f"the judge's reply is not a chat completion: {excerpt!r}")
        return Opinion(*(scrubbed(text, self._key) for text in reply[0]))


def backoff_s(first_s: float, digest: str, attempt: int) -> float:
    """Seconds to wait after attempt 1, 2, ...: doubling, times 0.5 to 1.5 so that clients do not return all at once."""
    return first_s * 2.0 ** (attempt - 1) * (0.5 + float(uniforms(key("judge", digest), attempt)))


def retry_after_s(value: str) -> float:
    """Seconds that a `Retry-After` header asks for, as a number or a date; 0 when it cannot be read."""
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def read_reply(body: bytes) -> tuple[Opinion, int | None] | None:
    """The opinion in a chat completion's JSON, and the tokens it cost if it says so; None when it is not one."""
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        return None
    match reply:
        case {"choices": [{"message": {"content": str(content)}, "finish_reason": str(reason)}]}:
            match reply:
                case {"usage": {"total_tokens": int(tokens)}} if tokens >= 0:
                    return Opinion(content, reason), tokens
            return Opinion(content, reason), None
    return None


def scrubbed(text: str, key: SecretStr | None) -> str:
    """The text without the key, should a server repeat it."""
    return text.replace(key.get_secret_value(), "[API key]") if key else text


def cached(path: Path) -> Opinion | None:
    """Read a kept opinion; None where there is none that is whole (VerifierError: the cache is unusable)."""
    try:
        entry = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    except OSError as error:
        raise VerifierError(f"the judge's cache {path.parents[1]} cannot be read: {error.strerror}") from None
    match entry:
        case {"content": str(content), "finish_reason": str(reason), "check": str(check)}:
            opinion = Opinion(content, reason)
            return opinion if check == _check(path.stem, opinion) else None
    return None


def keep(path: Path, opinion: Opinion) -> None:
    """Keep an opinion, whole or not at all, even when others write the same one."""
    entry = {**opinion._asdict(), "check": _check(path.stem, opinion)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # every writer has its own name; no flush to disk: a torn file fails its check, and its request is repeated
        temporary = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            temporary.write_bytes(json.dumps(entry).encode())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise VerifierError(f"the judge's cache {path.parents[1]} cannot be written: {error.strerror}") from None


def _check(digest: str, opinion: Opinion) -> str:
    return hashlib.sha256(json.dumps([digest, *opinion]).encode()).hexdigest()


_LABEL = {"correctness": "VERDICT:", "rubric": "SCORE:"}
_LINE = {
    "correctness": re.compile(r"VERDICT: (CORRECT|WRONG|CANNOT JUDGE)"),
    "rubric": re.compile(r"SCORE: ([0-9]|10|CANNOT JUDGE)"),
}


class JudgeVerifierConfig(VerifierConfig):
    """Settings of the verifier that asks a model."""

    judge: JudgeConfig = JudgeConfig()
    """The model that is asked."""


class JudgeVerifier(Verifier):
    """Asks a model. Reward part `accuracy` or `rubric`; measure `cannot_judge` is 1 where its reply has no verdict."""

    Config = JudgeVerifierConfig
    repeatable = False
    config: JudgeVerifierConfig

    def __init__(self, config: JudgeVerifierConfig | None = None) -> None:
        super().__init__(config)
        self._endpoint = Endpoint(self.config.judge)

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        prompts = [self._prompt(request) for request in requests]
        unique_prompts = list(dict.fromkeys(prompt for prompt in prompts if isinstance(prompt, str)))
        with ThreadPoolExecutor(self.config.judge.max_concurrency) as threads:
            asked = counted("judged", threads.map(self._endpoint.ask, unique_prompts), len(unique_prompts))
            replies = dict(zip(unique_prompts, asked, strict=True))
        return [
            self._verdict(replies[prompt], request.text)
            if isinstance(prompt, str)
            else verdict(prompt, self.config, tags_right=False)
            for prompt, request in zip(prompts, requests, strict=True)
        ]

    def _prompt(self, request: Request) -> str | Finding:
        judge, problem = self.config.judge, request.problem
        if "{reference}" in judge.prompt and not problem.reference.strip():
            return Finding(Outcome.CRASHED, f"problem {problem.id} has no reference answer for the judge")
        text = _answer(request.text) if judge.see == "answer" else request.text.strip()
        return render(judge, problem, text) if text else Finding(Outcome.UNPARSABLE, "no answer after the reasoning")

    def _verdict(self, reply: Opinion | Failure, text: str) -> Verdict:
        if isinstance(reply, Failure):
            return Verdict(reply.outcome, {}, reply.evidence)
        judge = self.config.judge
        share, evidence = rule(reply, judge.mode)
        if share is None:
            return Verdict(Outcome.CRASHED, {}, f"the judge cannot judge: {evidence}", measures={"cannot_judge": 1.0})
        outcome = Outcome.CORRECT if share >= ACCEPTED_SHARE[judge.mode] else Outcome.WRONG
        finding = Finding(outcome, f"the judge: {evidence}")
        result = verdict(finding, self.config, tags_right=thought_once(text) and bool(_answer(text)))
        if judge.mode == "correctness":
            return replace(result, measures={"cannot_judge": 0.0})
        parts = {"rubric": self.config.correct_reward * share, "format": result.parts["format"]}
        return replace(result, parts=parts, measures={"cannot_judge": 0.0, "rubric": share})


def _answer(text: str) -> str:
    return (after_thinking(text) or "").strip()


def rule(opinion: Opinion, mode: Mode) -> tuple[float | None, str]:
    """The verdict in an opinion, and evidence: 1 for CORRECT, 0 for WRONG, a tenth of the score; None: not judged.

    A judge's own `<think>` part does not count.
    """
    if opinion.finish_reason != "stop":
        return None, f"its reply did not end with a stop but with {opinion.finish_reason[:40]!r}"
    *reasons, last_line = (after_thinking(opinion.content) or "").strip().split("\n")
    verdict_lines = [line for line in (*reasons, last_line) if line.strip().startswith(_LABEL[mode])]
    match = _LINE[mode].fullmatch(last_line)
    if match is None or len(verdict_lines) != 1:
        return None, f"its reply does not end with one `{_LABEL[mode]} ...` line: {opinion.content[-200:]!r}"
    share = {"CANNOT JUDGE": None, "CORRECT": 1.0, "WRONG": 0.0}
    word = match[1]
    return share[word] if word in share else int(word) / 10, f"{last_line}; {' '.join(reasons)[-300:]!r}"
