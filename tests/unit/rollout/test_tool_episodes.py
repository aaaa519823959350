"""Episodes with tools: calls in the model's format, results appended as the chat template writes them, and endings."""

import json
from collections.abc import Callable, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ModelError
from groupwise.models.policy import Policy
from groupwise.models.prompts import rendered
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.dialogue import Dialogue
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.scripted import ScriptedEngine
from groupwise.tasks import Template, make_task
from groupwise.tasks.environments.base import EnvironmentConfig
from groupwise.trainers.sft import PairsData, encode, read_examples
from groupwise.types import Completion, FinishReason, Outcome, Problem, ScoredGroup
from groupwise.verifiers import make_verifier

# the form of Qwen 2.5: results are one turn of the user
QWEN = """
{%- for m in messages %}{% if loop.first %}[system]
{% if tools %}# Tools{% for t in tools %}
{{ t.function.name }}{% endfor %}{% endif %}<|end|>
{% endif %}
{%- if m.role == "tool" %}
{%- if loop.index0 == 0 or messages[loop.index0 - 1].role != "tool" %}{{ '[user]' }}{% endif %}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != "tool" %}{{ '<|end|>\\n' }}{% endif %}
{%- else %}{{ '[' + m.role + ']' }}{% if m.content %}{{ '\\n' + m.content }}{% endif %}
{%- for c in m.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' }}
{{- c.function.arguments | tojson + '}\\n</tool_call>' }}
{%- endfor %}{{ '<|end|>\\n' }}{% endif %}
{%- endfor %}{% if add_generation_prompt %}{{ '[assistant]\\n' }}{% endif %}"""

OWN = '''
def shout(text: str, times: int = 1) -> str:
    """Say it louder.

    Args:
        text: what is said
        times: how often
    """
    if times < 0:
        raise ValueError("less than never")
    return " ".join([text.upper()] * times)

async def broken() -> str:
    """Fail."""
    raise ConnectionError("no network")
'''


class Player(ScriptedEngine):
    """Says one turn after another, one character at a time."""

    turns: Sequence[str]

    def _completions(self, request: Request, sampling: SamplingConfig) -> list[Sampled]:
        begin = len(request.token_ids) - request.begun
        number = self.policy.tokenizer.decode(list(request.token_ids[begin:])).count("[assistant]")
        turn = self.turns[min(number, len(self.turns) - 1)]
        ids = [*(self.policy.tokenizer.get_vocab()[c] for c in turn.rstrip("~")), *([] if turn[-1:] == "~" else [1])]
        return self._sampled(request, [ids[: request.room(sampling)]], sampling.temperature)


@pytest.fixture
def play(policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScoredGroup]:
    """Play one problem with tools by a script of turns."""
    monkeypatch.setattr(policy.tokenizer, "chat_template", QWEN)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "rows.jsonl").write_text('{"question": "1 + 2?", "answer": "3"}\n')

    def run(*turns: str, template: str = QWEN, max_tokens: int = 800, **changes: Any) -> ScoredGroup:
        monkeypatch.setattr(policy.tokenizer, "chat_template", template)
        settings = {"kind": "tools", "tools": ["calculator", f"{tmp_path}/own.py:shout", f"{tmp_path}/own.py:broken"]}
        problems = {"kind": "jsonl", "path": f"{tmp_path}/rows.jsonl", "dev_fraction": 0}
        environment = {**settings, "num_workers": 1, **changes}
        task = make_task({"kind": "episodes", "environment": environment, "problems": problems})
        engine = Player.of({}, policy)
        engine.turns = turns
        with make_verifier("episode") as verifier:
            actors = Actors(policy, engine, Template(chat=True), verifier)
            sampling, draws = SamplingConfig(max_tokens=max_tokens), Draws(0, Purpose.TRAIN)
            return sample_and_score(actors, task.problems("train"), 1, sampling, draws)[0]

    return run


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


ADD, SHOUT = call("calculator", '{"expression": "1+2"}'), call("shout", '{"text": "ha", "times": 2}')


