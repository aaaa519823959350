"""The engine on servers that tell the truth, that lie, and that die: scale.md's list of failures, one by one."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.errors import CheckpointError, ConfigError, EngineError, InvariantError
from groupwise.models.checkpoint import changed_a_little, serving_weights
from groupwise.models.policy import Policy
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.vllm import crew
from groupwise.rollout.vllm.canary import trainer_logprobs
from groupwise.rollout.vllm.fleet import State

Make = Callable[..., Any]
Groups = dict[int, list[Sampled]]
MANY = [Request((5, 6, 7 + i), tuple(range(10 * i, 10 * i + 4))) for i in range(6)]


def tokens(groups: Groups) -> dict[int, list[list[int]]]:
    return {index: [sampled.token_ids.tolist() for sampled in group] for index, group in sorted(groups.items())}


@pytest.fixture(scope="session")
def moved(trained: Policy) -> Policy:
    """The trainer's policy after an update that everybody notices."""
    return changed_a_little(trained, 0.1)


# ---------------------------------------------------------------------------------------------------- the honest server


def test_it_samples_from_the_trainers_weights(
    make_engine: Make, make_server: Make, trained: Policy, sample: Callable[..., Groups]
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
    make_engine: Make, make_server: Make, sample: Callable[..., Groups]
) -> None:
    one = tokens(sample(make_engine(make_server()), MANY))
    two = tokens(sample(make_engine(make_server(), make_server()), MANY))
    assert one == two
    assert len({tuple(ids) for group in one.values() for ids in group}) > 8


def test_new_weights_are_sampled_from(
    make_engine: Make, make_server: Make, moved: Policy, sample: Callable[..., Groups]
) -> None:
    engine = make_engine(make_server())
    before = sample(engine)
    engine.publish(moved, 1)
    after = sample(engine)
    assert engine.version == 1
    assert tokens(before) != tokens(after)
    ours = trainer_logprobs(moved, (8, 9), tuple(after[1][0].token_ids.tolist()))
    assert np.abs(ours - after[1][0].logprobs).max() < 1e-5


