"""Advantages from the worth of steps and of turns: sums, a frozen critic, the worst, a group that is its own critic.

`step_rewards` hold one number per step; the last step carries the outcome, those before it what a process reward model
or a rule says of the text up to their end. Tables are in `advantages`.
"""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.advantages import STD_EPS, AdvantageEstimator, gae


class Process(AdvantageEstimator):
    """Âᵢₜ = Σ of the normalised rewards of the steps from the token's own on: DeepSeekMath §4.1.3.

    All step rewards of the group are normalised together: r̃ = (r - mean(R)) / std(R), population std. The last step
    carries the outcome, times `outcome_weight`. Tokens after its end have advantage 0.

    >>> estimator = Process(kind="process")
    >>> estimator.of_steps([torch.tensor([1.0, 0.0])], [torch.tensor([1, 3])], [4])[0].round(decimals=3)
    tensor([ 0., -1., -1.,  0.])
    """

    reads = "steps"
    outcome_weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Weight of the outcome beside one step (1: as much as a step, DeepSeekMath)."""

    def of_steps(
        self, step_rewards: Sequence[Tensor], step_ends: Sequence[Tensor], lengths: Sequence[int]
    ) -> list[Tensor]:
        step_rewards = [torch.cat([rewards[:-1], self.outcome_weight * rewards[-1:]]) for rewards in step_rewards]
        pooled = torch.cat(step_rewards)
        if not len(pooled) or (pooled == pooled[0]).all():
            return [torch.zeros(length, dtype=pooled.dtype) for length in lengths]
        mean, std = pooled.mean(), pooled.std(correction=0) + STD_EPS
        advantages = []
        for rewards, ends, length in zip(step_rewards, step_ends, lengths, strict=True):
            counts = torch.arange(length)[:, None] < ends[None, :]  # token t belongs to a step that ends after it
            advantages.append((counts * ((rewards - mean) / std)).sum(-1))
        return advantages


class ProcessGae(AdvantageEstimator):
    """Âⱼ = Σₗ λˡ δⱼ₊ₗ, δⱼ = Vⱼ - Vⱼ₋₁, δ_K = R - V_K₋₁: GAE over steps, a process reward model the frozen critic.

    Vⱼ is the worth of the text up to the end of step j; V₀ is the mean outcome of the group's other completions. At
    λ = 1, Âⱼ = R - Vⱼ₋₁: unbiased however wrong the model is, because Vⱼ₋₁ reads nothing of step j. At λ = 0 it is the
    progress that a step makes (Setlur et al. 2024, arXiv:2410.08146), biased by the model's errors. Needs steps whose
    ends are decided by the text before them (`sentence`, `newline`): where an equation ends shows in what follows it,
    so its baseline would know the next token.

    >>> estimator = ProcessGae(kind="process_gae", lam=1.0)
    >>> steps, ends = [torch.tensor([0.75, 1.0]), torch.tensor([0.0])], [torch.tensor([1, 3]), torch.tensor([2])]
    >>> estimator.of_steps(steps, ends, [3, 2])
    [tensor([1.0000, 0.2500, 0.2500]), tensor([-1., -1.])]
    """

    reads = "steps"
    needs_decided_ends = True
    lam: float = Field(1.0, ge=0, le=1)
    """λ; 1 trusts outcomes alone (no bias), 0 the process reward model alone (least variance)."""

    def of_steps(
        self, step_rewards: Sequence[Tensor], step_ends: Sequence[Tensor], lengths: Sequence[int]
    ) -> list[Tensor]:
        starts = _means_of_others([rewards[-1] if len(rewards) else None for rewards in step_rewards])
        return [
            until_ends(self._of_completion(rewards, start), ends, length)
            for rewards, ends, length, start in zip(step_rewards, step_ends, lengths, starts, strict=True)
        ]

    def _of_completion(self, rewards: Tensor, start: float) -> Tensor:
        if not len(rewards):
            return rewards
        values = torch.cat([rewards.new_tensor([start]), rewards[:-1]])
        outcome = torch.zeros_like(rewards)
        outcome[-1] = rewards[-1]
        return gae(outcome, values, 1.0, self.lam)


class ProcessMin(AdvantageEstimator):
    """Σ of r*ⱼ = softmax(-r / T)ⱼ rⱼ over the steps from the token's own on, about the worst step: PURE (2025, §3).

    Cheng et al., arXiv:2504.15275: a sum pays for every further true step, a minimum does not. The baseline is the
    others' Σ r* per token, times the tokens that are left, so that how the text is cut into steps earns nothing. The
    outcome, which the last step carries, counts beside it: + outcome_weight (R - mean of the others' R).

    >>> estimator = ProcessMin(kind="process_min", outcome_weight=0.0)
    >>> steps = [torch.tensor([1.0, 0.0, 1.0]), torch.tensor([1.0, 1.0, 1.0])]
    >>> ends = [torch.tensor([1, 2, 4]), torch.tensor([1, 2, 4])]
    >>> estimator.of_steps(steps, ends, [4, 4])[0].round(decimals=2)
    tensor([-1.0000, -0.7500, -0.5000, -0.2500])
    """

    reads = "steps"
    temperature: float = Field(0.1, gt=0)
    """T; towards 0 the minimum alone counts (PURE: 0.1)."""
    outcome_weight: float = Field(1.0, ge=0)
    """Weight of the outcome beside the steps (0: process rewards alone, which PURE saw hacked)."""

    def of_steps(
        self, step_rewards: Sequence[Tensor], step_ends: Sequence[Tensor], lengths: Sequence[int]
    ) -> list[Tensor]:
        worst = [(-rewards[:-1] / self.temperature).softmax(0) * rewards[:-1] for rewards in step_rewards]
        outcomes = [rewards[-1] if len(rewards) else None for rewards in step_rewards]
        centres = _means_of_others(outcomes)
        sums = [float(weighted.sum()) for weighted in worst]
        advantages = []
        for i, (weighted, ends, length) in enumerate(zip(worst, step_ends, lengths, strict=True)):
            if (outcome := outcomes[i]) is None:
                advantages.append(step_rewards[i].new_zeros(length))
                continue
            others = [j for j, other in enumerate(outcomes) if j != i and other is not None]
            per_token = sum(sums[j] for j in others) / max(1, sum(lengths[j] for j in others))
            remaining = torch.arange(length, 0, -1, dtype=weighted.dtype)
            from_here = weighted.flip(0).cumsum(0).flip(0)
            process = until_ends(from_here, ends[:-1], length) - per_token * remaining
            advantages.append(process + self.outcome_weight * (outcome - centres[i]))
        return advantages


class GroupTree(AdvantageEstimator):
    """Âₜ = Rᵢ - Vₜ, Vₜ the mean reward of the *other* completions that begin with the same t tokens; GAE for λ < 1.

    A group is a Monte Carlo estimate of the worth of every prefix that its completions share (arXiv:2509.21154). Where
    no other shares the prefix any longer the last value stands. A completion is no part of its own value, so at λ = 1
    the gradient is unbiased; with no shared prefix it is `leave_one_out`.

    >>> estimator = GroupTree(kind="group_tree")
    >>> estimator.of_tokens([1.0, 0.0, 0.0], [[5, 6], [5, 7], [8, 9]])[0]
    tensor([1., 1.], dtype=torch.float64)
    """

    reads = "tokens"
    lam: float = Field(1.0, ge=0, le=1)
    """λ; 1 is unbiased, less credits the tokens at which the completions part."""

    def of_tokens(self, rewards: Sequence[float], token_ids: Sequence[Sequence[int]]) -> list[Tensor]:
        if len(set(rewards)) <= 1:
            return [torch.zeros(len(ids), dtype=torch.float64) for ids in token_ids]
        advantages = []
        for index, ids in enumerate(token_ids):
            paid = torch.zeros(len(ids), dtype=torch.float64)
            paid[-1] = rewards[index]
            advantages.append(gae(paid, tree_values(index, rewards, token_ids), 1.0, self.lam))
        return advantages


class TurnReturn(AdvantageEstimator):
    """Âₖ = Gₖ - mean of the others' G₁, with Gₖ = Σⱼ≥ₖ γʲ⁻ᵏ rⱼ: what follows a turn, against whole other episodes.

    The baseline knows nothing of the own episode, so the gradient is unbiased at γ = 1. One of the others' turns with
    the same number would not be: whether there is a third turn is decided by the policy.

    >>> estimator = TurnReturn(kind="turn_return", gamma=0.5)
    >>> estimator.of_turns([torch.tensor([0.0, 1.0]), torch.tensor([0.25])], [["a", "b"], ["a"]])
    [tensor([0.2500, 0.7500]), tensor([-0.2500])]
    """

    reads = "turns"
    gamma: float = Field(1.0, ge=0, le=1)
    """γ per turn; 1 does not favour short episodes."""

    def of_turns(self, rewards: Sequence[Tensor], states: Sequence[Sequence[str]]) -> list[Tensor]:
        returns = [turn_returns(of_episode, self.gamma) for of_episode in rewards]
        means = _means_of_others([own[:1].sum() for own in returns])
        return [own - mean if len(returns) > 1 else own * 0 for own, mean in zip(returns, means, strict=True)]


class EqualState(TurnReturn):
    """Âₖ = (R - mean of the others' R) + ω (Gₖ - mean of the others' G of turns in an equal state): GiGPO.

    Feng et al. 2025, arXiv:2505.10978, who also count the own turns in both means. The second term is 0 in a state that
    no other episode of the group has been in; its baseline knows the state and nothing of the own episode.

    >>> estimator = EqualState(kind="equal_state")
    >>> estimator.of_turns([torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.0])], [["a", "b"], ["a", "c"]])
    [tensor([2., 1.]), tensor([-2., -1.])]
    """

    weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    """ω, weight of the comparison within equal states (GiGPO: 1)."""

    def of_turns(self, rewards: Sequence[Tensor], states: Sequence[Sequence[str]]) -> list[Tensor]:
        totals = [of_episode.sum() for of_episode in rewards]
        returns = [turn_returns(of_episode, self.gamma).tolist() for of_episode in rewards]
        seen: dict[str, list[tuple[int, float]]] = {}
        for index, of_episode in enumerate(states):
            for state, value in zip(of_episode, returns[index], strict=True):
                seen.setdefault(state, []).append((index, value))
        advantages = []
        for index, (total, mean) in enumerate(zip(totals, _means_of_others(totals), strict=True)):
            whole = (total - mean) * (len(totals) > 1)
            turns = []
            for state, value in zip(states[index], returns[index], strict=True):
                others = [other for i, other in seen[state] if i != index] if state else []
                turns.append(self.weight * (value - sum(others) / len(others)) if others else 0.0)
            advantages.append(whole + total.new_tensor(turns))
        return advantages


def turn_returns(rewards: Tensor, gamma: float) -> Tensor:
    """(K,) Gₖ = rₖ + γ Gₖ₊₁ of an episode's turns.

    >>> turn_returns(torch.tensor([1.0, 0.0, 1.0]), 0.5)
    tensor([1.2500, 0.5000, 1.0000])
    """
    return gae(rewards, torch.zeros_like(rewards), gamma, 1.0)


def tree_values(index: int, rewards: Sequence[float], token_ids: Sequence[Sequence[int]]) -> Tensor:
    """(T,) of one completion: the mean reward of the others that share the tokens before each one.

    >>> tree_values(0, [1.0, 0.0, 0.5], [[5, 6], [5, 7], [8, 9]])
    tensor([0.2500, 0.0000], dtype=torch.float64)
    """
    ids = list(token_ids[index])
    sharing = [i for i in range(len(token_ids)) if i != index]
    values, value = [], 0.0
    for t in range(len(ids)):
        sharing = [i for i in sharing if not t or list(token_ids[i][t - 1 : t]) == ids[t - 1 : t]]
        value = sum(rewards[i] for i in sharing) / len(sharing) if sharing else value
        values.append(value)
    return torch.tensor(values, dtype=torch.float64)


def _means_of_others(outcomes: Sequence[Tensor | None]) -> list[float]:
    """For each, the mean of all others that there are; 0 for one alone."""
    known = [None if outcome is None else float(outcome) for outcome in outcomes]
    means = []
    for index in range(len(known)):
        others = [value for i, value in enumerate(known) if i != index and value is not None]
        means.append(sum(others) / len(others) if others else 0.0)
    return means


def until_ends(of_steps: Tensor, ends: Tensor, length: int) -> Tensor:
    """(length,) every token gets its step's number; 0 behind the last end."""
    if not len(of_steps):
        return of_steps.new_zeros(length)
    index = torch.searchsorted(ends, torch.arange(length), right=True)
    inside = index < len(ends)
    return torch.where(inside, of_steps[index.clamp_max(len(ends) - 1)], of_steps.new_zeros(()))
