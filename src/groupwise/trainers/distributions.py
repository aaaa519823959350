"""How a step's quantities are spread, for its line in metrics.jsonl; what was not measured is None, never 0."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from groupwise.runs.index import Flat, flat_because
from groupwise.trainers.record import discarded
from groupwise.trainers.report import StepResult
from groupwise.training.forward import Arrays
from groupwise.types import FinishReason, ScoredGroup
from groupwise.verifiers.style.form import loop_period
from groupwise.verifiers.style.language import scripts_of, written_words


def distributions(result: StepResult, after: Mapping[int, Arrays]) -> dict[str, Any]:
    """Quantiles and shares of a step; `after` holds the log-probabilities after its updates, by group.

    A number that is not finite is None, and its name stands in `not_finite`: JSON has no word for it.
    """
    scored = [group.scored for group in result.groups]
    found: dict[str, Any] = {
        **_of_tokens(result),
        "kl_before_last_update": _kl_before_last(result),
        "kl_after_updates": _kl_after(result, after),
        "grad_norms": {str(i): norm for i, norm in enumerate(result.trace.grad_norms)} if result.trace else None,
        "groups": _groups(result),
        "distinct_answers": _distinct(scored),
        "part_variance": _part_variance(scored),
        "loops": _loops(scored),
        "other_scripts": _other_scripts(scored),
        **_calls(result.sampled),
    }
    odd: list[str] = []
    finite = _finite(found, "", odd)
    return {**finite, "not_finite": odd} if odd else finite


def _calls(scored: Sequence[ScoredGroup]) -> dict[str, Any]:
    """What became of the calls of tools in everything that was sampled, and their seconds; empty without calls."""
    calls = [call for group in scored for completion in group.group.completions for call in completion.calls]
    if not calls:
        return {}
    outcomes = Counter(str(call.outcome) for call in calls)
    return {"calls": dict(sorted(outcomes.items())), "call_s": sum(call.seconds for call in calls)}


def _finite(table: Mapping[str, Any], prefix: str, odd: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            result[name] = _finite(value, f"{prefix}{name}.", odd)
        elif isinstance(value, float) and not math.isfinite(value):
            odd.append(f"{prefix}{name}")
            result[name] = None
        else:
            result[name] = value
    return result


def spread(values: Sequence[NDArray[Any]]) -> dict[str, float] | None:
    """Median, 99th percentile and maximum of all of them; None of nothing.

    >>> spread([np.array([1.0, 3.0]), np.array([2.0])])["p50"]
    2.0
    """
    if not values or not (joined := np.concatenate(values)).size:
        return None
    middle, high = np.quantile(joined, (0.5, 0.99)).tolist()
    return {"p50": middle, "p99": high, "max": float(joined.max()), "num": int(joined.size)}


def _of_tokens(result: StepResult) -> dict[str, Any]:
    completions = [c for group in result.groups for c in group.scored.group.completions]
    found: dict[str, Any] = {
        "entropy": spread([c.entropy[c.sampled] for c in completions if c.entropy is not None]),
        "length": spread([np.array([c.num_tokens for c in completions])]),
    }
    if result.trace is None:
        return found | dict.fromkeys(("ratio", "mismatch", "kl", "clip_low", "clip_high"))
    traces = result.trace.completions
    mismatch = []
    for (group, index), trace in traces.items():
        completion = result.groups[group].scored.group.completions[index]
        if trace.trainer_logprobs is not None:
            mismatch.append(np.abs(trace.trainer_logprobs - completion.sampling_logprobs[completion.sampled]))
    count = result.trace.num_tokens
    return found | {
        "ratio": spread([trace.ratio for trace in traces.values()]),
        "mismatch": spread(mismatch),
        "kl": spread([trace.kl for trace in traces.values() if trace.kl is not None]),
        "clip_low": result.trace.num_low / count if count else None,
        "clip_high": result.trace.num_high / count if count else None,
    }


def _kl_before_last(result: StepResult) -> float | None:
    """KL(old ‖ weights of a completion's last update) in nats per token, mean of ρ - 1 - log ρ.

    None where a step makes one update: the weights are the old ones then, and the last update is never in it.
    """
    if result.trace is None or len(result.trace.grad_norms) < 2:
        return None
    ratios = np.concatenate([trace.ratio for trace in result.trace.completions.values()]).astype(np.float64)
    with np.errstate(divide="ignore"):  # a ratio that fell to 0 gives infinity, which is named
        return float((ratios - 1 - np.log(ratios)).mean())


def _kl_after(result: StepResult, after: Mapping[int, Arrays]) -> float | None:
    """KL(weights that sampled ‖ weights after the step's updates), in nats per token, of the measured completions."""
    changes = []
    for group, arrays in after.items():
        for index, (completion, values) in enumerate(
            zip(result.groups[group].scored.group.completions, arrays, strict=True)
        ):
            before = completion.sampling_logprobs[completion.sampled]
            trace = result.trace.completions.get((group, index)) if result.trace else None
            if trace is not None and trace.trainer_logprobs is not None:
                before = trace.trainer_logprobs
            changes.append(values[completion.sampled].astype(np.float64) - before)
    if not changes:
        return None
    change = np.concatenate(changes)
    return float((np.expm1(change) - change).mean())


def _groups(result: StepResult) -> dict[str, int]:
    """Kept groups with a signal, and those without by the reason; discarded ones by theirs."""
    kept = Counter(flat_because([v.outcome for v in g.scored.verdicts], g.scored.rewards) for g in result.groups)
    left_out = Counter(why for _, why in discarded(result))
    names: tuple[Flat, ...] = get_args(Flat)
    return (
        {"signal": kept[None]}
        | {name: kept[name] for name in names}
        | {f"discarded_{name}": left_out[name] for name in (*names, "surplus") if result.sampled}
    )


def _distinct(scored: Sequence[ScoredGroup]) -> float | None:
    """Mean number of different answers of a group; None where no verdict has an answer."""
    counts = [len({v.answer for v in group.verdicts if v.answer is not None}) for group in scored]
    there = [count for count in counts if count]
    return float(np.mean(there)) if there else None


def _part_variance(scored: Sequence[ScoredGroup]) -> dict[str, float]:
    """Variance of each reward part within a group, mean over groups: what of it can teach."""
    found: dict[str, list[float]] = {}
    for group in scored:
        judged = [verdict.parts for verdict in group.verdicts if verdict.outcome.judged]
        for name in sorted({name for parts in judged for name in parts}):
            found.setdefault(name, []).append(float(np.var([parts.get(name, 0.0) for parts in judged])))
    return {name: float(np.mean(values)) for name, values in found.items()}


def _loops(scored: Sequence[ScoredGroup]) -> float:
    """Share of completions that were cut off while their tokens went round in a loop."""
    completions = [c for group in scored for c in group.group.completions]
    cut = [c.token_ids.tolist() for c in completions if c.finish_reason is FinishReason.LENGTH]
    return sum(loop_period(tokens) is not None for tokens in cut) / len(completions)


def _other_scripts(scored: Sequence[ScoredGroup]) -> float | None:
    """Share of completions with a word in another script than the problem's language has; None where none is known."""
    known = found = 0
    for group in scored:
        scripts = scripts_of(group.group.prompt.problem.language)
        if scripts is None:
            continue
        is_latin = "LATIN" in scripts
        known += len(group.group.completions)
        for completion in group.group.completions:
            if not (is_latin and completion.text.isascii()):
                found += bool(written_words(completion.text, scripts)[1])
    return found / known if known else None
