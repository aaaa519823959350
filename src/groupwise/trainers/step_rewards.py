"""A process reward model in reinforcement learning: its scores of a completion's steps become `Verdict.steps`.

The last step has the verdict's own reward. Ends are those that no later text moves, so that the worth of a prefix is a
baseline for all that follows it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from groupwise.algorithms.advantages import AdvantageEstimator
from groupwise.config import ReadIf, Section
from groupwise.config.schema import ModelRef, RewardModelRef
from groupwise.errors import ConfigError, ModelError
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy
from groupwise.models.reward_model import check_number
from groupwise.models.steps import (
    EncodedSteps,
    ImplicitRewardModel,
    Prefixes,
    ScoresSteps,
    check_reads,
    encode_prefixes,
    load_scorer,
    score_prefixes,
)
from groupwise.ranks.group import RANKS
from groupwise.trainers.process_reward_model import process_reward_model_gradient
from groupwise.training.optimizer import Optimizer, OptimizerConfig
from groupwise.types import Group, Outcome, ScoredGroup, StepReward, Verdict
from groupwise.verifiers.base import VerifierConfig
from groupwise.verifiers.steps import DECIDED, Step, inner_ends
from groupwise.verifiers.working import PLANNED, judge_working

_WITH_MODEL = ReadIf(lambda config: bool(config.path), "step_rewards.path")
_IMPLICIT = ReadIf(lambda config: bool(config.reference), "step_rewards.reference")
_ONLINE = ReadIf(lambda config: config.online != "no", "step_rewards.online")


class StepRewardsConfig(Section):
    """The process reward model that scores steps."""

    path: RewardModelRef = ""
    """Directory of a process reward model with the policy's tokenizer (a run of `algorithm = "process_reward_model"`);
    empty: none, and an advantage that reads steps has those of the verifier."""
    step: Annotated[Step, _WITH_MODEL] = "sentence"
    """The end of a step, as in the labels that the model learnt from: `sentence`, `newline`, `equation`, or a regular
    expression whose matches end steps."""
    reference: Annotated[ModelRef, _WITH_MODEL] = ""
    """The model that an implicit one was trained from (`supervision = "implicit"`); empty: it has a head."""
    beta: Annotated[float, Field(gt=0, allow_inf_nan=False), _IMPLICIT] = 0.05
    """β of an implicit one."""
    online: Annotated[Literal["no", "after", "before"], _IMPLICIT] = "no"
    """Let an implicit one learn from every step's outcomes (PRIME, arXiv:2502.01456): `after` it has judged the step,
    or `before` (PRIME's recipe), which tells it the outcomes of what it judges; `no`: it is frozen."""
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False), _ONLINE] = 1e-6
    """Its learning rate (PRIME: 1e-6 for a 7 B model; the shipped model wants some 1e-4)."""


def check_step_rewards(config: StepRewardsConfig, advantage: AdvantageEstimator, verifier: VerifierConfig) -> None:
    """Check that the source of step rewards and the advantage agree; raises ValueError."""
    if config.path and advantage.reads != "steps":
        raise ValueError(
            f"step_rewards.path = {config.path!r} has no effect with advantage.kind = '{advantage.kind}'; allowed with "
            "it are process, process_gae and process_min"
        )
    if config.path and verifier.steps != "none":
        raise ValueError(
            f"verifier.steps = '{verifier.steps}' and step_rewards.path both say what steps are worth; allowed is one"
        )
    if advantage.needs_decided_ends and config.online == "before":
        raise ValueError(
            f"step_rewards.online = 'before': the model would have learnt the outcomes of the very completions whose "
            f"baseline it is, which biases '{advantage.kind}'; allowed are 'after' and 'no', and the advantages "
            "process and process_min"
        )
    step = config.step if config.path else {"equations": "equation"}.get(verifier.steps, "")
    if advantage.needs_decided_ends and step == "equation":
        where = "step_rewards.step = 'equation'" if config.path else "verifier.steps = 'equations'"
        raise ValueError(
            f"{where}: where an equation ends shows in what follows it, so the baseline of '{advantage.kind}' would "
            f"know the next token and bias the gradient; allowed are step_rewards with {', '.join(DECIDED)} or a "
            "regular expression, and the advantages process and process_min"
        )