def test_adapters_reach_the_servers_as_part_of_the_weights(
    make_engine: Make, make_server: Make, adapted: Policy, sample: Callable[..., Groups]
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


# ------------------------------------------------------------------------------- adapters that servers add themselves


@pytest.fixture
def native(make_engine: Make, make_server: Make, adapted: Policy, more_adapted: Policy) -> Callable[..., Any]:
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
    native: Callable[..., Any], adapted: Policy, more_adapted: Policy, sample: Callable[..., Groups]
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


def test_adapters_that_are_not_the_new_ones_are_found_out(native: Callable[..., Any]) -> None:
    with pytest.raises(InvariantError, match="does not have the weights that were published"):
        native("previous adapters")


def test_a_server_that_has_other_adapters_of_the_new_name_is_found_out(
    native: Callable[..., Any], adapted: Policy, more_adapted: Policy
) -> None:
    server, engine = native()
    name = f"v2-{adapted.fingerprint()}"
    server.engines[0].adapters[name] = next(iter(server.engines[0].adapters.values()))  # version 1's
    with pytest.raises(InvariantError, match="does not have the weights that were published"):
        engine.publish(adapted, 2)
    assert server.adapters_loaded == 2  # a name is never loaded twice


def test_a_server_that_was_started_anew_gets_model_and_adapters(
    native: Callable[..., Any], sample: Callable[..., Groups]
) -> None:
    server, engine = native()
    whole = tokens(sample(engine, MANY))
    server.kill()
    server.start()
    assert tokens(sample(engine, MANY)) == whole
    assert (server.loads, server.adapters_loaded) == (2, 3)


def test_a_server_that_was_left_paused_gets_its_model_anew(native: Callable[..., Any], adapted: Policy) -> None:
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


def test_an_update_too_small_to_see_is_noted_and_no_error(
    make_engine: Make, make_server: Make, trained: Policy
) -> None:
    engine = make_engine(make_server())
    engine.publish(trained, 0)
    engine.publish(trained, 1)
    [proof] = engine.facts["servers"].values()
    assert not proof["is_clear"]


def test_greedy_completions_are_certain_as_in_process(
    make_engine: Make, make_server: Make, sample: Callable[..., Groups]
) -> None:
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


# ------------------------------------------------------------------------------------------- weights that are not new


@pytest.mark.parametrize("lie", ["reload is skipped", "previous directory"])
def test_old_weights_are_found_out(
    lie: str, make_engine: Make, make_server: Make, trained: Policy, moved: Policy
) -> None:
    server = make_server()
    engine = make_engine(server)
    engine.publish(trained, 0)
    server.lies.add(lie)
    with pytest.raises(InvariantError, match=r"does not have the weights that were published: .* up to [\d.e+-]+ nats"):
        engine.publish(moved, 1)


def test_a_small_update_that_never_arrives_is_found_out(make_engine: Make, make_server: Make, trained: Policy) -> None:
    server = make_server()
    engine = make_engine(server)
    engine.publish(trained, 0)
    server.lies.add("reload is skipped")
    with pytest.raises(InvariantError, match="still has the weights from before"):
        engine.publish(changed_a_little(trained, 3e-6), 1)  # far within the bound


def test_the_rehearsal_needs_every_tensor(
    make_engine: Make, make_server: Make, trained: Policy, served: Policy
) -> None:
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


def test_a_prefix_cache_that_is_kept_is_found_out(
    make_engine: Make, make_server: Make, trained: Policy, moved: Policy
) -> None:
    server = make_server()
    engine = make_engine(server)
    engine.publish(trained, 0)
    server.lies.add("cache is kept")
    with pytest.raises(InvariantError, match="has the new weights, but does not sample from them"):
        engine.publish(moved, 1)


def test_a_prefix_cache_that_cannot_be_cleared_is_named(make_engine: Make, make_server: Make, trained: Policy) -> None:
    with pytest.raises(EngineError, match="could not clear its prefix cache, although it is paused"):
        make_engine(make_server("cache cannot be cleared")).publish(trained, 0)


# ------------------------------------------------------------------------------------------------------------ preflight


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("raw log-probabilities", "does not sample from them as it was told"),
        ("top-k of its own", "does not sample from them as it was told"),
        ("top-p of its own", "does not sample from them as it was told"),
        ("seeds are ignored", "whatever its seed: it ignores it"),
        ("seeds do not repeat", "other tokens when it gets the same seed again"),
        ("label is kept", "more than one engine"),
        ("/inference/v1/generate", "start it with --enable-scale-out"),
        ("/pause", "start it with VLLM_SERVER_DEV_MODE=1"),
        ("directory is not seen", "no such directory"),
    ],
)
def test_a_server_that_is_not_what_it_must_be(
    lie: str, said: str, make_engine: Make, make_server: Make, trained: Policy
) -> None:
    with pytest.raises((EngineError, InvariantError), match=said):
        make_engine(make_server(lie), patience_s=0.5).publish(trained, 0)


def test_a_server_that_keeps_the_label_of_weights_before_is_found_out(
    make_engine: Make, make_server: Make, trained: Policy, moved: Policy
) -> None:
    server = make_server()
    engine = make_engine(server)
    engine.publish(trained, 0)
    server.lies.add("label is kept")
    with pytest.raises(EngineError, match=r"was told that its weights are v1-\w+, and answers from .*v0-\w+"):
        engine.publish(moved, 1)


def test_a_balancer_is_refused(make_engine: Make, make_server: Make, trained: Policy) -> None:
    with pytest.raises(
        EngineError, match=r"more than one engine \(a balancer\): .* name each engine by its own address"
    ):
        make_engine(make_server(engines=2)).publish(trained, 0)


def test_another_vocabulary_is_refused(make_engine: Make, make_server: Make, tiny_policy: Make) -> None:
    for size, more in ((250, "fewer"), (300, "more")):
        server = make_server()
        server.start_policy = tiny_policy(vocab_size=size, num_hidden_layers=1)
        for engine in server.engines:
            engine.policy = server.start_policy
        with pytest.raises(EngineError, match=f"has {more} tokens than the model's vocabulary of 263"):
            make_engine(server).generate([], SamplingConfig(), lambda index, sampled: None)


