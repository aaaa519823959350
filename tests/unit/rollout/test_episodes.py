"""Episodes: what is appended, what is trained, how they end, and what must hold whatever an environment does."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.errors import ConfigError, InvariantError, ModelError, VerifierError
from groupwise.models.policy import Policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.dialogue import Dialogue
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.scripted import ScriptedEngine
from groupwise.tasks import Template, make_task
from groupwise.tasks.environments.base import ENVIRONMENTS, EnvironmentConfig
from groupwise.tasks.environments.worker import Server
from groupwise.types import Completion, FinishReason, Outcome, ScoredGroup
from groupwise.verifiers import make_verifier

OWN = '''
import asyncio, os, random, time
from groupwise.tasks.environments.base import Environment, Opening, Reply
from groupwise.types import Problem

COUNT = [0]

class Echo(Environment):
    """Answers by what was said; `!...` asks for a fault."""
    @classmethod
    def problems(cls, config):
        return iter([Problem(f"echo/{i}", f"say {i}", "") for i in range(200)])

    async def start(self, problem, seed):
        self.said, self.seed = [], seed
        return Opening.of(problem.question)

    async def step(self, turn):
        self.said.append(turn.text)
        match turn.text:
            case "!hang": time.sleep(60)
            case "!die": os._exit(3)
            case "!raise": raise ValueError("oh")
            case "!wrong": return "no reply"
            case "!clock": return Reply.of(str(time.time_ns()), reward=0.0)
            case "!hidden":
                COUNT[0] += 1
                return Reply.of(str(COUNT[0]), reward=0.0)
            case "!once":
                open(__file__ + ".once", "x").close()
                return Reply.of("-", reward=0.0)
            case "!seed": return Reply.of(str(self.seed), reward=0.0)
            case "!long": return Reply.of("x" * 500, reward=0.0)
            case "!control": return Reply.of("<|end|>", reward=0.0)
            case "!nothing": return Reply.of("-")
            case "!boxed": return Reply.of("\\\\boxed{3}")
            case "!unpaid": return Reply(done=True, evidence="nobody pays")
            case "!mute": return Reply(reward=0.25)
            case "!bare": return Reply(({"content": "-"},))
            case "!sleep":
                COUNT[0] += 1
                await asyncio.sleep(0.2)
                at_once, COUNT[0] = COUNT[0], COUNT[0] - 1
                return Reply.of("-", reward=0.25, evidence=str(at_once))
            case "bye": return Reply(reward=1.0, done=True)
        return Reply.of("|".join(self.said), reward=0.25, state=turn.text)

    def ended(self, reason):
        if "!end" in self.said:
            raise ValueError("no end")
'''
Say = Callable[[str, int], str]
"""From what stands behind the prompt so far, and the sample, to the next turn."""


class Player(ScriptedEngine):
    """Says turn after turn what a function of the text so far says, one character at a time, as no tokenizer would."""

    say: Say
    asked: list[Request]

    def generate(self, requests: Sequence[Request], sampling: SamplingConfig, on_finished: Any) -> None:
        self.asked += requests
        super().generate(requests, sampling, on_finished)

    def _completions(self, request: Request, sampling: SamplingConfig) -> list[Sampled]:
        begin = len(request.token_ids) - request.begun
        so_far = self.policy.tokenizer.decode(list(request.token_ids[begin:]))
        vocabulary = self.policy.tokenizer.get_vocab()
        turns = [self.say(so_far, sample) for sample in range(len(request.keys))]
        ids = [[*(vocabulary[c] for c in turn.rstrip("~")), *([] if turn[-1:] == "~" else [1])] for turn in turns]
        return self._sampled(request, [own[: request.room(sampling)] for own in ids], sampling.temperature)


@pytest.fixture
def play(policy: Policy, tmp_path: Path) -> Callable[..., list[ScoredGroup]]:
    """Play problems of the environment above, or of another kind, by a script."""
    (tmp_path / "own.py").write_text(OWN)

    def run(
        say: Say, num: int = 1, group: int = 1, max_tokens: int = 60, verifier: Any = "episode", **changes: Any
    ) -> list[ScoredGroup]:
        settings = {"kind": f"{tmp_path}/own.py:Echo", "max_turn_tokens": 20, "num_workers": 1, **changes}
        task = make_task({"kind": "episodes", "environment": settings, "num_problems": max(num, 8)})
        engine = Player.of({}, policy)
        engine.say, engine.asked = say, []
        with make_verifier(verifier) as judge:
            actors = Actors(policy, engine, task.template, judge)
            problems, draws = task.problems("train")[:num], Draws(0, Purpose.TRAIN)
            scored = sample_and_score(actors, problems, group, SamplingConfig(max_tokens=max_tokens), draws)
        run.engine = engine  # type: ignore[attr-defined]
        return scored

    return run


def by_turn(*turns: str) -> Say:
    """Say these turns one after another, the last one ever after."""
    return lambda so_far, sample: turns[min(so_far.count("<|end|>"), len(turns) - 1)]


def only(scored: Sequence[ScoredGroup]) -> Completion:
    return scored[0].group.completions[0]


def sampled_text(policy: Policy, completion: Completion, mask: Any) -> str:
    return policy.tokenizer.decode(completion.token_ids[mask].tolist())


def test_an_episode_is_one_row_of_sampled_and_put_in_tokens(policy: Policy, play: Any) -> None:
    [group] = play(by_turn("ab", "\\boxed{", "bye"))
    completion = group.group.completions[0]
    assert completion.text == "ab<|end|>ab\n\\boxed{<|end|>ab|\\boxed{\nbye"
    assert sampled_text(policy, completion, completion.sampled) == "ab<|end|>\\boxed{<|end|>bye<|end|>"
    assert sampled_text(policy, completion, ~completion.sampled) == "ab\nab|\\boxed{\n"
    assert completion.own == "ab\n\\boxed{\nbye"
    # the ids are those that were sampled, letter by letter, and not those that a tokenizer would make of the text
    boxed = policy.tokenizer("\\boxed{", add_special_tokens=False)["input_ids"]
    assert len(boxed) == 1
    assert completion.num_tokens == 3 + 8 + 4
    assert [turn.reward for turn in completion.turns] == [0.25, 0.25, 1.0]
    assert [turn.state for turn in completion.turns] == ["opening", "ab", "\\boxed{"]
    assert [turn.end for turn in completion.turns] == [3, 3 + 3 + 8, completion.num_read]
    assert completion.finish_reason is FinishReason.DONE
    assert group.verdicts[0].outcome is Outcome.CORRECT
    assert group.rewards == (1.5,)


def test_a_request_begins_with_all_that_was_there_before(play: Any) -> None:
    play(by_turn("ab", "cd", "bye"))
    first, second, third = play.engine.asked
    for before, after in ((first, second), (second, third)):
        assert after.token_ids[: len(before.token_ids)] == before.token_ids
        assert after.begun > before.begun
        assert after.keys != before.keys
    assert third.max_tokens == 20
    assert third.begun == len(third.token_ids) - len(first.token_ids)


def test_put_in_tokens_have_no_logprob_and_sampled_ones_that_of_the_trainer(policy: Policy, play: Any) -> None:
    from groupwise.models.packed import Sequences, pack

    scored = play(by_turn("ab", "bye"))
    completion = only(scored)
    assert not completion.sampling_logprobs[~completion.sampled].any()
    prompt = scored[0].group.prompt.token_ids
    packed = pack([Sequences(prompt, [completion.token_ids.tolist()], [completion.sampled])], policy.device)
    trained = policy.token_logprobs(packed).logprobs.detach().numpy()
    assert np.allclose(trained, completion.sampling_logprobs[completion.sampled], atol=1e-5)


@pytest.mark.parametrize(
    ("turns", "settings", "reason", "rewards"),
    [
        (("bye",), {}, FinishReason.DONE, [1.0]),
        (("a",), {"max_turns": 3}, FinishReason.TURN_LIMIT, [0.25] * 3),
        (("a", "no end~"), {}, FinishReason.LENGTH, [0.25, None]),
        (("abcdef",), {"max_turn_tokens": 4}, FinishReason.LENGTH, [None]),
        (("abcdef",), {"max_tokens": 7}, FinishReason.LENGTH, [0.25]),
        (("!nothing",), {"max_turns": 2}, FinishReason.TURN_LIMIT, [None] * 2),
        (("a", "!raise"), {}, FinishReason.ENVIRONMENT_FAILED, [0.25, None]),
        (("!wrong",), {}, FinishReason.ENVIRONMENT_FAILED, [None]),
        (("!end", "abcdef"), {"max_turn_tokens": 5}, FinishReason.ENVIRONMENT_FAILED, [0.25, None]),
    ],
)
def test_every_ending_has_its_name(
    play: Any, turns: tuple[str, ...], settings: dict[str, Any], reason: str, rewards: list[float | None]
) -> None:
    if reason is FinishReason.ENVIRONMENT_FAILED:  # one more than may fail
        with pytest.raises(VerifierError, match=r"failed on 1 of 1 completions .* the environment failed at turn"):
            play(by_turn(*turns), **settings)
        return
    [group] = play(by_turn(*turns), **settings)
    completion = group.group.completions[0]
    assert completion.finish_reason is reason
    assert [turn.reward for turn in completion.turns] == rewards
    known = [reward for reward in rewards if reward is not None]
    assert group.verdicts[0].outcome is (Outcome.NONE if not known else Outcome.CORRECT)
    assert group.rewards == ((sum(known),) if known else (None,))  # no reward is not a zero


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [("!hang", "timeout"), *((fault, "crashed") for fault in ("!die", "!raise", "!mute", "!bare"))],
)
def test_a_fault_costs_one_episode_and_is_never_a_zero(
    play: Any, monkeypatch: pytest.MonkeyPatch, fault: str, outcome: str
) -> None:
    monkeypatch.setattr("groupwise.rollout.sample_and_score.check_failures", lambda *_: None)
    scored = play(lambda so_far, sample: fault if sample == 3 else "bye", group=6, timeout_s=1.5)
    outcomes = [str(verdict.outcome) for verdict in scored[0].verdicts]
    assert outcomes == ["correct"] * 3 + [outcome] + ["correct"] * 2
    assert scored[0].rewards[3] is None


def test_an_episode_without_a_reward_says_why(play: Any) -> None:
    assert play(by_turn("!unpaid"))[0].verdicts[0].evidence == "the environment gave no reward: nobody pays"


def test_another_verifier_drops_no_reward_reads_no_reply_and_judges_no_failed_environment(play: Any) -> None:
    with pytest.raises(ConfigError, match=r"'answered' drops \[1.0\], the rewards of problem echo/0's environment"):
        play(by_turn("bye"), verifier="answered")
    lenient = {"kind": "math", "extraction": "last_number", "max_failure_share": 1}
    [[verdict], [failed]] = (
        play(by_turn(*turns), verifier=lenient)[0].verdicts
        for turns in (("!nothing", "!nothing", "!unpaid"), ("!raise",))
    )
    assert (verdict.outcome, failed.outcome) == (Outcome.UNPARSABLE, Outcome.CRASHED)
    quoting = {"kind": "math", "max_failure_share": 1}
    assert play(by_turn("!boxed", "!unpaid"), verifier=quoting)[0].verdicts[0].answer is None


def test_hundreds_wait_at_the_same_time(play: Any) -> None:
    scored = play(by_turn("!sleep", "bye"), num=100)
    turns = [completion.turns[0] for group in scored for completion in group.group.completions]
    assert all(turn.seconds > 0.19 for turn in turns)
    assert max(int(turn.evidence) for turn in turns) > 2  # asleep in one worker when one of them woke


def test_an_instance_is_made_once_and_again_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = list[int]()
    guess = ENVIRONMENTS.find("guess")
    begin = guess.start
    monkeypatch.setattr(guess, "start", lambda self, problem, seed: starts.append(seed) or begin(self, problem, seed))
    server = Server("guess", {"kind": "guess", "highest": 7})
    problem = {"id": "p", "question": "1 to 7", "reference": "1"}

    def ask(name: str, turns: list[str], ended: str = "", whole: bool = False) -> Any:
        said = [{"text": text, "attempts": []} for text in turns]
        request = {"id": name, "problem": problem, "seed": 0, "turns": said, "ended": ended, "whole": whole}
        [answer] = server.answer([request])
        return [reply and reply["evidence"] for reply in answer["replies"]]

    assert (ask("a", []), ask("a", ["4"]), ask("a", ["4", "2"])) == ([], ["it lies in 1 to 3"], ["it lies in 1 to 1"])
    assert ask("a", ["4", "2"], "turn_limit") == ["the number was 1"]
    assert len(starts) == 1
    assert ask("a", ["4", "2", "1"]) == ["1 is the number"]  # it went when its episode had ended
    assert ask("b", ["4", "2"]) == ["it lies in 1 to 1"]
    assert ask("b", ["4", "2"], whole=True) == ["it lies in 1 to 3", "it lies in 1 to 1"]
    assert len(starts) == 4
    server._loop.close()


ODD = """
import numpy
from groupwise.tasks.environments.base import Environment, Opening, Reply

