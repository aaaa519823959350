"""The model on the task before training: is there something to learn, and would its learning be visible?"""

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, pvariance
from typing import Any

from groupwise.algorithms.learnability import fitted, flat_share, flat_share_of, smallest_difference
from groupwise.algorithms.statistics import mean_share, pass_at_k
from groupwise.checks import Advice, Finding, Severity
from groupwise.checks.preflight.bench import FEW, Bench, Checked, check, finding
from groupwise.evaluation.evaluate import unparsable
from groupwise.trainers.grpo import GrpoRecipe
from groupwise.types import FinishReason, Outcome, ScoredGroup

FLAT, DEAD = 0.5, 0.9
"""Shares of groups without a signal that are a warning (rldoctor's bound) and a no-go (ten times the price)."""
CUT, ALL_CUT = 0.15, 0.95  # shares of truncated completions: rldoctor is critical at .15; at .95 hardly any stops
OWNED = 0.9  # share of the variance within groups that one part other than the answer's may have
COARSE = 0.15  # smallest difference in pass@1 that an evaluation should be able to tell from chance


@check("sample", "model",
       says="learnability: pass rates, groups without a signal, reward parts, lengths, what dev can tell",
       source="algorithms/learnability.py; rldoctor's bounds for flat groups and truncation")  # fmt: skip
def sample(bench: Bench) -> Checked:
    """Sample some training problems as a step would, more often, and count."""
    if not (sampled := bench.sampled).groups:
        rate = f"{sampled.tokens_per_second:.2g} tokens a second"
        return Checked({}, (), f"at {rate} not even {FEW} completions come in time")
    groups = [group for group in sampled.groups if any(v.outcome.judged for v in group.verdicts)]
    if not groups:
        nothing = finding(
            Severity.CRITICAL, f"no completion of the sample was judged: {sampled.groups[0].verdicts[0].evidence:.200}",
            "Nothing will be paid, so nothing is learnt.", Advice("verifier", "see why it has no verdict"),
        )  # fmt: skip
        return Checked({}, (nothing,))
    correct, samples = _counts(groups)
    evaluation = bench.recipe.evaluation
    size = min(evaluation.num_problems, len(bench.problems("dev")) or 1)
    power = smallest_difference(correct, samples, size, evaluation.num_samples)
    figures = _figures(bench, groups) | {"smallest dev difference": f"{100 * power:.1f} points"}
    findings = [*_signal(bench, groups), *_parts(groups), *_verdicts(bench, groups)]
    if power > COARSE:
        findings.append(finding(
            Severity.WARNING, f"dev cannot tell a change of pass@1 below {100 * power:.0f} points from chance",
            "The run's result may be chance, and nobody will know.",
            Advice("evaluation.num_problems", "four times as many: half the bound"),
        ))  # fmt: skip
    done, limit = sum(len(group.verdicts) for group in sampled.groups), bench.recipe.sampling.max_tokens
    left = [f"{sampled.wanted - done} of {sampled.wanted} completions"] if done < sampled.wanted else []
    left += [f"tokens {sampled.max_tokens + 1} to {limit} of each"] if sampled.max_tokens < limit else []
    return Checked(figures, tuple(findings), f"no time for {', and '.join(left)}" if left else "")


def _counts(groups: Sequence[ScoredGroup]) -> tuple[list[int], list[int]]:
    """Return the correct and the judged completions of each problem that has at least two judged ones."""
    judged = [[v.outcome is Outcome.CORRECT for v in group.verdicts if v.outcome.judged] for group in groups]
    kept = [correct for correct in judged if len(correct) > 1] or [[False, False]]
    return [sum(correct) for correct in kept], [len(correct) for correct in kept]


