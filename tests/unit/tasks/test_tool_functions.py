"""Functions as tools: their schemas, their settings, classes for TRL."""

import asyncio
import json
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Literal, Tuple  # noqa: UP035  # as many still write them

import pytest
from pydantic import ValidationError

from groupwise.errors import ConfigError, VerifierError
from groupwise.rollout.tools.calculator import calculator
from groupwise.rollout.tools.python import python
from groupwise.tasks import make_task
from groupwise.tasks.environments.base import Attempt, Turn
from groupwise.tasks.environments.openenv import OpenEnv, OpenEnvConfig
from groupwise.tasks.environments.others import Trl, TrlConfig
from groupwise.tasks.environments.tools import MOST_CALLS, Tools, ToolsConfig, fault_of, schema_of
from groupwise.types import Problem
from groupwise.verifiers import verifier_config


def described(a: int, b: list[str] | None = None) -> dict[str, int]:
    """Do it.

    And more of it.

    Args:
        a: first
            goes on
        b: second: with a colon

    Returns:
        nothing
    """
    return {}


def of(hint: Any, doc: str = "Do it.\n\nArgs:\n    a: it\n\nNote:\n    more") -> Callable[..., Any]:
    def tool(a): ...  # type: ignore[no-untyped-def]

    tool.__annotations__, tool.__doc__ = {"a": hint, "return": None}, doc
    return tool


TYPES = (
    Tuple[int, str], List, Dict, tuple, Enum("Way", {"UP": "up"}), Literal["x", None], list | tuple,  # noqa: UP006
    None, list[str], Any, str | int, dict[str, float] | None, Literal["x", "y"], int | list[int],
)  # fmt: skip
CHOICES = 'Do it.\n\nArgs:\n    a: it (choices: ["tea", "coffee"])'


@pytest.mark.parametrize("function", [calculator, python, described, *map(of, TYPES), of(str, CHOICES)])
def test_schemas_are_those_of_transformers(function: Callable[..., Any]) -> None:
    from transformers.utils.chat_template_utils import get_json_schema

    assert schema_of(function) == get_json_schema(function)


def test_what_a_call_gives_is_compared_with_them() -> None:
    pair = schema_of(of(TYPES[0]))["function"]["parameters"]
    assert not fault_of({"a": [1, "x"]}, pair, "it")
    assert fault_of({"a": ["x", "x"]}, pair, "it") == 'it.a[0] = "x": integer is needed'


def untyped(a) -> None:  # type: ignore[no-untyped-def]
    """Do it."""


def positions(*a: int) -> None:
    """Do it."""


