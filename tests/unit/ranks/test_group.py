"""What ranks say to each other without a meeting, and what keeps them from one."""

import socket

import pytest

from groupwise.errors import ConfigError, RankError
from groupwise.ranks import RanksConfig
from groupwise.ranks.group import Ranks, hosts_started


def test_words_and_counts_of_one_process() -> None:
    ranks = Ranks()
    assert (ranks.posted("a"), ranks.count("n")) == ("", 0)
    ranks.post("a", "first")
    ranks.post("a", "second")
    assert (ranks.posted("a"), ranks.posted("b")) == ("second", "")
    assert [ranks.count("n", 2), ranks.count("n", 3), ranks.count("n")] == [2, 5, 5]


def test_a_port_in_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for name, value in {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
            monkeypatch.setenv(name, str(value))
        with (
            pytest.raises(RankError, match=rf"port {port}, at which the ranks meet, is in use: choose another"),
            Ranks().joined(RanksConfig(deadline_s=5)),
        ):
            pass


def test_one_process_has_nothing_to_offload() -> None:
    ranks = Ranks()
    with (
        pytest.raises(ConfigError, match=r"ranks\.offload = true is for several ranks, and this is one process"),
        ranks.joined(RanksConfig(offload=True)),
    ):
        pass
    assert not ranks.offloads


@pytest.mark.parametrize(("ranks", "here", "hosts"), [(8, 4, 2), (4, 4, 1), (6, None, 1)])
def test_on_how_many_machines(ranks: int, here: int | None, hosts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if here:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(here))
    assert hosts_started() == hosts