def test_two_versions_and_another_name_are_refused(make_engine: Make, make_server: Make, trained: Policy) -> None:
    with pytest.raises(EngineError, match=r"has 0\.32\.0, .* has 0\.33\.0; one version is allowed"):
        make_engine(make_server(), make_server(version="0.33.0")).publish(trained, 0)
    with pytest.raises(EngineError, match="serves gpt, not 'policy': start it with --served-model-name policy"):
        make_engine(make_server(model="gpt")).publish(trained, 0)


def test_servers_are_not_started_where_other_machines_must_see_them(
    make_engine: Make, trained: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"engine\.launch = 1 .* the ranks are on 2; allowed there is"):
        make_engine(launch=1).publish(trained, 0)


def test_nobody_at_the_address(make_engine: Make, make_server: Make, trained: Policy) -> None:
    server = make_server()
    server.kill()
    with pytest.raises(EngineError, match=r"does not answer within 0\.2 s \(engine\.start_s\)"):
        make_engine(server, start_s=0.2).publish(trained, 0)


def test_a_completion_longer_than_the_servers_context(
    make_engine: Make, make_server: Make, sample: Callable[..., Groups]
) -> None:
    with pytest.raises(ConfigError, match=r"a completion of up to 254 .* do not fit in the context of 256 tokens"):
        sample(make_engine(make_server()), sampling=SamplingConfig(max_tokens=254))


# --------------------------------------------------------------------------------------------- answers that are none


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("-9999", "the log-probability -9999"),
        ("NaN", "the log-probability nan"),
        ("positive", r"the log-probability 0\.5"),
        ("no log-probabilities", r"choices\.0\.logprobs: input should be"),
        ("a log-probability too few", "other tokens than those that it sampled"),
        ("log-probabilities of others", "other tokens than those that it sampled"),
        ("another model", "with the model 'another'; 'policy' was asked for"),
        ("too few", "with 0 completions where 1 was asked for"),
        ("no end", r"choices\.0\.finish_reason: field required"),
        ("outside", "the token 100000, outside the model's vocabulary of 263"),
        ("empty", "a completion of 0 tokens; allowed are 1 to 4"),
        ("no versions", r"choices\.0\.weight_versions: field required"),
        ("no JSON object", "without what training needs"),
    ],
)
def test_an_answer_that_cannot_be_trained_on_stops_the_run(
    lie: str, said: str, ready: tuple[Any, Any], sample: Callable[..., Groups]
) -> None:
    server, engine = ready
    server.lies = {lie}
    with pytest.raises(EngineError, match=f"the server {server.address} .*{said}"):
        sample(engine)


# ----------------------------------------------------------------------------------------------------- servers that die


def test_aborted_completions_are_asked_for_again(
    make_engine: Make, make_server: Make, sample: Callable[..., Groups]
) -> None:
    whole = tokens(sample(make_engine(make_server()), MANY))
    server = make_server()
    engine = make_engine(server)
    engine.publish(engine.policy, 0)
    server.aborts = 5
    assert tokens(sample(engine, MANY)) == whole
    assert engine.facts["reissued"] == 5


def test_connections_that_break_together_cost_their_requests_and_no_more(
    make_engine: Make, make_server: Make, sample: Callable[..., Groups], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "SUSPECT_S", 30.0)  # on a busy machine the probe waits behind all that is owed
    whole = tokens(sample(make_engine(make_server()), MANY))
    server = make_server()
    engine = make_engine(server)
    engine.publish(engine.policy, 0)
    loads, server.drops = server.loads, 7
    assert tokens(sample(engine, MANY)) == whole
    assert (engine.facts["reissued"], server.loads) == (7, loads)  # it never was dead


def test_what_a_killed_server_owed_comes_from_the_other(
    make_engine: Make, make_server: Make, sample: Callable[..., Groups]
) -> None:
    whole = tokens(sample(make_engine(make_server()), MANY))
    first, second = make_server(), make_server()
    engine = make_engine(first, second)
    engine.publish(engine.policy, 0)
    first.dies_after = first.generated + 3
    assert tokens(sample(engine, MANY)) == whole  # nothing lost, nothing doubled, nothing drawn anew
    assert engine.facts["reissued"] > 0
    assert engine.crew.fleet.states[second.address] is State.HEALTHY
    assert engine.crew.fleet.states[first.address] is not State.HEALTHY


