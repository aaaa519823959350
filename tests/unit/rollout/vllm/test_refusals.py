"""Servers and answers that the engine refuses, and servers that die."""

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from lying_server import MANY, Make, tokens

from groupwise.errors import CheckpointError, ConfigError, EngineError, InvariantError
from groupwise.models.policy import Policy
from groupwise.rollout.engine import Request
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.vllm import crew, loading
from groupwise.rollout.vllm.fleet import State
from groupwise.rollout.vllm.server import Server
from groupwise.runs import progress


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
        ("cache cannot be cleared", "could not clear its prefix cache, although it is paused"),
    ],
)
def test_a_server_that_is_not_what_it_must_be(
    lie: str, said: str, make_engine: Make, make_server: Make, trained: Policy
) -> None:
    with pytest.raises((EngineError, InvariantError), match=said):
        make_engine(make_server(lie), patience_s=0.5).publish(trained, 0)


def test_a_balancer_is_refused(make_engine: Make, make_server: Make, trained: Policy) -> None:
    said = r"more than one engine \(a balancer\): .* name each engine by its own address"
    with pytest.raises(EngineError, match=said):
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


@pytest.mark.parametrize(
    ("answer", "why"), [("refuse", "ConnectionRefusedError"), ("hang", "timed out"), ("500", "HTTP 500: loading")]
)
def test_a_server_that_is_waited_for_is_named(answer: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the address, the reason and the setting, and again after a while."""
    monkeypatch.setattr(loading, "FIRST_S", 0.2)
    monkeypatch.setattr(loading, "NEXT_S", 0.6)
    clock: list[float] = [0.0]  # a moment for each sleep
    monkeypatch.setattr(loading, "monotonic", lambda: sum(clock))
    monkeypatch.setattr(loading, "sleep", clock.append)
    lines: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        if answer == "refuse":
            listener.close()
        elif answer == "500":
            threading.Thread(target=serve, args=(listener, b"500 no"), daemon=True).start()
        began = monotonic()
        with progress.shown(progress.Reporter(lines.append)), pytest.raises(EngineError, match=address) as error:
            loading.wait_until_healthy(Server(address), 2.5)
        assert monotonic() - began < 5
    assert why in str(error.value)
    assert 2 <= len(lines) <= 5
    assert all(address in line and why in line and "of 2.5 s (engine.start_s)" in line for line in lines)


def serve(listener: socket.socket, status: bytes) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 %b\r\nContent-Length: 7\r\nConnection: close\r\n\r\nloading" % status)


@pytest.mark.parametrize(("status", "says"), [(b"404 no", "HTTP 404"), (b"200 OK", "something else than JSON")])
def test_another_program_at_the_address_is_named_at_once(status: bytes, says: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener, status), daemon=True).start()
        with pytest.raises(EngineError, match=says):
            loading.wait_until_healthy(Server(f"http://127.0.0.1:{listener.getsockname()[1]}"), 60)


def test_a_completion_longer_than_the_servers_context(make_engine: Make, make_server: Make, sample: Make) -> None:
    with pytest.raises(ConfigError, match=r"a completion of up to 254 .* do not fit in the context of 256 tokens"):
        sample(make_engine(make_server()), sampling=SamplingConfig(max_tokens=254))


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
    lie: str, said: str, ready: tuple[Any, Any], sample: Make
) -> None:
    server, engine = ready
    server.lies = {lie}
    with pytest.raises(EngineError, match=f"the server {server.address} .*{said}"):
        sample(engine)


def test_aborted_completions_are_asked_for_again(started: Make, sample: Make) -> None:
    server, engine = started()
    whole = tokens(sample(engine, MANY))
    server.aborts = 5
    assert tokens(sample(engine, MANY)) == whole
    assert engine.facts["reissued"] == 5


def test_connections_that_break_together_cost_their_requests_and_no_more(
    started: Make, sample: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "SUSPECT_S", 30.0)  # on a busy machine the probe waits behind all that is owed
    server, engine = started()
    whole = tokens(sample(engine, MANY))
    loads, server.drops = server.loads, 7
    assert tokens(sample(engine, MANY)) == whole
    assert (engine.facts["reissued"], server.loads) == (7, loads)  # it never was dead


def test_what_a_killed_server_owed_comes_from_the_other(make_engine: Make, make_server: Make, sample: Make) -> None:
    whole = tokens(sample(make_engine(make_server()), MANY))
    first, second = make_server(), make_server()
    engine = make_engine(first, second)
    engine.publish(engine.policy, 0)
    first.dies_after = first.generated + 3
    assert tokens(sample(engine, MANY)) == whole  # nothing lost, nothing doubled, nothing drawn anew
    assert engine.facts["reissued"] > 0
    assert engine.crew.fleet.states[second.address] is State.HEALTHY
    assert engine.crew.fleet.states[first.address] is not State.HEALTHY


def test_a_server_that_hangs_while_its_health_is_well(make_engine: Make, make_server: Make, sample: Make) -> None:
    first, second = make_server(), make_server()
    engine = make_engine(first, second, request_s=3.0)
    engine.publish(engine.policy, 0)
    first.lies.add("hangs")
    few = SamplingConfig(max_tokens=2, max_live_completions=2)  # nobody waits for others until the deadline
    assert [len(group) for group in sample(engine, MANY, few).values()] == [4] * 6


def test_a_server_that_was_started_anew_gets_the_weights_before_a_request(
    started: Make, moved: Policy, sample: Make
) -> None:
    server, engine = started(moved, 3, patience_s=10.0)
    whole = tokens(sample(engine, MANY))
    server.kill()
    server.start()  # a supervisor did it, with the weights of the beginning
    loads = server.loads
    assert tokens(sample(engine, MANY)) == whole
    assert server.loads == loads + 1
    assert engine.crew.fleet.states[server.address] is State.HEALTHY


def test_it_comes_back_while_nobody_else_is_left(started: Make, sample: Make) -> None:
    server, engine = started(patience_s=10.0)
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


def test_one_that_comes_back_and_does_not_load_stops_the_run(started: Make, moved: Policy, sample: Make) -> None:
    server, engine = started(moved, 1, patience_s=10.0)
    server.kill()
    server.start()
    server.lies.add("reload is skipped")
    with pytest.raises(InvariantError, match="does not have the weights that were published"):
        sample(engine)


def test_without_any_server_the_run_stops_and_says_why(started: Make) -> None:
    server, engine = started(patience_s=0.3)
    server.dies_after = server.generated + 5
    told: list[int] = []
    said = r"no server has been healthy for 0\.3 s \(engine\.patience_s\); .*(Connection(Refused|Reset)Error|RemoteDis)"
    with pytest.raises(EngineError, match=said):
        engine.generate(MANY, SamplingConfig(max_tokens=4), lambda index, group: told.append(len(group)))
    assert set(told) <= {4}  # a group is never told in part


def test_what_fails_again_and_again_is_not_asked_for_ever(started: Make, sample: Make) -> None:
    server, engine = started()
    server.aborts = 1000
    with pytest.raises(EngineError, match="was asked for 10 times and never came"):
        sample(engine, [Request((5,), (1,))])


def test_searches_are_refused(make_engine: Make, make_server: Make) -> None:
    engine = make_engine(make_server())
    with pytest.raises(ConfigError, match="samples completions to their end: searches"):
        engine.generate([Request((5, 6), (1,), pause=bool)], SamplingConfig(max_tokens=4), lambda index, group: None)


def test_a_full_disk_is_one_sentence(
    started: Make, trained: Policy, sample: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, engine = started()
    whole = tokens(sample(engine))

    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("groupwise.models.checkpoint.save_file", full)
        with pytest.raises(CheckpointError, match="cannot be written: No space left on device"):
            engine.publish(trained, 1)
    assert tokens(sample(engine)) == whole
    assert [path.name.startswith(".") for path in Path(engine.folder.path).iterdir()] == [False]
