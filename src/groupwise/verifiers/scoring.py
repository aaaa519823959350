"""The stage between sampling and advantages: one verdict per completion, and the stop when the verifier fails."""

import math
import queue
import threading
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, pstdev

from groupwise.errors import ConfigError, InvariantError, VerifierError
from groupwise.randomness import permutation
from groupwise.sandbox.base import Closing
from groupwise.types import Completion, FinishReason, Group, Outcome, ScoredGroup, Verdict
from groupwise.verifiers.base import Request, Verifier

SPOT_CHECKS = 4  # completions of a step that are verified twice


def score(groups: Sequence[Group], verifier: Verifier, max_tokens: int | None = None) -> list[ScoredGroup]:
    """Verify every completion with its prompt's prefill before it; truncated completions are judged as they are."""
    completions = [(group, completion) for group in groups for completion in group.completions]
    verdicts = verifier.verify_many([_request(group, completion, max_tokens) for group, completion in completions])
    if len(verdicts) != len(completions):
        raise VerifierError(f"the verifier returned {len(verdicts)} verdicts for {len(completions)} completions")
    pairs = zip(completions, verdicts, strict=True)
    remaining = iter([by_ending(completion, verdict) for (_, completion), verdict in pairs])
    return [ScoredGroup(group, tuple(next(remaining) for _ in group.completions)) for group in groups]


def _request(group: Group, completion: Completion, max_tokens: int | None) -> Request:
    own = completion.own
    text = own if completion.turns and own is not None else completion.text  # an environment earns nothing
    return Request(
        group.prompt.problem,
        group.prompt.prefill + text,
        completion.num_tokens,
        max_tokens,
        completion.finish_reason is FinishReason.LENGTH,
        group.prompt.prefill,
        completion.num_calls,
        None if own is None else group.prompt.prefill + own,
        completion,
        group,
    )


def by_ending(completion: Completion, verdict: Verdict) -> Verdict:
    """The verdict by a completion's end: none where tool or environment failed, wrong where a call was malformed."""
    finish_reason, calls = completion.finish_reason, completion.calls
    if finish_reason is FinishReason.ENVIRONMENT_FAILED:
        said, number = completion.turns[-1].evidence, len(completion.turns)
        outcome = Outcome.TIMEOUT if said.startswith("timeout: ") else Outcome.CRASHED
        return Verdict(outcome, {}, f"the environment failed at turn {number}: {said}")
    if odd := {name: value for name, value in verdict.parts.items() if not math.isfinite(value)}:
        return Verdict(Outcome.CRASHED, {}, f"its parts of the reward are {odd}; finite numbers are allowed")
    evidence = calls[-1].evidence if calls else ""
    if finish_reason is FinishReason.TOOL_FAILED:
        return Verdict(Outcome.CRASHED, {}, f"a tool failed: {evidence}")
    if finish_reason is FinishReason.MALFORMED_CALL and verdict.outcome.judged:
        parts = {name: min(value, 0.0) for name, value in verdict.parts.items()}
        said = f"a malformed call: {evidence or verdict.evidence}"
        return Verdict(Outcome.WRONG, parts, said, measures=verdict.measures)
    return verdict


def spot_check(scored: Sequence[ScoredGroup], verifier: Verifier, max_tokens: int | None, *parts: int | str) -> None:
    """Verify a few completions again, alone (InvariantError: the verdict is another; names the problem and both).

    A verifier that compares the completions of a group passes where the group, in another order, gets the verdicts
    that it got. `parts` are the key that decides which completions are taken.
    """
    rows = [(result, i) for result in scored for i in range(len(result.verdicts))]
    for index in permutation(len(rows), "spot check", *parts)[: SPOT_CHECKS if verifier.repeatable else 0]:
        result, sample = rows[index]
        verdict, (repeat,) = result.verdicts[sample], _again(result.group, [sample], verifier, max_tokens)
        if _agree(verdict, repeat):
            continue
        if verifier.in_groups:
            order = permutation(len(result.verdicts), "spot check order", *parts).tolist()
            together = _again(result.group, order, verifier, max_tokens)
            if all(_agree(result.verdicts[i], again) for i, again in zip(order, together, strict=True)):
                continue
        cause = f"{verifier.name} does not repeat itself"
        if "repeatable" in type(verifier.config).model_fields:
            cause += " (where it may, or where it goes by the order of a group: verifier.repeatable = false)"
        raise InvariantError(
            f"completion {sample} of problem {result.group.prompt.problem.id} was judged {verdict.outcome} "
            f"({verdict.evidence}), but alone it is {repeat.outcome} ({repeat.evidence}): verdicts were given to "
            f"the wrong completions, or {cause}"
        )


def _again(group: Group, samples: Sequence[int], verifier: Verifier, max_tokens: int | None) -> list[Verdict]:
    completions = [group.completions[sample] for sample in samples]
    verdicts = verifier.verify_many([_request(group, completion, max_tokens) for completion in completions])
    return list(map(by_ending, completions, verdicts))


