"""Asking the endpoint: from the cache if it was asked before, else within the budget, again where that can help."""

import hashlib
import json
import re
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException

from groupwise.errors import ConfigError
from groupwise.randomness import key, uniforms
from groupwise.types import Outcome
from groupwise.verifiers.judge.budget import Budget
from groupwise.verifiers.judge.cache import Cache
from groupwise.verifiers.judge.config import JudgeConfig
from groupwise.verifiers.judge.key import read_key, scrubbed
from groupwise.verifiers.judge.opinion import Opinion, read_reply
from groupwise.verifiers.judge.post import MAX_BYTES, OversizedError, Response, post


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no opinion; it says nothing about the answer."""

    outcome: Outcome
    """TIMEOUT or CRASHED."""
    evidence: str
    again_after_s: float | None = None
    """Seconds to wait before it may help to try again; None: it would not help."""


class Endpoint:
    """One model behind one address; safe to use from many threads.

    Raises:
        ConfigError: no address or model is named, or the API key is not where it should be.
    """

    def __init__(self, config: JudgeConfig) -> None:
        for name in ("url", "model"):
            if not getattr(config, name):
                raise ConfigError(f"verifier.judge.{name} is empty: the judge needs an address and a model")
        self._config, self._key = config, read_key(config)
        self._url = config.url.rstrip("/") + "/chat/completions"
        self._cache = Cache(config.cache_dir)
        self._budget = Budget(config.max_requests, config.max_total_tokens)

    def ask(self, prompt: str) -> Opinion | Failure:
        """The model's opinion, or why there is none.

        Raises:
            VerifierError: the budget is spent, or the cache cannot be used.
        """
        body = json.dumps(_request(self._config, prompt), sort_keys=True).encode()
        digest = hashlib.sha256(self._url.encode() + b"\n" + body).hexdigest()
        opinion = self._cache.get(digest)
        if opinion is not None:
            return opinion
        result = self._try(body, digest)
        if isinstance(result, Opinion):
            self._cache.put(digest, result)
        return result

    def _try(self, body: bytes, digest: str) -> Opinion | Failure:
        deadline = time.monotonic() + self._config.total_timeout_s
        attempt = 0
        while True:
            self._budget.take_request()
            remaining_s = max(0.001, deadline - time.monotonic())  # a sleep may last a little longer than asked
            result = self._send(body, min(self._config.request_timeout_s, remaining_s))
            if isinstance(result, Opinion) or result.again_after_s is None:
                return result
            attempt += 1
            if attempt == self._config.max_attempts:
                return Failure(result.outcome, f"{result.evidence} (attempt {attempt}, the last)")
            wait_s = max(result.again_after_s, backoff_s(self._config.backoff_s, digest, attempt))
            if time.monotonic() + wait_s >= deadline:
                return Failure(Outcome.TIMEOUT, f"{result.evidence}; no time is left to try again in {wait_s:.3g} s")
            time.sleep(wait_s)

    def _send(self, body: bytes, timeout_s: float) -> Opinion | Failure:
        try:
            response = post(self._url, body, self._headers(), timeout_s)
        except TimeoutError:
            return Failure(Outcome.TIMEOUT, f"the judge gave no whole reply in {timeout_s:.3g} s", 0.0)
        except OversizedError:
            return Failure(Outcome.CRASHED, f"the judge's reply is longer than {MAX_BYTES} bytes")
        except (OSError, HTTPException, ValueError) as error:
            why = scrubbed(f"{type(error).__name__}: {error}", self._key)[:200]
            return Failure(Outcome.CRASHED, f"no connection to the judge, or it broke: {why!r}", 0.0)
        return self._read(response, body)

    def _headers(self) -> dict[str, str]:
        authorization = {"Authorization": f"Bearer {self._key.get_secret_value()}"} if self._key else {}
        return {"Content-Type": "application/json", "Accept": "application/json", **authorization}

    def _read(self, response: Response, body: bytes) -> Opinion | Failure:
        if response.status != 200:
            return _refused(response, scrubbed(response.body.decode(errors="replace"), self._key))
        reply = read_reply(response.body)
        # a token is at least a byte, so this bounds what an endpoint spends without saying so
        at_most = len(body) + self._config.max_tokens
        self._budget.spend_tokens(at_most if reply is None or reply[1] is None else reply[1])
        if reply is None:
            shown = scrubbed(response.body.decode(errors="replace"), self._key)[:200]
            return Failure(Outcome.CRASHED, f"the judge's reply is not a chat completion: {shown!r}")
        return Opinion(*(scrubbed(text, self._key) for text in reply[0]))


def _request(config: JudgeConfig, prompt: str) -> dict[str, object]:
    limits = (
        {"max_completion_tokens": config.max_tokens}
        if config.reasoning_model
        else {"max_tokens": config.max_tokens, "temperature": config.temperature}
    )
    messages = [{"role": "user", "content": prompt}]  # one message: some chat templates know no system role
    return {"model": config.model, "messages": messages, "seed": config.seed, "stream": False, **limits}


def _refused(response: Response, text: str) -> Failure:
    evidence = f"the judge answered HTTP {response.status}: {text[:200]!r}"
    if 300 <= response.status < 400:
        return Failure(Outcome.CRASHED, f"{evidence}; redirects are not followed: set verifier.judge.url to their goal")
    if response.status == 429 or response.status >= 500:
        return Failure(Outcome.CRASHED, evidence, retry_after_s(response.retry_after))
    return Failure(Outcome.CRASHED, evidence)


def backoff_s(first_s: float, digest: str, attempt: int) -> float:
    """Seconds to wait after attempt 1, 2, ...: doubling, times 0.5 to 1.5 so that many clients do not come at once."""
    return first_s * 2.0 ** (attempt - 1) * (0.5 + float(uniforms(key("judge", digest), attempt)))


def retry_after_s(value: str) -> float:
    """Seconds that a `Retry-After` header asks for, as a number or a date; 0 when it cannot be read."""
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0
