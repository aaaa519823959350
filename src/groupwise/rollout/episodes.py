"""Episodes in rounds: whoever ends a turn waits for its environment, and continues in the next round.

round 1: the engine samples the first turns; one that ends by its stop token is played at once, others continue
round 2: when all have ended, every reply is appended as ids, and the engine continues those that are not done
...      until none goes on

So the same completions meet in the same batches, to the last bit, however fast an environment is. An episode is one
completion: what was sampled is trained, what was put in is read.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from groupwise.errors import ConfigError, InvariantError, VerifierError
from groupwise.models.policy import Policy
from groupwise.models.prompts import encode_prompt
from groupwise.randomness import Draws, key, permutation
from groupwise.ranks.group import RANKS
from groupwise.rollout.dialogue import Dialogue
from groupwise.rollout.engine import Engine, OnFinished, Recorded, Request, Sampled
from groupwise.rollout.environments import Crews, Played, Workers
from groupwise.rollout.pieces import Draft, joined, phrase, visible
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks.base import Template
from groupwise.tasks.environments.base import EnvironmentConfig, Turn
from groupwise.types import FinishReason, Problem, TurnRecord
from groupwise.verifiers.extraction import after_thinking

SPOT_CHECKS = 4
"""Episodes of a step that are played again from their beginning."""
COMPARED = ("messages", "reward", "done", "state", "outcome")
"""Parts of a reply that must be the same when an episode is played again."""


@dataclass(frozen=True, slots=True)
class _Scene:
    """All that the episodes of one problem share."""

    index: int
    problem: Problem
    config: EnvironmentConfig
    workers: Workers
    dialogue: Dialogue
    draws: Draws

    def play(self, sample: int, said: Sequence[Turn], ended: str = "", whole: bool = False) -> "Future[Played]":
        own = (sample,) if self.config.seeds == "sample" else ()
        seed = key("environment", self.draws.seed, self.draws.name, self.draws.step, self.problem.id, *own)
        name = f"{self.draws.name}/{self.draws.step}/{self.problem.id}/{sample}"
        return self.workers.play(self.index + sample, name, self.problem, seed, said, ended, whole)


@dataclass(slots=True)
class _Episode(Draft):
    scene: _Scene | None
    recorded: Recorded | None
    said: list[Turn] = field(default_factory=list)
    turns: list[TurnRecord] = field(default_factory=list)
    replies: list[Mapping[str, Any]] = field(default_factory=list)
    limit: FinishReason | None = None
    reason: FinishReason | None = None
    answer: "Future[Played] | None" = None

    def note(self, **more: Any) -> None:
        self.turns[-1] = self.turns[-1]._replace(**more)

    def ask(self, limit: FinishReason | None = None) -> None:
        assert self.scene is not None
        self.limit = limit
        self.answer = self.scene.play(self.sample, self.said, str(limit or ""))

    def again(self) -> "Future[Played]":
        """Play it from its beginning, elsewhere."""
        assert self.scene is not None
        return self.scene.play(self.sample, self.said, str(self.limit or ""), True)

    def whole(self) -> Sampled:
        assert self.reason is not None
        return replace(joined(self.pieces), finish_reason=self.reason, turns=tuple(self.turns))


class Episodes:
    """The episodes of one step: their prompts, their rounds, and the check of a few."""

    def __init__(
        self, crews: Crews, policy: Policy, template: Template, problems: Sequence[Problem], draws: Draws
    ) -> None:
        """Begin them; a problem without an environment is one turn that nobody answers.

        Raises:
            VerifierError: an environment cannot begin.
        """
        self._policy, self._draws, self._context = policy, draws, policy.context_length
        dialogues: dict[str, Dialogue] = {}
        self._scenes: list[_Scene | None] = []
        for index, problem in enumerate(problems):
            if not isinstance(config := problem.environment, EnvironmentConfig):
                self._scenes.append(None)
                continue
            name = config.model_dump_json()
            if name not in dialogues:
                dialogues[name] = Dialogue(policy, template, config)
            self._scenes.append(_Scene(index, problem, config, crews.of(config), dialogues[name], draws))
        begun = [scene.play(0, []) if scene else None for scene in self._scenes]
        self._openings: list[Mapping[str, Any]] = [played.result().opening if played else {} for played in begun]
        for scene, played in zip(self._scenes, begun, strict=True):
            if scene and played and (fault := played.result().failed):
                where = f"the environment {scene.config.kind!r} cannot begin problem {scene.problem.id}"
                raise VerifierError(f"{where}: {fault}")
        self.prompts = [
            scene.dialogue.prompt(problem, opening["messages"], opening["tools"])
            if scene
            else encode_prompt(policy, template, problem)
            for scene, problem, opening in zip(self._scenes, problems, self._openings, strict=True)
        ]
        self._episodes: list[_Episode] = []

    def generate(
        self, engine: Engine, requests: Sequence[Request], sampling: SamplingConfig, on_finished: OnFinished
    ) -> None:
        """Sample all rounds; every rank has as many as the others, for its engine may need their weights."""
        groups = [
            [_Episode(i, s, self._scenes[i], r.recorded[s] if r.recorded else None) for s in range(len(r.keys))]
            for i, r in enumerate(requests)
        ]
        self._episodes = [episode for group in groups for episode in group if episode.scene]
        asked = [(self._shortened(r, group[0], sampling), group) for r, group in zip(requests, groups, strict=True)]

        def tell(request: int) -> None:
            if all(episode.reason for episode in groups[request]):
                on_finished(request, [episode.whole() for episode in groups[request]])

        def arrived(index: int, sampled: Sequence[Sampled]) -> None:
            for episode, one in zip(asked[index][1], sampled, strict=True):
                self._said(episode, one)
            tell(asked[index][1][0].request)

        self._context = getattr(engine, "context_length", self._context)
        with getattr(engine, "keeping", nullcontext)():
            while RANKS.most(len(asked), beside=True):
                engine.generate([request for request, _ in asked], sampling, arrived)
                asked, waiting = [], [episode for episode in self._episodes if episode.reason is None]
                while waiting:
                    for episode in waiting:
                        if self._heard(episode, requests[episode.request], sampling):
                            request = self._next(episode, requests[episode.request], engine)
                            asked.append((self._shortened(request, episode, sampling), [episode]))
                        elif episode.reason:
                            tell(episode.request)
                    going = {id(episode) for _, [episode] in asked}
                    waiting = [e for e in waiting if e.reason is None and id(e) not in going]  # limits ask once more

    def _shortened(self, request: Request, episode: _Episode, sampling: SamplingConfig) -> Request:
        if episode.scene is None:
            return request
        drawn = episode.num_drawn
        context = self._context - len(request.token_ids) if episode.pieces else sampling.max_tokens
        return replace(
            request, max_tokens=min(episode.scene.config.max_turn_tokens, sampling.max_tokens - drawn, context)
        )

    def _next(self, episode: _Episode, request: Request, engine: Engine) -> Request:
        own, own_key = episode.token_ids.tolist(), request.keys[episode.sample]
        knows_positions = bool(getattr(engine, "uses_tools", False))
        ids = (*request.token_ids, *own)
        return Request(ids, (own_key if knows_positions else key("turn", own_key, len(own)),), begun=len(own))

    def _said(self, episode: _Episode, one: Sampled) -> None:
        """Take what the engine sampled, and hand a whole turn to its environment."""
        episode.pieces.append(one)
        if episode.scene is None:
            episode.reason = one.finish_reason
            return
        state = str(episode.replies[-1]["state"]) if episode.replies else "opening"
        episode.turns.append(TurnRecord(len(episode.token_ids), state=state))
        is_whole = one.finish_reason is FinishReason.STOP
        if is_whole:
            text = self._policy.tokenizer.decode(visible(self._policy, one.token_ids.tolist()))
            said = after_thinking(self.prompts[episode.request].prefill + text) or ""
            tools = self._openings[episode.scene.index]["tools"]
            episode.said.append(turn := episode.scene.dialogue.turn(said, tools))
            if tools:
                episode.note(calls=len(turn.calls), faults=len(turn.attempts) - len(turn.calls))
        if not self._recall(episode):
            episode.ask(None if is_whole else FinishReason.LENGTH)  # nothing is made of a turn that was cut

    def _recall(self, episode: _Episode) -> bool:
        """Take the answer from the records of an environment that cannot be asked again; False where they differ."""
        recorded, scene, own, number = episode.recorded, episode.scene, episode.token_ids, len(episode.turns)
        if scene is None or scene.config.repeatable or recorded is None or number > len(recorded.turns):
            return False
        turn = recorded.turns[number - 1]
        if turn.end != len(own) or not np.array_equal(own, recorded.token_ids[: len(own)]):
            return False
        episode.turns[-1] = turn
        if number == len(recorded.turns):
            episode.reason = FinishReason(recorded.finish_reason)
            return True
        end = len(own) + int(np.argmax(recorded.sampled[len(own) :]))
        reply = {"glue": recorded.token_ids[len(own) : end].tolist(), "state": recorded.turns[number].state}
        told = turn._asdict() | {"done": False, "reward": None} | reply
        episode.answer, episode.limit = Future(), None
        episode.answer.set_result(Played(self._openings[scene.index], (told,)))
        return True

    def _heard(self, episode: _Episode, request: Request, sampling: SamplingConfig) -> bool:
        """Take what the environment answered; returns True where another turn follows."""
        scene, played = episode.scene, episode.answer
        assert scene is not None and played is not None
        found = played.result()
        if found.failed:
            late = "timeout: " if found.timed_out else ""
            episode.note(evidence=late + found.failed, seconds=found.seconds)
            episode.reason = FinishReason.ENVIRONMENT_FAILED
            return False
        if found.opening != self._openings[scene.index] and scene.config.seeds == "sample":
            raise ConfigError(
                f"task.environment.seeds = 'sample': the environment {scene.config.kind!r} begins problem "
                f"{scene.problem.id} otherwise with another seed, and a group has one prompt; allowed is 'group'"
            )
        if scene.config.repeatable and found.opening != self._openings[scene.index]:
            raise InvariantError(_another(scene, "begins", found.opening, self._openings[scene.index]))
        reply, last = found.replies[0], episode.turns[-1]
        if reply is not None:
            episode.replies.append(reply)
            given = [reward for reward in (last.reward, reply["reward"]) if reward is not None]
            reward = sum(given) if given else None
            episode.note(reward=reward, outcome=reply["outcome"] or last.outcome, evidence=reply["evidence"])
        episode.note(seconds=last.seconds + found.seconds)
        if episode.limit or (reply is not None and reply["done"]):
            episode.reason = episode.limit or FinishReason((reply and reply["ending"]) or "done")
            return False
        assert reply is not None
        tools = self._openings[scene.index]["tools"]
        glue = reply.get("glue") or scene.dialogue.glue(scene.problem, reply["messages"], tools)
        room = self._context - len(request.token_ids) - len(episode.token_ids) - len(glue)
        if len(episode.turns) < scene.config.max_turns and room > 0 and episode.num_drawn < sampling.max_tokens:
            episode.pieces.append(phrase(glue))
            return True
        at_limit = len(episode.turns) == scene.config.max_turns
        episode.ask(FinishReason.TURN_LIMIT if at_limit else FinishReason.LENGTH)
        return False

    def check(self) -> None:
        """Play a few episodes again, each in a new instance of another process.

        Raises:
            InvariantError: a reply is another, or fails; names the environment, the problem and the turn.
        """
        known = [e for e in self._episodes if e.scene and e.scene.config.repeatable and e.replies]
        known = [episode for episode in known if episode.reason is not FinishReason.ENVIRONMENT_FAILED]
        order = permutation(len(known), "episodes again", self._draws.seed, self._draws.step)[:SPOT_CHECKS]
        waiting = [(known[index], known[index].again()) for index in order]
        for episode, answer in waiting:
            assert episode.scene is not None
            again = answer.result()
            if again.failed and not again.timed_out:  # what fails by chance does not fail twice
                again = episode.again().result()
            if again.failed and not again.timed_out:
                raise InvariantError(_not_repeated(episode.scene, f"fails ({again.failed})", "did not before"))
            replies = [reply for reply in again.replies if reply is not None]
            for number, (before, now) in enumerate(zip(episode.replies, replies, strict=not again.failed), 1):
                if any(before[name] != now[name] for name in COMPARED):
                    raise InvariantError(_another(episode.scene, f"answers turn {number} by", now, before))


def _another(scene: _Scene, what: str, now: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    differing = next(name for name in now if now[name] != before[name])
    is_now, was = (f"{each[differing]!r:.120}" for each in (now, before))
    return _not_repeated(scene, f"{what} {differing} = {is_now}", f"by {was} before")


def _not_repeated(scene: _Scene, now: str, before: str) -> str:
    return (
        f"the environment {scene.config.kind!r} {now} in problem {scene.problem.id}, played again, and {before}: it is "
        "no function of problem, seed and turns (where it may not be one: task.environment.repeatable = false)"
    )