def _agree(verdict: Verdict, repeat: Verdict) -> bool:
    return verdict.outcome.failed or repeat.outcome.failed or verdict.parts == repeat.parts


def part_statistics(scored: Sequence[ScoredGroup]) -> dict[str, float]:
    """Return statistics of the parts of the reward over judged completions.

    `part/NAME/mean` and `part/NAME/std` (of the population) of every part, weighted as paid; `measure/NAME/mean` of
    every measure, over the completions that have it; `disagreement/NAME` counts the completions on which the second
    verifier NAME disagreed with the task's.
    """
    verdicts = [verdict for verdict in _verdicts(scored) if verdict.outcome.judged]
    parts, measures = (
        {name: [float(row[name]) for row in rows if name in row] for name in sorted({n for row in rows for n in row})}
        for rows in ([v.parts for v in verdicts], [v.measures for v in verdicts])
    )
    statistics = {f"part/{name}/mean": fmean(values) for name, values in parts.items()}
    statistics |= {f"part/{name}/std": pstdev(values) for name, values in parts.items()}
    counts = {name: values for name, values in measures.items() if name.startswith("disagreement/")}
    statistics |= {f"measure/{name}/mean": fmean(values) for name, values in measures.items() if name not in counts}
    return statistics | {name: sum(values) for name, values in counts.items()}


def check_failures(scored: Sequence[ScoredGroup], max_share: float) -> None:
    """Stop rather than train on what was not judged (VerifierError: names share, counts and one failure)."""
    verdicts = _verdicts(scored)
    failures = [verdict for verdict in verdicts if verdict.outcome.failed]
    share = len(failures) / max(1, len(verdicts))
    if share <= max_share:
        return
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(Counter(v.outcome for v in failures).items()))
    raise VerifierError(
        f"the verifier failed on {len(failures)} of {len(verdicts)} completions ({counts}): a share of {share:.3g}, "
        f"more than max_failure_share = {max_share:g}; for example: {failures[0].evidence}"
    )


def check_paid(scored: Sequence[ScoredGroup], kind: str) -> None:
    """Refuse a verifier that drops what environments paid (ConfigError: names the problem and its rewards)."""
    for result in scored:
        for completion, verdict in zip(result.group.completions, result.verdicts, strict=True):
            paid = [turn.reward for turn in completion.turns if turn.reward is not None]
            if paid and verdict.outcome.judged and "environment" not in verdict.parts:
                raise ConfigError(
                    f"verifier.kind = {kind!r} drops {paid}, the rewards of problem {result.group.prompt.problem.id}'s "
                    "environment; allowed are verifier.kind = 'episode' with yours as verifier.parts.NAME, or none"
                )


def _verdicts(scored: Sequence[ScoredGroup]) -> list[Verdict]:
    return [verdict for group in scored for verdict in group.verdicts]


CLOSE_S = 1.0
"""Seconds that closing waits for the verdicts in progress; the thread then ends when it can, or with the process."""


class OverlappedScoring(Closing):
    """Scores the groups of one step in a background thread, with the verdicts of `score`.

    Leaving the block early (an interrupt, an error) drops what is not yet verified.
    """

    def __init__(self, verifier: Verifier, max_tokens: int | None = None) -> None:
        self._verifier, self._max_tokens = verifier, max_tokens
        self._arrived: queue.SimpleQueue[Group | None] = queue.SimpleQueue()  # None: no more will come
        self._scored: dict[int, ScoredGroup] = {}  # by identity: a group holds arrays and has no hash
        self._error: BaseException | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="scoring", daemon=True)
        self._thread.start()

    def submit(self, group: Group) -> None:
        self._arrived.put(group)

    def result(self, groups: Sequence[Group]) -> list[ScoredGroup]:
        """Wait for the verdicts: one scored group per group, in order (InvariantError: a group was never submitted)."""
        self._arrived.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error
        if ids := [group.prompt.problem.id for group in groups if id(group) not in self._scored]:
            raise InvariantError(f"no verdicts for the groups of {', '.join(ids[:3])}: they were never submitted")
        return [self._scored[id(group)] for group in groups]

    def close(self) -> None:
        self._is_closed = True
        self._arrived.put(None)
        self._thread.join(CLOSE_S)

    def _work(self) -> None:
        try:
            while (batch := self._next())[0] is not None and not self._is_closed:
                groups = [group for group in batch if group is not None]
                scored = score(groups, self._verifier, self._max_tokens)
                self._scored |= {id(result.group): result for result in scored}
                if batch[-1] is None:
                    return
        except BaseException as error:  # raised again where the result is asked for
            self._error = error

    def _next(self) -> list[Group | None]:
        batch = [self._arrived.get()]
        while batch[-1] is not None and not self._arrived.empty():
            batch.append(self._arrived.get())
        return batch
