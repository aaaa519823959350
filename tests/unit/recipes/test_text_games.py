"""Games of TextArena: the player that needs no program of the user's."""

from text_games import bracketed


def test_a_random_player_takes_a_move_that_it_was_shown_last() -> None:
    assert {bracketed("[a]\nYour moves: [b], [c d]\nGo!") for _ in range(50)} == {"[b]", "[c d]"}
    assert bracketed("none") == "[]"
