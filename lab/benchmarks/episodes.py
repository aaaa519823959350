"""An episode of several turns against a single completion of as many tokens, and steps with episodes beside TRL's.

    python lab/benchmarks/episodes.py --turns 8 --turn 16 --reply 16 --repeats 5
    python lab/benchmarks/episodes.py --beside-trl --model MODEL --prompts 4 --group 8 --turns 4 --repeats 5

Every turn says the same script and ends; an environment of this file answers with a reply of the same length. The
single completion draws as many tokens, replies included. `kept` is the in-process engine, `anew` the same engine
asked for each turn as for a new prompt. Arms alternate, and time is processor time of this process (the environments'
workers apart), so that other programs on the machine count little; ratios are those of each round of the arms, with
Student's 95 % interval.

With `--beside-trl` one class, `Rooms`, is the environment of both: `environment_factory` of TRL's GRPOTrainer, and
`kind = "trl"` here. Both draw their tokens and then say the same, a call of its tool in all turns but the last, so both
sample the same number of tokens in as many turns. Steps alternate, in `--dtype` (TRL by autocast, its weights in fp32;
ours by `--weights`), and count the wall-clock time of all that a step does. MODEL is a directory whose tokenizer writes
as ChatML does (SmolLM2); both get the template of Qwen 2.5.
"""

import argparse
import json
import math
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from groupwise.algorithms.statistics import mean_over_seeds
from groupwise.config import parse
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy, load_policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout import in_process, sample_and_score
from groupwise.rollout.engine import EngineConfig, Request, Sampled
from groupwise.rollout.environments import Crews
from groupwise.rollout.episodes import Episodes
from groupwise.rollout.sampling import Drawn, SamplingConfig, draw
from groupwise.tasks import make_task
from groupwise.tasks.environments.base import Environment, Opening, Reply, Turn
from groupwise.trainers.grpo import GrpoRecipe, grpo_learner, grpo_step
from groupwise.types import Problem
from groupwise.verifiers import make_verifier

ASKED = 32
ARMS = ("single", "kept", "anew")


class Answers(Environment):
    """Answers every turn but the last by as many letters as the problem says."""

    def start(self, problem: Problem, seed: int) -> Opening:
        self.reply, self.turns = "b" * (int(problem.reference.split()[0]) - 1), int(problem.reference.split()[1])
        return Opening.of(problem.question)

    def step(self, turn: Turn) -> Reply:
        self.turns -= 1
        return Reply.of(self.reply, reward=0.0, done=not self.turns)


class Anew:
    """An engine that keeps nothing between two calls."""

    uses_tools, version = True, 0

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def generate(self, requests: list[Request], sampling: SamplingConfig, on_finished: object) -> None:
        in_process.generate(self._policy, requests, sampling, on_finished)  # type: ignore[arg-type]


class Rooms:
    """An environment as TRL's `environment_factory` takes it."""

    def reset(self, **row: Any) -> str:
        """Begin anew."""
        return " Look into the rooms, then say what you saw."

    def look(self, room: int) -> str:
        """Look into a room.

        Args:
            room: Number of the room.

        Returns:
            What is seen.
        """
        return f"In room {room} stands a chair, and a door leads to room {room + 1}."

    def get_reward(self) -> float:
        """Return what the episode is worth: a number by chance, since all say the same."""
        return random.random()


CALL = '<tool_call>\n{"name": "look", "arguments": {"room": 3}}\n</tool_call>'


@contextmanager
def scripted(script: Sequence[int]) -> Iterator[None]:
    """Tokens are drawn as always, then replaced by the script's, over and over; completions may begin alike."""
    at = 0

    def drawn(logits: torch.Tensor, uniforms: torch.Tensor, config: SamplingConfig) -> Drawn:
        nonlocal at
        result, at = draw(logits, uniforms, config), at + 1
        token = script[(at - 1) % len(script)]
        logprobs = torch.log_softmax(logits.float(), -1)[:, token]
        return result._replace(tokens=torch.full_like(result.tokens, token), logprobs=logprobs)

    alarm = sample_and_score.FALSE_ALARM
    in_process.draw, sample_and_score.FALSE_ALARM = drawn, math.inf  # type: ignore[assignment]
    try:
        yield
    finally:
        in_process.draw, sample_and_score.FALSE_ALARM = draw, alarm


