"""The half of the bridge to verifiers v1 that needs the package: its section `[env]`, its servers, a model's endpoint.

The chat loop of the harness `null` runs in this process, which has what `uv` would install for it, and agents run in
the runtime `subprocess` where nothing else is asked for.
"""

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import Any

from aiohttp import web
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.harnesses.null import NullHarness
from verifiers.v1.harnesses.utils.launch import CHAT_PROGRAM_SOURCE
from verifiers.v1.runtimes import ProgramResult
from verifiers.v1.utils import loaders

from groupwise.errors import VerifierError
from groupwise.types import Problem

FOREVER = 1e9
"""Seconds: the time of an agent's turns is that of the sampler, which says nothing about it."""
_FULL = {"error": {"message": "maximum context length exceeded", "code": "context_length_exceeded"}}

Talk = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]
"""Says the turn for a request; None: there is room for none."""


class House:
    """One environment in this process (ValueError: its policy is not one agent, or a harness would run its code)."""

    def __init__(self, taskset: str, settings: str) -> None:
        name, data = taskset, json.loads(settings)
        if (place := Path(taskset)).is_absolute():
            inner = place / place.name.replace("-", "_")
            place = inner if inner.is_dir() else place
            name = place.stem
            if str(place.parent) not in sys.path:
                sys.path.append(str(place.parent))
        data["taskset"] = {"id": name, **data.get("taskset", {})}
        for role, field in loaders.env_config_type(name, data.get("id", "")).model_fields.items():
            if isinstance(field.default, AgentConfig):
                seat = data.setdefault(role, {})
                seat["timeout"] = {"rollout": FOREVER, **seat.get("timeout", {})}
                if "runtime" not in field.default.model_fields_set:
                    seat.setdefault("runtime", {"type": "subprocess"})
                if field.default.harness is None and loaders.default_harness_id(name) == "bash":
                    seat.setdefault("harness", {"id": "null"})
        self.config = loaders.resolve_env_config(data)
        self.judges = [f"{judge.base_url}, {judge.model}" for judge in self.config.taskset.task.judges]
        roles = {role: seat for role, seat in self.config if isinstance(seat, AgentConfig)}
        for role, seat in roles.items():
            harness = seat.harness.id if seat.harness else name
            if seat.runtime.type == "subprocess" and loaders.harness_class(harness).EXECUTES_CODE:
                raise ValueError(
                    f"the harness {harness!r} of {role} would run what the model wrote on this machine; allowed are "
                    f'env.{role}.harness = {{id = "null"}} and a runtime of containers'
                )
        if len(asking := [role for role, seat in roles.items() if seat.client is None]) != 1:
            raise ValueError(f"agents without a `client` are {asking}; allowed is one, the policy")
        self.policy, self._talks = asking[0], dict[str, Talk]()
        self._stack, self._open = AsyncExitStack(), asyncio.Lock()
        self._env: Any = None
        self._tasks, self._source = list[Any](), iter(())
        self._url = ""

    def problems(self) -> Iterator[Problem]:
        for index, task in enumerate(loaders.load_taskset(self.config.taskset)):
            answer, data = getattr(task.data, "answer", ""), {"task": index, "key": task.key}
            name = task.key[:16] if task.key == task.hash else task.key  # half of one of its own is no name
            yield Problem(f"{self.config.env_id}/{name}", task.data.prompt_text, str(answer), data=data)

    async def episode(self, problem: Problem, talk: Talk) -> Coroutine[Any, Any, Any]:
        """Return the run of an episode, yet to be started."""
        async with self._open:
            if not self._url:
                await self._serve()
        while len(self._tasks) <= problem.data["task"]:
            self._tasks.append(next(self._source))
        if (task := self._tasks[problem.data["task"]]).key != problem.data["key"]:
            raise VerifierError("the taskset loads another task in another process; allowed is one that does not")
        self._talks[name := str(id(talk))] = talk
        client = EvalClientConfig(base_url=f"{self._url}/{name}", api_key_var="GROUPWISE_NEEDS_NONE")

        async def run() -> Any:
            try:
                return await self._env.run_episode(task, ModelContext("policy", client))
            finally:
                del self._talks[name]

        return run()

    async def _serve(self) -> None:
        async def set_up(self: Any, runtime: Any) -> None:
            pass

        async def launch(self: Any, ctx: Any, trace: Any, runtime: Any, *others: Any, **more: Any) -> ProgramResult:
            return await _WITH_UV(self, ctx, trace, _Here(runtime), *others, **more)

        NullHarness.setup, NullHarness.launch = set_up, launch
        self._env = loaders.load_environment(self.config)
        self._source = iter(self._env.taskset)
        await self._stack.enter_async_context(self._env.serving())
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/{talk}/{path:.*}", self._asked)
        await (runner := web.AppRunner(app)).setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self._url = f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def _asked(self, request: web.Request) -> web.Response:
        body = await request.json()
        if not request.path.endswith("/chat/completions"):
            return web.json_response({"error": {"message": f"{request.path} is no chat completion"}}, status=400)
        if (message := await self._talks[request.match_info["talk"]](body)) is None:
            return web.json_response(_FULL, status=400)
        stream = bool(body.get("stream"))
        part, shape = ("delta", "chat.completion.chunk") if stream else ("message", "chat.completion")
        for index, call in enumerate(message.get("tool_calls", ())):
            call["index"] = index
        choice = {"index": 0, part: message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        usage = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
        answer = {"id": "", "object": shape, "created": 0, "model": "policy", "choices": [choice], "usage": usage}
        if not stream:
            return web.json_response(answer)
        return web.Response(text=f"data: {json.dumps(answer)}\n\ndata: [DONE]\n\n", content_type="text/event-stream")


house = cache(House)


class _Here:
    """A runtime that runs the chat program of verifiers in this process."""

    def __init__(self, runtime: Any) -> None:
        self.write, self._folder = runtime.write, runtime.info.id

    async def prepare_uv_script(self, *_: Any, **__: Any) -> list[str]:
        return []

    async def run_program(self, arguments: list[str], _: Mapping[str, str]) -> ProgramResult:
        file, code, words = "--initial-messages-file=", 0, ""
        sys.argv = ["chat", *(each.replace(file, f"{file}{self._folder}/", 1) for each in arguments)]
        try:
            await _PROGRAM["main"]()  # reads sys.argv before it first waits
        except (Exception, SystemExit) as error:
            code = int(error.code or 0) if isinstance(error, SystemExit) else 1
            words = traceback.format_exc()
        return ProgramResult(exit_code=code, stdout="", stderr=words)


_PROGRAM: dict[str, Any] = {"__name__": "verifiers_chat"}
exec(compile(CHAT_PROGRAM_SOURCE, "verifiers_chat", "exec"), _PROGRAM)
_WITH_UV = NullHarness.launch
