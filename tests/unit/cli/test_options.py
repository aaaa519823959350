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
