"""A server with the routes of vLLM that computes with real weights, and lies where it is told to.

Its head is a tensor of its own, as in vLLM's build for processors; it reads weights by name from a directory; its cache
keeps the model that computed a prompt. So each lie has the consequence that it has in a real server.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch
from safetensors.torch import load_file

from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.in_process import generate
from groupwise.rollout.sampling import SamplingConfig

Make = Callable[..., Any]
Groups = dict[int, list[Sampled]]
MANY = [Request((5, 6, 7 + i), tuple(range(10 * i, 10 * i + 4))) for i in range(6)]

RESTART_S = 0.5
"""How long a killed server stays away. A real one needs longer: it is not back between two requests of one client."""


def tokens(groups: Groups) -> dict[int, list[list[int]]]:
    return {index: [sampled.token_ids.tolist() for sampled in group] for index, group in sorted(groups.items())}


class RefusalError(Exception):
    """An answer with a code of its own."""

    def __init__(self, code: int, message: str) -> None:
        self.code, self.message = code, message


class Quiet(ThreadingHTTPServer):
    """Says nothing of clients that have gone, and lets as many wait at its door as a real one does (uvicorn's 2048)."""

    request_queue_size = 2048

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class Engine:
    """What stands behind an address; a balancer has several."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.label, self.paused = policy.copy(), "default", False
        self.cache: dict[tuple[str, str, tuple[int, ...]], Policy] = {}
        self.directory: Path | None = None
        self.previous: Path | None = None
        self.adapters: dict[str, Policy] = {}


class LyingServer:
    """Serves at an address of its own until it is killed."""

    def __init__(self, policy: Policy, engines: int = 1, version: str = "0.32.0", model: str = "policy") -> None:
        self.start_policy, self.version, self.model = policy, version, model
        self.num_engines, self.context = engines, 256
        self.lies: set[str] = set()
        self.refuses = ""
        """A tensor that a reload leaves out."""
        self.loads = self.generated = self.adapters_loaded = 0
        self.dies_after: int | None = None
        """Completions after which it is killed."""
        self.aborts = 0
        """Completions that it ends before their end."""
        self.drops = 0
        """Requests for completions whose connection breaks, though the server lives."""
        self.lock = threading.Lock()
        self.hang = threading.Event()
        self.port = 0
        self.gone = threading.Event()
        """Nobody listens any more."""
        self.gone.set()
        self.start()

    def start(self) -> None:
        """Serve, from the weights that the server was made with, as one that a supervisor starts again."""
        self.gone.wait()
        self.gone.clear()
        self.engines = [Engine(self.start_policy) for _ in range(self.num_engines)]
        self.turn, self.dead = 0, False
        self.http = Quiet(("127.0.0.1", self.port), self._handler())
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def restart(self) -> None:
        """Serve again after a while, as a supervisor makes it."""
        time.sleep(RESTART_S)
        self.start()

    def kill(self) -> None:
        """As SIGKILL does: nothing is answered, and nobody listens."""
        self.dead = True
        self.http.shutdown()
        self.http.server_close()
        self.gone.set()

    def close(self) -> None:
        self.hang.set()
        if not self.dead:
            self.kill()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer()

            def do_POST(self) -> None:
                self.answer()

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                try:
                    code, found = 200, server.respond(urlsplit(self.path).path, json.loads(body or b"{}"))
                except RefusalError as refusal:
                    code, found = refusal.code, {"error": {"message": refusal.message}}
                if server.dead or server.drops_this(json.loads(body or b"{}")):
                    return  # the connection ends without a word
                text = (found if isinstance(found, str) else json.dumps(found)).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args: Any) -> None:
                pass

        return Handler

    def respond(self, path: str, body: dict[str, Any]) -> Any:
        """What is answered: a sentence, or JSON."""
        if "hangs" in self.lies and path not in ("/health", "/is_paused"):
            self.hang.wait(60)
        if path.startswith("/inference") and self.num_engines == 1:
            self.wait_while_paused()
        with self.lock:
            self.turn += 1
            engine = self.engines[self.turn % len(self.engines)]
            routes: dict[str, Callable[[], Any]] = {
                "/health": lambda: {},
                "/version": lambda: {"version": self.version},
                "/v1/models": lambda: {
                    "data": [{"id": name, "max_model_len": self.context} for name in (self.model, *engine.adapters)]
                },
                "/v1/load_lora_adapter": lambda: self.load_adapters(engine, body["lora_name"], Path(body["lora_path"])),
                "/v1/unload_lora_adapter": lambda: self.unload_adapters(engine, body["lora_name"]),
                "/is_paused": lambda: {"is_paused": engine.paused},
                "/pause": lambda: self.pause(engine),
                "/resume": lambda: self.resume(engine),
                "/collective_rpc": lambda: self.reload(engine, Path(body["kwargs"]["weights_path"])),
                "/reset_prefix_cache": lambda: self.reset(engine),
                "/update_weight_version": lambda: self.set_label(engine, body["new_version"]),
                "/inference/v1/generate": lambda: self.answer(engine, body),
            }
            if path not in routes or path in self.lies:
                raise RefusalError(404, "Not Found")
            return routes[path]()

    def drops_this(self, body: dict[str, Any]) -> bool:
        with self.lock:  # a probe asks for one token
            drops = self.drops > 0 and body.get("sampling_params", {}).get("max_tokens", 0) > 1
            self.drops -= drops
        return drops

    def wait_while_paused(self) -> None:
        for _ in range(200):
            if not self.engines[0].paused:
                return
            time.sleep(0.01)
        raise RefusalError(500, "nobody resumed it")

    def pause(self, engine: Engine) -> Any:
        engine.paused = True
        return self.reset(engine)

    def resume(self, engine: Engine) -> Any:
        engine.paused = False
        return {}

    def reset(self, engine: Engine) -> Any:
        if "cache cannot be cleared" in self.lies:
            return {"success": False}
        if "cache is kept" not in self.lies:
            engine.cache.clear()
        return {"success": True}

    def set_label(self, engine: Engine, label: str) -> Any:
        if "label is kept" not in self.lies:
            engine.label = label
        return {"success": True}

    def reload(self, engine: Engine, directory: Path) -> Any:
        """Read what is in the file, by name; what is not there stays as it is, and nobody is told."""
        self.loads += 1
        if not directory.is_dir() or "directory is not seen" in self.lies:
            raise RefusalError(500, f"no such directory: {directory}")
        engine.previous, engine.directory = engine.directory, directory
        if "reload is skipped" in self.lies:
            return {"results": [None]}
        source = directory
        if "previous directory" in self.lies and engine.previous is not None and engine.previous.is_dir():
            source = engine.previous
        tensors = load_file(source / "model.safetensors")
        policy = engine.policy.copy()
        with torch.no_grad():
            for name, weight in policy.state():
                if name in tensors and name != self.refuses:
                    weight.copy_(tensors[name])
        engine.policy = policy
        return {"results": [None]}

    def load_adapters(self, engine: Engine, name: str, directory: Path) -> Any:
        """Adapters beside the model that is there; what they come to is computed here, from the files alone."""
        if name in engine.adapters:
            raise RefusalError(400, f"The lora adapter '{name}' has already been loaded.")
        if "previous adapters" in self.lies and engine.adapters:
            engine.adapters[name] = next(reversed(engine.adapters.values()))
            return f"Success: LoRA adapter '{name}' added successfully."
        config = json.loads((directory / "adapter_config.json").read_text())
        tensors = load_file(directory / "adapter_model.safetensors")
        policy = engine.policy.copy()
        with torch.no_grad():
            for key, weight in policy.state():
                stem = f"base_model.model.{key.removesuffix('.weight')}"
                if f"{stem}.lora_A.weight" in tensors:
                    product = tensors[f"{stem}.lora_B.weight"] @ tensors[f"{stem}.lora_A.weight"]
                    weight.add_(config["lora_alpha"] / config["r"] * product)
        engine.adapters[name] = policy
        self.adapters_loaded += 1
        return f"Success: LoRA adapter '{name}' added successfully."

    def unload_adapters(self, engine: Engine, name: str) -> Any:
        del engine.adapters[name]
        return f"Success: LoRA adapter '{name}' removed successfully."

    def answer(self, engine: Engine, body: dict[str, Any]) -> Any:
        draw, ids, salt = body["sampling_params"], tuple(body["token_ids"]), body["cache_salt"]
        if body["model"] not in (self.model, *engine.adapters):
            raise RefusalError(404, f"The model `{body['model']}` does not exist.")
        policy = engine.adapters.get(body["model"], engine.policy)
        if max(ids) >= policy.vocabulary:
            raise RefusalError(400, f"Token id {max(ids)} is out of vocabulary")
        if "fails" in self.lies:
            raise RefusalError(500, "EngineCore encountered an issue")
        if draw.get("prompt_logprobs") is not None:
            found = logprobs(policy, ids[:1], ids[1:], 1.0)
            entries = [{str(token): {"logprob": value, "rank": 1}} for token, value in zip(ids[1:], found, strict=True)]
            return {"model": body["model"], "choices": [], "prompt_logprobs": [None, *entries]}
        computed_by = engine.cache.setdefault((body["model"], salt, ids), policy)
        return self.complete(engine, computed_by, ids, draw, body["model"])

    def complete(self, engine: Engine, policy: Policy, ids: tuple[int, ...], draw: dict[str, Any], model: str) -> Any:
        self.generated += 1
        if self.dies_after is not None and self.generated > self.dies_after:
            self.dies_after = None
            self.kill()
        top_k = 3 if "top-k of its own" in self.lies else draw["top_k"]
        top_p = 0.5 if "top-p of its own" in self.lies else draw["top_p"]
        config = SamplingConfig(
            temperature=draw["temperature"], max_tokens=draw["max_tokens"], top_k=top_k, top_p=top_p
        )
        seed = 7 if "seeds are ignored" in self.lies else draw["seed"]
        seed += self.generated if "seeds do not repeat" in self.lies else 0
        stopping = replace(policy, stop_ids=frozenset(draw["stop_token_ids"]))
        [[sampled]] = generate(stopping, [Request(ids, (seed,))], config)
        tokens, found = sampled.token_ids.tolist(), sampled.logprobs.tolist()
        if "raw log-probabilities" in self.lies:
            found = logprobs(policy, ids, tuple(tokens), 1.0)
        reason = str(sampled.finish_reason)
        if draw.get("stop") and (end := stopped_at(policy, tokens, draw)) < len(tokens):
            tokens, found, reason = tokens[:end], found[:end], "stop"
        if self.aborts > 0 and len(tokens) > 1:
            self.aborts -= 1
            tokens, found, reason = tokens[:1], found[:1], "abort"
        choice = {
            "index": 0, "finish_reason": reason, "token_ids": tokens,
            "logprobs": {"content": [{"token_id": t, "logprob": p} for t, p in zip(tokens, found, strict=True)]},
            "weight_versions": [{"version": engine.label, "start": 0, "end": len(tokens)}],
        }  # fmt: skip
        return self.falsified({"model": model, "choices": [choice]})

    def falsified(self, answer: dict[str, Any]) -> Any:
        """One thing of an answer that is as it must not be."""
        choice = answer["choices"][0]
        content = choice["logprobs"]["content"]
        for lie in self.lies:
            match lie:
                case "-9999":
                    content[-1]["logprob"] = -9999.0
                case "NaN":
                    content[-1]["logprob"] = float("nan")
                case "positive":
                    content[-1]["logprob"] = 0.5
                case "no log-probabilities":
                    choice["logprobs"] = None
                case "a log-probability too few":
                    content.pop()
                case "log-probabilities of others":
                    content[0]["token_id"] += 1
                case "another model":
                    answer["model"] = "another"
                case "too few":
                    answer["choices"] = []
                case "no end":
                    del choice["finish_reason"]
                case "outside":
                    choice["token_ids"][-1] = content[-1]["token_id"] = 100_000
                case "empty":
                    choice["token_ids"], choice["logprobs"]["content"] = [], []
                case "no versions":
                    del choice["weight_versions"]
                case "no JSON object":
                    return ["nothing"]
        return answer


def stopped_at(policy: Policy, tokens: list[int], draw: dict[str, Any]) -> int:
    """How many tokens there are up to the first stop text; all of them, whatever text the last one holds."""
    if not draw["detokenize"]:
        raise RefusalError(400, "stop strings are only supported when detokenize is True")
    texts = (policy.tokenizer.decode(tokens[: i + 1]) for i in range(len(tokens)))
    return next((i + 1 for i, text in enumerate(texts) if any(stop in text for stop in draw["stop"])), len(tokens))


@torch.no_grad()
def logprobs(policy: Policy, prompt: tuple[int, ...], tokens: tuple[int, ...], temperature: float) -> list[float]:
    packed = pack([Sequences(prompt, [np.array(tokens)])], policy.device)
    found: list[float] = policy.token_logprobs(packed, temperature).logprobs.tolist()
    return found
