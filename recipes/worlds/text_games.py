"""Games of TextArena, for one player, or against players that the recipe names.

A turn is a move as the game describes it. What the model reads is what the game says since its last move. Correct is
a reward of 1: won, or solved.
"""

import difflib
import random
import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from pydantic import Field, JsonValue, field_validator, model_validator

from groupwise.config.kinds import Allowed, Choices
from groupwise.errors import VerifierError
from groupwise.tasks.environments.base import Beside, Decided, EnvironmentConfig, Opening, Reply, Turn
from groupwise.tasks.environments.others import Others, needs
from groupwise.types import Problem


def bracketed(seen: str) -> str:
    """Return one of the moves in brackets that a text has shown last."""
    shown = [line for line in seen.splitlines() if "[" in line]
    moves: list[str] = re.findall(r"\[[^\[\]]+\]", shown[-1]) if shown else ["[]"]
    return random.choice(moves)


PLAYERS = Choices(
    "player of TextArena", {"random": "worlds/text_games.py:bracketed"},
    allowed=Allowed(callable, "a function of a text that returns a move"),
)  # fmt: skip


class TextArenaConfig(EnvironmentConfig):
    """Settings of a game of TextArena."""

    game: str
    """Its id in TextArena, for example `GuessTheNumber-v0`."""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of the game, as TextArena documents them."""
    num_players: int = Field(1, ge=1)
    """Players of the game; the model is the first."""
    opponent: Beside | None = None
    """Plays the others: `random` (one of the moves in brackets that it was shown last; where that makes it lose by a
    move that is not allowed, nothing is won), or `file.py:function`."""
    max_turn_tokens: int = Field(256, ge=1)
    """Most tokens of one turn, its stop token included."""
    max_reply_tokens: int = Field(512, ge=1)
    """Most tokens of one reply, its template included."""

    @field_validator("game")
    @classmethod
    def _is_known(cls, game: str) -> str:
        needs("textarena", "textarena")
        from textarena.envs.registration import ENV_REGISTRY

        if game not in ENV_REGISTRY:
            nearest = difflib.get_close_matches(game, ENV_REGISTRY, n=3, cutoff=0.3)
            raise ValueError(f"TextArena has no game {game!r}; near are {', '.join(nearest)}")
        return game

    @model_validator(mode="after")
    def _has_players(self) -> "TextArenaConfig":
        if (self.num_players > 1) != bool(self.opponent):
            raise ValueError(
                f"num_players = {self.num_players}, opponent = {self.opponent}: allowed are both, or neither"
            )
        return self


class TextArena(Others):
    """One game."""

    Config = TextArenaConfig
    config: TextArenaConfig

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        assert isinstance(config, TextArenaConfig)
        return (Problem(f"{config.game}/{index}", "", "") for index in count())

    def start(self, problem: Problem, seed: int) -> Opening:
        import textarena

        self.begins(problem, seed)
        try:
            self._game = textarena.make(self.config.game, **self.config.settings)
            self._game.reset(num_players=self.config.num_players, seed=self._seed % 2**31)
        except LookupError as error:
            if data := re.search(r"nltk\.download\('(\w+)'\)", str(error)):
                raise VerifierError(f"it needs data that is not here: python -m nltk.downloader {data[1]}") from error
            raise
        self._bare = self._game
        while isinstance(self._bare, textarena.Wrapper):
            self._bare = self._bare.env
        self._seen = [""] * self.config.num_players
        self._others_move()
        return Opening.of(self._news())

    def _news(self) -> str:
        """Return what the game says to the player whose turn it is, since its last one."""
        player, said = self._bare.get_observation()
        if not isinstance(said, str):
            roles = self._bare.state.role_mapping
            lines = [text if by < 0 else f"[{roles.get(by, by)}] {text}" for by, text, _ in said if by != player]
            said = "\n".join(lines).strip()
        self._seen[player] += said + "\n"
        return said

    def _others_move(self) -> None:
        """Let the others move until it is the model's turn, or all is over."""
        while not self._bare.state.done and (player := self._bare.state.current_player_id):
            self._news()
            move: Callable[[str], str] = PLAYERS.find(str(self.config.opponent))
            self._game.step(move(self._seen[player]))

    def step(self, turn: Turn) -> Reply:
        self.goes_on()
        self._game.step(turn.text.strip())
        self._others_move()
        if not self._bare.state.done:
            return Reply.of(self._news())
        rewards, told = self._game.close()
        if self.config.opponent == "random" and any(told[other].get("invalid_move") for other in told if other):
            raise VerifierError(
                f"the opponent random lost by a move that is not allowed ({told[0].get('reason')}): the game does not "
                "list its moves as it reads them; allowed is opponent = 'file.py:function'"
            )
        reward: Any = (rewards or {}).get(0)
        outcome: Decided = "correct" if (reward or 0) >= 1 else "wrong"
        return Reply(reward=reward, done=True, outcome=outcome, evidence=str(told.get(0, {}).get("reason", "")))