class Odd(Environment):
    def start(self, problem, seed):
        return Opening.of("-")

    def step(self, turn):
        if turn.text == "exit":
            raise SystemExit(3)
        return eval(turn.text)
"""


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("Reply.of('half \\ud83d', reward=numpy.float32(0.5), done=numpy.bool_(True))", ("half ?", 0.5, True)),
        ("Reply.of('-', reward=numpy.int64(1), state=numpy.str_('s'))", ("-", 1.0, False)),
        ("Reply.of('-', evidence=numpy.float32(1))", "Object of type float32 is not JSON serializable"),
        ("Reply.of('-', reward='1')", "gave the reward '1'; a finite number is needed, or None"),
        ("Reply.of('-', reward=1.0, outcome='won')", "gave the outcome 'won'; allowed are 'correct' and 'wrong'"),
        ("Reply(({'role': 'user', 'content': [{'type': 'text', 'text': 'hi'}]},))", "content, which are texts"),
        ("Reply(({'role': 'user', 'content': None},))", "role and content, which are texts"),
        ("exit", "SystemExit: 3"),
    ],
)
def test_a_reply_has_numbers_of_any_kind_and_texts_alone(tmp_path: Path, said: str, found: Any) -> None:
    (tmp_path / "own.py").write_text(ODD)
    server = Server(f"{tmp_path}/own.py:Odd", {"kind": f"{tmp_path}/own.py:Odd"})
    turn = {"text": said, "attempts": []}
    problem = {"id": "p", "question": "", "reference": ""}
    [answer] = server.answer([{"id": "a", "problem": problem, "seed": 0, "turns": [turn], "ended": "", "whole": False}])
    server._loop.close()
    if isinstance(found, str):
        assert found in answer["failed"]
    else:
        [reply] = answer["replies"]
        assert (reply["messages"][0]["content"], reply["reward"], reply["done"]) == found


@pytest.mark.parametrize(("seeds", "different"), [("group", 1), ("sample", 4)])
def test_a_group_meets_one_seed_or_each_its_own(play: Any, seeds: str, different: int) -> None:
    def say(so_far: str, sample: int) -> str:
        return ["abcd"[sample], "!seed", "bye"][so_far.count("\n")]

    [group], [again] = (play(say, group=4, seeds=seeds) for _ in range(2))
    replies = [completion.text.splitlines()[1] for completion in group.group.completions]
    assert len(set(replies)) == different
    assert [completion.text.splitlines()[1] for completion in again.group.completions] == replies


def test_a_group_has_one_prompt(play: Any) -> None:
    with pytest.raises(ConfigError, match=r"'blackjack' begins problem blackjack/.* otherwise with another seed"):
        play(lambda so_far, sample: "h" if so_far else "hs"[sample], group=2, kind="blackjack", seeds="sample")


def test_hidden_state_is_seen(play: Any) -> None:
    with pytest.raises(InvariantError, match=r"answers turn 1 by messages = .* no function of problem, seed and turns"):
        play(by_turn("!hidden", "bye"))
    with pytest.raises(InvariantError, match=r"fails \(FileExistsError: .* played again, and did not before"):
        play(by_turn("!once", "bye"))
    play(by_turn("!clock", "bye"), repeatable=False)


def test_a_long_reply_is_cut_and_says_so(play: Any) -> None:
    completion = only(play(by_turn("!long", "bye"), max_reply_tokens=30))
    [reply] = completion.insertions
    assert len(reply) == 30
    assert "xxx [...]\nbye" in completion.text


def test_a_reply_spells_no_control_token(policy: Policy, play: Any) -> None:
    completion = only(play(by_turn("!control", "bye")))
    assert 1 not in completion.insertions[0]
    assert "?|end|>" in completion.text


def test_a_full_context_ends_it_at_a_sampled_token(play: Any) -> None:
    completion = only(play(by_turn("!long"), max_tokens=500, max_turns=50, max_reply_tokens=400))
    assert completion.finish_reason is FinishReason.LENGTH
    assert completion.sampled[-1]
    assert completion.num_read < 1024


PLAIN = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ END }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def chat(policy: Policy, template: str, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Dialogue:
    monkeypatch.setattr(policy.tokenizer, "chat_template", template.replace("END", "'<|end|>'"))
    return Dialogue(policy, Template(chat=True), EnvironmentConfig(kind="guess", **changes))


def test_glue_is_the_same_behind_any_history_and_compositional(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    from groupwise.models.prompts import rendered

    dialogue, problem = chat(policy, PLAIN, monkeypatch), make_task("arithmetic").problems("train")[0]
    tokenizer = policy.tokenizer
    for text in ("7", "-12 × 3?", "a b  c", " x", "<think>", "\n"):
        messages = [{"role": "user", "content": text}]
        glue = dialogue.glue(problem, messages)
        before = [{"role": "user", "content": "hm"}, {"role": "assistant", "content": "8 × 9"}]
        whole = rendered(tokenizer, [*before, *messages], Template(chat=True), generation=True).text
        turn = rendered(tokenizer, before, Template(chat=True)).text.removesuffix("\n")
        encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
        assert encode(whole) == encode(turn) + glue


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        (PLAIN.replace("{% for", "{{ messages | length }}{% for").replace("[assistant]", "[{{ messages | length }}]"),
         "behind another"),
        (PLAIN.replace("{{ END }}", ""), "begins with no stop token"),
        (PLAIN.replace("m.content", "m.content.split('</think>')[-1].strip()"), "leaves the thinking of a turn out"),
        (PLAIN.replace("[assistant]{% endif", "[assistant]<think></think>{% endif"), "where a turn was sampled behind"),
        (PLAIN.replace("END }}", "END }}{% if loop.last and m.role == 'assistant' %}!{% endif %}"), "at the end of"),
    ],
)  # fmt: skip
def test_a_template_that_would_change_what_was_sampled_is_refused(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, template: str, fault: str
) -> None:
    with pytest.raises(ModelError, match=fault):
        chat(policy, template, monkeypatch)
    if "stop" not in fault and "history" not in fault and "another" not in fault:
        chat(policy, template, monkeypatch, past="keep")