MAX_GRAD_NORM = 10.0
"""Largest norm of the model's gradient (PRIME: 10)."""


@dataclass(frozen=True, slots=True)
class OnlineModel:
    """An implicit process reward model that learns from the outcomes of the completions that it judges.

    PRIME (Cui et al. 2025, arXiv:2502.01456). Learning `after` it has judged keeps a step's outcomes out of the
    worth of its prefixes; `before` biases its baselines. A checkpoint keeps its weights and its optimizer's moments.
    """

    model: ImplicitRewardModel
    optimizer: Optimizer

    def learn(self, rows: Sequence[EncodedSteps]) -> float:
        """Update on the outcomes of whole completions; returns the mean cross-entropy before it, in nats."""
        if not rows:
            return 0.0
        loss, _, _ = process_reward_model_gradient(self.model, rows, tokens_per_micro_batch=0)
        self.optimizer.update(self.optimizer.updates_done)
        return loss

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        return [(f"weight:{name}", weight) for name, weight in self.model.trainable()]


@dataclass(frozen=True, slots=True)
class StepJudge:
    """A process reward model, asked about the steps of groups; frozen, or learning from each of them."""

    model: ScoresSteps
    config: StepRewardsConfig
    online: OnlineModel | None = None

    def __call__(self, scored: Sequence[ScoredGroup]) -> list[ScoredGroup]:
        """Return the groups with the worth of their steps; what the verifier did not judge has none."""
        ends = [[self._ends(group, i) for i in range(len(group.verdicts))] for group in scored]
        loss = self._learnt(scored, ends) if self.config.online == "before" else None
        scores = self._scores(scored, ends)
        if self.config.online == "after":
            loss = self._learnt(scored, ends)
        return [
            replace(group, verdicts=tuple(
                self._judged(group.group, i, verdict, ends[g][i], scores[g][i], loss)
                for i, verdict in enumerate(group.verdicts)
            ))
            for g, group in enumerate(scored)
        ]  # fmt: skip

    def _learnt(self, scored: Sequence[ScoredGroup], ends: Sequence[Sequence[Sequence[int]]]) -> float | None:
        if self.online is None:
            return None
        rows = list[EncodedSteps]()
        for one, own in zip(scored, ends, strict=True):
            group, verdicts = one.group, one.verdicts
            judged = [i for i, c in enumerate(group.completions) if c.text and verdicts[i].outcome.judged]
            if judged:
                sizes = {i: len(group.prompt.prefill) + len(group.completions[i].text) for i in judged}
                whole = self._prefixes(group, judged, {i: sorted({*own[i], sizes[i]}) for i in judged}).sequences
                for i, ids in zip(judged, whole.completions, strict=True):
                    is_right = float(verdicts[i].outcome is Outcome.CORRECT)
                    rows.append(EncodedSteps(list(whole.prompt), list(ids), [len(ids)], [is_right]))
        return self.online.learn(rows)

    def _scores(
        self, scored: Sequence[ScoredGroup], ends: Sequence[Sequence[Sequence[int]]]
    ) -> list[list[list[float]]]:
        asked = [[i for i, own in enumerate(of_group) if own] for of_group in ends]
        prefixes = [self._prefixes(scored[g].group, of, dict(enumerate(ends[g]))) for g, of in enumerate(asked) if of]
        found = iter(score_prefixes(self.model, prefixes))
        scores = []
        for group, of_group in zip(scored, asked, strict=True):
            given = dict(zip(of_group, next(found), strict=True)) if of_group else {}
            for index, own in given.items():
                of = f"of completion {index} of problem {group.group.prompt.problem.id}"
                for number, score in enumerate(own):
                    check_number(score, f"the process reward model {self.config.path!r}", f"step {number} {of}")
            scores.append([given.get(i, []) for i in range(len(group.verdicts))])
        return scores

    def _ends(self, scored: ScoredGroup, index: int) -> list[int]:
        """Ends of steps within a completion, in characters of prefill and text; the prefill's own are the prompt's."""
        if not scored.verdicts[index].outcome.judged:
            return []
        prefill = scored.group.prompt.prefill
        text = prefill + scored.group.completions[index].text
        return [end for end in inner_ends(text, self.config.step) if end > len(prefill)]

    def _prefixes(self, group: Group, indices: Sequence[int], ends: Mapping[int, Sequence[int]]) -> Prefixes:
        offset = len(group.prompt.prefill)
        texts = {i: group.prompt.prefill + group.completions[i].text for i in indices}
        steps = [[texts[i][a:b] for a, b in zip([offset, *ends[i]], ends[i], strict=False)] for i in indices]
        try:
            return encode_prefixes(self.model, group.prompt.token_ids, steps)
        except ModelError as error:
            raise ModelError(
                f"the process reward model {self.config.path!r} cannot judge problem {group.prompt.problem.id}: "
                f"{error}; allow fewer in sampling.max_tokens"
            ) from None

    def _judged(
        self,
        group: Group,
        index: int,
        verdict: Verdict,
        ends: Sequence[int],
        scores: Sequence[float],
        loss: float | None,
    ) -> Verdict:
        if verdict.reward is None:
            return verdict
        text = group.prompt.prefill + group.completions[index].text
        inner = [StepReward(end, score) for end, score in zip(ends, scores, strict=True)]
        measures = {"steps/num": float(len(inner) + 1)}
        if loss is not None:
            measures["steps/model_loss"] = loss
        if scores:
            measures |= {"steps/mean": fmean(scores), "steps/lowest": min(scores)}
        if set(PLANNED) <= group.prompt.problem.data.keys():
            truth = judge_working(group.prompt.problem, text, verdict, self.config.step)
            measures["steps/sound_working"] = float(all(each.kind.correct for each in truth))
            measures["steps/idle"] = fmean([float(step.kind == "idle") for step in truth]) if truth else 0.0
        steps = (*inner, StepReward(len(text), verdict.reward))
        return replace(verdict, steps=steps, measures={**verdict.measures, **measures})


