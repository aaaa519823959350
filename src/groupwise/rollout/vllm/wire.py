"""Requests to a server for one completion, and the form that its answer must have to be trained on. No I/O.

Token ids in and out. Every setting of the draw is stated, because what is left out the server may take from a file.
"""

import math
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from groupwise.errors import EngineError
from groupwise.rollout.engine import Sampled
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.vllm.server import Unreachable
from groupwise.types import FinishReason

NOT_FINITE = -9999.0
"""The number that vLLM sends in place of a log-probability that is NaN or -inf."""
ROUNDING = 1e-5
"""By how much a log-probability may be above 0."""


class ForeignWeights(Exception):  # noqa: N818 - it says what happened, and it is no fault of the answer
    """An answer came from other weights than those of the day."""


class Unfinished(Unreachable):
    """The server ended a completion before its end: it must be asked for again."""


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class _Token(_Answer):
    token_id: int
    logprob: float


class _Logprobs(_Answer):
    content: list[_Token]


class _Span(_Answer):
    version: str
    start: int
    end: int


class _Choice(_Answer):
    finish_reason: str
    token_ids: list[int]
    logprobs: _Logprobs
    weight_versions: list[_Span]


class _Generated(_Answer):
    served: str = Field(alias="model")
    choices: list[_Choice]


class _Entry(_Answer):
    logprob: float


class _Scored(_Answer):
    served: str = Field(alias="model")
    prompt_logprobs: list[dict[str, _Entry] | None]


def wanted(
    token_ids: tuple[int, ...], key: int, sampling: SamplingConfig, stop_ids: frozenset[int], model: str, salt: str,
    stops: tuple[str, ...] = (),
) -> dict[str, Any]:  # fmt: skip
    """Write the body of a request for one completion.

    Its seed has 63 bits of the key, so that it is never -1, "no seed". Keys and values in the prefix cache are shared
    by requests of the same `salt` only. `stops` end it as well; a server needs its tokenizer for them.
    """
    draw = {
        "n": 1, "seed": key >> 1, "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k,
        "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
        "max_tokens": sampling.max_tokens, "min_tokens": 0, "stop_token_ids": sorted(stop_ids), "ignore_eos": True,
        "logprobs": 0, "detokenize": bool(stops),
    }  # fmt: skip
    if stops:
        draw |= {"stop": list(stops), "include_stop_str_in_output": True}
    return {"model": model, "token_ids": list(token_ids), "sampling_params": draw, "cache_salt": salt}


def wanted_scores(token_ids: tuple[int, ...], model: str, salt: str) -> dict[str, Any]:
    """The body of a request for the log-probabilities of a given text."""
    draw = {"n": 1, "temperature": 0.0, "max_tokens": 1, "prompt_logprobs": 0, "detokenize": False, "ignore_eos": True}
    return {"model": model, "token_ids": list(token_ids), "sampling_params": draw, "cache_salt": salt}


def read_sampled(
    answer: Any, server: str, model: str, label: str, vocabulary: int, sampling: SamplingConfig
) -> Sampled:
    """Read the completion in an answer, every token of which must come from the weights of this label.

    Raises:
        EngineError: it cannot be trusted; says in one sentence why.
        ForeignWeights: a token came from other weights.
        Unfinished: it was ended before its end.
    """
    found = _read(_Generated, answer, server, model)
    if len(found.choices) != 1:
        raise EngineError(f"the server {server} answered with {len(found.choices)} completions where 1 was asked for")
    choice = found.choices[0]
    if choice.finish_reason not in (FinishReason.STOP, FinishReason.LENGTH):
        raise Unfinished(f"a completion ended by {choice.finish_reason}")
    tokens, logprobs = choice.token_ids, [token.logprob for token in choice.logprobs.content]
    if [token.token_id for token in choice.logprobs.content] != tokens:
        raise EngineError(f"the server {server} gave log-probabilities of other tokens than those that it sampled")
    if not 0 < len(tokens) <= sampling.max_tokens:
        raise EngineError(
            f"the server {server} answered with a completion of {len(tokens)} tokens; allowed are 1 to "
            f"{sampling.max_tokens}"
        )
    if outside := [token for token in tokens if not 0 <= token < vocabulary]:
        raise EngineError(
            f"the server {server} sampled the token {outside[0]}, outside the model's vocabulary of {vocabulary}"
        )
    versions = sorted((span.start, span.end, span.version) for span in choice.weight_versions)
    ends = [0, *(end for _, end, _ in versions)]
    whole = [start for start, _, _ in versions] == ends[:-1] and ends[-1] == len(tokens)
    if not whole or {version for _, _, version in versions} != {label}:
        raise ForeignWeights(", ".join(f"{version} for tokens {start} to {end}" for start, end, version in versions))
    _check_logprobs(logprobs, server)
    if sampling.temperature == 0:  # the likeliest token is certain; servers give the model's own log-probability
        logprobs = [0.0] * len(tokens)
    return Sampled(
        np.array(tokens, np.int64),
        np.minimum(np.array(logprobs, np.float32), 0),
        None,
        FinishReason(choice.finish_reason),
    )


def read_scores(answer: Any, token_ids: tuple[int, ...], server: str, model: str) -> np.ndarray[Any, Any]:
    """(T - 1,) log-probabilities of a text's tokens but the first; raises EngineError."""
    found = _read(_Scored, answer, server, model)
    entries = [(entry or {}).get(str(token)) for entry, token in zip(found.prompt_logprobs, token_ids, strict=False)]
    logprobs = [entry.logprob for entry in entries[1:] if entry is not None]
    if len(logprobs) != len(token_ids) - 1:
        raise EngineError(
            f"the server {server} scored {len(logprobs)} of the {len(token_ids) - 1} tokens of a text that it was given"
        )
    _check_logprobs(logprobs, server)
    return np.array(logprobs, np.float32)


def _read(kind: type[Any], answer: Any, server: str, model: str) -> Any:
    try:
        found = kind.model_validate(answer)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the answer"
        raise EngineError(
            f"the server {server} gave an answer without what training needs: {where}: {first['msg'].lower()}"
        ) from None
    if found.served != model:
        raise EngineError(f"the server {server} answered with the model {found.served!r}; {model!r} was asked for")
    return found


def _check_logprobs(logprobs: list[float], server: str) -> None:
    for logprob in logprobs:
        if not math.isfinite(logprob) or not NOT_FINITE < logprob <= ROUNDING:
            raise EngineError(
                f"the server {server} gave the log-probability {logprob:g} (-9999 stands for NaN or -inf there): "
                "nothing that was sampled can have it"
            )
