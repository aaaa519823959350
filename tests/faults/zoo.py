"""The faults: bugs that other systems had, each planted into the real code, and the check that must notice it.

    python tests/faults/zoo.py > docs/faults.md
"""

import ast
import copy
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from lab import Check, Lab, fails, resume, stops
from planting import Edit, find

from groupwise.errors import CheckpointError, ConfigError, ModelError, UnsupportedModelError, VerifierError
from groupwise.trainers import grpo
from groupwise.training.optimizer import OptimizerConfig

Plant = Callable[[Lab, pytest.MonkeyPatch], None]


class Fault(NamedTuple):
    """A fault and what must notice it."""

    topic: str
    what: str
    """The fault in a sentence."""
    check: Check
    edits: tuple[Edit, ...] = ()
    """Slips in the code."""
    settings: tuple[str, ...] = ()
    """Slips in the recipe."""
    plant: Plant | None = None
    """What is no slip of one place."""
    setup: tuple[str, ...] = ()
    """Settings of the recipe, with and without the fault."""


def stale_sampler(lab: Lab, patch: pytest.MonkeyPatch) -> None:
    """Sample from a copy of the weights that is never renewed."""
    real, kept = grpo.collect, []

    def collect(policy: Any, *arguments: Any, **options: Any) -> Any:
        if not kept:
            kept.append(dataclasses.replace(policy, model=copy.deepcopy(policy.model)))
        return real(kept[0], *arguments, **options)

    patch.setattr(grpo, "collect", collect)


def unread_key(lab: Lab, patch: pytest.MonkeyPatch) -> None:
    """Let the optimizer's source no longer read a key of its configuration."""
    trees = lab.request.getfixturevalue("trees")
    path = "training/optimizer.py"
    source = ast.unparse(trees[path])
    assert source.count("self.config.max_grad_norm") == 1
    patch.setitem(trees, path, ast.parse(source.replace("self.config.max_grad_norm", "1.0")))


SLOW_LOOP = fails(
    "unit/training/test_update.py", "test_the_first_update_equals_the_papers_loops",
    aggregation="constant", temperature=1.0,
)  # fmt: skip
DISAGREE = stops("training.update:_compare", "sampler and trainer disagree about a token's log-probability")
STOP_TOKENS = stops("rollout.collect:_check_stops", "has stop tokens at")
SPOT_CHECK = stops("verifiers.score:spot_check", "verdicts were given to the ")
NUMBER = stops("verifiers.score:score", "the verifier returned", VerifierError)
WEIGHTS = stops("training.invariants:check_weights", "the weights of an update's tokens sum to")
FORWARD = stops(
    "models.policy:_check_forward", "the packed forward differs from transformers' eager forward", UnsupportedModelError
)
ORDER = stops("trainers.advantages:_check_order", "smaller where more was earned")
LEDGER = Check("fails", "faults/lab.py::resume", resume, AssertionError, "the ledger of the resumed run differs")