def texts(policy: Policy, group: ScoredGroup) -> tuple[Completion, str, list[str]]:
    completion = group.group.completions[0]
    own = policy.tokenizer.decode(completion.token_ids[completion.sampled].tolist())
    return completion, own, [policy.tokenizer.decode(list(each)) for each in completion.insertions]


def test_two_calls_side_by_side_are_answered_in_their_order_and_the_last_turn_is_judged(
    policy: Policy, play: Any
) -> None:
    turns = f"I see \\boxed{{4}}\n{SHOUT}\n{ADD}", ADD, "\\boxed{3}"
    group = play(*turns)
    completion, own, put_in = texts(policy, group)
    assert own == "".join(f"{turn}<|end|>" for turn in turns)
    wrapped = "\n[user]\n<tool_response>\n{}\n</tool_response><|end|>\n[assistant]\n"
    assert put_in == [wrapped.format("HA HA\n</tool_response>\n<tool_response>\n3"), wrapped.format("3")]
    assert completion.finish_reason is FinishReason.DONE
    assert [turn.reward for turn in completion.turns] == [None, None, 1.0]
    assert completion.turns[0].evidence == "shout: ok, calculator: ok"
    assert (group.verdicts[0].outcome, group.rewards) == (Outcome.CORRECT, (1.0,))
    assert "# Toolscalculatorshoutbroken" in group.group.prompt.text
    # the whole is what the template writes of the conversation
    said = [{"role": "assistant", "content": turns[0]}]
    results = [{"role": "tool", "content": text} for text in ("HA HA", "3")]
    messages = [{"role": "user", "content": "1 + 2?"}, *said, *results]
    whole = rendered(policy.tokenizer, messages, Template(chat=True), generation=True).text
    assert whole.endswith(f"{turns[0]}<|end|>{put_in[0]}")


@pytest.mark.parametrize(
    ("turns", "settings", "reason", "reward", "answered"),
    [
        ((ADD, "\\boxed{4}"), {}, FinishReason.DONE, 0.0, ["3"]),
        (("\\boxed{3}",), {}, FinishReason.DONE, 1.0, []),
        ((ADD.replace("}}", "}") + SHOUT, "\\boxed{3}"), {}, FinishReason.DONE, 1.0,
         ["error: bad_json: no JSON", "HA HA"]),
        ((call("shout", '{"text": "a", "times": -1}'), "\\boxed{3}"), {}, FinishReason.DONE, 1.0,
         ["error: ValueError: less than never"]),
        ((call("shout", '{"text": "a", "times": "2"}'), "3"), {"max_faults": 0}, FinishReason.FAULT_LIMIT, 0.0, []),
        ((call("none", "{}"),), {"max_faults": 1}, FinishReason.FAULT_LIMIT, 0.0, ["there is no tool 'none'"]),
        ((ADD,), {"max_turns": 2}, FinishReason.TURN_LIMIT, 0.0, ["3"]),
        ((ADD, ADD[:50] + "~"), {}, FinishReason.LENGTH, 0.0, ["3"]),
        ((ADD + "\n<tool_response>\n3\n</tool_response>",), {}, FinishReason.MALFORMED_CALL, 0.0, []),
        (("<think>" + ADD + "</think>\\boxed{3}",), {}, FinishReason.DONE, 1.0, []),
        (("<think>" + ADD,), {}, FinishReason.DONE, 0.0, []),
    ],
)  # fmt: skip
def test_every_ending(
    policy: Policy, play: Any, turns: Any, settings: Any, reason: str, reward: float, answered: list[str]
) -> None:
    group = play(*turns, **settings)
    completion, _, put_in = texts(policy, group)
    assert (completion.finish_reason, group.rewards) == (reason, (reward,))
    assert len(put_in) == min(len(answered), 1)
    assert all(text in put_in[0] for text in answered)


def test_what_a_tool_breaks_is_no_answer(play: Any) -> None:
    with pytest.raises(Exception, match="ConnectionError: no network"):
        play(call("broken", "{}"))


def test_many_and_long_results_are_cut(policy: Policy, play: Any) -> None:
    long = call("shout", '{"text": "abcdefghij", "times": 90}')
    _, _, [put_in, *_] = texts(policy, play(SHOUT + long, "\\boxed{3}", max_reply_tokens=256))
    assert len(policy.tokenizer(put_in, add_special_tokens=False)["input_ids"]) == 256
    assert "HA HA\n</tool_response>" in put_in
    assert "ABCDEFGHIJ [...]" in put_in.replace("\n", " ") or " [...]\n</tool_response><|end|>" in put_in


