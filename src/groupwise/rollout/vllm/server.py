"""One server over HTTP, without a proxy: its routes, each with a deadline and a connection of its own."""

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from groupwise.errors import EngineError

CONTROL_S = 300.0
"""Longest time of a pause or a reload, in seconds."""
PROBE_S = 10.0
"""Longest time for a sign of life."""
HINTS = {
    "/inference": "start it with --enable-scale-out",
    "/pause": "start it with VLLM_SERVER_DEV_MODE=1 in its environment",
    "/v1/load_lora_adapter": "start it with --enable-lora, and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment",
}
"""Advice for a missing route."""


class Refused(EngineError):  # noqa: N818 - an answer, which may be one that was asked for
    """The server refuses a request, with this code."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Unreachable(Exception):  # noqa: N818 - the ordinary end of a server, which the fleet handles
    """A request found no answer: no connection, an error of the server, or the deadline."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server of vLLM."""

    address: str

    def generate(self, body: dict[str, Any], deadline_s: float) -> Any:
        return self.call("POST", "/inference/v1/generate", body, deadline_s)

    def trouble(self, deadline_s: float = PROBE_S) -> str | None:
        """Return why it gives no sign of life; None where it does."""
        try:
            self.call("GET", "/health", None, deadline_s)
        except Unreachable as error:
            return str(error)
        return None

    def version(self) -> str:
        return str(_field(self.call("GET", "/version", None, PROBE_S), "version", self.address))

    def models(self) -> dict[str, int]:
        models = _field(self.call("GET", "/v1/models", None, PROBE_S), "data", self.address)
        return {str(model["id"]): int(model.get("max_model_len") or 0) for model in models}

    def is_paused(self) -> bool:
        return bool(_field(self.call("GET", "/is_paused", None, PROBE_S), "is_paused", self.address))

    def pause(self) -> None:
        self.tell("/pause?mode=wait&clear_cache=true", {})

    def reload(self, directory: str) -> None:
        self.tell("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": directory}})

    def clear_prefix_cache(self) -> bool:
        """Forget keys and values; False where it could not, which the code of the answer does not tell."""
        return bool(_field(self.call("POST", "/reset_prefix_cache", {}, CONTROL_S), "success", self.address))

    def set_label(self, label: str) -> None:
        self.tell("/update_weight_version", {"new_version": label})

    def load_adapters(self, name: str, directory: str) -> None:
        self.tell("/v1/load_lora_adapter", {"lora_name": name, "lora_path": directory})

    def unload_adapters(self, name: str) -> None:
        self.tell("/v1/unload_lora_adapter", {"lora_name": name})

    def resume(self) -> None:
        self.tell("/resume", {})

    def tell(self, path: str, body: dict[str, Any]) -> None:
        """Let it do something, whose answer is not read; raises Unreachable or Refused."""
        self._text("POST", path, body, CONTROL_S)

    def call(self, method: str, path: str, body: dict[str, Any] | None, deadline_s: float) -> Any:
        """Return the JSON of an answer, or None; raises Unreachable, Refused, or EngineError for no JSON."""
        text = self._text(method, path, body, deadline_s)
        if not text.strip():
            return None
        try:
            return json.loads(text)
        except ValueError:
            raise EngineError(
                f"the server {self.address} answers {path} with something else than JSON: {text[:60]!r}"
            ) from None

    def _text(self, method: str, path: str, body: dict[str, Any] | None, deadline_s: float) -> bytes:
        parts = urlsplit(self.address)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=deadline_s)
        try:
            content = None if body is None else json.dumps(body).encode()
            connection.request(method, quote(path, "/?=&"), content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{path}: {type(error).__name__}: {error}") from None
        finally:
            connection.close()
        if answer.status >= 500:
            raise Unreachable(f"{path}: HTTP {answer.status}: {_message(text)}")
        if (status := answer.status) >= 400:
            missing = [hint for route, hint in HINTS.items() if path.startswith(route) and status in (403, 404, 405)]
            hint = f": {missing[0]}" if missing else ""
            raise Refused(status, f"the server {self.address} refuses {path} (HTTP {status}, {_message(text)}){hint}")
        return text


def _field(answer: Any, name: str, server: str) -> Any:
    if not isinstance(answer, dict) or name not in answer:
        raise EngineError(f"the server {server} is no vLLM server: its answer has no {name!r}")
    return answer[name]


def _message(text: bytes) -> str:
    try:
        found = json.loads(text)
        found = found.get("error", found) if isinstance(found, dict) else found
        found = found.get("message", found) if isinstance(found, dict) else found
    except ValueError:
        found = text.decode(errors="replace")
    return " ".join(str(found).split())[:200] or "no message"
