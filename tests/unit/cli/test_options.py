"""Options of commands that are read from the source of what they set."""

import pytest
from typer.main import get_command

from groupwise.cli.main import app
from groupwise.errors import ConfigError
from groupwise.evaluation.measure import evaluate
from groupwise.evaluation.test_time.methods import BudgetConfig

commands = get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("words", [["sample", "base", "\udcff?"], ["verify", "math", "--data", "\ud83d.jsonl"]])
def test_an_argument_that_is_no_text_is_named(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="is no text: its bytes are not utf-8"):
        app(words, standalone_mode=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("eval base --dtype bfloat16", "--dtype has no effect without --suite"),
        ("eval base --suite gsm8k --beta 1", "--beta has no effect without --steps"),
        ("eval base --suite gsm8k --steps a", "--steps has no effect with --suite"),
        ("eval base --steps a --temperature 0", "--temperature has no effect with --steps"),
        ("eval base --steps a --set model.device=cpu", "--set has no effect with --steps"),
        ("train compare --extend algorithms/dapo.toml", "--extend has no effect on a comparison"),
        ("train compare --ranks 2", "--ranks has no effect on a comparison"),
        ("train r1", "r1 is a pipeline: `groupwise pipeline r1` runs it"),
        ("pipeline arithmetic", "arithmetic is no pipeline: `groupwise train arithmetic` runs it"),
        ("pipeline recall --from web", "--from has no effect on a recipe of recall"),
        ("preflight arithmetic --memory --json", "--json has no effect with --memory"),
        ("preflight arithmetic --memory --problems 8", "--problems has no effect with --memory"),
        ("preflight arithmetic --ranks 4", "--ranks has no effect without --memory"),
        ("preflight arithmetic --prompt-tokens 8", "--prompt-tokens has no effect without --memory"),
        ("doctor a --environment", "RUN has no effect with --environment"),
        ("doctor --explain loops --json", "--json has no effect with --explain"),
        ("explore --export a.html --port 8000", "--port has no effect with --export"),
        ("keys --kind jsonl", "--kind has no effect without a SECTION"),
        ("verify math --data a.jsonl --json", "--json has no effect on a file of problems"),
        ("verify math x --data a.jsonl", "COMPLETION has no effect on a file of problems"),
        ("verify math --language zh --data a.jsonl", "--language has no effect on a file of problems"),
        ("audit math --cases a --reference 8", "--reference has no effect with --cases"),
        ("audit sandbox --cases a", "--cases has no effect on the sandbox"),
        ("audit math --probes a", "--probes has no effect on a verifier"),
    ],
)
def test_an_option_that_nothing_reads_is_refused(words: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        app(words.split(), standalone_mode=False)


def test_a_command_has_an_option_for_every_plain_key_of_its_section() -> None:
    options = {parameter.name: parameter for parameter in commands["budget"].params}
    fields = BudgetConfig.model_fields
    assert {name for name in fields if name not in options} == {"phrases"}  # a table
    defaults = {name: fields[name].get_default() for name in fields if name in options}
    lists = {name: ",".join(map(str, value)) for name, value in defaults.items() if isinstance(value, tuple)}
    assert {name: options[name].default for name in defaults} == defaults | lists
    assert options["width"].help == " ".join((fields["width"].description or "").split())


def test_a_command_has_an_option_for_every_argument_of_its_function() -> None:
    options = {parameter.name: parameter.default for parameter in commands["eval"].params}
    defaults = dict(evaluate.__kwdefaults__ or {})
    assert defaults.pop("changes") == ()  # --set
    assert {name: options[name] for name in defaults} == defaults
