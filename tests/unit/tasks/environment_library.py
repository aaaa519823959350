"""What the classic form of the library `verifiers` (0.1.12 to 0.3) promises and an adapter needs, in a few lines.

Tests run with it where the library is not installed. Names, arguments and the habit of counting an exception as 0 are
the library's; the code is not.
"""

import inspect
import sys
import types
from abc import ABC, abstractmethod


class Client(ABC):
    def __init__(self, config):
        self.config = config

    @abstractmethod
    def setup_client(self, config): ...


class Parser:
    def parse_answer(self, completion):
        return completion[-1]["content"]


class Rubric:
    def __init__(self, funcs=None, weights=None, parser=None):
        self.funcs, self.parser = funcs or [], parser or Parser()
        self.weights = weights or [1.0] * len(self.funcs)

    def _is_group_func(self, func):
        return "completions" in inspect.signature(func).parameters

    async def score_group(self, states):
        for state in states:
            fields = {**state["input"], **state, "state": state, "parser": self.parser}
            state["reward"] = 0.0
            for func, weight in zip(self.funcs, self.weights, strict=True):
                names = inspect.signature(func).parameters
                try:
                    value = func(**{name: fields[name] for name in names if name in fields})
                    state["reward"] += weight * float(await value if inspect.isawaitable(value) else value)
                except Exception:
                    continue  # the library logs it and counts 0

    async def cleanup(self, state): ...


class JudgeRubric(Rubric): ...


class Environment:
    def __init__(self, dataset=None, eval_dataset=None, system_prompt=None, few_shot=None, rubric=None, parser=None):
        self.system = [{"role": "system", "content": system_prompt}] if system_prompt else []
        self.few_shot, self.rubric = list(few_shot or ()), rubric or Rubric()
        self.dataset, self.eval_dataset = map(self._with_prompts, (dataset, eval_dataset))

    def _with_prompts(self, rows):
        return rows and [{**row, "prompt": row.get("prompt") or self._asked(row)} for row in rows]

    def _asked(self, row):
        return [*self.system, *self.few_shot, {"role": "user", "content": row["question"]}]

    def get_dataset(self):
        return self.dataset

    def get_eval_dataset(self):
        return self.eval_dataset

    async def rollout(self, input, client, model, sampling_args=None):
        reply = await client.get_response(prompt=input["prompt"], model=model, sampling_args=sampling_args)
        return {"input": input, "completion": [vars(reply.message)], "error": None}


class MultiTurnEnv(Environment): ...


class SingleTurnEnv(MultiTurnEnv): ...


def load_environment(env_id, **arguments):
    return __import__(env_id.replace("-", "_")).load_environment(**arguments)


class ResponseMessage(types.SimpleNamespace): ...


class Response(types.SimpleNamespace): ...


sys.modules[f"{__name__}.types"] = types.ModuleType("types")
sys.modules[f"{__name__}.types"].Response = Response
sys.modules[f"{__name__}.types"].ResponseMessage = ResponseMessage
