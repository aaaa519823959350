"""Runs in a worker process: the live instances of episodes, each made again from its turns where it is missing.

The first request names the environment, `{"kind": ..., "settings": {...}}`. Every other one is a list of episodes, each
with all that was said: `{"id", "problem", "seed", "turns", "ended", "whole"}`. The answer is a list of
`{"replies": [...], "opening": {...}}` with the last reply (all of them with `whole`, without turns the opening alone),
or `{"failed": ...}`. An instance goes when its episode has ended.
"""

import asyncio
import inspect
import json
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, SupportsFloat, get_args

from groupwise.tasks.environments.base import ENVIRONMENTS, Attempt, Decided, Environment, Opening, Reply, Turn
from groupwise.types import Problem


@dataclass(slots=True)
class _Live:
    environment: Environment
    opening: dict[str, Any] | None = None
    num_turns: int = 0


class Server:
    """The environment of one worker, and its live instances."""

    def __init__(self, kind: str, settings: dict[str, Any]) -> None:
        config = ENVIRONMENTS.settings(kind).model_validate(settings)
        self._make: Callable[[], Environment] = lambda: ENVIRONMENTS.find(kind)(config)
        self._live: dict[str, _Live] = {}
        self._loop, self._threads = asyncio.new_event_loop(), ThreadPoolExecutor(64)

    def answer(self, episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        async def together() -> list[dict[str, Any]]:
            return await asyncio.gather(*map(self._answered, episodes))

        return self._loop.run_until_complete(together())

    async def _answered(self, episode: dict[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        try:
            # what JSON cannot say is a fault of this episode alone; half a character, which no tokenizer takes, is "?"
            found = json.loads(json.dumps(await self._played(episode), ensure_ascii=False).encode(errors="replace"))
        except (Exception, SystemExit) as error:  # reported; the other episodes go on
            return {"failed": f"{type(error).__name__}: {error}"[:400]}
        return {**found, "seconds": time.perf_counter() - began}

    async def _played(self, episode: dict[str, Any]) -> dict[str, Any]:
        turns, live = episode["turns"], self._live.pop(episode["id"], None)
        known = len(turns) if episode["ended"] else max(len(turns) - 1, 0)
        if live is not None and (live.num_turns != known or episode["whole"]):
            live.environment.close()
            live = None
        live, replies, over = live or _Live(self._make()), [], True
        try:
            if live.opening is None:
                asked = Problem(**episode["problem"]), episode["seed"]
                live.opening = await self._call(live.environment, "start", Opening, *asked)
            for said in turns[live.num_turns :]:
                turn = Turn(said["text"], tuple(Attempt(**attempt) for attempt in said["attempts"]))
                replies.append(await self._call(live.environment, "step", Reply, turn))
                live.num_turns += 1
            if episode["ended"]:
                replies.append(await self._call(live.environment, "ended", Reply, episode["ended"]))
            over = bool(episode["whole"] or episode["ended"] or (replies and replies[-1]["done"]))
        finally:
            if over:
                live.environment.close()
            else:
                self._live[episode["id"]] = live
        return {"opening": live.opening, "replies": replies if episode["whole"] else replies[-1:]}

    async def _call(
        self, environment: Environment, name: str, kind: type[Opening] | type[Reply], *arguments: Any
    ) -> Any:
        method = getattr(environment, name)
        if inspect.iscoroutinefunction(method):
            result = await method(*arguments)
        elif environment.alone:
            result = environment.outside(method, *arguments)
        else:
            result = await self._loop.run_in_executor(self._threads, method, *arguments)
        if name == "ended" and result is None:
            return None
        gave = f"{name} of the environment gave"
        if not isinstance(result, kind):
            raise TypeError(f"{gave} {type(result).__name__}; {kind.__name__} is needed")
        if isinstance(result, Reply):
            reward = result.reward
            if not isinstance(reward, SupportsFloat | None) or not math.isfinite(reward or 0.0):
                raise ValueError(f"{gave} the reward {reward!r:.80}; a finite number is needed, or None")
            if result.outcome not in get_args(Decided):
                raise ValueError(f"{gave} the outcome {result.outcome!r:.80}; allowed are 'correct' and 'wrong'")
            # NumPy's numbers are none of JSON's
            result = replace(result, reward=reward if reward is None else float(reward), done=bool(result.done))
        if not result.messages and not (isinstance(result, Reply) and (result.done or name == "ended")):
            raise ValueError(f"{gave} no message; one is needed until it is done")
        for message in result.messages:
            parts = [message.get(part) for part in ("role", "content")] if isinstance(message, Mapping) else [None]
            if not all(isinstance(part, str) for part in parts):
                raise TypeError(f"{gave} the message {message!r:.80}; it needs role and content, which are texts")
        return asdict(result)


_SERVER: list[Server] = []


def answer(request: Any) -> Any:
    """Answer one request of the parent."""
    if isinstance(request, list):
        return _SERVER[0].answer(request)
    _SERVER[:] = [Server(request["kind"], request["settings"])]
    return None