def _figures(bench: Bench, groups: Sequence[ScoredGroup]) -> dict[str, Any]:
    verdicts = [verdict for group in groups for verdict in group.verdicts]
    completions = [completion for group in groups for completion in group.group.completions]
    correct, samples = _counts(groups)
    k = min(samples)
    solved = [pass_at_k(n, c, k) for c, n in zip(correct, samples, strict=True)]
    figures: dict[str, Any] = {
        "completions": len(completions),
        "pass@1": str(mean_share([c / n for c, n in zip(correct, samples, strict=True)])),
        f"pass@{k}": str(mean_share(solved)),
        "unparsable": round(fmean(v.outcome is Outcome.UNPARSABLE for v in verdicts), 4),
        "stopped by themselves": round(fmean(c.finish_reason is FinishReason.STOP for c in completions), 4),
        "tokens": round(fmean(c.num_tokens for c in completions), 1),
    }
    if _compares(bench):
        size = bench.recipe.batch.group_size
        flat = {f"G = {g}": round(_flat(groups, g), 3) for g in dict.fromkeys((max(2, size // 2), size, 2 * size))}
        figures["groups without a signal"] = flat
    return figures


def _compares(bench: Bench) -> bool:
    return isinstance(bench.recipe, GrpoRecipe) and bench.recipe.advantage.needs_rivals


def _flat(groups: Sequence[ScoredGroup], size: int) -> float:
    """Return the share of groups without a signal: counted if each problem has enough samples, else fitted."""
    rewards = [[reward for reward in group.rewards if reward is not None] for group in groups]
    enough = min(map(len, rewards)) >= size
    return flat_share(rewards, size) if enough else flat_share_of(fitted(*_counts(groups)), size)


def _signal(bench: Bench, groups: Sequence[ScoredGroup]) -> Iterator[Finding]:
    if not _compares(bench):
        rewards = [reward for group in groups for reward in group.rewards if reward is not None]
        if len(set(rewards)) == 1:
            yield _nothing(bench, groups, f"all {len(rewards)} completions earned {rewards[0]:g}")
        return
    size = bench.recipe.batch.group_size
    share = _flat(groups, size)
    if share >= DEAD:
        yield _nothing(bench, groups, f"{share:.0%} of groups of {size} will earn one reward alone")
    elif share >= FLAT:
        yield finding(
            Severity.WARNING, f"{share:.0%} of groups of {size} will earn one reward alone ({_why(groups)})",
            f"A step's signal costs {1 / (1 - share):.1f} times as much as it could.", _advice(bench, groups),
        )  # fmt: skip


def _nothing(bench: Bench, groups: Sequence[ScoredGroup], evidence: str) -> Finding:
    return finding(
        Severity.CRITICAL, f"{evidence} ({_why(groups)})", "Hardly any step will have a gradient.",
        _advice(bench, groups), [g.group.prompt.problem.id for g in groups if not g.has_signal],
    )  # fmt: skip


def _why(groups: Sequence[ScoredGroup]) -> str:
    correct, samples = _counts(groups)
    always = sum(c == n for c, n in zip(correct, samples, strict=True))
    return f"{always} of {len(groups)} problems are always solved, {correct.count(0)} never"


def _advice(bench: Bench, groups: Sequence[ScoredGroup]) -> list[Advice]:
    correct, samples = _counts(groups)
    share = sum(correct) / sum(samples)
    if share > 0.5:
        return [Advice("task", "harder problems: the model has learnt these")]
    larger = Advice(f"{bench.recipe.algorithm}.group_size", str(2 * bench.recipe.batch.group_size))
    easier = Advice("task", "easier problems among them, or supervised training on worked ones first")
    return [easier, larger] if sum(correct) else [easier]


def _parts(groups: Sequence[ScoredGroup]) -> Iterator[Finding]:
    judged = [[v.parts for v in group.verdicts if v.outcome.judged] for group in groups]
    every = sorted({name for group in judged for parts in group for name in parts})
    variance = {
        name: fmean(pvariance([parts.get(name, 0.0) for parts in group]) for group in judged if group) for name in every
    }
    total = sum(variance.values())
    names = sorted({name for group in groups for v in group.verdicts for name, value in v.parts.items() if value})
    still = [name for name in names if not variance.get(name)]
    if still and total:
        yield finding(
            Severity.NOTE, f"the reward part{'s' if len(still) > 1 else ''} {', '.join(still)} never differ"
            f"{'s' if len(still) == 1 else ''} within a group", "They are a constant, which teaches nothing.",
            [Advice("verifier.parts", "leave them out, or weight them once they vary")],
        )  # fmt: skip
    largest = max(variance, key=lambda name: variance[name], default="")
    if total and largest not in ("", "accuracy") and "accuracy" in variance and variance[largest] > OWNED * total:
        yield finding(
            Severity.WARNING, f"the part {largest} makes {variance[largest] / total:.0%} of what differs within groups",
            "The policy learns that part first, and perhaps alone.",
            [Advice(f"verifier.parts.{largest}", "a smaller weight, or gate = 'correct'")],
        )  # fmt: skip


def _verdicts(bench: Bench, groups: Sequence[ScoredGroup]) -> Iterator[Finding]:
    verdicts = [verdict for group in groups for verdict in group.verdicts]
    if odd := [v for v in verdicts if v.reward is not None and not math.isfinite(v.reward)]:
        yield finding(
            Severity.CRITICAL, f"{len(odd)} of {len(verdicts)} rewards are not finite", "The first update would fail.",
            [Advice("verifier", "a finite number, or None where there is no verdict")],
        )  # fmt: skip
    if failed := [v for v in verdicts if v.outcome.failed]:
        yield finding(
            Severity.WARNING, f"the verifier failed on {len(failed)} of {len(verdicts)} completions: "
            f"{failed[0].outcome} ({failed[0].evidence[:160]})",
            "They are left out; beyond verifier.max_failure_share of a step the run ends.",
            [Advice("verifier", "mend it, or give it more time")],
        )  # fmt: skip
    both: list[tuple[float, float]] = []
    for group in groups:
        paid = [(v.outcome is Outcome.CORRECT, v.reward) for v in group.verdicts if v.reward is not None]
        right, wrong = [reward for good, reward in paid if good], [reward for good, reward in paid if not good]
        both += [(fmean(right), fmean(wrong))] if right and wrong else []
    if both and fmean(right - wrong for right, wrong in both) <= 0:
        yield finding(
            Severity.CRITICAL, f"in {len(both)} groups with both, right answers earn {fmean(r for r, _ in both):.3f} "
            f"and wrong ones {fmean(w for _, w in both):.3f} on average", "The policy is paid for being wrong.",
            [Advice("verifier", "see what each part pays; a penalty may outweigh the answer")],
        )  # fmt: skip
    completions = [completion for group in groups for completion in group.group.completions]
    cut, limit = fmean(c.finish_reason is FinishReason.LENGTH for c in completions), bench.recipe.sampling.max_tokens
    if bench.sampled.max_tokens < limit:
        return  # by this check, so it says nothing of the recipe
    if cut >= CUT:
        never = cut >= ALL_CUT
        yield finding(
            Severity.CRITICAL if never else Severity.WARNING, f"{cut:.0%} of completions were cut at {limit} tokens",
            "Hardly any stops: the stop token was never learnt, or is another one, or the limit is far too low."
            if never else "What was cut off is judged wrong, and length is what the policy learns to mind.",
            [Advice("sampling.max_tokens", str(2 * limit)), *([Advice("model.path", "one that ends its answers with "
             "one of its stop tokens")] if never else [])],
        )  # fmt: skip
    if said := unparsable(bench.actors, groups, limit):
        yield finding(
            Severity.WARNING, said, "The form is learnt first; where it never appears by chance, nothing is.",
            [Advice("task.template.prompt", "show the form of an answer, or train on some answers first")],
        )  # fmt: skip
