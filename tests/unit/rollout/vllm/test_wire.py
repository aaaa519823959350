"""What is asked of a server, in full: what is left out, it may take from a file of its own."""

import pytest

from groupwise.config import parse
from groupwise.errors import ConfigError
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.vllm.config import VllmConfig
from groupwise.rollout.vllm.wire import ForeignWeights, read_sampled, wanted


def test_a_request_states_everything() -> None:
    body = wanted((1, 2), (1 << 64) - 1, SamplingConfig(temperature=0.5, max_tokens=9), frozenset({3, 2}), "m", "v1")
    assert (body["model"], body["token_ids"], body["cache_salt"]) == ("m", [1, 2], "v1")
    draw = body["sampling_params"]
    assert draw["seed"] == (1 << 63) - 1  # a signed number, and never -1
    assert draw["stop_token_ids"] == [2, 3]
    assert draw["ignore_eos"]  # of a configuration that is not ours
    given = {name: draw[name] for name in ("n", "temperature", "max_tokens", "top_p", "top_k", "min_p", "logprobs")}
    assert given == {"n": 1, "temperature": 0.5, "max_tokens": 9, "top_p": 1, "top_k": 0, "min_p": 0, "logprobs": 0}
    assert [draw[name] for name in ("repetition_penalty", "presence_penalty", "frequency_penalty")] == [1, 0, 0]


@pytest.mark.parametrize(
    "spans",
    [
        [("v0", 0, 3)], [("v1", 0, 2), ("v0", 2, 3)], [("v1", 0, 2)], [("v1", 1, 3)], [("v1", 0, 1), ("v1", 2, 3)],
        [("v1", 0, 2), ("v1", 1, 3)], [],
    ],
)  # fmt: skip
def test_every_token_has_the_version_of_the_day(spans: list[tuple[str, int, int]]) -> None:
    def read(found: list[tuple[str, int, int]]) -> object:
        versions = [{"version": version, "start": start, "end": end} for version, start, end in found]
        content = [{"token_id": token, "logprob": -1.0} for token in (5, 6, 7)]
        choice = {
            "finish_reason": "length", "token_ids": [5, 6, 7], "logprobs": {"content": content},
            "weight_versions": versions,
        }  # fmt: skip
        return read_sampled({"model": "m", "choices": [choice]}, "a", "m", "v1", 9, SamplingConfig(max_tokens=3))

    assert read([("v1", 0, 3)])
    assert read([("v1", 2, 3), ("v1", 0, 2)])
    with pytest.raises(ForeignWeights):
        read(spans)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "exactly one of the two"),
        ({"addresses": ["http://127.0.0.1:1"], "launch": 1}, "exactly one of the two"),
        ({"addresses": ["127.0.0.1:1"]}, "is no address of a server"),
        ({"addresses": ["http://127.0.0.1:1/v1"]}, "is no address of a server"),
        ({"addresses": ["http://127.0.0.1:1", "http://127.0.0.1:1/"]}, "an address is there twice"),
        ({"addresses": ["http://10.0.0.7:1"]}, "directory is empty, but http://10.0.0.7:1 is another machine"),
        ({"addresses": ["http://127.0.0.1:1"], "options": ["--x"]}, "has no effect here"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(VllmConfig, {"kind": "vllm", **settings})
    parse(VllmConfig, {"kind": "vllm", "addresses": ["http://10.0.0.7:1"], "directory": "/shared"})  # elsewhere, too
