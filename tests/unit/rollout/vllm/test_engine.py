"""The engine on servers: the weights that they serve, adapters, and weights that are not new."""

from typing import Any

import numpy as np
import pytest
import torch
from lying_server import MANY, Make, tokens

from groupwise.errors import EngineError, InvariantError
from groupwise.models.checkpoint import changing_a_little, serving_weights
from groupwise.models.policy import Policy
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.vllm.canary import trainer_logprobs


def test_it_samples_from_the_trainers_weights(
    make_engine: Make, make_server: Make, trained: Policy, sample: Make
) -> None:
    engine = make_engine(make_server(), rehearse=True)
    groups = sample(engine)
    assert [len(group) for _, group in sorted(groups.items())] == [3, 2]
    for index, prompt in enumerate([(5, 6, 7), (8, 9)]):
        for sampled in groups[index]:
            ours = trainer_logprobs(trained, prompt, tuple(sampled.token_ids.tolist()))
            assert np.abs(ours - sampled.logprobs).max() < 1e-5
            assert sampled.entropy is None
    [proof] = engine.facts["servers"].values()
    assert proof["state"] == "healthy"
    assert proof["text"] < 1e-5 < proof["before"]  # from the rehearsal's weights
    assert proof["is_clear"]


def test_the_same_key_draws_the_same_completion_on_any_server(
    make_engine: Make, make_server: Make, sample: Make
) -> None:
    one = tokens(sample(make_engine(make_server()), MANY))
    assert one == tokens(sample(make_engine(make_server(), make_server()), MANY))
    assert len({tuple(ids) for group in one.values() for ids in group}) > 8


def test_new_weights_are_sampled_from(make_engine: Make, make_server: Make, moved: Policy, sample: Make) -> None:
    engine = make_engine(make_server())
    before = sample(engine)
    engine.publish(moved, 1)
    after = sample(engine)
    assert engine.version == 1
    assert tokens(before) != tokens(after)
    ours = trainer_logprobs(moved, (8, 9), tuple(after[1][0].token_ids.tolist()))
    assert np.abs(ours - after[1][0].logprobs).max() < 1e-5


def test_adapters_reach_the_servers_as_part_of_the_weights(
    make_engine: Make, make_server: Make, adapted: Policy, sample: Make
) -> None:
    engine = make_engine(make_server(), rehearse=True)
    engine.publish(adapted.base(), 0)
    before = sample(engine)
    engine.publish(adapted, 1)
    groups = sample(engine)
    assert tokens(before) != tokens(groups)
    for sampled in groups[0]:
        ours = trainer_logprobs(adapted, (5, 6, 7), tuple(sampled.token_ids.tolist()))
        assert np.abs(ours - sampled.logprobs).max() < 2e-5
    [proof] = engine.facts["servers"].values()
    assert proof["is_clear"]  # nearer to the adapted model than to the one before


@pytest.fixture
def native(make_engine: Make, make_server: Make, adapted: Policy, more_adapted: Policy) -> Make:
    """native(*lies) -> a server, and an engine that gives it the adapters alone, with two versions published."""

    def make(*lies: str) -> tuple[Any, Any]:
        server = make_server()
        engine = make_engine(server, policy=adapted, adapters="native", patience_s=10.0)
        engine.publish(adapted, 0)
        server.lies |= set(lies)
        engine.publish(more_adapted, 1)
        return server, engine

    return make


@pytest.fixture(scope="session")
def more_adapted(adapted: Policy) -> Policy:
    """After an update of the adapters alone."""
    policy = adapted.twin()
    with torch.no_grad():
        for _, weight in policy.trainable():
            weight.mul_(1.5)
    return policy


def test_adapters_alone_reach_the_servers_under_new_names(
    native: Make, adapted: Policy, more_adapted: Policy, sample: Make
) -> None:
    server, engine = native()
    assert (server.loads, server.adapters_loaded) == (1, 2)  # the model beneath them once
    [name] = server.engines[0].adapters  # what nobody asks for is not kept
    assert name.startswith("v1-")
    for sampled in sample(engine)[0]:
        tokens = tuple(sampled.token_ids.tolist())
        ours, before = (trainer_logprobs(policy, (5, 6, 7), tokens) for policy in (more_adapted, adapted))
        assert np.abs(ours - sampled.logprobs).max() < 2e-5 < np.abs(before - sampled.logprobs).max()
    [proof] = engine.facts["servers"].values()
    assert proof["is_clear"]
    written = sorted(path.name.partition("-")[0] for path in engine.folder.path.iterdir())
    assert written == ["base", "v0", "v1"]