def load_step_judge(config: StepRewardsConfig, model: ModelConfig, policy: Policy, chat: bool) -> StepJudge | None:
    """Load the process reward model of a recipe, if it names one; it computes and reads prompts as the policy does."""
    if not config.path:
        return None
    if config.online != "no" and RANKS.size > 1:
        raise ConfigError(f"step_rewards.online = {config.online!r} is for one process, not {RANKS.size} ranks")
    loaded = load_scorer(model.at(config.path), config.reference, config.beta, frozen=config.online == "no")
    own, others = loaded.tokenizer.get_vocab(), policy.tokenizer.get_vocab()
    if own != others:
        raise ModelError(
            f"the process reward model {config.path!r} has another tokenizer than the policy ({len(own)} tokens, "
            f"{len(others)} here, {len(own.items() & others.items())} in common): it would read other tokens than "
            "those that are trained; allowed is one that was trained from a model with the policy's tokenizer"
        )
    if config.online == "no":
        check_reads(loaded, chat, f"the process reward model {config.path!r}")
    if config.online == "no" or not isinstance(loaded, ImplicitRewardModel):
        return StepJudge(loaded, config)
    optimizer = OptimizerConfig(lr=config.lr, max_grad_norm=MAX_GRAD_NORM)
    return StepJudge(loaded, config, OnlineModel(loaded, Optimizer(loaded.trainable(), optimizer, num_steps=1)))