@pytest.mark.parametrize(
    ("function", "fault"),
    [(untyped, "has no type hint"), (of(int, ""), "has no docstring"), (of(int, "Do it."), "has no line below `Args:`"),
     (positions, "cannot be given by its name"), (of(Path), "has the type <class 'pathlib.*allowed are int"),
     (of(int, CHOICES.replace('"', "")), r"choices: .* of the tool tool is not read: Expecting value"),
     (of("Nowhere"), "a type hint, .* of the tool tool is not read: name 'Nowhere'")],
)  # fmt: skip
def test_a_function_that_cannot_be_shown_is_named(function: Callable[..., Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        schema_of(function)


def test_settings_name_what_is_no_tool(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"there is no tool 'calculater'; did you mean 'calculator'"):
        ToolsConfig(kind="tools", tools=("calculater",))
    (tmp_path / "own.py").write_text("from functools import partial\ntool = partial(print)\n")
    with pytest.raises(ValidationError, match="tool is no tool: allowed is a function with type hints"):
        ToolsConfig(kind="tools", tools=(f"{tmp_path / 'own.py'}:tool",))
    with pytest.raises(ValidationError, match="tools has 'calculator' twice"):
        ToolsConfig(kind="tools", tools=("calculator", "calculator"))


def good(name: str, **arguments: Any) -> Attempt:
    return Attempt("ok", 0, 1, name, arguments)


def test_every_call_of_a_turn_is_answered_up_to_a_number() -> None:
    environment = Tools(ToolsConfig(kind="tools", tools=("calculator", "python")))
    opening = environment.start(Problem("p", "1 + 2?", "3"), 0)
    assert [tool["function"]["name"] for tool in opening.tools] == ["calculator", "python"]
    attempts = [good("python", code="print(6 * 7)"), good("python", code="1 / 0"), good("calculator", expression="7/2")]
    attempts += [good("calculator", expression="1 +")] * 7
    reply = asyncio.run(environment.step(Turn("", tuple(attempts))))
    texts = [message["content"] for message in reply.messages]
    assert texts[:3] == ["42", "ZeroDivisionError: division by zero", "3.5"]
    assert texts[3] == "error: ExpressionError: a number or a bracket is missing, or one too many"
    assert texts[MOST_CALLS:] == ["error: 2 more calls were not run; at most 8 are allowed"]
    assert (reply.reward, reply.done) == (None, False)


def test_what_a_program_says_may_hang_on_chance_unless_the_recipe_knows_better() -> None:
    given = [
        {"tools": ("calculator",)},
        {"tools": ("calculator", "python")},
        {"tools": ("python",), "repeatable": True},
    ]
    assert [ToolsConfig(kind="tools", **each).repeatable for each in given] == [True, False, True]  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="valid tuple"):
        ToolsConfig(kind="tools", tools=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ("[{'type': 'text', 'text': 'a cat'}, {'type': 'image', 'image': object()}]", "a cat\n[image]"),
        ("[{'type': 'dog'}]", "[{'type': 'dog'}]"), ("[]", "[]"), ("None", "None"),
        ("{'<a at 0x1>': 1}", "{'<a at 0x1>': 1}"),
        ("'<function f at 0x7f3a>'", "<function f at 0x7f3a>"), ("exit('no')", "error: SystemExit: no"),
        ("object()", "tool look returned object, which is no text"), ("b'GIF89a'", "tool look returned bytes"),
        ("type('Image', (), {})()", "tool look returned Image"),
    ],
)  # fmt: skip
def test_a_result_that_is_no_text_is_named(result: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(f'def look():\n    """Look."""\n    return {result}\n')
    environment = Tools(ToolsConfig(kind="tools", tools=(f"{tmp_path / 'own.py'}:look",)))
    environment.start(Problem("p", "?", "3"), 0)
    if shown.startswith("tool"):
        with pytest.raises(VerifierError, match=shown):
            asyncio.run(environment.step(Turn("", (good("look"),))))
    else:
        assert asyncio.run(environment.step(Turn("", (good("look"),)))).messages[0]["content"] == shown


TRL = '''
import asyncio, random

class Guess:
    """As in TRL's documentation: one instance may be reset many times."""

    def reset(self, prompt, highest, **row):
        self.secret, self.won, self.seen = random.randint(1, highest), False, list(row)
        return f" A number from 1 to {highest}."

    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: what you guess
        """
        asyncio.run(asyncio.sleep(0))  # where TRL calls it no loop runs
        self.won = self.won or number == self.secret
        return "equal" if self.won else "higher" if number < self.secret else "lower"

    async def give_up(self) -> str:
        """Give up."""
        return f"it was {self.secret}, not {random.random()}"

    def _hidden(self): ...
'''
REWARDED = TRL + "\n    def get_reward(self):\n        return float(self.won)\n"


def started(tmp_path: Path, source: str, problem: Problem, seed: int = 0) -> tuple[Trl, Any]:
    (file := tmp_path / f"own{abs(hash(source))}.py").write_text(source)
    environment = Trl(TrlConfig(kind="trl", factory=f"{file}:Guess"))
    return environment, asyncio.run(environment.start(problem, seed))


ROW = Problem("row", "Guess!", "", data={"highest": 7, "extra": 1})


def test_a_class_for_trl_plays_unchanged(tmp_path: Path) -> None:
    environment, opening = started(tmp_path, REWARDED, ROW)
    assert opening.messages == ({"role": "user", "content": "Guess! A number from 1 to 7."},)
    assert [tool["function"]["name"] for tool in opening.tools] == ["give_up", "guess"]
    guesses = tuple(good("guess", number=number) for number in range(1, 8))
    reply = asyncio.run(environment.step(Turn("", guesses)))
    answers = [message["content"] for message in reply.messages]
    secret = answers.index("equal") + 1
    assert answers == ["higher"] * (secret - 1) + ["equal"] * (8 - secret)
    reply = asyncio.run(environment.step(Turn("I have it.")))
    assert (reply.reward, reply.done, reply.messages) == (1.0, True, ())
    assert asyncio.run(environment.ended("length")).reward == 1.0
    reply = asyncio.run(environment.step(Turn("", (Attempt("forged", 0, 1),))))
    assert (reply.reward, reply.outcome, reply.ending) == (1.0, "wrong", "malformed_call")


def test_its_random_numbers_are_those_of_the_seed_and_its_reward_may_be_an_attribute(tmp_path: Path) -> None:
    turns = [Turn("", (good("give_up"),)), Turn("", (Attempt("bad_json", 0, 1),))]
    seen = set()
    for seed in (0, 0, 1):
        environment, _ = started(tmp_path, TRL, ROW, seed)
        seen.add(asyncio.run(environment.step(turns[0])).messages[0]["content"])
    assert len(seen) == 2
    assert asyncio.run(environment.step(turns[1])).messages[0]["name"] == "unknown"
    ended = asyncio.run(environment.step(Turn("end")))
    assert ended.reward is None  # none was given, which is not a zero
    assert ended.evidence == "neither get_reward() nor the attribute reward of Guess says a number"
    environment, _ = started(tmp_path, TRL.replace("self.won, ", "self.reward, self.won, ", 1).replace(
        "= random.randint(1, highest), ", "= random.randint(1, highest), 0.5, ", 1), ROW)  # fmt: skip
    assert asyncio.run(environment.step(Turn("end"))).reward == 0.5


def test_a_function_may_make_one_that_has_its_own_prompts(tmp_path: Path) -> None:
    made = "class Own:\n    async def reset(self):\n        return 'Go.'\n    def get_reward(self):\n        return 2\n"
    environment, opening = started(tmp_path, f"{made}\ndef Guess():\n    return Own()\n", Problem("trl/0", "", ""))
    assert (opening.messages, opening.tools) == (({"role": "user", "content": "Go."},), ())
    assert asyncio.run(environment.step(Turn("x"))).reward == 2


def test_a_class_without_reset_is_no_environment(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="allowed is a class with a method `reset`"):
        started(tmp_path, "class Guess: ...", ROW)


KEPT = '''
SEEN = []
class Guess:
    def reset(self, secret, **row):
        SEEN.append((secret, row))
        self.secret, self.won = secret, False
        return " It is below 100."

    async def stop(self, reasons: list[str], number: int, final: bool = True) -> str:
        """Stop.

        Args:
            reasons: why
            number: how often
            final: for ever
        """
        return ""

    def _hidden(self): ...

    def get_reward(self):
        return float(self.won)
'''


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
def test_trl_gives_the_class_the_same_rows_and_shows_the_same_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    import pyarrow
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from transformers.utils.chat_template_utils import get_json_schema

    from groupwise.config.places import Place
    from groupwise.models.config import ModelConfig
    from groupwise.models.loading import read_tokenizer
    from groupwise.models.located import locate

    row: dict[str, Any] = {"prompt": [{"role": "user", "content": "Guess."}], "secret": 7}
    messages = tuple(row["prompt"])
    environment, opening = started(tmp_path, KEPT, Problem("row", "Guess.", "", data=row, messages=messages))
    seen = Place.of(environment.config.factory.replace(":Guess", ":SEEN")).load()  # type: ignore[union-attr]
    ours = list(seen)

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    tokenizer = read_tokenizer(locate(ModelConfig().path).tokenizer)
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates/qwen3.jinja").read_text()
    sizes = ("hidden_size", "intermediate_size", "head_dim")
    numbers = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    shape: dict[str, Any] = {**dict.fromkeys(sizes, 8), **dict.fromkeys(numbers, 1)}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), **shape))
    table = datasets.table.InMemoryTable(pyarrow.Table.from_pylist([row, row]))
    arguments = trl.GRPOConfig(
        output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=2, num_generations=2, report_to=[],
        max_completion_length=2, use_cpu=True, save_strategy="no",
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=model, processing_class=tokenizer, args=arguments,
        train_dataset=datasets.Dataset(table, fingerprint="rows"),
        environment_factory=Place.of(environment.config.factory).load(),  # type: ignore[union-attr]
    )  # fmt: skip
    assert [get_json_schema(tool) for tool in trainer._env_tools[None]] == list(opening.tools)
    trainer.train()
    assert seen[len(ours) :] == ours * 2
    assert opening.messages[-1]["content"] == "Guess. It is below 100."


