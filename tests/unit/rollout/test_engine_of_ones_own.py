"""An engine is one file: a class with settings, named by the recipe; everything else goes through the protocol."""

import json
from pathlib import Path

import pytest

from groupwise.errors import ConfigError, DataError, InvariantError
from groupwise.models.policy import Policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.engine import EngineConfig, Request, make_engine
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.scripted import ScriptedConfig, ScriptedEngine, read_script
from groupwise.tasks.base import Template
from groupwise.trainers import load_recipe, train
from groupwise.types import FinishReason, Problem
from groupwise.verifiers.unjudged import Unjudged

OWN = '''
from groupwise.rollout.engine import EngineConfig
from groupwise.rollout.in_process import InProcessEngine


class Config(EngineConfig):
    log: str


class Logging(InProcessEngine):
    """Samples as ever, and writes down what it was asked."""

    Config = Config

    def __init__(self, config, policy):
        super().__init__(config, policy)
        self.log = config.log

    def generate(self, requests, sampling, on_finished):
        with open(self.log, "a") as file:
            print(self.version, len(requests), file=file)
        super().generate(requests, sampling, on_finished)
'''
RECIPE = """
algorithm = "grpo"
run = { directory = "RUN", num_steps = 2 }
task = { kind = "arithmetic" }
grpo = { prompts_per_step = 2, group_size = 2 }
sampling = { max_tokens = 4 }
evaluation = { num_problems = 1, num_samples = 1, test_problems = 0 }
loss = { entropy_coef = 0.01 }  # a gradient, whatever is earned
engine = { kind = "own.py:Logging", log = "LOG" }
"""


def test_an_engine_of_ones_own_samples_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    recipe = RECIPE.replace("RUN", str(tmp_path / "run")).replace("LOG", str(tmp_path / "log"))
    (tmp_path / "recipe.toml").write_text(recipe)
    session = train(load_recipe(tmp_path / "recipe.toml"))
    # dev before the first step, two steps, dev after the last one; each with the version of the weights it samples from
    assert (tmp_path / "log").read_text().split("\n")[:-1] == ["0 1", "0 2", "1 2", "2 1"]
    (copy,) = (session.directory.path / "sources").glob("own-*/own.py")
    assert copy.read_text() == OWN


def test_it_gives_one_completion_for_each_key(tmp_path: Path) -> None:
    doubled = OWN.replace("sampling, on_finished)\n", "sampling, lambda i, given: on_finished(i, given * 2))\n")
    (tmp_path / "own.py").write_text(doubled)
    (tmp_path / "recipe.toml").write_text(RECIPE.replace("RUN", f"{tmp_path}/run").replace("LOG", f"{tmp_path}/log"))
    with pytest.raises(InvariantError, match="the engine gave 2 of 1 completions of arithmetic/"):
        train(load_recipe(tmp_path / "recipe.toml"))


def test_its_settings_are_checked(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "recipe.toml").write_text(RECIPE.replace("log =", "lag ="))
    with pytest.raises(ConfigError, match=r"engine\.lag: unknown key; did you mean 'log'"):
        load_recipe(tmp_path / "recipe.toml")


def test_a_script_is_read_as_if_the_policy_had_sampled_it(policy: Policy, tmp_path: Path) -> None:
    row = {"prompt": "What is 2 + 2?\n", "completions": ["4", "5<think>"]}
    (tmp_path / "script.jsonl").write_text(json.dumps(row))
    config = ScriptedConfig(kind="scripted", path=str(tmp_path / "script.jsonl"))
    actors = Actors(policy, make_engine(config, policy), Template(), Unjudged())
    problem = Problem("p", "What is 2 + 2?", "4")
    [found] = sample_and_score(actors, [problem], 2, SamplingConfig(max_tokens=2), Draws(0, Purpose.SAMPLE))
    first, second = found.group.completions
    assert (first.text, first.finish_reason) == ("4", FinishReason.STOP)
    assert (second.num_tokens, second.finish_reason) == (2, FinishReason.LENGTH)  # cut off before its end
    assert (first.sampling_logprobs < 0).all()


def test_what_a_script_lacks_is_named(policy: Policy, tmp_path: Path) -> None:
    engine = ScriptedEngine.of({"a": ["1"]}, policy)
    ids = tuple(policy.tokenizer("a")["input_ids"])
    with pytest.raises(ConfigError, match=r"has 1 completions of the prompt 'a'; 2 are needed"):
        engine.generate([Request(ids, (1, 2))], SamplingConfig(), lambda index, sampled: None)
    for rest in ("", ', "completions": "abc"', ', "completions": [5]', ', "completions": [null]'):
        (tmp_path / "bad.jsonl").write_text(f'{{"prompt": "a"{rest}}}')
        with pytest.raises(DataError, match=r"line 1 needs `prompt`, a text, and `completions`, a list of texts"):
            read_script(tmp_path / "bad.jsonl")


def test_the_default_samples_in_this_process(policy: Policy) -> None:
    assert type(make_engine(EngineConfig(), policy)).__name__ == "InProcessEngine"
