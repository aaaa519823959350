"""The spread of a step's quantities, for its line in metrics.jsonl; what was not measured is None, never 0."""

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
from groupwise.verifiers.style import loop_period
from groupwise.verifiers.style.language import scripts_of, written_words


def distributions(result: StepResult, after: Mapping[int, Arrays]) -> dict[str, Any]:
    """Return quantiles and shares of a step; `after` holds the log-probabilities after its updates, by group.

    A number that is not finite is None, and its name stands in `not_finite`: JSON has no word for it.
    """
    figures: dict[str, Any] = {
        **_of_tokens(result),
        **_of_updates(result, after),
        "grad_norms": {str(i): norm for i, norm in enumerate(result.trace.grad_norms)} if result.trace else None,
        **_of_groups(result),
        **_of_texts([group.scored for group in result.groups]),
    }
    if calls := [call for group in result.sampled for c in group.group.completions for call in c.calls]:
        figures["calls"] = dict(sorted(Counter(str(call.outcome) for call in calls).items()))
        figures["call_s"] = sum(call.seconds for call in calls)
    not_finite: list[str] = []
    finite = _finite(figures, "", not_finite)
    return {**finite, "not_finite": not_finite} if not_finite else finite


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
    """Return median, 99th percentile, maximum and number of all values; None of nothing.

    >>> spread([np.array([1.0, 3.0]), np.array([2.0])])["p50"]
    2.0
    """
    if not values or not (joined := np.concatenate(values)).size:
        return None
    middle, high = np.quantile(joined, (0.5, 0.99)).tolist()
    return {"p50": middle, "p99": high, "max": float(joined.max()), "num": int(joined.size)}


def _of_tokens(result: StepResult) -> dict[str, Any]:
    completions = [c for group in result.groups for c in group.scored.group.completions]
    figures: dict[str, Any] = {
        "entropy": spread([c.entropy[c.sampled] for c in completions if c.entropy is not None]),
        "length": spread([np.array([c.num_tokens for c in completions])]),
    }
    if result.trace is None:
        return figures | dict.fromkeys(("ratio", "mismatch", "kl", "clip_low", "clip_high"))
    traces = result.trace.completions
    mismatch = []
    for (group, index), trace in traces.items():
        completion = result.groups[group].scored.group.completions[index]
        if trace.trainer_logprobs is not None:
            mismatch.append(np.abs(trace.trainer_logprobs - completion.sampling_logprobs[completion.sampled]))
    count = result.trace.num_tokens
    return figures | {
        "ratio": spread([trace.ratio for trace in traces.values()]),
        "mismatch": spread(mismatch),
        "kl": spread([trace.kl for trace in traces.values() if trace.kl is not None]),
        "clip_low": result.trace.num_low / count if count else None,
        "clip_high": result.trace.num_high / count if count else None,
    }


def _of_updates(result: StepResult, after: Mapping[int, Arrays]) -> dict[str, float | None]:
    """KL in nats per token, from the old weights to those of the last of several updates, and after all of them."""
    last, changes = None, []
    if result.trace is not None and len(result.trace.grad_norms) >= 2:
        ratios = np.concatenate([trace.ratio for trace in result.trace.completions.values()]).astype(np.float64)
        with np.errstate(divide="ignore"):  # a ratio that fell to 0 gives infinity, which is named
            last = float((ratios - 1 - np.log(ratios)).mean())
    for group, arrays in after.items():
        completions = result.groups[group].scored.group.completions
        for index, (completion, values) in enumerate(zip(completions, arrays, strict=True)):
            before = completion.sampling_logprobs[completion.sampled]
            trace = result.trace.completions.get((group, index)) if result.trace else None
            if trace is not None and trace.trainer_logprobs is not None:
                before = trace.trainer_logprobs
            changes.append(values[completion.sampled].astype(np.float64) - before)
    change = np.concatenate(changes) if changes else None
    end = None if change is None else float((np.expm1(change) - change).mean())
    return {"kl_before_last_update": last, "kl_after_updates": end}


def _of_groups(result: StepResult) -> dict[str, Any]:
    scored = [group.scored for group in result.groups]
    kept = Counter(flat_because([v.outcome for v in group.verdicts], group.rewards) for group in scored)
    left_out = Counter(why for _, why in discarded(result))
    names: tuple[Flat, ...] = get_args(Flat)
    counts = {"signal": kept[None]} | {name: kept[name] for name in names}
    counts |= {f"discarded_{name}": left_out[name] for name in (*names, "surplus") if result.sampled}
    answers = [len({v.answer for v in group.verdicts if v.answer is not None}) for group in scored]
    variances: dict[str, list[float]] = {}
    for group in scored:  # within a group: what of a part can teach
        judged = [verdict.parts for verdict in group.verdicts if verdict.outcome.judged]
        for name in sorted({name for parts in judged for name in parts}):
            variances.setdefault(name, []).append(float(np.var([parts.get(name, 0.0) for parts in judged])))
    return {
        "groups": counts,
        "distinct_answers": float(np.mean([count for count in answers if count])) if any(answers) else None,
        "part_variance": {name: float(np.mean(values)) for name, values in variances.items()},
    }


def _of_texts(scored: Sequence[ScoredGroup]) -> dict[str, float | None]:
    completions = [c for group in scored for c in group.group.completions]
    cut = [c.token_ids.tolist() for c in completions if c.finish_reason is FinishReason.LENGTH]
    known = foreign = 0
    for group in scored:
        scripts = scripts_of(group.group.prompt.problem.language)
        if scripts is None:
            continue
        is_latin = "LATIN" in scripts
        known += len(group.group.completions)
        for completion in group.group.completions:
            if not (is_latin and completion.text.isascii()):
                foreign += bool(written_words(completion.text, scripts)[1])
    return {
        "loops": sum(loop_period(tokens) is not None for tokens in cut) / len(completions),
        "other_scripts": foreign / known if known else None,
    }