def test_a_format_or_a_template_that_is_not_read_is_named(play: Any, policy: Policy) -> None:
    with pytest.raises(ModelError, match=r"writes calls as .*probe_tool.* which is not read: allowed as .*'hermes'"):
        play("3", template=QWEN.replace("<tool_call>", "[CALL]"))
    with pytest.raises(ModelError, match="leaves out what assistant says, 'probe_tool'"):
        play("3", template=QWEN.replace("m.tool_calls or []", "[]"))
    changes = QWEN.replace("'\\n<tool_response>", "loop.index0 | string + '\\n<tool_response>")
    with pytest.raises(ModelError, match="behind another"):
        play("3", template=changes)
    with pytest.raises(ModelError, match="leaves the thinking of a turn out"):
        play("3", template=QWEN.replace("m.content }}{% endif %}", "m.content.split('</think>')[-1] }}{% endif %}"))
    thinks = "{{ '[' + m.role + ']' }}{% if loop.last and m.tool_calls %}<think></think>{% endif %}"  # as Qwen 3 does
    assert play("\\boxed{3}", template=QWEN.replace("{{ '[' + m.role + ']' }}", thinks)).rewards == (1.0,)
    with pytest.raises(ModelError, match=r'shows no tools; task.environment.calls = "hermes" writes them'):
        play("3", template=QWEN.replace("tools", "nothing"))
    assert Dialogue(policy, Template(), EnvironmentConfig(kind="tools")).turn("x").attempts == ()


@pytest.mark.parametrize("system", [(), ({"role": "system", "content": "Be short."},)])
def test_a_template_without_tools_gets_them_as_text(
    policy: Policy, monkeypatch: Any, tmp_path: Path, system: Any
) -> None:
    plain = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|end|>{% endfor %}"
    plain += "{% if add_generation_prompt %}[assistant]{% endif %}"
    monkeypatch.setattr(policy.tokenizer, "chat_template", plain)
    dialogue = Dialogue(policy, Template(chat=True), EnvironmentConfig(kind="tools", calls="hermes"))
    tools, said = [{"type": "function", "function": {"name": "f"}}], ({"role": "user", "content": "1 + 2?"},)
    text = dialogue.prompt(Problem("", "", ""), (*system, *said), tools).text
    assert text.startswith("[system]" + "Be short.\n\n" * len(system) + "# Tools\n\nYou may call")
    assert '<tools>\n{"type": "function", "function": {"name": "f"}}\n</tools>' in text
    assert text.endswith("</tool_call><|end|>[user]1 + 2?<|end|>[assistant]")
    results = [{"role": "tool", "name": "f", "content": content} for content in ("3", "4")]
    glue = policy.tokenizer.decode(dialogue.glue(Problem("", "", ""), results, tools))
    one, two = ("<tool_response>\n3\n</tool_response>", "<tool_response>\n4\n</tool_response>")
    assert glue == f"[user]{one}\n{two}<|end|>[assistant]"
    assert dialogue.turn(call("f", "{}"), tools).calls
    called = {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {}}]}
    row = {"messages": [*system, *said, called, *results, {"role": "assistant", "content": "7"}], "tools": tools}
    data = PairsData(path=str(path := tmp_path / "row.jsonl"))
    path.write_text(json.dumps(row | {"calls": "hermes"}))
    [example] = encode(policy, read_examples(data, str(path)), "completion")  # learnt as it will be sampled
    assert policy.tokenizer.decode(example.prompt) == text
    learnt = call("f", "{}") + "<|end|>", "7<|end|>"
    assert policy.tokenizer.decode(example.completion) == glue.join(learnt)
    assert policy.tokenizer.decode([*compress(example.completion, example.mask)]) == "".join(learnt)
    path.write_text(json.dumps(row))
    with pytest.raises(ModelError, match="does not read the argument tools"):
        encode(policy, read_examples(data, str(path)), "completion")