def test_a_server_that_hangs_while_its_health_is_well(
    make_engine: Make, make_server: Make, sample: Callable[..., Groups]
) -> None:
    first, second = make_server(), make_server()
    engine = make_engine(first, second, request_s=3.0)
    engine.publish(engine.policy, 0)
    first.lies.add("hangs")
    few = SamplingConfig(max_tokens=2, max_live_completions=2)  # nobody waits for others until the deadline
    assert [len(group) for group in sample(engine, MANY, few).values()] == [4] * 6


def test_a_server_that_was_started_anew_gets_the_weights_before_a_request(
    make_engine: Make, make_server: Make, moved: Policy, sample: Callable[..., Groups]
) -> None:
    server = make_server()
    engine = make_engine(server, patience_s=10.0)
    engine.publish(moved, 3)
    whole = tokens(sample(engine, MANY))
    server.kill()
    server.start()  # a supervisor did it, with the weights of the beginning
    loads = server.loads
    assert tokens(sample(engine, MANY)) == whole
    assert server.loads == loads + 1
    assert engine.crew.fleet.states[server.address] is State.HEALTHY


def test_it_comes_back_while_nobody_else_is_left(
    make_engine: Make, make_server: Make, sample: Callable[..., Groups]
) -> None:
    server = make_server()
    engine = make_engine(server, patience_s=10.0)
    whole = tokens(sample(engine, MANY))
    server.dies_after = server.generated + 5

    def revive() -> None:
        while not server.dead:
            time.sleep(0.01)
        time.sleep(0.2)
        server.start()

    thread = threading.Thread(target=revive)
    thread.start()
    assert tokens(sample(engine, MANY)) == whole
    thread.join()


def test_one_that_comes_back_and_does_not_load_stops_the_run(
    make_engine: Make, make_server: Make, moved: Policy, sample: Callable[..., Groups]
) -> None:
    server = make_server()
    engine = make_engine(server, patience_s=10.0)
    engine.publish(moved, 1)
    server.kill()
    server.start()
    server.lies.add("reload is skipped")
    with pytest.raises(InvariantError, match="does not have the weights that were published"):
        sample(engine)


def test_without_any_server_the_run_stops_and_says_why(
    make_engine: Make, make_server: Make, sample: Callable[..., Groups]
) -> None:
    server = make_server()
    engine = make_engine(server, patience_s=0.3)
    engine.publish(engine.policy, 0)
    server.kill()
    with pytest.raises(
        EngineError,
        match=r"no server has been healthy for 0\.3 s \(engine\.patience_s\); .*Connection(Refused|Reset)Error",
    ):
        sample(engine)


def test_a_group_is_never_told_in_part(make_engine: Make, make_server: Make, trained: Policy) -> None:
    server = make_server()
    engine = make_engine(server, patience_s=0.3)
    engine.publish(trained, 0)
    server.dies_after = server.generated + 5
    told: list[int] = []
    with pytest.raises(EngineError):
        engine.generate(MANY, SamplingConfig(max_tokens=4), lambda index, group: told.append(len(group)))
    assert set(told) <= {4}


def test_what_fails_again_and_again_is_not_asked_for_ever(
    make_engine: Make, make_server: Make, sample: Callable[..., Groups]
) -> None:
    server = make_server()
    engine = make_engine(server)
    engine.publish(engine.policy, 0)
    server.aborts = 1000
    with pytest.raises(EngineError, match="was asked for 10 times and never came"):
        sample(engine, [Request((5,), (1,))])


def test_searches_are_refused(make_engine: Make, make_server: Make) -> None:
    engine = make_engine(make_server())
    with pytest.raises(ConfigError, match="samples completions to their end: searches"):
        engine.generate([Request((5, 6), (1,), pause=bool)], SamplingConfig(max_tokens=4), lambda index, group: None)


def test_a_full_disk_is_one_sentence(
    make_engine: Make,
    make_server: Make,
    trained: Policy,
    monkeypatch: pytest.MonkeyPatch,
    sample: Callable[..., Groups],
) -> None:
    engine = make_engine(make_server())
    whole = tokens(sample(engine))

    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("groupwise.models.checkpoint.save_file", full)
        with pytest.raises(CheckpointError, match="cannot be written: No space left on device"):
            engine.publish(trained, 1)
    assert tokens(sample(engine)) == whole
    assert [path.name.startswith(".") for path in Path(engine.folder.path).iterdir()] == [False]