def our_recipe(options: argparse.Namespace, folder: Path) -> GrpoRecipe:
    """Return the recipe of our side; its model and its problems lie in the folder."""
    place = {"kind": "trl", "factory": f"{__file__}:Rooms", "seeds": "sample", "max_turns": options.turns}
    return parse(
        GrpoRecipe,
        {
            "run": {"directory": str(folder / "run"), "num_steps": 1000},
            "model": {"path": str(folder / "model"), "compute_dtype": options.dtype, "weights_dtype": options.weights},
            "task": {
                "kind": "episodes",
                "template": {"chat": True},
                "environment": {**place, "num_workers": 1, "past": "keep"},
                "problems": {"kind": "jsonl", "path": str(folder / "rows.jsonl")},
            },
            "grpo": {"prompts_per_step": options.prompts, "group_size": options.group},
            "sampling": {"max_tokens": 1024},
            "loss": {"aggregation": "constant"},
            "optimizer": {"lr": 1e-4, "max_grad_norm": 1.0},
        },
    )


def settings_of_trl(options: argparse.Namespace, folder: Path) -> Any:
    """Return the same settings for TRL."""
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir=str(folder / "trl"),
        use_cpu=True,
        bf16=options.dtype == "bfloat16",
        gradient_checkpointing=False,
        beta=0.0,
        per_device_train_batch_size=options.micro_batch,
        gradient_accumulation_steps=options.prompts * options.group // options.micro_batch,
        num_generations=options.group,
        max_completion_length=1024,
        max_steps=options.repeats + 1,
        loss_type="dr_grpo",
        scale_rewards="none",
        learning_rate=1e-4,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=1.0,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def beside_trl(options: argparse.Namespace, folder: Path) -> None:
    """Print the sampled tokens per second of whole steps, ours and TRL's in turns, and their ratio."""
    import datasets
    from datasets.table import InMemoryTable
    from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessorList, PrinterCallback, TrainerCallback
    from trl import GRPOTrainer
    from trl.chat_template_utils import qwen2_5_chat_template

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    tokenizer.chat_template = qwen2_5_chat_template
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32, attn_implementation="sdpa")
    for part in (tokenizer, model):
        part.save_pretrained(folder / "model")
    turns = [*[CALL] * (options.turns - 1), "I saw a chair in each of the rooms."]
    said = [[*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id] for text in turns]
    script, rows = [token for turn in said for token in turn], options.prompts * options.group
    questions = [f"You stand before room {index}." for index in range(80)]
    (folder / "rows.jsonl").write_text("\n".join(json.dumps({"question": q, "answer": "chair"}) for q in questions))
    asked = [[{"role": "user", "content": question}] for question in questions]
    recipe = our_recipe(options, folder)
    task = make_task(recipe.task)
    learner = grpo_learner(recipe, load_policy(recipe.model), make_verifier(task.verifier_config))
    rates: dict[str, list[float]] = {"ours": [], "TRL": []}

    class Turns(TrainerCallback):  # type: ignore[misc]  # of TRL
        """Forces what TRL says, and takes our turn after each of its steps."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.turn, self.began = 0, time.perf_counter()

        def generate(self, **inputs: Any) -> torch.Tensor:
            forced, begin = said[self.turn], inputs["input_ids"].shape[1]
            self.turn += 1

            def force(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
                scores[:] = -torch.inf
                scores[:, forced[ids.shape[1] - begin]] = 0.0
                return scores

            out: torch.Tensor = generate(**inputs, logits_processor=LogitsProcessorList([force]))
            return out

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            seconds = {"TRL": time.perf_counter() - self.began}
            assert self.turn == options.turns, f"TRL asked for {self.turn} turns"
            problems = task.problems("train")[(state.global_step - 1) % 8 :][: options.prompts]
            with scripted(script):
                began = time.perf_counter()
                step = grpo_step(learner, state.global_step - 1, problems)
                seconds["ours"] = time.perf_counter() - began
            sampled = [c for group in step.groups for c in group.scored.group.completions]
            assert {(len(c.turns), c.num_tokens) for c in sampled} == {(options.turns, len(script))}, "another script"
            for side, own in seconds.items():
                rates[side] += [rows * len(script) / own] if state.global_step > 1 else []  # the first of each warms up
                print(f"step {state.global_step}: {side} {own:.2f} s", flush=True)

    generate, callback = model.generate, Turns()
    model.generate = callback.generate
    trainer = GRPOTrainer(
        model=model,
        args=settings_of_trl(options, folder),
        train_dataset=datasets.Dataset(InMemoryTable.from_pydict({"prompt": asked}), fingerprint="planned"),
        processing_class=tokenizer,
        environment_factory=Rooms,
        callbacks=[callback],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    ratio = mean_over_seeds([ours / theirs for ours, theirs in zip(rates["ours"], rates["TRL"], strict=True)])
    print(f"{rows} episodes of {options.turns} turns, {len(script)} sampled tokens each; tokens per second of steps:")
    print({side: round(sum(each) / len(each), 1) for side, each in rates.items()})
    print(f"ours over TRL {ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]")


def main(arguments: list[str] | None = None) -> None:
    """Print seconds of processor time of the arms, and the ratios to the single completion."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="base")
    for name, default in (("prompts", 8), ("group", 8), ("turns", 8), ("turn", 16), ("reply", 16), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--beside-trl", action="store_true")
    parser.add_argument("--micro-batch", type=int, default=8, help="completions per forward of TRL")
    parser.add_argument("--dtype", default="float32", help="of products beside TRL: float32 or bfloat16")
    parser.add_argument("--weights", default="float32", help="of our weights beside TRL: float32 or bfloat16")
    options = parser.parse_args(arguments)
    if options.beside_trl:
        with tempfile.TemporaryDirectory() as folder:
            beside_trl(options, Path(folder))
        return
    policy = load_policy(ModelConfig(path=options.model))
    turns, draws, letter = options.turns, Draws(0, Purpose.TRAIN), policy.tokenizer.convert_tokens_to_ids("a")
    length = turns * options.turn + (turns - 1) * options.reply
    limits = {"max_turns": turns, "max_turn_tokens": options.turn}
    template = make_task({"kind": "episodes", "environment": {"kind": "guess"}}).template
    config = Answers.Config.model_validate({"kind": f"{__file__}:Answers", **limits})
    problems = [
        Problem(f"p/{index}", "q" * (ASKED - 1), f"{options.reply} {turns}", environment=config)
        for index in range(options.prompts)
    ]
    engines = {"kept": in_process.InProcessEngine(EngineConfig(), policy), "anew": Anew(policy)}
    seconds: dict[str, list[float]] = {arm: [] for arm in ARMS}
    crews = Crews()
    for repeat in range(options.repeats + 1):
        for arm in ARMS:
            episodes = Episodes(crews, policy, template, problems, draws)
            keys = [draws.keys(problem.id, options.group) for problem in problems]
            requests = [Request(prompt.token_ids, own) for prompt, own in zip(episodes.prompts, keys, strict=True)]
            done: dict[int, list[Sampled]] = {}
            with scripted([letter] if arm == "single" else [letter] * (options.turn - 1) + [min(policy.stop_ids)]):
                began = time.process_time()
                if arm == "single":
                    in_process.generate(policy, requests, SamplingConfig(max_tokens=length), done.__setitem__)
                else:
                    sampling = SamplingConfig(max_tokens=length)
                    episodes.generate(engines[arm], requests, sampling, done.__setitem__)  # type: ignore[arg-type]
                spent = time.process_time() - began
            sizes = {len(one.token_ids) for group in done.values() for one in group}
            assert sizes == {length}, (arm, sizes, length)
            if repeat:  # the first of each warms up
                seconds[arm].append(spent)
    print(f"{options.prompts} x {options.group} episodes of {turns} turns, {length} tokens each")
    for arm in ARMS:
        pairs = [own / single for own, single in zip(seconds[arm], seconds["single"], strict=True)]
        ratio = mean_over_seeds(pairs)
        print(f"{arm:7} {min(seconds[arm]):6.2f} s  {ratio.value:5.2f} [{ratio.low:.2f}, {ratio.high:.2f}]")


if __name__ == "__main__":
    main()