def test_a_turn_for_openenv_is_the_value_that_its_field_takes_and_a_text_has_fields_of_the_observation() -> None:
    pytest.importorskip("websockets")
    session: Any = OpenEnv(OpenEnvConfig(kind="openenv", url="http://x", text="{bord}"))
    session._server = SimpleNamespace(is_mcp=False, sessions=[])
    with pytest.raises(VerifierError, match=r"text = '{bord}': KeyError\('bord'\); allowed are fields: board, hint"):
        session._shown({"observation": {"board": "", "hint": "", "done": False}})
    session._faults, session._rewarded, session._shown = 0, False, lambda answer: str(answer["sent"])
    session._tell = lambda message: {"sent": message["data"], "done": False, "reward": None}
    for schema, value in (({"type": "integer", "enum": [0, 1]}, 1), ({"anyOf": [{"type": "string"}]}, "1")):
        action = {"properties": {"move": schema}}
        session._server = SimpleNamespace(field="move", action=action, is_mcp=False, sessions=[])
        assert session.step(Turn("1")).messages[0]["content"] == str({"move": value})


def test_an_answer_is_judged_as_the_task_of_the_problems_says(tmp_path: Path) -> None:
    rows = [json.dumps({"question": f"{number} + 1?", "answer": str(number + 1)}) for number in range(30)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    judge = {"kind": "number", "decimals": 2}
    problems = {"kind": "jsonl", "path": str(tmp_path / "rows.jsonl"), "verifier": judge}
    task = make_task(
        {"kind": "episodes", "environment": {"kind": "tools", "tools": ["calculator"]}, "problems": problems}
    )
    assert task.problems("train")[0].environment.verifier == verifier_config(judge)  # type: ignore[attr-defined]