FAULTS = (
    Fault(
        "temperature", "The sampler draws at one temperature and records log-probabilities at temperature 1", DISAGREE,
        (Edit("rollout.sampling:draw", "logprobs.gather(1, tokens)", "torch.log_softmax(logits, -1).gather(1, tokens)"),),
    ),
    Fault(
        "temperature", "The trainer scores at temperature 1 what was drawn at another", DISAGREE,
        (Edit("training.update:_Update.backward", "micro.packed.targets, self.temperature", "micro.packed.targets, 1.0"),),
    ),
    Fault(
        "truncation", "A recipe trains on samples of top-k",
        stops("rollout.sampling:refuse_for_training", "training must sample from the whole distribution", ConfigError),
        settings=("sampling.top_k=5",),
    ),
    Fault(
        "truncation", "The sampler cuts to the likeliest tokens; the loss is that of the full softmax", DISAGREE,
        (Edit("rollout.sampling:_truncate", "if config.top_k and config.top_k < logits.shape[1]:\n        kth = logits.topk(config.top_k,", "if True:\n        kth = logits.topk(5,"),),
    ),
    Fault(
        "truncation", "The sampler cuts to the likeliest tokens and records log-probabilities of the full softmax",
        fails(
            "unit/rollout/test_engine.py", "test_first_tokens_follow_the_models_distribution",
            device="cpu", temperature=1.0,
        ),
        (
            Edit(
                "rollout.sampling:draw",
                "probabilities = logprobs.exp()",
                "probabilities = logprobs.exp() * (logprobs >= logprobs.topk(5).values[:, -1:])",
            ),
        ),
    ),
    Fault(
        "missing", "A log-probability that was never recorded is 0",
        stops("training.update:_sampling_logprobs", "sampled tokens have an impossible log-probability"),
        (Edit("rollout.engine:_LiveBatch._admit", "self._release()", "self.logprobs[outputs, 0] = 0\n    self._release()"),),
    ),
    Fault("staleness", "The sampler keeps the weights of the first step", DISAGREE, plant=stale_sampler),
    Fault(
        "reload", "A resumed run starts from the recipe's model instead of its checkpoint",
        stops("training.session:Session._check_weights", "other weights were saved or loaded", CheckpointError, resume),
        (Edit("training.session:Session.model_path", "str(self._checkpoint) if self._checkpoint else path", "path"),),
    ),
    Fault(
        "reload", "A checkpoint holds old weights",
        stops("training.session:Session._check_weights", "other weights were saved or loaded", CheckpointError, resume),
        (
            Edit(
                "models.checkpoint:save_checkpoint",
                "policy.model.save_pretrained(directory)",
                "policy.model.save_pretrained(directory, state_dict={n: t + 0.01 for n, t in policy.model.state_dict().items()})",
            ),
        ),
    ),
    Fault(
        "reload", "A checkpoint lacks some of the weights",
        stops("models.policy:load_policy", "are missing or of another shape", ModelError),
        (
            Edit(
                "models.checkpoint:save_checkpoint",
                "policy.model.save_pretrained(directory)",
                "policy.model.save_pretrained(directory, state_dict={n: t for n, t in policy.model.state_dict().items() if 'mlp' not in n})",
            ),
        ),
    ),
    Fault(
        "join", "Verdicts are shifted by one completion", SPOT_CHECK,
        (Edit("verifiers.score:score", "remaining = iter(verdicts)", "remaining = iter([*verdicts[1:], *verdicts[:1]])"),),
    ),
    Fault(
        "join", "Verdicts of the groups change places", SPOT_CHECK,
        (
            Edit(
                "verifiers.overlap:OverlappedScoring.result",
                "return [self._scored[id(group)] for group in groups]",
                "found = [self._scored[id(group)] for group in groups]\n"
                "    return [ScoredGroup(group, other.verdicts) for group, other in zip(groups, found[::-1])]",
            ),
        ),
    ),
    Fault(
        "join", "Completions are filed under the prompt of another group", DISAGREE,
        (Edit("rollout.collect:collect", "Group(prompts[place],", "Group(prompts[place - 1],"),),
    ),
    Fault(
        "join", "Advantages of one group are given to the next", ORDER,
        (
            Edit(
                "trainers.advantages:advantaged",
                "found = step_advantages(rewards, [_parts(group) for group in scored], estimator)",
                "found = step_advantages(rewards, [_parts(group) for group in scored], estimator)\n"
                "    found = [*found[1:], *found[:1]]",
            ),
        ),
    ),
    Fault(
        "join", "Advantages are shifted by one completion on their way to the loss", SLOW_LOOP,
        (Edit("training.update:_rows", "group.advantages, views", "(*group.advantages[1:], group.advantages[0]), views"),),
    ),
    Fault(
        "verdicts", "One completion gets two verdicts", NUMBER,
        (Edit("verifiers.score:score", "verifier.verify_many(requests)", "verifier.verify_many([*requests, requests[0]])"),),
    ),
    Fault(
        "verdicts", "A verdict is lost", NUMBER,
        (Edit("verifiers.score:score", "verifier.verify_many(requests)", "verifier.verify_many(requests[1:])"),),
    ),
    Fault(
        "verdicts", "A group is never scored",
        stops("verifiers.overlap:OverlappedScoring.result", "they were never submitted"),
        (Edit("verifiers.overlap:OverlappedScoring.submit", "self._arrived.put(group)", "len(self._scored) or self._arrived.put(group)"),),
    ),
    Fault(
        "verifier", "The verifier times out again and again",
        stops("verifiers.score:check_failures", "the verifier failed on", VerifierError),
        (
            Edit("verifiers.math:_decide_numbers", "left is None or right is None", "True"),
            Edit("verifiers.workers:WorkerPool.call", "worker = worker or _Worker(self._target, self._memory_bytes)", "raise _ExpiredError"),
        ),
        setup=("verifier.extraction=last_number",),
    ),
    Fault(
        "verifier", "A timeout of the verifier is swallowed and counts as a wrong answer",
        fails("unit/verifiers/test_workers.py", "test_failures_become_verdicts_without_reward_and_are_not_cached"),
        (
            Edit(
                "verifiers.workers:_failure",
                'return Reply("timeout", evidence=',
                'return Reply("ok", {"outcome": "wrong", "evidence": "sleep"}, evidence=',
            ),
        ),
    ),
    Fault(
        "gold", "The reference answer does not pass its verifier through the template",
        stops("tasks.base:Task.validate", "rejects the reference answer of", VerifierError),
        settings=("task.template.gold=It is {reference}.",),
    ),
    Fault(
        "stop", "The sampler loses the stop token", STOP_TOKENS,
        (Edit("rollout.engine:_LiveBatch._result", "self.length[output]", "self.length[output] - self.stopped[output]"),),
    ),
    Fault(
        "stop", "The stop token has no weight in the loss", WEIGHTS,
        (
            Edit(
                "algorithms.aggregation:token_weights",
                ".repeat_interleave(lengths)",
                ".repeat_interleave(lengths).index_fill(0, lengths.cumsum(0) - 1, 0)",
            ),
        ),
    ),
    Fault(
        "stop", "A second end token counts as truncation", STOP_TOKENS,
        (
            Edit(
                "rollout.engine:_LiveBatch._result",
                "if self.stopped[output]",
                "if self.tokens[output, length - 1] == self.policy.tokenizer.eos_token_id",
            ),
        ),
    ),
    Fault(
        "stop", "The sampler goes on after a second end token", STOP_TOKENS,
        (Edit("rollout.engine:_LiveBatch.__init__", "[list(policy.stop_ids)]", "[policy.tokenizer.eos_token_id]"),),
    ),
    Fault(
        "stop", "Only the tokenizer's end token is known, not the model's others",
        fails("unit/rollout/test_engine.py", "test_several_end_tokens_of_a_model_are_all_read"),
        (Edit("models.policy:_stop_ids", "*(ids if isinstance(ids, list) else [ids]), ", ""),),
    ),
    Fault(
        "denominator", "Masked completions leave the loss and stay in its denominator",
        fails(
            "unit/training/test_losses_through_the_model.py",
            "test_masked_truncated_completions_leave_loss_and_denominator", aggregation="sequence",
        ),
        (
            Edit(
                "training.update:make_micro_batches",
                "sum(len(rows) for rows in rows_of)",
                "sum(len(group.advantages) for group in groups)",
            ),
        ),
    ),
    Fault(
        "denominator", "Every micro-batch has its own denominator", WEIGHTS,
        (
            Edit(
                "training.update:make_micro_batches",
                "[pieces[i] for i in chunk], batch, config",
                "[pieces[i] for i in chunk], BatchSize(sum(len(pieces[i][1]) for i in chunk), 1, max_tokens), config",
            ),
        ),
    ),
    Fault(
        "packing", "Positions of completions are shifted by one", FORWARD,
        (Edit("models.packed:pack", "np.arange(len(prompt), len(prompt) + len(read))", "np.arange(len(prompt) + 1, len(prompt) + 1 + len(read))"),),
    ),
    Fault(
        "packing", "Padding of shorter prompts is not masked", FORWARD,
        (Edit("models.attention:Blocks.prefix_scores", "self.prefix_lengths is not None", "False"),),
    ),
    Fault(
        "packing", "Completions see later tokens", FORWARD,
        (Edit("models.attention:Blocks.own_scores", "triu_(1)", "triu_(2)"),),
    ),
    Fault(
        "tokens", "The trained tokens are those of the decoded text, encoded again",
        stops("types:Completion.__post_init__", "exactly one of each per token is allowed", ValueError),
        (
            Edit(
                "rollout.collect:_completion",
                "Completion(index, sampled.token_ids,",
                "Completion(index, __import__('groupwise.models.tokenizers').models.tokenizers.byte_tokenizer()(text)['input_ids'] + [1],",
            ),
        ),
    ),
    Fault(
        "tokens", "The prompt begins with two BOS tokens",
        stops("rollout.collect:encode_prompt", "begins with two BOS tokens", ModelError),
        (Edit("rollout.collect:_chat", "tokenizer(text, add_special_tokens=False)", "tokenizer(text)"),),
    ),
    Fault(
        "draws", "Completions of a group share their first token",
        stops("rollout.collect:_check_first_tokens", "their draws are not independent"),
        (Edit("rollout.engine:_LiveBatch._admit", "self._uniforms(outputs)", "self._uniforms(self.first[requests])"),),
    ),
    Fault(
        "draws", "Completions of a group have the same random key",
        stops("rollout.collect:_check_first_tokens", "their draws are not independent"),
        (Edit("rollout.collect:sample_keys", "problem_id, sample)", "problem_id)"),),
    ),
    Fault(
        "KL", "k1 stands in the loss, where its gradient has expectation 0",
        stops("training.loss_config:LossConfig._fits", "has a gradient whose expectation is 0", ConfigError),
        settings=("loss.kl_coef=0.1", "loss.kl_estimator=k1"),
    ),
    Fault(
        "KL", "k3 is computed as k1",
        fails("unit/oracle/test_kl.py", "test_what_each_estimator_is_unbiased_for"),
        (Edit("algorithms.kl:k3", "torch.expm1(log_ratio) - log_ratio", "-log_ratio"),),
    ),
    Fault(
        "resume", "A resumed run begins with the first problems again", LEDGER,
        (Edit("trainers.rl:_Run.choose", "size, seed, step)", "size, seed, step - self.session.resumed_at)"),),
    ),
    Fault(
        "resume", "Random numbers come from a generator that every start seeds anew", LEDGER,
        (
            Edit("training.session:Session.__init__", "self.config = config", "self.config = config; torch.manual_seed(config.seed)"),
            Edit("rollout.engine:_LiveBatch._uniforms", "self._tensor(uniforms(self.keys[outputs], self.length[outputs]))", "torch.rand(len(outputs), dtype=torch.float64)"),
        ),
    ),
    Fault(
        "resume", "The optimizer's moments are not restored", LEDGER,
        (Edit("training.session:restore", "optimizer.load_state(moments, ", "optimizer.load_state({}, "),),
    ),
    Fault(
        "resume", "A resumed run does no step", LEDGER,
        (Edit("training.session:Session.steps", "range(self.resumed_at, self.config.num_steps)", "range(self.resumed_at or 0, 0 if self.resumed_at else self.config.num_steps)"),),
    ),
    Fault(
        "checkpoints", "A checkpoint has its name before its weights are on disk",
        stops("runs.atomic:check_directory", "does not have the hash in", CheckpointError, resume),
        (
            Edit(
                "runs.atomic:new_directory",
                "os.replace(temporary, path)",
                "os.replace(temporary, path)\n            os.truncate(path / 'model.safetensors', 100)",
            ),
        ),
    ),
    Fault(
        "checkpoints", "A checkpoint is written under its name file by file",
        stops("runs.atomic:check_directory", "is not a finished checkpoint: it has no", CheckpointError, resume),
        (Edit("models.checkpoint:save_checkpoint", "with new_directory(path) as directory, _disk_errors():", "path.mkdir(parents=True)\n    with _disk_errors():\n        directory = path"),),
    ),
    Fault(
        "configuration", "A key of the configuration is read by no code",
        fails("architecture/test_docs.py", "test_config_keys_are_read", sections=[OptimizerConfig]),
        plant=unread_key,
    ),
    Fault(
        "configuration", "A recipe sets a key that does not exist",
        stops("config:_explain", "unknown key; ", ConfigError),
        settings=("grpo.group_sise=8",),
    ),
    Fault(
        "loss", "The advantage has the wrong sign in its estimator", ORDER,
        (Edit("algorithms.advantages:group_mean", "rewards - rewards.mean()\n", "rewards.mean() - rewards\n"),),
    ),
    Fault(
        "loss", "The advantage has the wrong sign in the loss", SLOW_LOOP,
        (Edit("algorithms.policy_losses:_clipped", "PolicyLoss(-objective", "PolicyLoss(objective"),),
    ),
    Fault(
        "loss", "The ratio's denominator is not detached",
        stops("training.invariants:check_gradient", "the gradient is exactly zero"),
        (Edit("training.update:_Update.backward", "self._old(logprobs.detach(), micro)", "self._old(logprobs, micro)"),),
    ),
    Fault(
        "loss", "The entropy bonus has the wrong sign",
        fails(
            "unit/training/test_losses_through_the_model.py",
            "test_the_entropy_bonus_has_the_gradient_of_minus_the_entropy",
        ),
        (Edit("algorithms.objective:token_loss", "loss - objective.entropy_coef", "loss + objective.entropy_coef"),),
    ),
    Fault(
        "optimizer", "The gradient is not clipped",
        fails("unit/training/test_optimizer.py", "test_the_norm_is_reported_before_clipping_and_cut_to_the_limit"),
        (Edit("training.optimizer:Optimizer.update", "self.config.max_grad_norm or math.inf", "math.inf"),),
    ),
    Fault(
        "optimizer", "The learning rate is that of the step before",
        fails("unit/training/test_optimizer.py", "test_the_rate_of_a_step_is_used_in_that_step"),
        (Edit("training.optimizer:Optimizer.update", "learning_rate_share(self.config, step,", "learning_rate_share(self.config, step - 1,"),),
    ),
    Fault(
        "splits", "The best checkpoint is chosen on the test split",
        stops("trainers.rl:_Run._evaluate", "would open the test split"),
        (Edit("trainers.rl:_Run.evaluate_dev", 'self._evaluate("dev"', 'self._evaluate("test"'),),
    ),
)


def table() -> str:
    return ""