def test_adapters_that_are_not_the_new_ones_are_found_out(native: Make, adapted: Policy) -> None:
    with pytest.raises(InvariantError, match="does not have the weights that were published"):
        native("previous adapters")
    server, engine = native()
    name = f"v2-{adapted.fingerprint()}"
    server.engines[0].adapters[name] = next(iter(server.engines[0].adapters.values()))  # version 1's
    with pytest.raises(InvariantError, match="does not have the weights that were published"):
        engine.publish(adapted, 2)
    assert server.adapters_loaded == 2  # a name is never loaded twice


def test_a_server_that_was_started_anew_gets_model_and_adapters(native: Make, sample: Make) -> None:
    server, engine = native()
    whole = tokens(sample(engine, MANY))
    server.kill()
    server.start()
    assert tokens(sample(engine, MANY)) == whole
    assert (server.loads, server.adapters_loaded) == (2, 3)


def test_a_server_that_was_left_paused_gets_its_model_anew(native: Make, adapted: Policy) -> None:
    server, engine = native()
    server.engines[0].paused = True  # a reload failed on the way
    engine.publish(adapted, 2)
    assert (server.loads, server.adapters_loaded, server.engines[0].paused) == (2, 3, False)


def test_the_rehearsal_knows_adapters_too(make_engine: Make, make_server: Make, adapted: Policy) -> None:
    server = make_server()
    engine = make_engine(server, policy=adapted, adapters="native", rehearse=True)
    before = adapted.fingerprint()
    engine.publish(adapted, 0)
    assert (server.loads, server.adapters_loaded) == (2, 2)
    assert adapted.fingerprint() == before


def test_servers_that_cannot_add_adapters_are_named(make_engine: Make, make_server: Make, adapted: Policy) -> None:
    engine = make_engine(make_server("/v1/load_lora_adapter"), policy=adapted, adapters="native")
    with pytest.raises(EngineError, match="start it with --enable-lora, and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"):
        engine.publish(adapted, 0)


def test_an_update_too_small_to_see_is_noted_and_no_error(started: Make, trained: Policy) -> None:
    _, engine = started()
    engine.publish(trained, 1)
    [proof] = engine.facts["servers"].values()
    assert not proof["is_clear"]


def test_greedy_completions_are_certain_as_in_process(make_engine: Make, make_server: Make, sample: Make) -> None:
    groups = sample(make_engine(make_server()), sampling=SamplingConfig(temperature=0, max_tokens=3))
    assert all((sampled.logprobs == 0).all() for group in groups.values() for sampled in group)


def test_two_directories_stay(make_engine: Make, make_server: Make, trained: Policy, moved: Policy) -> None:
    engine = make_engine(make_server())
    for version in range(4):
        engine.publish((trained, moved)[version % 2], version)
    names = sorted(path.name.partition("-")[0] for path in engine.folder.path.iterdir())
    assert names == ["v2", "v3"]
    engine.close()
    assert not engine.folder.path.exists()


@pytest.mark.parametrize(
    ("lie", "size", "error", "said"),
    [
        ("reload is skipped", 0.1, InvariantError, r"does not have the weights .* published: .* up to [\d.e+-]+ nats"),
        ("previous directory", 0.1, InvariantError, r"does not have the weights .* published: .* up to [\d.e+-]+ nats"),
        ("reload is skipped", 3e-6, InvariantError, "still has the weights from before"),  # far within the bound
        ("cache is kept", 0.1, InvariantError, "has the new weights, but does not sample from them"),
        ("label is kept", 0.1, EngineError, r"was told that its weights are v1-\w+, and answers from .*v0-\w+"),
    ],
)
def test_old_weights_are_found_out(
    lie: str, size: float, error: type[Exception], said: str, started: Make, trained: Policy
) -> None:
    server, engine = started()
    server.lies.add(lie)
    with changing_a_little(trained, size), pytest.raises(error, match=said):
        engine.publish(trained, 1)


def test_the_rehearsal_needs_every_tensor(make_engine: Make, make_server: Make, trained: Policy) -> None:
    """A server that holds the trainer's weights at the start would not miss a tensor that never arrives."""
    names = list(serving_weights(trained))
    for name in {*names[::5], "lm_head.weight"}:
        server = make_server()
        with torch.no_grad():
            for key, weight in server.engines[0].policy.state():
                weight.copy_(serving_weights(trained)[key])
        server.refuses = name
        with pytest.raises(InvariantError, match="does not have the weights that were published"):
            make_engine(server, rehearse=True).publish(trained, 0)


def test_a_tied_heads_tensor_is_in_the_directory(trained: Policy, served: Policy) -> None:
    weights = serving_weights(trained)
    assert torch.equal(weights["lm_head.weight"], weights["model.embed_tokens.weight"])
    assert set(weights) == {name for name, _ in served.state()}
